"""What binds a configuration and why, and what a measurement of it says, in plain sentences derived from its figures.

Pure: dictionaries in, text out.
"""

from collections.abc import Mapping
from typing import Any

from roofline.units import format_number, format_percent, format_si

MOSTLY = 0.5  # share of the bytes from which a tensor is named as the reason
WASTE = 1.05  # executed over useful FLOPs from which padding and cut tiles are named

NOTABLE = 1.05  # ratio of byte counts from which the cause is named
FILLED = 0.9  # share of the SMs from which a launch counts as filling the device
ROOF_SLACK = 1.01  # a measured rate may pass a ceiling by this much
COMPUTE = ("tensor", "exp", "vector")  # bounds under which a rate of bytes says nothing
EXACT = 0.005  # a prediction this near to the counters is called exact


def verdict(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """Return a sentence: the limit, the two numbers behind it, and the main reason; nothing where no limit is known."""
    if result.get("bound") not in _LIMITS:
        return ""
    clauses = [_LIMITS[result["bound"]](result, device)]
    tensors = _heavy_intermediates(result)
    if tensors and result["bound"] == "hbm":
        clauses.append(tensors)
    waste = result["flops_executed"] / result["flops"] if result["flops"] else 1.0
    if result["bound"] == "tensor" and waste > WASTE:
        clauses.append(f"whole tiles run {format_number(waste)}x the useful FLOPs")
    idle = _idle(result, device)
    if idle and result["bound"] != "parallelism":
        clauses.append(idle)
    least, cold, predicted = result["hbm_bytes_min"], result["hbm_bytes_cold"], result["hbm_bytes"]
    if predicted is not None and (predicted > NOTABLE * least or cold > NOTABLE * predicted):
        clauses.extend(result.get("reasons", ())[:1])
    return "; ".join(clauses)


def measured_verdict(
    result: Mapping[str, Any], measured: Mapping[str, Any], told: Mapping[str, Any], device: Mapping[str, Any]
) -> list[str]:
    """Return the sentences of a timed point: how fast, how close to the roof, and how good the predicted bytes were.

    ``told`` holds what was derived of it: ``share`` of and ``roof_s`` at each roof, ``counted`` and ``hbm_used`` bytes.
    """
    time_s, flops = measured["time_s"]["median"], result.get("flops")
    parts = [format_si(time_s, "s")]
    if flops:
        parts.append(format_si(flops / time_s, "FLOP/s"))
    if told["hbm_used"] and result.get("bound") not in COMPUTE:
        parts.append(f"{format_si(told['hbm_used'] / time_s, 'B/s')} of {told['source']} bytes")
    found = [", ".join(parts) + _of_roof(told)]
    warm = measured.get("l2") == "warm"
    if (told["share"].get("measured") or told["share"].get("datasheet") or 0.0) > ROOF_SLACK:
        if not _above_hbm(told, time_s, device):
            found.append("Above the tensor peak: a ceiling or a count is wrong")
        elif warm or told["source"] != "counted":
            found.append("Served by L2: part of its bytes never reach HBM, so it passes the HBM roof")
        else:
            found.append("Above the HBM roof with counted bytes: the ceiling is too low, calibrate again")
    counted, predicted = told["counted"], result.get("hbm_bytes")
    if told["ours"] and counted and predicted is not None:
        off = predicted / counted - 1
        if abs(off) < EXACT:
            found.append(f"HBM bytes as predicted ({format_si(counted, 'B')} counted)")
        else:
            more = "more" if off > 0 else "fewer"
            found.append(f"Predicted {format_percent(abs(off), 2)} {more} HBM bytes than counted ({format_si(counted, 'B')})")
    if measured.get("all_throttled"):
        found.append("Every sample was taken under thermal or hardware slowdown")
    return found


def _of_roof(told: Mapping[str, Any]) -> str:
    for roof, name in (("measured", "measured"), ("datasheet", "data-sheet")):
        share = told["share"].get(roof)
        if share is not None:
            return f": {format_percent(share)} of the {name} roof"
    return ""


def _above_hbm(told: Mapping[str, Any], time_s: float, device: Mapping[str, Any]) -> bool:
    ceilings = {**device["datasheet"], **device["measured"]}
    rate = ceilings.get("hbm_bytes_per_s")
    return rate is not None and bool(told["hbm_used"]) and told["hbm_used"] / time_s > rate["value"] * ROOF_SLACK


def _hbm(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    intensity, ridge = result["intensity"], result["ridge"]
    if intensity is None or ridge is None:
        return f"HBM-bound: {format_si(result['hbm_bytes'], 'B')}"
    if intensity >= ridge:
        return f"HBM-bound in its longest launch, at {format_number(intensity)} FLOP/B overall"
    times = format_number(ridge / intensity, 2) if intensity else "far"
    return f"HBM-bound: {format_number(intensity)} FLOP/B is {times}x below the ridge of {format_number(ridge)}"


def _tensor(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    intensity, ridge = result["intensity"], result["ridge"]
    if intensity is None or ridge is None or intensity < ridge:
        return "tensor-core-bound: the FLOPs of the tiles take longest"
    return f"tensor-core-bound: {format_number(intensity)} FLOP/B is {format_number(intensity / ridge, 2)}x above the ridge"


def _exp(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    units = result.get("units", {})
    exp, tensor = (units.get(name, {}).get("time_s") for name in ("exp", "tensor"))
    if exp and tensor:
        return f"bound by exponentials: they take {format_number(exp / tensor, 2)}x as long as the matrix products"
    return "bound by exponentials"


def _vector(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    if result["problem"]["dtype"] == "fp32":
        return "bound by the vector units, which run IEEE fp32 products"
    return "bound by the vector units: the softmax takes longer than the matrix products"


def _parallelism(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    return f"too few CTAs: {_idle(result, device) or 'the SMs are not filled'}"


def _launch(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    launches = sum(launch["count"] for launch in result["launches"])
    return f"bound by launch overhead: {launches} launches"


def _l2(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    return "bound by the L2"


_LIMITS = {
    "hbm": _hbm,
    "l2": _l2,
    "tensor": _tensor,
    "exp": _exp,
    "vector": _vector,
    "parallelism": _parallelism,
    "launch": _launch,
}


def _heavy_intermediates(result: Mapping[str, Any]) -> str | None:
    """Name the intermediates that are most of the HBM bytes: naive's S and P."""
    by_tensor: dict[str, int] = {}
    for launch in result["launches"]:
        for traffic in launch.get("traffic", ()):
            if traffic.get("role") == "intermediate":
                moved = traffic["read_bytes"] + traffic["write_bytes"]
                by_tensor[traffic["tensor"]] = by_tensor.get(traffic["tensor"], 0) + moved
    total = result["hbm_bytes"]
    if not total or sum(by_tensor.values()) < MOSTLY * total:
        return None
    names = [tensor for tensor, moved in sorted(by_tensor.items(), key=lambda item: -item[1]) if moved > 0.1 * total]
    share = sum(by_tensor[name] for name in names) / total
    return f"{' and '.join(sorted(names))} are {format_percent(share, 2)} of the bytes"


def _idle(result: Mapping[str, Any], device: Mapping[str, Any]) -> str | None:
    used, sms = result.get("sms_used"), device["sm_count"]
    if used is None or sms is None or used > FILLED * sms:
        return None
    return f"only {used:.0f} of {sms} SMs have work"
