"""What only a GPU can show: injected faults, and calibrations that agree. ``make gpu``."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofline.configurations import Request
from roofline.measure.calibrate import Calibration, calibrate
from roofline.measure.options import Options
from roofline.measure.session import measure
from roofline.profiles.local import gpus
from roofline.records import read

pytestmark = pytest.mark.gpu
REQUEST = Request(n=1024, kv_heads=8, variants=("flash",), phase="prefill")
AGREE = {"hbm_bytes_per_s": 0.01, "l2_bytes_per_s": 0.01, "launch_s": 0.01, "bf16_flop_per_s": 0.03, "fp16_flop_per_s": 0.03}


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not gpus():
        pytest.skip("no GPU")
    monkeypatch.setenv("ROOFLINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_each_injected_fault_costs_one_record() -> None:
    faults = ("fault/illegal-address", "fault/endless", "fault/wrong", "fault/out-of-memory")
    options = Options(request=REQUEST, implementations=faults, counters="off", calibrate=False, timeout_s=10)
    result = measure(replace(options, output=Path("faults.jsonl")))
    by_name = {(one.configuration, one.implementation): one for one in read(result.path).records}
    for configuration in {one.configuration for one in result.records}:
        status = {name: by_name[configuration, name].status for name in ("roofline/flash", *faults)}
        assert status == {
            "roofline/flash": "ok",
            "fault/illegal-address": "failed",
            "fault/endless": "failed",
            "fault/wrong": "wrong",
            "fault/out-of-memory": "failed",
        }
        assert "illegal" in by_name[configuration, "fault/illegal-address"].reason
        assert "no answer for 10 s" in by_name[configuration, "fault/endless"].reason
        assert "out of GPU memory" in by_name[configuration, "fault/out-of-memory"].reason


def test_two_calibrations_agree() -> None:
    first, second = (_ceilings(calibrate()) for _ in range(2))
    differences = {key: abs(second[key] / first[key] - 1) for key in AGREE}
    assert all(differences[key] <= AGREE[key] for key in AGREE), differences


def _ceilings(calibration: Calibration) -> dict[str, float]:
    return {key: ceiling.value for key, ceiling in calibration.profile.measured.items()}
