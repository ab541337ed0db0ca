"""What binds a configuration and why, in one plain sentence derived from its figures. Pure: dictionaries in, text out."""

from collections.abc import Mapping
from typing import Any

from roofline.units import format_number, format_percent, format_si

MOSTLY = 0.5  # share of the bytes from which a tensor is named as the reason
WASTE = 1.05  # executed over useful FLOPs from which padding and cut tiles are named

NOTABLE = 1.05  # ratio of byte counts from which the cause is named
FILLED = 0.9  # share of the SMs from which a launch counts as filling the device


def verdict(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """Return a sentence: the limit, the two numbers behind it, and the main reason."""
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
    if predicted > NOTABLE * least or cold > NOTABLE * predicted:
        clauses.extend(result["reasons"][:1])
    return "; ".join(clauses)


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
    exp, tensor = result["units"]["exp"]["time_s"], result["units"]["tensor"]["time_s"]
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
        for traffic in launch["traffic"]:
            if traffic["role"] == "intermediate":
                moved = traffic["read_bytes"] + traffic["write_bytes"]
                by_tensor[traffic["tensor"]] = by_tensor.get(traffic["tensor"], 0) + moved
    total = result["hbm_bytes"]
    if not total or sum(by_tensor.values()) < MOSTLY * total:
        return None
    names = [tensor for tensor, moved in sorted(by_tensor.items(), key=lambda item: -item[1]) if moved > 0.1 * total]
    share = sum(by_tensor[name] for name in names) / total
    return f"{' and '.join(sorted(names))} are {format_percent(share, 2)} of the bytes"


def _idle(result: Mapping[str, Any], device: Mapping[str, Any]) -> str | None:
    used, sms = result["sms_used"], device["sm_count"]
    if used is None or sms is None or used > FILLED * sms:
        return None
    return f"only {used} of {sms} SMs have work"
