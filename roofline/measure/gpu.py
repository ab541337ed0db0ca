"""The GPU a command needs, or one line that says what is missing and what works without."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline.errors import MissingError
from roofline.profiles.local import Gpu, choose, gpus
from roofline.profiles.profile import Profile
from roofline.profiles.resolve import profile_of

# Hardware that torch can tell where no data sheet does.
_FROM_TORCH = ("sm_count", "l2_bytes", "memory_bytes", "shared_memory_per_sm_bytes", "shared_memory_per_block_bytes")
WORKS_WITHOUT = "works here: analyze, explain, sweep, devices, report, compare"


def required_gpu(wanted: str | None, command: str, present: Sequence[Gpu] | None = None) -> Gpu:
    """Return the GPU that ``--gpu`` picks; raise ``MissingError`` if there is none, or no torch and triton to use it with."""
    present = gpus() if present is None else present
    absent = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if not present:
        raise MissingError(f"{command} needs an NVIDIA GPU and its driver, and found none; {WORKS_WITHOUT}")
    if absent:
        raise MissingError(f"{command} needs {' and '.join(absent)}: pip install 'roofline[gpu]'; {WORKS_WITHOUT}")
    return choose(wanted, present)


def device_profile(gpu: Gpu, software: Mapping[str, Any]) -> Profile:
    """Return the profile of ``gpu``, completed by what the worker's ``software`` says of the hardware."""
    profile = profile_of(gpu)
    found = {key: software[key] for key in _FROM_TORCH if getattr(profile, key) is None and software.get(key)}
    sources = {**profile.sources, **dict.fromkeys(found, "torch device properties")}
    return replace(profile, **found, sources=sources) if found else profile
