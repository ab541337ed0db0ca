"""The shipped profiles: each is sound by arithmetic, and none repeats a mistake of the public tables."""

import re

import pytest

from roofline import profiles
from roofline.profiles import load, names
from roofline.profiles.load import DATA, headers, load_file
from roofline.profiles.profile import MATRIX_DTYPES, Profile

ALL = {name: load(name) for name in names()}

# Clocks behind a peak are rounded, and a few are implied; sparsity would be a factor of 2 (4/3 in one case).
TOLERANCE = 0.06


def rate(name: str, key: str) -> float:
    ceiling = ALL[name].datasheet[key]
    return ceiling.value


def matrix_rate(profile: Profile, dtype: str) -> float:
    return profile.datasheet[f"{dtype}_op_per_s" if dtype == "int8" else f"{dtype}_flop_per_s"].value


def clocks(profile: Profile) -> list[float]:
    return [clock for clock in (profile.boost_clock_hz, profile.tensor_clock_hz) if clock is not None]


def test_every_device_of_the_survey_with_a_dense_peak_is_here() -> None:
    assert len(ALL) == 44
    assert profiles.DEFAULT_DEVICE in ALL


@pytest.mark.parametrize("name", ALL)
def test_file_name_id_and_top_level_agree(name: str) -> None:
    header = next(header for header in headers() if header.id == name)
    profile = load_file(DATA / f"{name}.toml")
    assert (profile.id, profile.name, profile.driver_names) == (name, header.name, header.driver_names)
    assert profile.measured == {}


@pytest.mark.parametrize("profile", ALL.values(), ids=ALL)
def test_every_value_says_where_it_is_from(profile: Profile) -> None:
    assert all(len(ceiling.source) > 8 for ceiling in profile.datasheet.values())
    assert all(len(source) > 8 for source in profile.sources.values())
    # A derived value shows its arithmetic or says what it is derived from.
    derived = [ceiling.source for ceiling in profile.datasheet.values() if ceiling.kind == "derived"]
    assert all(re.search(r" x |half of|/ 8|rate", source) for source in derived)


@pytest.mark.parametrize("profile", ALL.values(), ids=ALL)
def test_peaks_are_sms_times_operations_times_clock(profile: Profile) -> None:
    for dtype, ops in profile.tensor_ops_per_clk_per_sm.items():
        peak = matrix_rate(profile, dtype)
        assert profile.sm_count is not None
        candidates = [profile.sm_count * ops * clock for clock in clocks(profile)]
        if not candidates:
            continue
        assert peak <= max(candidates) * (1 + TOLERANCE)
        assert any(peak == pytest.approx(candidate, rel=TOLERANCE) for candidate in candidates)


@pytest.mark.parametrize("profile", ALL.values(), ids=ALL)
def test_operations_per_clock_are_given_for_rates_that_exist_only(profile: Profile) -> None:
    for dtype in profile.tensor_ops_per_clk_per_sm:
        assert dtype in MATRIX_DTYPES
        assert matrix_rate(profile, dtype) > 0


# Dense, fp32-accumulate operations per clock and SM of each die: (bf16 or fp16, fp8).
DIES = {
    "Volta GV100": (1024, None),
    "Turing TU104": (1024, None),
    "Ampere GA100": (2048, None),
    "Hopper GH100": (4096, 8192),
    "Blackwell": (8192, 16384),
    "Blackwell Ultra": (8192, 16384),
    "CDNA2": (1024, None),
    "CDNA3": (2048, 4096),
    "CDNA4": (4096, 8192),
}


@pytest.mark.parametrize("profile", [p for p in ALL.values() if p.architecture in DIES], ids=lambda p: p.id)
def test_no_sparse_rate_is_explained_by_a_doubled_integer(profile: Profile) -> None:
    half, quarter = DIES[profile.architecture]
    ops = profile.tensor_ops_per_clk_per_sm
    if ops:  # H20 is capped and has no integer
        assert ops["fp16"] == half
        assert ops.get("fp8") == quarter


def test_geforce_halves_with_fp32_accumulate_and_professional_cards_do_not() -> None:
    for name in ("rtx-3090", "rtx-4090", "rtx-5090"):
        assert ALL[name].tensor_ops_per_clk_per_sm["bf16"] == 512
    for name in ("rtx-a6000", "rtx-6000-ada", "l40s", "l4", "a10", "rtx-pro-6000-bw-ws"):
        assert ALL[name].tensor_ops_per_clk_per_sm["bf16"] == 1024


@pytest.mark.parametrize("profile", [p for p in ALL.values() if p.vendor == "NVIDIA"], ids=lambda p: p.id)
def test_exponentials_and_shared_memory_follow_from_the_clock(profile: Profile) -> None:
    clock = profile.tensor_clock_hz or profile.boost_clock_hz
    if clock is None:
        assert profile.id == "rtx-pro-6000-bw-maxq"
        return
    assert profile.sm_count is not None
    per_clock = 32 if profile.compute_capability == "10.3" else 16
    assert rate(profile.id, "exp_per_s") == pytest.approx(profile.sm_count * per_clock * clock, rel=1e-5)
    assert rate(profile.id, "shared_memory_bytes_per_s") == pytest.approx(profile.sm_count * 128 * clock, rel=1e-5)


@pytest.mark.parametrize("profile", [p for p in ALL.values() if "fp32_flop_per_s" in p.datasheet], ids=lambda p: p.id)
def test_vector_operations_are_half_of_fp32(profile: Profile) -> None:
    assert profile.datasheet["vector_op_per_s"].value * 2 == pytest.approx(profile.datasheet["fp32_flop_per_s"].value)


@pytest.mark.parametrize("profile", [p for p in ALL.values() if p.vendor == "NVIDIA"], ids=lambda p: p.id)
def test_shared_memory_is_that_of_the_compute_capability(profile: Profile) -> None:
    kib = {
        "7.0": (96, 96), "7.5": (64, 64), "8.0": (164, 163), "8.6": (100, 99), "8.9": (100, 99),
        "9.0": (228, 227), "10.0": (228, 227), "10.3": (228, 227), "12.0": (100, 99),
    }[profile.compute_capability]  # fmt: skip
    assert (profile.shared_memory_per_sm_bytes, profile.shared_memory_per_block_bytes) == (kib[0] * 1024, kib[1] * 1024)


def test_driver_names_belong_to_one_device() -> None:
    seen = [name for profile in ALL.values() for name in profile.driver_names]
    assert len(seen) == len(set(seen))
    assert all(profile.driver_names for profile in ALL.values() if profile.vendor == "NVIDIA")


def test_the_ridge_of_an_a100_40gb() -> None:
    ridge = rate("a100-sxm4-40gb", "bf16_flop_per_s") / rate("a100-sxm4-40gb", "hbm_bytes_per_s")
    assert ridge == pytest.approx(200.6, abs=0.05)
    assert rate("a100-sxm4-40gb", "shared_memory_bytes_per_s") / 1e12 == pytest.approx(19.5, abs=0.01)


def test_the_exponentials_of_an_h100_are_those_flash_attention_3_prints() -> None:
    assert rate("h100-sxm5-80gb", "exp_per_s") / 1e12 == pytest.approx(3.9, abs=0.04)


# What is right, against the figure that public tables carry for the same cell.
TRAPS = [
    ("h100-sxm5-80gb", "bf16_flop_per_s", 989.4e12, 1979e12),
    ("h100-sxm5-80gb", "fp8_flop_per_s", 1978.9e12, 3958e12),
    ("h100-sxm5-80gb", "tf32_flop_per_s", 494.7e12, 156e12),
    ("h100-sxm5-80gb", "hbm_bytes_per_s", 3.35e12, 2.0e12),
    ("h100-pcie-80gb", "bf16_flop_per_s", 756e12, 1513e12),
    ("h100-pcie-80gb", "fp8_flop_per_s", 1513e12, 3026e12),
    ("h100-pcie-80gb", "hbm_bytes_per_s", 2.0e12, 3.35e12),
    ("h100-nvl-94gb", "bf16_flop_per_s", 835.5e12, 1979e12),
    ("h100-nvl-94gb", "hbm_bytes_per_s", 3.9e12, 3.35e12),
    ("h200-sxm-141gb", "bf16_flop_per_s", 989.5e12, 1979e12),
    ("h200-sxm-141gb", "hbm_bytes_per_s", 4.8e12, 3.35e12),
    ("gh200-96gb", "bf16_flop_per_s", 990e12, 1979e12),
    ("h800-sxm-80gb", "bf16_flop_per_s", 989e12, 756e12),
    ("a100-sxm4-80gb", "bf16_flop_per_s", 312e12, 156e12),
    ("a100-sxm4-80gb", "hbm_bytes_per_s", 2.039e12, 1.555e12),
    ("a100-pcie-80gb", "hbm_bytes_per_s", 1.935e12, 2.039e12),
    ("l4", "bf16_flop_per_s", 121e12, 242e12),
    ("l4", "int8_op_per_s", 242.5e12, 485e12),
    ("l4", "hbm_bytes_per_s", 300e9, 3350e9),
    ("l40s", "bf16_flop_per_s", 362.05e12, 733e12),
    ("rtx-a6000", "bf16_flop_per_s", 154.8e12, 309.7e12),
    ("rtx-a6000", "fp32_flop_per_s", 38.7e12, 19.35e12),
    ("rtx-4090", "bf16_flop_per_s", 165.2e12, 330.3e12),
    ("rtx-4090", "fp8_flop_per_s", 330.3e12, 660.6e12),
    ("rtx-4090", "int8_op_per_s", 660.6e12, 330e12),
    ("rtx-3090", "bf16_flop_per_s", 71.2e12, 35.6e12),
    ("rtx-5090", "bf16_flop_per_s", 209.5e12, 419e12),
    ("rtx-pro-6000-bw-server", "hbm_bytes_per_s", 1.597e12, 1.792e12),
    ("t4", "hbm_bytes_per_s", 320e9, 300e9),
    ("b200-sxm-180gb", "bf16_flop_per_s", 2250e12, 4500e12),
    ("b200-sxm-180gb", "hbm_bytes_per_s", 7.7e12, 8.0e12),
    ("gb200-186gb", "bf16_flop_per_s", 2500e12, 4500e12),
    ("b300-sxm", "int8_op_per_s", 153.5e12, 4500e12),
    ("b300-sxm", "fp4_flop_per_s", 13500e12, 12600e12),
    ("gb300-279gb", "fp4_flop_per_s", 15000e12, 10000e12),
    ("gb300-279gb", "int8_op_per_s", 165e12, 5000e12),
    ("mi300x", "bf16_flop_per_s", 1307.4e12, 2614.9e12),
    ("mi300x", "hbm_bytes_per_s", 5.3e12, 6.81e12),
    ("mi325x", "hbm_bytes_per_s", 6.0e12, 10.3e12),
    ("mi250x", "bf16_flop_per_s", 191.5e12, 383e12),
    ("mi250x", "int8_op_per_s", 191.5e12, 766e12),
    ("mi355x", "fp8_flop_per_s", 5033.2e12, 10100e12),
    ("rx-7900-xtx", "int8_op_per_s", 122.8e12, 245.6e12),
]


@pytest.mark.parametrize(
    ("name", "key", "right", "wrong"), TRAPS, ids=lambda value: str(value) if isinstance(value, str) else ""
)
def test_known_mistakes_are_not_repeated(name: str, key: str, right: float, wrong: float) -> None:
    assert rate(name, key) == pytest.approx(right, rel=1e-3)
    assert rate(name, key) != pytest.approx(wrong, rel=0.02)


def test_sizes_that_public_tables_have_wrong() -> None:
    assert ALL["h200-sxm-141gb"].l2_bytes == 60 * 2**20
    assert ALL["a100-pcie-80gb"].l2_bytes == 40 * 2**20
    assert ALL["b300-sxm"].sm_count == 148
    assert ALL["l4"].sm_count == 58
    assert ALL["mi300x"].l2_bytes == 32 * 2**20
    assert ALL["mi250x"].sm_count == 110


def test_what_is_unknown_or_doubtful_is_absent() -> None:
    for name in (
        "l40",
        "b300-sxm",
        "h100-nvl-94gb",
        "h200-nvl-141gb",
        "h800-sxm-80gb",
        "gh200-144gb",
        "v100s-pcie-32gb",
        "max-1550",
    ):
        assert ALL[name].l2_bytes is None
    assert "fp32_flop_per_s" not in ALL["h20-96gb"].datasheet
    assert "tf32_flop_per_s" not in ALL["rtx-6000-ada"].datasheet
    assert "int8_op_per_s" not in ALL["rtx-pro-6000-bw-server"].datasheet
    assert "fp4_flop_per_s" not in ALL["mi350x"].datasheet
    assert "h800-pcie-80gb" not in ALL
    assert "jetson-agx-orin-64gb" not in ALL


@pytest.mark.parametrize("name", ["v100-sxm2-16gb", "v100-pcie-32gb", "t4"])
def test_old_tensor_cores_have_no_bf16(name: str) -> None:
    assert not ALL[name].supports_dtype("bf16")
    assert not ALL[name].supports_dtype("tf32")
    assert ALL[name].supports_dtype("fp16")
