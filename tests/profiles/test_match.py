import subprocess
import sys

import pytest

from roofline.errors import InputError
from roofline.profiles import load, match, names

MIB = 2**20


@pytest.mark.parametrize(
    ("name", "memory_mib", "expected"),
    [
        ("NVIDIA H200", 143771, "h200-sxm-141gb"),
        ("NVIDIA H200 NVL", 143771, "h200-nvl-141gb"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", 81559, "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", 95830, "h100-nvl-94gb"),
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-sxm4-80gb"),
        ("NVIDIA A100 80GB PCIe", 81920, "a100-pcie-80gb"),
        ("NVIDIA A100-PCIE-40GB", 40960, "a100-pcie-40gb"),
        ("NVIDIA L4", 23034, "l4"),
        ("NVIDIA L40", 46068, "l40"),
        ("NVIDIA L40S", 46068, "l40s"),
        ("NVIDIA L40S", 49140, "l40s"),
        ("NVIDIA A10", 23028, "a10"),
        ("NVIDIA A10", 24564, "a10"),
        ("Tesla T4", 15360, "t4"),
        ("Tesla V100-SXM2-16GB", 16160, "v100-sxm2-16gb"),
        ("Tesla V100-SXM2-32GB", 32510, "v100-sxm2-32gb"),
        ("NVIDIA H800", 81559, "h800-sxm-80gb"),
        ("NVIDIA H20", 97871, "h20-96gb"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96gb"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887, "rtx-pro-6000-bw-maxq"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, "rtx-pro-6000-bw-ws"),
        ("NVIDIA B300 SXM6 AC", 275040, "b300-sxm"),
        ("NVIDIA GB300", 284208, "gb300-279gb"),
    ],
)
def test_a_driver_name_is_one_device(name: str, memory_mib: int, expected: str) -> None:
    assert match(name, memory_mib * MIB).id == expected
    assert match(name).id == expected


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA L40G",
        "NVIDIA L",
        "nvidia l4",
        "NVIDIA A10G",
        "NVIDIA H800 PCIe",
        "NVIDIA H20-3e",
        "NVIDIA H100",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA A800-SXM4-80GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA RTX PRO 6000D Blackwell Workstation Edition",
        "",
    ],
)
def test_a_name_that_only_resembles_one_is_no_match(name: str) -> None:
    with pytest.raises(InputError, match=r"^no profile for the GPU"):
        match(name)


def test_a_part_of_another_size_is_no_match() -> None:
    with pytest.raises(
        InputError, match=r"^no profile for the GPU 'NVIDIA GeForce RTX 4090' with 48.0 GiB; that name is rtx-4090 "
    ):
        match("NVIDIA GeForce RTX 4090", 48 * 2**30)


@pytest.mark.parametrize("name", names())
def test_every_id_and_name_is_found_in_any_case(name: str) -> None:
    profile = load(name)
    assert load(name.upper()) == profile
    assert load(profile.name.lower()) == profile
    assert load(f"  {profile.name} ") == profile
    assert all(load(driver_name.upper()) == profile for driver_name in profile.driver_names)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("h100", "h100-nvl-94gb, h100-pcie-80gb, h100-sxm5-80gb"),
        ("a100 80gb", "a100-pcie-80gb, a100-sxm4-80gb"),
        ("rtx4090", "rtx-4090"),
        ("H800", "h800-sxm-80gb"),
        ("h100-sxm-80g", "h100-sxm5-80gb"),
    ],
)
def test_an_unknown_device_is_answered_with_near_names(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"^--device: unknown device '{name}'; near names: {near}") as caught:
        load(name)
    assert caught.value.exit_code == 2


def test_a_device_like_no_other_is_answered_with_where_to_look() -> None:
    for name in ("qqqqqq", "", "?"):
        with pytest.raises(InputError, match="expected a device listed by `roofline devices`"):
            load(name)


def test_importing_and_loading_load_nothing_heavy() -> None:
    code = (
        "import sys, tomllib, roofline.profiles as p\n"
        "parsed = []; loads = tomllib.loads; tomllib.loads = lambda text: parsed.append(text) or loads(text)\n"
        "p.load('l40s')\n"
        "assert len(parsed) == 1, len(parsed)\n"
        "heavy = {'pynvml', 'platformdirs', 'tomli_w', 'pandas', 'torch', 'pydantic', 'typer', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
