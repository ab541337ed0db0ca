"""The roof in divisions: work over ceilings for each launch, and the totals that follow."""

from typing import Any

from roofline.analysis import Result
from roofline.cost import Launch
from roofline.profiles.profile import Profile, Roof


def launch_times(launch: Launch, hbm_bytes: int, result: Result, profile: Profile, roof: Roof) -> list[dict[str, Any]]:
    """The time of each unit: ``work / per_s``, over the share of the SMs that have work where not all do."""
    problem = result.configuration.problem
    sms = profile.sm_count
    busy = [launch.ctas, sms] if sms is not None and 0 < launch.ctas < sms else None
    matmul_key, on_tensor = f"{problem.dtype.name}_flop_per_s", problem.dtype.matmul_unit == "tensor"
    matmul = ("tensor" if on_tensor else "vector", "FLOP", launch.flops_executed, matmul_key)
    works = (matmul, ("exp", "exp", launch.exp_ops, "exp_per_s"), ("vector", "op", launch.vector_ops, "vector_op_per_s"))
    times = [_division(unit, name, work, _rate(profile, key, roof), busy) for unit, name, work, key in works if work]
    rate, cta_rate = _rate(profile, "hbm_bytes_per_s", roof), _rate(profile, "cta_read_bytes_per_s", roof)
    if rate and cta_rate and launch.ctas and launch.ctas * cta_rate < rate:
        rate = launch.ctas * cta_rate  # so few CTAs cannot ask for more
    return [*times, _division("hbm", "B", hbm_bytes, rate, None)]


def _division(unit: str, name: str, work: int, per_s: float | None, busy: list[int] | None) -> dict[str, Any]:
    time_s = None if not per_s else work / per_s if busy is None else work / per_s / (busy[0] / busy[1])
    return {"unit": unit, "work": work, "work_unit": name, "per_s": per_s, "busy": busy, "time_s": time_s}


def _rate(profile: Profile, key: str, roof: Roof) -> float | None:
    ceiling = profile.ceiling(key, roof)
    return ceiling.value if ceiling else None
