import pytest

from roofline.measure import counters, doctor, environment
from roofline.profiles.local import Gpu
from tests.measure.test_supervisor import FAKE_WORKER


def found(worker: tuple[str, ...] = FAKE_WORKER) -> dict[str, doctor.Finding]:
    return {finding.name: finding for finding in doctor.doctor(worker=worker)}


def test_without_a_gpu_it_says_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gpus", lambda: ())
    finding = found()["GPU"]
    assert finding.state == "missing"
    assert "analyze" in finding.advice


def test_a_good_machine(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "find_ncu", lambda: "/opt/ncu")
    monkeypatch.setattr(doctor, "counter_permission", lambda: (True, "this process is privileged"))
    findings = found()
    assert {name: finding.state for name, finding in findings.items() if finding.state != "ok"} == {"calibration": "note"}
    assert findings["profile"].found == "h200-sxm-141gb"
    assert findings["measuring"].found == "torch 2.11.0 and triton 3.6.0 reach the GPU"


def test_what_does_not_work_comes_with_advice(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    state = environment.GpuState(mig=True, throttle_reasons=("power cap",), other_processes=(7,), driver="580")
    monkeypatch.setattr(environment, "gpu_state", lambda uuid: state)
    monkeypatch.setattr(counters, "find_ncu", lambda: "/opt/ncu")
    monkeypatch.setattr(doctor, "counter_permission", lambda: (False, "the driver lets only administrators read them"))
    findings = found((*FAKE_WORKER, "missing"))
    assert findings["measuring"].state == "missing"
    assert "torch sees no CUDA device" in findings["measuring"].found
    assert "NVreg_RestrictProfilingToAdminUsers=0" in findings["counters"].advice
    for name in ("MIG", "clocks", "other work"):
        assert findings[name].state == "note"
    assert all(finding.advice for finding in findings.values() if finding.state == "missing")


@pytest.mark.parametrize(
    ("is_root", "capabilities", "parameters", "allowed"),
    [
        (False, 0, "RmProfilingAdminOnly: 1", False),
        (False, 0, "RmProfilingAdminOnly: 0", True),
        (False, 1 << 21, "RmProfilingAdminOnly: 1", True),
        (False, 1 << 38, "RmProfilingAdminOnly: 1", True),
        (True, 0, "RmProfilingAdminOnly: 1", False),  # root of a container without capabilities
        (True, 0, "", None),
        (False, 0, "", False),
    ],
)
def test_permission_for_counters(is_root: bool, capabilities: int, parameters: str, allowed: bool | None) -> None:
    status = f"Name:\tpython\nCapEff:\t{capabilities:016x}\n"
    assert doctor.counter_permission(is_root, status, parameters)[0] is allowed
