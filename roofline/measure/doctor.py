"""``doctor``: what is here, what works, and what to do about what does not. Looks, and changes nothing."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roofline.errors import RooflineError
from roofline.measure import counters, environment
from roofline.measure.options import WORKER
from roofline.measure.supervisor import Supervisor
from roofline.profiles.local import Gpu, choose, describe, gpus
from roofline.profiles.match import match
from roofline.profiles.store import read
from roofline.units import format_si

State = Literal["ok", "note", "missing"]

CAP_SYS_ADMIN, CAP_PERFMON = 21, 38  # bits of CapEff in /proc/self/status
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what was found, and what to do about it."""

    name: str
    state: State
    found: str
    advice: str = ""


def doctor(gpu: str | None = None, worker: Sequence[str] = WORKER) -> list[Finding]:
    """Return what is here and what works. Never fails: a thing that is missing is a finding."""
    present = gpus()
    versions = environment.package_versions()
    findings = [Finding("python", "ok", sys.version.split()[0]), *_packages(versions)]
    if not present:
        findings.append(
            Finding(
                "GPU", "missing", "no NVIDIA GPU with a driver", "analyze, explain, sweep, devices, report and compare work"
            )
        )
        return findings
    chosen = choose(gpu, present)
    state = environment.gpu_state(chosen.uuid)
    findings += [_gpu(chosen, len(present)), _driver(state), _profile(chosen), _calibration(chosen)]
    findings += _settings(state)
    findings.append(_torch(chosen, worker) if {"torch", "triton"} <= versions.keys() else _no_torch())
    findings.append(_counters())
    return findings


def counter_permission(
    is_root: bool | None = None, status: str | None = None, parameters: str | None = None
) -> tuple[bool | None, str]:
    """Return whether this process may read counters, as far as it can be told without trying, and how that is known.

    ``status`` stands in for /proc/self/status and ``parameters`` for the parameters of the driver.
    """
    is_root = os.geteuid() == 0 if is_root is None else is_root
    status = _text(Path("/proc/self/status")) if status is None else status
    parameters = _text(DRIVER_PARAMETERS) if parameters is None else parameters
    capabilities = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    if "RmProfilingAdminOnly: 0" in parameters:
        return True, "the driver lets everybody read them"
    if capabilities >> CAP_SYS_ADMIN & 1 or capabilities >> CAP_PERFMON & 1:
        return True, "this process is privileged"
    if "RmProfilingAdminOnly: 1" in parameters:
        return False, "the driver lets only administrators read them"
    return (None if is_root else False), "the driver does not say; most let only administrators read them"


def _packages(versions: dict[str, str]) -> list[Finding]:
    findings = [Finding(name, "ok", version) for name, version in versions.items()]
    absent = [name for name in ("nvidia-ml-py",) if name not in versions]
    return findings + [Finding(name, "missing", "not installed", f"pip install {name}") for name in absent]


def _no_torch() -> Finding:
    return Finding("measuring", "missing", "torch and triton are not both installed", "pip install 'roofline[gpu]'")


def _gpu(gpu: Gpu, count: int) -> Finding:
    others = f"; {count} are visible, --gpu picks one" if count > 1 else ""
    return Finding("GPU", "ok", f"{describe(gpu)}, compute capability {gpu.compute_capability}, {gpu.uuid}{others}")


def _driver(state: environment.GpuState) -> Finding:
    return Finding("driver", "ok" if state.driver else "note", f"{state.driver}, CUDA {state.cuda_driver}")


def _profile(gpu: Gpu) -> Finding:
    try:
        return Finding("profile", "ok", match(gpu.name, gpu.memory_bytes).id)
    except RooflineError as error:
        return Finding("profile", "note", str(error), "`roofline calibrate` makes a measured-only profile")


def _calibration(gpu: Gpu) -> Finding:
    try:
        overlay = read(gpu.uuid)
    except RooflineError as error:
        return Finding("calibration", "note", str(error))
    if overlay is None:
        return Finding(
            "calibration", "note", "not calibrated", "`roofline calibrate`, or let the first `roofline measure` do it"
        )
    rate = overlay.measured.get("hbm_bytes_per_s")
    shown = f", HBM read {format_si(rate.value, 'B/s')}" if rate else ""
    return Finding("calibration", "ok", f"{len(overlay.measured)} measured ceilings{shown}")


def _settings(state: environment.GpuState) -> list[Finding]:
    clock = (
        f"SM {_hertz(state.sm_clock_hz)} now, {_hertz(state.sm_clock_max_hz)} at most; memory {_hertz(state.memory_clock_hz)}"
    )
    findings = [Finding("clocks", "note" if state.throttle_reasons else "ok", "; ".join((clock, *state.throttle_reasons)))]
    if state.ecc is not None:
        findings.append(Finding("ECC", "ok", "on" if state.ecc else "off"))
    if state.mig is not None:
        advice = "a slice has part of the SMs, L2 and bandwidth: data-sheet roofs do not apply" if state.mig else ""
        findings.append(Finding("MIG", "note" if state.mig else "ok", "on" if state.mig else "off", advice))
    advice = "wait for them, or pick another GPU with --gpu: times would be of both"
    findings += [Finding("other work", "note", disturbance, advice) for disturbance in state.disturbances]
    if not state.disturbances:
        findings.append(Finding("other work", "ok", "nobody else computes on this GPU"))
    return findings


def _torch(gpu: Gpu, worker: Sequence[str]) -> Finding:
    """Whether a worker starts: the only way to know that torch, driver and GPU fit each other."""
    try:
        with Supervisor(worker, environment.worker_environment(gpu)) as supervisor:
            ready = supervisor.start()
    except RooflineError as error:
        return Finding("measuring", "missing", str(error), "see the lines above for what is absent")
    return Finding("measuring", "ok", f"torch {ready.get('torch')} and triton {ready.get('triton')} reach the GPU")


def _counters() -> Finding:
    ncu = counters.find_ncu()
    if ncu is None:
        return Finding("counters", "missing", "ncu is not on the PATH", "install Nsight Compute; measuring works without")
    allowed, why = counter_permission()
    if allowed is False:
        advice = "run as root or with CAP_SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
        return Finding("counters", "missing", f"{ncu}: {why}", advice)
    return Finding("counters", "ok" if allowed else "note", f"{ncu}: {why}")


def _hertz(value: float | None) -> str:
    return "unknown" if value is None else format_si(value, "Hz")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
