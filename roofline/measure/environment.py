"""The machine a run was made on, from NVML and package metadata: no CUDA context, no import of torch."""

import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roofline import __version__
from roofline.measure.clocks import reason_names
from roofline.profiles.local import Gpu

PACKAGES = ("torch", "triton", "nvidia-ml-py", "fa3-fwd", "flashinfer-python", "sgl-flash-mla", "fla-core")
BUSY_UTILISATION = 0.05  # of a GPU that should be idle before we start


@dataclass(frozen=True, slots=True)
class GpuState:
    """What NVML says of one GPU; ``None`` where it does not. Clocks in Hz, power in W, sizes in bytes, ratios 0-1."""

    driver: str | None = None
    cuda_driver: str | None = None
    sm_clock_hz: float | None = None
    sm_clock_max_hz: float | None = None
    memory_clock_hz: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    ecc: bool | None = None
    mig: bool | None = None
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    other_processes: tuple[int, ...] | None = None  # process ids that compute on the GPU

    @property
    def disturbances(self) -> tuple[str, ...]:
        """Signs that someone else is using the GPU, in words."""
        found = []
        if self.other_processes:
            ids = ", ".join(map(str, self.other_processes[:5]))
            found.append(f"{len(self.other_processes)} other process(es) compute on this GPU (pid {ids})")
        if self.utilisation is not None and self.utilisation > BUSY_UTILISATION:
            found.append(f"the GPU was {self.utilisation:.0%} busy before the run")
        return tuple(found)


def gpu_state(uuid: str, ours: frozenset[int] = frozenset(), nvml: Any = None) -> GpuState:
    """Return the state of the GPU ``uuid``. ``ours``: processes that are not others. ``nvml`` stands in for ``pynvml``."""
    try:
        if nvml is None:
            nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:  # no library, no driver: nothing is known, and that is not why a run should fail
        return GpuState()

    def ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception:  # each question has its own reasons to be refused (MIG, vGPU, GeForce)
            return None

    def clock(kind: int, most: bool = False) -> float | None:
        value = ask(lambda: (nvml.nvmlDeviceGetMaxClockInfo if most else nvml.nvmlDeviceGetClockInfo)(handle, kind))
        return value * 1e6 if value else None

    cuda = ask(nvml.nvmlSystemGetCudaDriverVersion_v2)
    limit = ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    use = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    processes = ask(lambda: [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)])
    return GpuState(
        driver=_text(ask(nvml.nvmlSystemGetDriverVersion)),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        sm_clock_hz=clock(nvml.NVML_CLOCK_SM),
        sm_clock_max_hz=clock(nvml.NVML_CLOCK_SM, most=True),
        memory_clock_hz=clock(nvml.NVML_CLOCK_MEM),
        power_limit_w=limit / 1e3 if limit else None,
        temperature_c=ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        throttle_reasons=reason_names(ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0),
        ecc=_flag(ask(lambda: nvml.nvmlDeviceGetEccMode(handle)[0])),
        mig=_flag(ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])),
        utilisation=None if use is None else use / 100,
        memory_used_bytes=ask(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used)),
        other_processes=None if processes is None else tuple(pid for pid in processes if pid not in ours),
    )


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that matter to a measurement, those that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe(gpu: Gpu, state: GpuState) -> dict[str, Any]:
    """Return the environment of a run as its header holds it."""
    return {
        "roofline": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": package_versions(),
        "gpu": asdict(gpu),
        "gpu_state": asdict(state),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "python_implementation": sys.implementation.name,
    }


def worker_environment(gpu: Gpu) -> dict[str, str]:
    """Return the variables that make a worker see ``gpu`` alone, as device 0, and find this package from any folder."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {"CUDA_VISIBLE_DEVICES": gpu.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONPATH": path}


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
