"""What ``--device`` and ``--gpu`` mean: the profile to predict with, and what to say about that choice."""

import re
from collections.abc import Sequence

from roofline.errors import InputError, MissingError
from roofline.profiles.load import load
from roofline.profiles.local import Gpu, choose, describe, gpus
from roofline.profiles.match import match
from roofline.profiles.profile import Profile, Roof
from roofline.profiles.store import read, with_measured

DEFAULT_DEVICE = "h100-sxm5-80gb"


def resolve(
    device: str = "auto", gpu: str | None = None, *, roof: Roof = "datasheet", present: Sequence[Gpu] | None = None
) -> tuple[Profile, str | None]:
    """Return the profile that ``--device NAME|PATH|auto`` means, and a note for the header or ``None``.

    ``auto`` is the GPU that ``gpu`` picks, else the first visible one, with the ceilings measured on it; without a GPU, or with
    one that has no profile, it is ``DEFAULT_DEVICE``, and the note says so. A GPU without a profile that was calibrated is used
    as it was measured where ``roof`` is ``measured``. A named device takes measured ceilings only from a ``gpu`` of its kind.
    ``present`` stands in for the GPUs that NVML finds. Raises ``InputError`` and ``MissingError`` like ``load`` and ``choose``.
    """
    if device.strip().casefold() != "auto":
        return _named(load(device), gpu, present)
    present = gpus() if present is None else present
    if not present and gpu is None:
        return load(DEFAULT_DEVICE), f"no GPU here: predicting for {DEFAULT_DEVICE}; --device picks another"
    chosen = choose(gpu, present)
    notes = []
    if len(present) > 1 and gpu is None:
        notes.append(f"GPU {chosen.index} of {len(present)} ({describe(chosen)}); --gpu picks another")
    try:
        profile = with_measured(_matched(chosen), chosen.uuid)
    except _NoProfileError as error:
        profile, note = _unknown(error, chosen, roof)
        notes.append(note)
    return profile, "; ".join(notes) or None


def profile_of(gpu: Gpu) -> Profile:
    """Return the profile to measure ``gpu`` under: its shipped one or, for an unknown GPU, one without data sheet.

    Either holds what was measured on that GPU before. ``save`` keeps new measurements of it.
    """
    try:
        return with_measured(_matched(gpu), gpu.uuid)
    except _NoProfileError:
        return read(gpu.uuid) or Profile(
            id=re.sub(r"[^a-z0-9]+", "-", gpu.name.casefold()).strip("-") or "unknown",
            name=gpu.name,
            vendor="NVIDIA",
            architecture="unknown",
            compute_capability=gpu.compute_capability or "unknown",
            driver_names=(gpu.name,),
            memory_bytes=gpu.memory_bytes,
            sources={"driver_names": "NVML", "memory_bytes": "NVML"},
        )


class _NoProfileError(InputError):
    """The GPU is not among the shipped profiles; other ``InputError``, such as a broken overlay, are the user's to see."""


def _matched(gpu: Gpu) -> Profile:
    try:
        return match(gpu.name, gpu.memory_bytes)
    except InputError as error:
        raise _NoProfileError(str(error)) from None


def _unknown(error: InputError, gpu: Gpu, roof: Roof) -> tuple[Profile, str]:
    overlay = read(gpu.uuid)
    if overlay is not None and roof == "measured":
        return overlay, f"{error}; using what was measured on it"
    advice = "--roof measured uses what was measured on it" if overlay is not None else "`roofline calibrate` measures this one"
    return load(DEFAULT_DEVICE), f"{error}; predicting for {DEFAULT_DEVICE}; {advice}"


def _named(profile: Profile, gpu: str | None, present: Sequence[Gpu] | None) -> tuple[Profile, str | None]:
    if gpu is None:
        return profile, None
    try:
        chosen = choose(gpu, gpus() if present is None else present)
    except MissingError:
        return profile, f"no GPU here: --gpu {gpu} is ignored for --device {profile.id}"
    if chosen.name in profile.driver_names:
        return with_measured(profile, chosen.uuid), None
    return profile, f"GPU {chosen.index} is {describe(chosen)}, not {profile.name}: nothing measured on it is used"
