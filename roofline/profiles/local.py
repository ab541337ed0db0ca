"""Which NVIDIA GPUs this process may use, asked of NVML: no CUDA context is created, and without a driver there are none."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofline.errors import InputError, MissingError
from roofline.units import format_iec

DRIVER_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-gpu")  # Linux, WSL, Jetson


@dataclass(frozen=True, slots=True)
class Gpu:
    """A visible GPU: ``index`` counts them in the order of ``CUDA_VISIBLE_DEVICES``, else in PCI order as nvidia-smi does.

    CUDA may number unlike GPUs otherwise (``CUDA_DEVICE_ORDER``), so a process that runs on one should ask for its ``uuid``.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int | None
    compute_capability: str | None = None


def gpus(nvml: Any = None, environ: Mapping[str, str] | None = None) -> tuple[Gpu, ...]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible; none if there is no driver, no library or no GPU.

    ``nvml`` stands in for the ``pynvml`` module and ``environ`` for the process's environment.
    """
    environ = os.environ if environ is None else environ
    try:
        nvml = _nvml() if nvml is None else nvml
        nvml.nvmlInit()
    except Exception:  # no driver, no library, a driver being upgraded: all mean that there is no GPU to use
        return ()
    try:
        return _visible(nvml, environ.get("CUDA_VISIBLE_DEVICES"))
    except Exception:
        return ()
    finally:
        _shutdown(nvml)


def choose(wanted: str | None, present: Sequence[Gpu]) -> Gpu:
    """Return the GPU that ``--gpu`` names by index among the visible ones or by UUID (a unique start will do), or the first.

    Raises ``MissingError`` when there is none, and ``InputError`` when none or several fit.
    """
    if not present:
        option = f"--gpu {wanted}: " if wanted else ""
        raise MissingError(f"{option}no NVIDIA GPU is visible here; expected a GPU and its driver")
    if wanted is None:
        return present[0]
    text = wanted.strip()
    if text.isascii() and text.isdigit():
        found = [gpu for gpu in present if str(gpu.index) == (text.lstrip("0") or "0")]
    else:
        found = [gpu for gpu in present if gpu.uuid.casefold().startswith(text.casefold())] if text else []
    if len(found) != 1:
        listed = ", ".join(f"{gpu.index} ({describe(gpu)}, {gpu.uuid})" for gpu in present)
        raise InputError(f"--gpu: {'several GPUs fit' if found else 'no visible GPU is'} {wanted!r}; expected one of {listed}")
    return found[0]


def describe(gpu: Gpu) -> str:
    """Return a GPU's name with its memory: ``NVIDIA H200 140 GiB``."""
    return gpu.name if gpu.memory_bytes is None else f"{gpu.name} {format_iec(gpu.memory_bytes)}"


def _nvml() -> Any:
    if sys.platform == "linux" and not any(os.path.exists(node) for node in DRIVER_NODES):
        raise MissingError("no NVIDIA driver")
    import pynvml  # slow to load, and only needed where there is a driver to ask

    return pynvml


def _visible(nvml: Any, spec: str | None) -> tuple[Gpu, ...]:
    """List GPUs in the order of ``CUDA_VISIBLE_DEVICES``; like CUDA, stop at the first entry that names none."""
    handles = [handle for index in range(nvml.nvmlDeviceGetCount()) if (handle := _handle(nvml, index)) is not None]
    if spec is not None:
        handles = _selected(nvml, handles, spec)
    found: list[Gpu] = []
    for handle in handles:
        gpu = _read(nvml, handle, len(found))
        if gpu is not None:
            found.append(gpu)
    return tuple(found)


def _selected(nvml: Any, handles: list[Any], spec: str) -> list[Any]:
    uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    selected: list[Any] = []
    seen: set[str] = set()
    for entry in (part.strip() for part in spec.split(",")):
        if entry.isascii() and entry.isdigit():
            fitting = [int(entry)] if len(entry) < 10 and int(entry) < len(handles) else []
        else:
            fitting = [index for index, uuid in enumerate(uuids) if entry.startswith("GPU-") and uuid.startswith(entry)]
        if len(fitting) == 1:
            handle, uuid = handles[fitting[0]], uuids[fitting[0]]
        elif entry.startswith("MIG-") and (slice_handle := _handle_of_uuid(nvml, entry)) is not None:
            handle, uuid = slice_handle, entry
        else:
            break
        if uuid in seen:  # CUDA takes a repeated device as an error and shows none
            return []
        seen.add(uuid)
        selected.append(handle)
    return selected


def _read(nvml: Any, handle: Any, index: int) -> Gpu | None:
    try:
        uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
    except Exception:  # a GPU that has fallen off the bus
        return None
    return Gpu(index, uuid, name, _memory(nvml, handle), _compute_capability(nvml, handle))


def _memory(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except Exception:  # not supported where the GPU shares the memory of the CPU
        return None


def _compute_capability(nvml: Any, handle: Any) -> str | None:
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except Exception:
        return None
    return f"{major}.{minor}"


def _handle(nvml: Any, index: int) -> Any:
    try:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    except Exception:
        return None


def _handle_of_uuid(nvml: Any, uuid: str) -> Any:
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:
        return None


def _shutdown(nvml: Any) -> None:
    try:
        nvml.nvmlShutdown()
    except Exception:
        return


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
