"""``calibrate``: this GPU's own ceilings, each measured by a probe in the worker and kept with its spread, clock and power.

A ceiling is the rate that the fastest tenth of the samples reach, for the fastest way of doing it: a kernel drawn above the
roof would show a bug of the calibration. Matrix products run into the power limit: their ceiling is the median of the best
short burst from rest, and they also have a sustained rate, after a second of load.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from roofline.errors import RooflineError
from roofline.measure import environment
from roofline.measure.clocks import SPOILING, reason_names
from roofline.measure.gpu import device_profile, required_gpu
from roofline.measure.options import WORKER
from roofline.measure.supervisor import Supervisor
from roofline.measure.timing import percentile
from roofline.profiles.local import Gpu
from roofline.profiles.profile import Ceiling, Profile
from roofline.profiles.store import overlay_path, save
from roofline.units import format_percent, format_si

MB = 10**6
READ_SIZES = tuple(size * MB for size in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096))
FEW_CTAS = (1, 2, 4, 8, 16, 32, 64, 128)
BEST = 0.9  # quantile of the rates that counts as what the device can do


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to measure: what the worker calls it, its parameters, and the ceiling it gives, if any."""

    name: str
    operation: str
    parameters: Mapping[str, Any]
    unit: str
    ceiling: str | None = None


# In the order of measuring: memory first, while the card is cool, the power-hungry matrix products last.
PROBES: tuple[Probe, ...] = (
    Probe("HBM read", "read", {"bytes": 4096 * MB}, "B/s", "hbm_bytes_per_s"),
    Probe("HBM copy", "copy", {"bytes": 2048 * MB}, "B/s"),
    Probe("HBM write", "write", {"bytes": 4096 * MB}, "B/s"),
    Probe("L2 read", "l2_read", {}, "B/s", "l2_bytes_per_s"),
    Probe("read by one CTA", "read_ctas", {"ctas": 1}, "B/s", "cta_read_bytes_per_s"),
    *(Probe(f"read by {ctas} CTAs", "read_ctas", {"ctas": ctas}, "B/s") for ctas in FEW_CTAS[1:]),
    *(Probe(f"read of {size // MB} MB", "read_cold", {"bytes": size}, "B/s") for size in READ_SIZES),
    Probe("launch in a graph", "launch", {}, "s", "launch_s"),
    Probe("exponentials", "exp", {}, "exp/s", "exp_per_s"),
    *(
        Probe(f"matmul {dtype}", "matmul", {"dtype": dtype}, "OP/s" if dtype == "int8" else "FLOP/s", key)
        for dtype, key in (
            ("fp32", "fp32_flop_per_s"),
            ("tf32", "tf32_flop_per_s"),
            ("int8", "int8_op_per_s"),
            ("fp8", "fp8_flop_per_s"),
            ("fp16", "fp16_flop_per_s"),
            ("bf16", "bf16_flop_per_s"),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Probed:
    """What a probe found. ``value`` is the ceiling in ``unit`` (for a time, the shortest tenth), ``median`` the middle."""

    name: str
    unit: str
    ceiling: str | None
    value: float | None = None
    median: float | None = None
    spread: float | None = None  # p90 - p10 over the median
    sustained: float | None = None
    clock_hz: float | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    spoilt: bool = False  # heat or hardware held the clock down: not what the device can do
    how: str = ""  # which of several ways was the fastest
    missing: str | None = None  # why there is no value


@dataclass(frozen=True, slots=True)
class Calibration:
    """All probes of one GPU. ``profile`` has the new measured ceilings; ``path`` is where they are kept."""

    profile: Profile
    probed: tuple[Probed, ...]
    path: Path
    notes: tuple[str, ...] = ()


def calibrate(
    gpu: str | None = None, listener: Callable[[str], None] = lambda doing: None, worker: Sequence[str] = WORKER
) -> Calibration:
    """Measure the ceilings of the GPU that ``gpu`` (index or UUID) picks, and keep them in the user's data folder.

    Raises ``MissingError`` without a GPU or torch, and ``RooflineError`` if nothing could be measured.
    """
    chosen = required_gpu(gpu, "calibrate")
    state = environment.gpu_state(chosen.uuid)
    with Supervisor(worker, environment.worker_environment(chosen)) as supervisor:
        profile = device_profile(chosen, supervisor.start())
        done = calibrate_with(supervisor, chosen, profile, listener)
    return replace(done, notes=(*state.disturbances, *done.notes))


def calibrate_with(supervisor: Supervisor, gpu: Gpu, profile: Profile, listener: Callable[[str], None]) -> Calibration:
    """Run every probe in the worker of ``supervisor`` and save the ceilings. A probe that breaks costs its ceiling only."""
    probed = []
    for probe in PROBES:
        listener(f"calibrating: {probe.name}")
        request = {"op": "probe", "operation": probe.operation, "uuid": gpu.uuid, "l2_bytes": profile.l2_bytes or 2**26}
        try:
            answer = supervisor.ask({**request, "parameters": dict(probe.parameters)}, "check")
        except RooflineError as error:
            probed.append(Probed(probe.name, probe.unit, probe.ceiling, missing=str(error)))
            continue
        probed.append(evaluate(probe, answer))
    measured = ceilings(probed)
    if not measured:
        raise RooflineError(f"calibrate: no probe worked: {probed[0].missing}")
    path = save(profile, gpu.uuid, measured)
    details_path(gpu).write_text(json.dumps({"uuid": gpu.uuid, "probes": [asdict(one) for one in probed]}, indent=1))
    notes = [f"{one.name}: no value: {one.missing}" for one in probed if one.missing]
    notes += [
        f"{one.name}: measured while {' and '.join(one.throttle_reasons)}; not the ceiling" for one in probed if one.spoilt
    ]
    return Calibration(replace(profile, measured={**profile.measured, **measured}), tuple(probed), path, tuple(notes))


def evaluate(probe: Probe, answer: Mapping[str, Any]) -> Probed:
    """Turn the samples of the worker into a ceiling: seconds a piece of work, over the work, or seconds themselves."""
    blank = Probed(probe.name, probe.unit, probe.ceiling)
    if answer.get("missing"):
        return replace(blank, missing=str(answer["missing"]))
    # The worker may have tried several ways; the one with the shortest good samples is what the device can do.
    ways, counting = answer["ways"], 0.5 if answer.get("by") == "median" else 1 - BEST
    way = max(ways, key=lambda way: way["work"] / percentile(sorted(way["samples"]), counting))
    ordered = sorted(way["samples"])
    best, fast, middle, slow = (percentile(ordered, fraction) for fraction in (counting, 1 - BEST, 0.5, BEST))
    is_time = probe.unit == "s"

    work = float(way["work"])

    def rate(seconds: float) -> float:
        return seconds / work if is_time else work / seconds

    return replace(
        blank,
        value=rate(best),
        median=rate(middle),
        spread=(slow - fast) / middle,
        sustained=answer.get("sustained"),
        clock_hz=way.get("clock_hz"),
        power_w=way.get("power_w"),
        throttle_reasons=reason_names(way.get("reasons", 0)),
        spoilt=bool(way.get("reasons", 0) & SPOILING),
        how=way.get("how", ""),
    )


def ceilings(probed: Sequence[Probed]) -> dict[str, Ceiling]:
    """Return the measured ceilings that a profile takes, with how they came about as their source."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return {
        one.ceiling: Ceiling(one.value, "measured", f"roofline calibrate {today}: {_described(one)}")
        for one in probed
        if one.ceiling is not None and one.value is not None
    }


def details_path(gpu: Gpu) -> Path:
    """Return where all probes of ``gpu`` are kept, beside its overlay: curves, spreads, clocks, power."""
    return overlay_path(gpu.uuid).with_suffix(".probes.json")


def details(gpu: Gpu) -> list[dict[str, Any]]:
    """Return the probes kept for ``gpu``, for the header of a run; none if it was never calibrated."""
    try:
        kept = json.loads(details_path(gpu).read_text())["probes"]
    except (OSError, ValueError, KeyError):
        return []
    return list(kept)


def _described(one: Probed) -> str:
    parts = [one.name, one.how, f"spread {format_percent(one.spread, 2)}" if one.spread is not None else ""]
    parts += [f"at {format_si(one.clock_hz, 'Hz')}" if one.clock_hz else "", f"{one.power_w:.0f} W" if one.power_w else ""]
    parts += [f"sustained {format_si(one.sustained, one.unit)}" if one.sustained else ""]
    parts += [f"throttled by {' and '.join(one.throttle_reasons)}" if one.throttle_reasons else ""]
    return ", ".join(part for part in parts if part)
