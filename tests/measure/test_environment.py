from types import SimpleNamespace
from typing import Any

import pytest

from roofline.measure import environment
from roofline.measure.clocks import REASONS, NvmlClocks
from tests.measure.conftest import H200


class FakeNvml:
    """The part of pynvml that is asked, with answers; what is in ``refused`` raises."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        """A question that this GPU does not answer."""

    def __init__(self, *refused: str, **changed: Any) -> None:
        self.refused = refused
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlSystemGetDriverVersion": "580.159.04",
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            "nvmlDeviceGetClockInfo": 345,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetEnforcedPowerLimit": 700000,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0),
            "nvmlDeviceGetComputeRunningProcesses": [],
            "nvmlDeviceGetTemperature": 31,
            "nvmlDeviceGetCurrentClocksThrottleReasons": REASONS["gpu idle"],
            "nvmlDeviceGetEccMode": (1, 1),
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=10**9),
            "nvmlDeviceGetPowerUsage": 120000,
            "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=98765))],
            **changed,
        }

    def __getattr__(self, name: str) -> Any:
        if name in self.refused:
            raise self.NVMLError(name)
        return lambda *_: self.answers[name]


def test_everything_is_in_base_units() -> None:
    state = environment.gpu_state(H200.uuid, nvml=FakeNvml())
    assert (state.driver, state.cuda_driver) == ("580.159.04", "13.0")
    assert (state.sm_clock_hz, state.sm_clock_max_hz, state.power_limit_w) == (345e6, 1980e6, 700.0)
    assert (state.ecc, state.mig, state.utilisation, state.memory_used_bytes) == (True, False, 0.0, 10**9)
    assert state.disturbances == ()


def test_somebody_else_is_noticed() -> None:
    others = [SimpleNamespace(pid=11), SimpleNamespace(pid=12)]
    nvml = FakeNvml(nvmlDeviceGetComputeRunningProcesses=others, nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=40))
    assert environment.gpu_state(H200.uuid, nvml=nvml).disturbances == (
        "2 other process(es) compute on this GPU (pid 11, 12)",
        "the GPU was 40% busy before the run",
    )
    assert environment.gpu_state(H200.uuid, frozenset({11, 12}), nvml).other_processes == ()


def test_what_is_refused_is_unknown() -> None:
    nvml = FakeNvml("nvmlDeviceGetEccMode", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetClockInfo")
    state = environment.gpu_state(H200.uuid, nvml=nvml)
    assert (state.ecc, state.other_processes, state.sm_clock_hz) == (None, None, None)
    assert state.power_limit_w == 700.0


def test_without_nvml_nothing_is_known_and_nothing_breaks() -> None:
    assert environment.gpu_state(H200.uuid, nvml=FakeNvml("nvmlInit")) == environment.GpuState()


def test_a_worker_sees_the_chosen_gpu_alone() -> None:
    assert environment.worker_environment(H200)["CUDA_VISIBLE_DEVICES"] == H200.uuid


@pytest.mark.parametrize(
    ("refused", "power_w"),
    [((), 98.765), (("nvmlDeviceGetFieldValues",), 120.0), (("nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage"), None)],
)
def test_power_now_is_preferred_to_its_mean(monkeypatch: pytest.MonkeyPatch, refused: tuple[str, ...], power_w: float) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", FakeNvml(*refused))
    reading = NvmlClocks(H200.uuid).read()
    assert (reading.clock_hz, reading.power_w, reading.spoils) == (345e6, power_w, False)
