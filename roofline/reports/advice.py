"""What to do next about a point, in a sentence derived from its figures. Pure: dictionaries in, text out."""

from collections.abc import Mapping
from typing import Any

from roofline.units import format_number, format_si

NEAR = 0.85  # share of the roof from which tuning the kernel has little left to win
FAR = 0.6
SHORT_S = 20e-6  # a call this short is launch, prologue and tail
AVOIDABLE = 1.5  # HBM bytes over the minimum from which moving fewer is the advice


def advice(
    fields: Mapping[str, Any],
    result: Mapping[str, Any],
    measured: Mapping[str, Any],
    told: Mapping[str, Any],
    device: Mapping[str, Any],
) -> str:
    """Return the next step; ``told`` is what ``points`` derived of the point."""
    status = fields["status"]
    if status not in ("ok", "predicted"):
        return _BROKEN.get(status, "")
    if measured.get("all_throttled"):
        return "Measure again on a cooler GPU: the clocks were cut."
    bytes_, least = told["hbm_used"], result.get("hbm_bytes_min")
    wasteful = bytes_ / least if bytes_ and least else 1.0
    bound, decode = result.get("bound"), result.get("phase") == "decode"
    if measured and not told["ours"]:
        return ""
    if result.get("variant") == "naive" and wasteful > AVOIDABLE:
        return f"Keep S and P on chip: flash attention moves {format_number(wasteful, 2)}x fewer bytes."
    if bound == "parallelism":
        return (
            "Split the keys over more CTAs (split-kv), or batch more sequences." if decode else "Batch more sequences or heads."
        )
    share = (told["share"].get("measured") or told["share"].get("datasheet")) if measured else None
    if share is not None and share < FAR:
        return _slow(result, measured, told)
    if least and wasteful > AVOIDABLE and bound == "hbm":
        return f"Move fewer bytes: the minimum is {format_si(least, 'B')}, {format_number(wasteful, 2)}x less."
    if share is not None and share < NEAR:
        return _slow(result, measured, told)
    return _AT_ROOF.get((bound or "", decode), "")


def _slow(result: Mapping[str, Any], measured: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    time_s, bound = measured["time_s"]["median"], result.get("bound")
    expected = result.get("time_measured_roof_s") or result.get("time_s")
    if time_s < SHORT_S:
        return f"A call of {format_si(time_s, 's')} is mostly launch, prologue and tail: batch more work, or replay a graph."
    if expected and expected > NEAR * time_s:
        return (
            "The model expects this time: the limit lies beside the roofline, in "
            + _BESIDE.get(bound or "", "its launches")
            + "."
        )
    return _TUNE.get(bound or "", "Profile it: something other than the model's limits takes the time.")


_BROKEN = {
    "wrong": "Fix the result first: a wrong point has no time.",
    "failed": "Run it alone to see the fault; the other points are not affected.",
    "unsupported": "",
}
_BESIDE = {
    "exp": "the exponentials",
    "vector": "the softmax on the vector units",
    "tensor": "the padding of whole tiles",
    "hbm": "launches that wait for each other",
    "launch": "launch overhead",
}
_TUNE = {
    "hbm": "Memory idles: keep more bytes in flight (stages, CTAs per SM), or check the tail of the last wave.",
    "l2": "Larger tiles ask the L2 for less.",
    "tensor": "Tensor cores idle: overlap softmax with matrix products, or check the tail of the last wave.",
    "exp": "Exponentials set the limit: overlap them with matrix products (two warpgroups in turn).",
    "vector": "Softmax sets the limit: overlap it with matrix products, or do less of it per pair.",
    "launch": "Fuse launches, or replay them as a graph.",
}
_AT_ROOF = {
    ("hbm", True): "At the memory limit: only fewer cache bytes help (fewer KV heads, MLA, a quantised cache, a window).",
    ("hbm", False): "At the memory limit: only fewer bytes help.",
    ("tensor", True): "At the compute limit: only fewer FLOPs or a narrower dtype help.",
    ("tensor", False): "At the compute limit: only fewer FLOPs (a mask, a window) or a narrower dtype help.",
    ("exp", False): "Exponentials set the limit: a larger head size or cheaper exponentials shift it.",
    ("exp", True): "Exponentials set the limit: a larger head size or cheaper exponentials shift it.",
    ("launch", True): "Launches set the limit: replay a graph, or batch more sequences.",
    ("launch", False): "Launches set the limit: fuse them, or batch more work.",
}
