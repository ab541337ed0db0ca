"""What a measurement means: derived figures, and a verdict in words where a number would mislead. Pure functions."""

from collections.abc import Mapping
from typing import Any

from roofline.measure.cases import Case
from roofline.problem import Problem
from roofline.profiles.profile import Profile

ROOF_SLACK = 1.01  # a measured time may be this much below the time at the measured ceilings


def complete(measurement: Mapping[str, Any], case: Case, counted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return ``measurement`` with rates and latencies; bandwidth is of the bytes counted, else of those predicted."""
    median = measurement["time_s"]["median"]
    problem = case.configuration.problem
    hbm_bytes, source = _hbm_bytes(case, counted)
    decode = case.configuration.phase == "decode"
    return {
        **measurement,
        "flop_per_s": case.prediction["flops"] / median,
        "hbm_bytes_per_s": hbm_bytes / median,
        "hbm_bytes_source": source,
        "prefill_latency_s": None if decode else median,
        "attention_tokens_per_s": problem.q_tokens / median if decode else None,
    }


def verdicts(
    case: Case, measurement: Mapping[str, Any], profile: Profile, counted: Mapping[str, Any] | None = None
) -> list[str]:
    """Return what a reader of this point has to know, as sentences."""
    found = []
    median, prediction = measurement["time_s"]["median"], case.prediction
    roof = profile.ceiling("hbm_bytes_per_s", "measured")
    least_rate = prediction["hbm_bytes_min"] / median
    if roof is not None and roof.kind == "measured" and least_rate > roof.value * ROOF_SLACK:
        if measurement["l2"] == "warm":
            found.append("served by L2: its inputs stay in the cache, so it passes the HBM roof")
        else:
            found.append("above the measured HBM roof with cold inputs: calibrate again")
    served_by_l2 = bool(found) and measurement["l2"] == "warm"
    found += _tensor_verdict(case.configuration.problem, prediction, measurement, profile)
    floor = prediction.get("time_measured_roof_s")
    if floor is not None and floor > median * ROOF_SLACK and not served_by_l2:
        found.append("faster than its prediction from the measured ceilings: a ceiling or a count is wrong")
    if measurement["method"] == "events":
        found.append("timed call by call: it cannot be captured in a graph, so a few microseconds of starting each one count")
    if measurement["all_throttled"]:
        found.append("every sample was taken under thermal or hardware slowdown")
    predicted = tensor_flops(prediction["flops_executed"], case.result.plan.form)
    if counted and case.is_ours and counted.get("tensor_flops") not in (None, predicted):
        found.append(f"counted {counted['tensor_flops']:.0f} tensor FLOPs, predicted {predicted}")
    return found


def tensor_flops(flops_executed: int, form: str | None) -> int:
    """Return the FLOPs that should be counted on the tensor cores: a recurrence runs on the vector units."""
    return 0 if form == "recurrent" else flops_executed


def _tensor_verdict(
    problem: Problem, prediction: Mapping[str, Any], measurement: Mapping[str, Any], profile: Profile
) -> list[str]:
    """More useful FLOPs than the units can do at the clock they really had: the count is wrong."""
    ops, clock = profile.tensor_ops_per_clk_per_sm.get(problem.dtype.name), measurement["clock_hz"]
    if ops is None or clock is None or profile.sm_count is None:
        return []
    peak = profile.sm_count * ops * clock
    useful = min(prediction["flops"], prediction["flops_executed"])
    if useful / measurement["time_s"]["median"] <= peak * ROOF_SLACK:
        return []
    return ["above SMs x operations per clock x measured clock: an error in the count"]


def _hbm_bytes(case: Case, counted: Mapping[str, Any] | None) -> tuple[float, str]:
    if counted and counted.get("hbm_read_bytes") is not None and counted.get("hbm_write_bytes") is not None:
        return counted["hbm_read_bytes"] + counted["hbm_write_bytes"], "counted"
    predicted = case.prediction.get("hbm_bytes")
    if predicted is not None and case.is_ours:
        return predicted, "predicted"
    return case.prediction["hbm_bytes_min"], "minimum"
