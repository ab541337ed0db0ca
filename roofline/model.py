"""The roofline model: a cost on a device becomes bytes per memory level, a time, and the unit that sets it.

A launch takes at least the largest of its works over their ceilings; a configuration takes the sum of its launches. Time uses
executed FLOPs, rates and intensities useful ones. A ceiling that the profile lacks makes its level ``None``: never the bound.
Source of the roofline: Williams, Waterman, Patterson, CACM 52(4), 2009.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

from roofline.cache import HbmTraffic, hbm_traffic
from roofline.cost import Cost, Launch
from roofline.dtypes import DType
from roofline.errors import RooflineError
from roofline.profiles.profile import Profile, Roof

Bound = Literal["hbm", "l2", "tensor", "exp", "vector", "parallelism", "launch"]
SPEED_OF_LIGHT_SLACK = 1 - 1e-9  # rounding of the float divisions


class Level(NamedTuple):
    """A memory level or unit: what is asked of it, its ceiling (per second) and the time that takes; ``None`` where unknown.

    ``intensity``: useful FLOPs per byte of a memory level; ``ridge``: the intensity at which it stops being the limit.
    """

    work: int | None
    ceiling: float | None = None
    time_s: float | None = None
    intensity: float | None = None
    ridge: float | None = None


class Rates(NamedTuple):
    """The ceilings that a prediction divides by, per second; ``None`` where unknown. ``matmul`` is that of the dtype."""

    matmul: float | None
    hbm: float | None
    exp: float | None
    vector: float | None
    cta_read: float | None
    launch_s: float | None


class Prediction(NamedTuple):
    """What the model says of a configuration: FLOPs as counted, bytes by level, time at the roof, and what binds it."""

    cost: Cost
    rates: Rates
    on_tensor_cores: bool
    flops: int  # useful FLOPs as they are reported
    hbm: HbmTraffic
    bound: Bound
    time_s: float
    launch_bounds: tuple[Bound, ...]
    launch_times_s: tuple[float, ...]
    sms_used: int | None

    # Put together where somebody reads them: a sweep makes a hundred thousand predictions and looks at few of these.

    @property
    def hbm_level(self) -> Level:
        """The HBM: predicted bytes, their time, intensity and ridge."""
        return _memory(self.hbm.hbm_bytes, self.rates.hbm, self.flops, self.rates.matmul)

    @property
    def levels(self) -> dict[str, Level]:
        """Memory levels: ``hbm``, ``l2``, ``sm``."""
        return {
            "hbm": self.hbm_level,
            "l2": Level(None),  # requests merge before the L2, so its bytes are not the SM bytes; not modelled yet
            "sm": _memory(self.cost.sm_bytes, None, self.flops, self.rates.matmul),
        }

    @property
    def units(self) -> dict[str, Level]:
        """Units of the SMs, and launches: ``tensor``, ``exp``, ``vector``, ``launch``."""
        cost, rates = self.cost, self.rates
        vector = _unit(cost.vector_ops, rates.vector)
        if not self.on_tensor_cores:  # IEEE fp32 products and the softmax share the vector units
            time_s = cost.flops_executed / rates.matmul + (vector.time_s or 0.0) if rates.matmul else None
            vector = Level(cost.flops_executed, rates.matmul, time_s)
        launches, launch_s = _launches(cost), rates.launch_s
        return {
            "tensor": _unit(cost.flops_executed, rates.matmul) if self.on_tensor_cores else Level(0),
            "exp": _unit(cost.exp_ops, rates.exp),
            "vector": vector,
            "launch": Level(launches, 1 / launch_s if launch_s else None, None if launch_s is None else launches * launch_s),
        }

    @property
    def unknown(self) -> tuple[str, ...]:
        """Levels and units that have work and no known ceiling."""
        lacking = [name for name, level in self.units.items() if level.work and level.time_s is None]
        return (*(["hbm"] if self.rates.hbm is None else []), *lacking)


@lru_cache(maxsize=64)
def rates_of(profile: Profile, dtype: DType, roof: Roof) -> Rates:
    """Look the ceilings of ``profile`` up once."""
    keys = (f"{dtype.name}_flop_per_s", "hbm_bytes_per_s", "exp_per_s", "vector_op_per_s", "cta_read_bytes_per_s", "launch_s")
    ceilings = [profile.ceiling(key, roof) for key in keys]
    return Rates(*(None if ceiling is None else ceiling.value for ceiling in ceilings))


def predict(cost: Cost, profile: Profile, dtype: DType, roof: Roof = "datasheet", flops: int | None = None) -> Prediction:
    """Predict ``cost`` on ``profile``; ``flops`` are the useful FLOPs to report where they are not ``cost.flops``.

    Raises ``RooflineError`` if the result were faster than the speed of light, which would be a fault of the model.
    """
    hbm = hbm_traffic(cost, profile)
    rates = rates_of(profile, dtype, roof)
    on_tensor_cores = dtype.matmul_unit == "tensor"
    times, bounds = [], []
    for launch, entries in zip(cost.launches, hbm.launches, strict=True):
        hbm_bytes = 0
        for read_bytes, write_bytes in entries:
            hbm_bytes += read_bytes + write_bytes
        time_s, bound = _launch_time(launch, hbm_bytes, rates, on_tensor_cores, profile.sm_count)
        times.append(time_s)
        bounds.append(bound)
    overhead_s = _launches(cost) * rates.launch_s if rates.launch_s is not None else 0.0
    floor_s = _speed_of_light(cost, profile, dtype)
    time_s = max(sum(times) + overhead_s, floor_s if roof == "measured" else 0.0)
    if time_s < floor_s * SPEED_OF_LIGHT_SLACK:
        raise RooflineError(f"the model predicts {time_s} s, faster than the speed of light ({floor_s} s): please report this")
    longest = max(times, default=0.0)
    return Prediction(
        cost=cost,
        rates=rates,
        on_tensor_cores=on_tensor_cores,
        flops=cost.flops if flops is None else flops,
        hbm=hbm,
        bound=_bound(times, bounds, overhead_s),
        time_s=time_s,
        launch_bounds=tuple(bounds),
        launch_times_s=tuple(times),
        sms_used=_sms_used(cost.launches[times.index(longest)], profile.sm_count) if times else None,
    )


def _launch_time(
    launch: Launch, hbm_bytes: int, rates: Rates, on_tensor_cores: bool, sm_count: int | None
) -> tuple[float, Bound]:
    # CTAs spread over the SMs before two share one, and an SM with one resident CTA may use its whole peak.
    share = 1.0 if sm_count is None else min(1.0, launch.ctas / sm_count) or 1.0
    matmul_s = launch.flops_executed / rates.matmul if rates.matmul else 0.0
    vector_s = launch.vector_ops / rates.vector if rates.vector else 0.0
    exp_s = launch.exp_ops / rates.exp if rates.exp else 0.0
    unit: Bound = "tensor"
    busy_s = matmul_s
    if not on_tensor_cores:
        unit, busy_s = "vector", matmul_s + vector_s
    elif vector_s > busy_s:
        unit, busy_s = "vector", vector_s
    if exp_s > busy_s:
        unit, busy_s = "exp", exp_s
    chip_s, memory_s = busy_s / share, hbm_bytes / rates.hbm if rates.hbm else 0.0
    limited_s = memory_s
    if rates.hbm and rates.cta_read and launch.ctas:
        limited_s = hbm_bytes / min(launch.ctas * rates.cta_read, rates.hbm)
    if limited_s >= chip_s:
        return limited_s, "hbm" if limited_s == memory_s else "parallelism"
    # The SMs that are busy set the time; all SMs would have left another limit.
    return chip_s, unit if busy_s >= memory_s else "parallelism"


def _bound(times: list[float], bounds: list[Bound], overhead_s: float) -> Bound:
    shares: dict[Bound, float] = {"launch": overhead_s}
    for time_s, bound in zip(times, bounds, strict=True):
        shares[bound] = shares.get(bound, 0.0) + time_s
    return max(shares, key=lambda name: shares[name])


def _speed_of_light(cost: Cost, profile: Profile, dtype: DType) -> float:
    rates = rates_of(profile, dtype, "datasheet")
    # Useful FLOPs of linear attention's quadratic form can exceed those it runs on short sequences: neither is a floor then.
    useful = min(cost.flops, cost.flops_executed)
    return max(useful / rates.matmul if rates.matmul else 0.0, cost.hbm_bytes_min / rates.hbm if rates.hbm else 0.0)


def _launches(cost: Cost) -> int:
    return sum(launch.count for launch in cost.launches)


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
