"""The roofline model: a cost on a device becomes bytes per memory level, a time, and the unit that sets it.

A launch takes at least the largest of its works over their ceilings; a configuration takes the sum of its launches. Time uses
executed FLOPs, rates and intensities useful ones. A ceiling that the profile lacks makes its level ``None``: never the bound.
Source of the roofline: Williams, Waterman, Patterson, CACM 52(4), 2009.
"""

from dataclasses import dataclass
from typing import Literal

from roofline.cache import HbmTraffic, hbm_traffic
from roofline.cost import Cost, Launch
from roofline.dtypes import DType
from roofline.errors import RooflineError
from roofline.profiles.profile import Profile, Roof

Bound = Literal["hbm", "l2", "tensor", "exp", "vector", "parallelism", "launch"]
SPEED_OF_LIGHT_SLACK = 1 - 1e-9  # rounding of the float divisions


@dataclass(frozen=True, slots=True)
class Level:
    """A memory level or unit: what is asked of it, its ceiling (per second) and the time that takes; ``None`` where unknown.

    ``intensity``: useful FLOPs per byte of a memory level; ``ridge``: the intensity at which it stops being the limit.
    """

    work: int | None
    ceiling: float | None = None
    time_s: float | None = None
    intensity: float | None = None
    ridge: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of a configuration: FLOPs as counted, bytes by level, time at the roof, and what binds it."""

    hbm: HbmTraffic
    levels: dict[str, Level]  # hbm, l2, sm
    units: dict[str, Level]  # tensor, exp, vector, launch
    bound: Bound
    time_s: float
    launch_bounds: tuple[Bound, ...]
    launch_times_s: tuple[float, ...]
    sms_used: int | None
    unknown: tuple[str, ...]


def peak_flop_per_s(profile: Profile, dtype: DType, roof: Roof) -> float | None:
    """Matrix rate of ``dtype``: tensor cores, or the vector units for IEEE fp32."""
    ceiling = profile.ceiling(f"{dtype.name}_flop_per_s", roof)
    return ceiling.value if ceiling else None


def predict(cost: Cost, profile: Profile, dtype: DType, roof: Roof = "datasheet", flops: int | None = None) -> Prediction:
    """Predict ``cost`` on ``profile``; ``flops`` are the useful FLOPs to report where they are not ``cost.flops``.

    Raises ``RooflineError`` if the result were faster than the speed of light, which would be a fault of the model.
    """
    hbm = hbm_traffic(cost, profile)
    peak = peak_flop_per_s(profile, dtype, roof)
    rates = {
        "hbm": _value(profile, "hbm_bytes_per_s", roof),
        "tensor": peak if dtype.matmul_unit == "tensor" else None,
        "exp": _value(profile, "exp_per_s", roof),
        "vector": _value(profile, "vector_op_per_s", roof),
        "cta": _value(profile, "cta_read_bytes_per_s", roof),
    }
    fp32 = peak if dtype.matmul_unit == "vector" else None
    times, bounds = [], []
    for launch, entries in zip(cost.launches, hbm.launches, strict=True):
        hbm_bytes = sum(entry.read_bytes + entry.write_bytes for entry in entries)
        time_s, bound = _launch_time(launch, hbm_bytes, rates, fp32, profile.sm_count)
        times.append(time_s)
        bounds.append(bound)
    launches = sum(launch.count for launch in cost.launches)
    launch_s = _value(profile, "launch_s", roof)
    overhead_s = launches * launch_s if launch_s is not None else 0.0
    useful = cost.flops if flops is None else flops
    floor_s = _speed_of_light(cost, profile, dtype)
    time_s = max(sum(times) + overhead_s, floor_s if roof == "measured" else 0.0)
    if time_s < floor_s * SPEED_OF_LIGHT_SLACK:
        raise RooflineError(f"the model predicts {time_s} s, faster than the speed of light ({floor_s} s): please report this")
    hbm_rate = rates["hbm"]
    levels = {
        "hbm": _memory(hbm.hbm_bytes, hbm_rate, useful, peak),
        "l2": Level(None),  # requests merge before the L2, so its bytes are not the SM bytes; not modelled yet
        "sm": _memory(cost.sm_bytes, None, useful, peak),
    }
    units = {
        "tensor": _unit(cost.flops_executed if dtype.matmul_unit == "tensor" else 0, rates["tensor"]),
        "exp": _unit(cost.exp_ops, rates["exp"]),
        "vector": _unit(cost.vector_ops, rates["vector"]),
        "launch": Level(launches, 1 / launch_s if launch_s else None, overhead_s if launch_s is not None else None),
    }
    if fp32 is not None:  # IEEE fp32 products and the softmax share the vector units
        matmul_s = cost.flops_executed / fp32
        units["vector"] = Level(cost.flops_executed, fp32, matmul_s + (units["vector"].time_s or 0.0))
    unknown = [name for name, level in units.items() if level.work and level.time_s is None]
    if hbm_rate is None:
        unknown.insert(0, "hbm")
    longest = max(times, default=0.0)
    return Prediction(
        hbm=hbm,
        levels=levels,
        units=units,
        bound=_bound(times, bounds, overhead_s),
        time_s=time_s,
        launch_bounds=tuple(bounds),
        launch_times_s=tuple(times),
        sms_used=_sms_used(cost.launches[times.index(longest)], profile.sm_count) if times else None,
        unknown=tuple(unknown),
    )


def _launch_time(
    launch: Launch, hbm_bytes: int, rates: dict[str, float | None], fp32: float | None, sm_count: int | None
) -> tuple[float, Bound]:
    share = 1.0 if sm_count is None else min(1.0, launch.ctas / (sm_count * launch.ctas_per_sm)) or 1.0
    matmul, exp, vector, hbm, cta = launch.flops_executed, rates["exp"], rates["vector"], rates["hbm"], rates["cta"]
    on_chip: dict[Bound, float] = {
        "tensor": matmul / rates["tensor"] if rates["tensor"] else 0.0,
        "exp": launch.exp_ops / exp if exp else 0.0,
        "vector": (matmul / fp32 if fp32 else 0.0) + (launch.vector_ops / vector if vector else 0.0),
    }
    unit = max(on_chip, key=lambda name: on_chip[name])
    chip_s, memory_s = on_chip[unit] / share, hbm_bytes / hbm if hbm else 0.0
    limited_s = hbm_bytes / min(launch.ctas * cta, hbm) if hbm and cta and launch.ctas else memory_s
    time_s = max(chip_s, limited_s)
    if time_s == limited_s:
        return time_s, "hbm" if limited_s == memory_s else "parallelism"
    # The SMs that are busy set the time; all SMs would have left another limit.
    return time_s, unit if on_chip[unit] >= memory_s else "parallelism"


def _bound(times: list[float], bounds: list[Bound], overhead_s: float) -> Bound:
    shares: dict[Bound, float] = {"launch": overhead_s}
    for time_s, bound in zip(times, bounds, strict=True):
        shares[bound] = shares.get(bound, 0.0) + time_s
    return max(shares, key=lambda name: shares[name])


def _speed_of_light(cost: Cost, profile: Profile, dtype: DType) -> float:
    peak, hbm = peak_flop_per_s(profile, dtype, "datasheet"), _value(profile, "hbm_bytes_per_s", "datasheet")
    # Useful FLOPs of linear attention's quadratic form can exceed those it runs on short sequences: neither is a floor then.
    useful = min(cost.flops, cost.flops_executed)
    return max(useful / peak if peak else 0.0, cost.hbm_bytes_min / hbm if hbm else 0.0)


def _sms_used(launch: Launch, sm_count: int | None) -> int | None:
    return None if sm_count is None else min(launch.ctas, sm_count)


def _memory(num_bytes: int, rate: float | None, flops: int, peak: float | None) -> Level:
    return Level(
        num_bytes,
        rate,
        num_bytes / rate if rate else None,
        flops / num_bytes if num_bytes else None,
        peak / rate if peak and rate else None,
    )


def _unit(work: int, rate: float | None) -> Level:
    return Level(work, rate, work / rate if rate else None)


def _value(profile: Profile, key: str, roof: Roof) -> float | None:
    ceiling = profile.ceiling(key, roof)
    return ceiling.value if ceiling else None
