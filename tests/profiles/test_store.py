import os
from pathlib import Path

import pytest

from roofline.errors import InputError, RooflineError
from roofline.profiles import Ceiling, Gpu, load, profile_of, save, with_measured
from roofline.profiles.store import data_dir, overlay_path, read

UUID = "GPU-5d2a2d4e-1b2c-4f6a-9a43-0f6c3a1f7a10"
COPY = {"hbm_bytes_per_s": Ceiling(4.2712345678901e12, "measured", "copy of 4 GiB, 2026-01-01")}
LAUNCH = {"launch_s": Ceiling(1.23e-06, "measured", 'empty "graph" of 100')}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_DATA_DIR", str(tmp_path / "data"))


def test_measured_ceilings_are_laid_over_the_data_sheet() -> None:
    profile = load("h200-sxm-141gb")
    assert with_measured(profile, UUID) is profile
    save(profile, UUID, COPY)
    save(profile, UUID, LAUNCH)
    merged = with_measured(profile, UUID)
    assert merged.measured == {**COPY, **LAUNCH}
    assert merged.datasheet == profile.datasheet
    assert merged.ceiling("hbm_bytes_per_s", "measured") == COPY["hbm_bytes_per_s"]
    assert merged.ceiling("hbm_bytes_per_s").value == 4.8e12  # type: ignore[union-attr]
    assert with_measured(profile, "GPU-ffff").measured == {}


def test_an_overlay_holds_no_data_sheet_value() -> None:
    path = save(load("h200-sxm-141gb"), UUID, COPY)
    text = path.read_text()
    assert UUID in text
    assert "4.8" not in text
    assert "datasheet" not in text


def test_a_gpu_without_profile_is_kept_whole() -> None:
    gpu = Gpu(0, UUID, "NVIDIA GeForce RTX 4070 Laptop GPU", 8 * 2**30, "8.9")
    profile = profile_of(gpu)
    assert (profile.id, profile.datasheet, profile.measured) == ("nvidia-geforce-rtx-4070-laptop-gpu", {}, {})
    save(profile, UUID, COPY)
    again = profile_of(gpu)
    assert (again.name, again.memory_bytes, again.compute_capability) == (gpu.name, gpu.memory_bytes, "8.9")
    assert (again.measured, again.datasheet, again.driver_names) == (COPY, {}, (gpu.name,))


def test_a_known_gpu_is_measured_under_its_profile() -> None:
    gpu = Gpu(0, UUID, "NVIDIA H200", 143771 * 2**20)
    save(profile_of(gpu), UUID, COPY)
    assert profile_of(gpu).id == "h200-sxm-141gb"
    assert profile_of(gpu).measured == COPY


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x00\xff", "not UTF-8"),
        (b"uuid = ", "expected a device profile in TOML"),
        (b"", "expected measurements of GPU-5d2a"),
        (b'uuid = "GPU-other"', "expected measurements of GPU-5d2a"),
        (f'uuid = "{UUID}"\n[datasheet]\n'.encode(), "expected measured ceilings only"),
        (f'uuid = "{UUID}"\nid = "x"\n'.encode(), "name is missing"),
    ],
)
def test_a_broken_overlay_is_one_line(content: bytes, expected: str) -> None:
    path = overlay_path(UUID)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(InputError, match=expected) as caught:
        with_measured(load("h200-sxm-141gb"), UUID)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_an_interrupted_write_leaves_the_old_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = load("h200-sxm-141gb")
    path = save(profile, UUID, COPY)
    before = path.read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(profile, UUID, LAUNCH)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("ROOFLINE_DATA_DIR", str(blocked / "below"))
    with pytest.raises(RooflineError, match="cannot write the measured ceilings") as caught:
        save(load("h200-sxm-141gb"), UUID, COPY)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "measured",
    [
        {"hbm_bytes_per_s": Ceiling(4.8e12, "datasheet", "sheet")},
        {"dram_bytes_per_s": Ceiling(4.8e12, "measured", "copy")},
        {"hbm_bytes_per_s": Ceiling(float("nan"), "measured", "copy")},
        {"hbm_bytes_per_s": Ceiling(4.8e15, "measured", "copy")},
    ],
)
def test_what_is_no_measured_ceiling_is_not_written(measured: dict[str, Ceiling]) -> None:
    with pytest.raises(InputError):
        save(load("h200-sxm-141gb"), UUID, measured)
    assert read(UUID) is None


@pytest.mark.parametrize("uuid", ["", "GPU-../../x", "../GPU-1", "GPU-", "GPU-1\n", "0"])
def test_a_file_is_named_by_a_uuid_only(uuid: str) -> None:
    with pytest.raises(InputError, match=r"^--gpu: .* is no GPU UUID"):
        overlay_path(uuid)


def test_old_names_of_slices_stay_in_one_folder() -> None:
    assert overlay_path("MIG-GPU-1/2/0").name == "MIG-GPU-1_2_0.toml"


def test_the_folder_is_the_users_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_dir() == tmp_path / "data"
    monkeypatch.setenv("ROOFLINE_DATA_DIR", "")
    assert data_dir().name == "roofline"
