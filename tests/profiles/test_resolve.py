from pathlib import Path

import pytest

from roofline.errors import InputError, MissingError
from roofline.profiles import DEFAULT_DEVICE, Ceiling, Gpu, load, profile_of, resolve, save
from roofline.profiles.store import overlay_path

H200 = Gpu(0, "GPU-1111", "NVIDIA H200", 143771 * 2**20, "9.0")
L4 = Gpu(1, "GPU-2222", "NVIDIA L4", 23034 * 2**20, "8.9")
UNKNOWN = Gpu(0, "GPU-3333", "NVIDIA GeForce RTX 4090 Laptop GPU", 16 * 2**30, "8.9")
MEASURED = {"hbm_bytes_per_s": Ceiling(4.3e12, "measured", "copy")}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_DATA_DIR", str(tmp_path / "data"))


def test_without_a_gpu_auto_is_the_default_and_says_so() -> None:
    profile, note = resolve("auto", present=())
    assert profile.id == DEFAULT_DEVICE == "h100-sxm5-80gb"
    assert note == "no GPU here: predicting for h100-sxm5-80gb; --device picks another"


def test_without_a_gpu_asking_for_one_is_exit_code_3() -> None:
    with pytest.raises(MissingError, match=r"^--gpu 0: no NVIDIA GPU"):
        resolve("auto", "0", present=())


def test_auto_is_the_local_gpu_with_what_was_measured_on_it() -> None:
    assert resolve(present=(H200,)) == (load("h200-sxm-141gb"), None)
    save(profile_of(H200), H200.uuid, MEASURED)
    profile, note = resolve(" AUTO ", present=(H200,))
    assert (profile.id, profile.measured, note) == ("h200-sxm-141gb", MEASURED, None)


def test_of_several_gpus_the_first_is_taken_and_said() -> None:
    profile, note = resolve(present=(H200, L4))
    assert profile.id == "h200-sxm-141gb"
    assert note == "GPU 0 of 2 (NVIDIA H200 140 GiB); --gpu picks another"


@pytest.mark.parametrize("gpu", ["1", "GPU-2"])
def test_a_gpu_is_picked_without_a_note(gpu: str) -> None:
    profile, note = resolve(gpu=gpu, present=(H200, L4))
    assert (profile.id, note) == ("l4", None)


def test_a_gpu_without_profile_is_named_and_the_default_taken() -> None:
    profile, note = resolve(present=(UNKNOWN,))
    assert profile.id == DEFAULT_DEVICE
    assert note is not None
    assert "no profile for the GPU 'NVIDIA GeForce RTX 4090 Laptop GPU'" in note
    assert "predicting for h100-sxm5-80gb; `roofline calibrate` measures this one" in note


def test_a_calibrated_gpu_without_profile_is_used_under_its_measured_roof() -> None:
    save(profile_of(UNKNOWN), UNKNOWN.uuid, MEASURED)
    profile, note = resolve(present=(UNKNOWN,))
    assert profile.id == DEFAULT_DEVICE
    assert profile.measured == {}
    assert "--roof measured" in (note or "")
    profile, note = resolve(present=(UNKNOWN,), roof="measured")
    assert (profile.name, profile.measured, profile.datasheet) == (UNKNOWN.name, MEASURED, {})
    assert "using what was measured" in (note or "")


def test_a_named_device_ignores_the_local_gpu() -> None:
    save(profile_of(H200), H200.uuid, MEASURED)
    assert resolve("h200-sxm-141gb", present=(H200,)) == (load("h200-sxm-141gb"), None)
    assert resolve("L4", present=(H200,)) == (load("l4"), None)


def test_a_named_device_takes_measurements_from_a_gpu_of_its_kind_only() -> None:
    save(profile_of(H200), H200.uuid, MEASURED)
    assert resolve("h200-sxm-141gb", "0", present=(H200,))[0].measured == MEASURED
    profile, note = resolve("l4", "0", present=(H200,))
    assert profile == load("l4")
    assert note == "GPU 0 is NVIDIA H200 140 GiB, not L4: nothing measured on it is used"
    assert resolve("l4", "0", present=()) == (load("l4"), "no GPU here: --gpu 0 is ignored for --device l4")


def test_a_path_is_a_device(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((Path(load.__code__.co_filename).parent / "data" / "l4.toml").read_text().replace('"l4"', '"mine"'))
    assert resolve(str(path), present=())[0].id == "mine"


def test_a_broken_overlay_is_an_error_not_an_unknown_gpu() -> None:
    path = overlay_path(H200.uuid)
    path.parent.mkdir(parents=True)
    path.write_text("nonsense")
    with pytest.raises(InputError, match=r"GPU-1111\.toml: expected"):
        resolve(present=(H200,))


def test_an_unknown_device_is_exit_code_2() -> None:
    with pytest.raises(InputError, match=r"^--device: unknown device 'h101'"):
        resolve("h101", present=())
