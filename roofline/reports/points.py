"""One record, or one result of an analysis, as the ``Point`` that reports draw: flat figures, SI base units, ratios 0-1.

Pure. Everything is read leniently: a record of an older version lacks fields, and what is unknown stays ``None``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from roofline.reports.advice import advice
from roofline.reports.problem_words import problem_words, tokens
from roofline.reports.verdicts import measured_verdict, verdict

OURS = "roofline"
ROOFS = ("datasheet", "measured")


class Tensor(NamedTuple):
    """Bytes of one tensor over all launches: predicted for HBM, and as the SMs request them."""

    name: str
    role: str
    hbm_bytes: int
    sm_bytes: int


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration on one implementation. ``number`` names it wherever it is drawn.

    ``hbm_used`` are the bytes that its measured rates and intensity stand on, and ``hbm_source`` says which: counted, else
    predicted, else the minimum (peers, whose launches are not ours to predict). ``predicted_s``, ``roof_s`` and
    ``roof_share`` are by roof. ``roof_s``: the time that the roofline alone allows for useful FLOPs and ``hbm_used``.
    """

    number: int
    run: int
    configuration: str
    variant: str
    implementation: str
    series: str
    status: str
    reason: str | None
    phase: str
    dtype: str
    problem: str
    tokens: int | None
    family: str  # the problem without its lengths: points of one family lie on one line over ``tokens``
    flops: int | None
    flops_executed: int | None
    hbm_bytes: float | None
    hbm_bytes_min: int | None
    hbm_bytes_cold: int | None
    sm_bytes: int | None
    hbm_counted: float | None
    l2_counted: float | None
    sm_counted: float | None
    tensor_flops_counted: float | None
    hbm_used: float | None
    hbm_source: str | None
    predicted_s: Mapping[str, float | None]
    measured_s: float | None
    p10_s: float | None
    p90_s: float | None
    samples: int
    discarded: int
    roof_s: Mapping[str, float | None]
    roof_share: Mapping[str, float | None]
    bound: str | None
    sms_used: float | None
    kv_cache_bytes: int | None
    kv_cache_bytes_allocated: int | None
    workspace_bytes: int | None
    clock_hz: float | None
    power_w: float | None
    throttled: str
    l2_state: str | None
    method: str | None
    error: float | None
    tolerance: float | None
    tensors: tuple[Tensor, ...]
    verdict: str
    advice: str
    notes: tuple[str, ...]

    @property
    def is_ours(self) -> bool:
        """Whether one of our kernels ran it (or would): its launches are those that were predicted."""
        return self.implementation.partition("/")[0] == OURS

    @property
    def prediction_error(self) -> float | None:
        """Predicted over counted HBM bytes, minus 1; ``None`` for peers and where nothing was counted."""
        if not self.is_ours or not self.hbm_counted or self.hbm_bytes is None:
            return None
        return self.hbm_bytes / self.hbm_counted - 1


def point(number: int, run: int, fields: Mapping[str, Any], device: Mapping[str, Any]) -> Point:
    """Return the point of ``fields``, which are those of a record, on ``device`` with its ceilings of both roofs."""
    prediction, problem = fields.get("prediction") or {}, fields.get("problem") or {}
    measured, counters = fields.get("measurement") or {}, fields.get("counters") or {}
    times, variant = measured.get("time_s") or {}, str(fields["variant"])
    implementation = str(measured.get("implementation") or fields.get("implementation") or f"{OURS}/{variant}")
    ours = implementation.partition("/")[0] == OURS
    counted = _sum(counters.get("hbm_read_bytes"), counters.get("hbm_write_bytes"))
    used, source = _used(prediction, counted, ours)
    dtype, flops, median = str(problem.get("dtype")), prediction.get("flops"), times.get("median")
    roofs = {roof: _roof_s(flops, used, dtype, device, roof) for roof in ROOFS}
    shares = {roof: limit / median if limit and median else None for roof, limit in roofs.items()}
    told = {"counted": counted, "hbm_used": used, "source": source, "ours": ours, "roof_s": roofs, "share": shares}
    result = {**prediction, **{name: fields.get(name) for name in ("configuration", "variant", "problem")}}
    phase = str(prediction.get("phase") or ("decode" if problem.get("q_len") == 1 else "prefill"))
    return Point(
        number=number,
        run=run,
        configuration=str(fields["configuration"]),
        variant=variant,
        implementation=implementation,
        series=variant if ours else f"{variant}, {implementation}",
        status=str(fields["status"]),
        reason=fields.get("reason"),
        phase=phase,
        dtype=dtype,
        problem=problem_words(problem, phase),
        tokens=tokens(problem),
        family=problem_words({**problem, "q_len": None, "kv_len": None, "lengths": None, "max_len": None}, phase),
        flops=flops,
        flops_executed=prediction.get("flops_executed"),
        hbm_bytes=prediction.get("hbm_bytes"),
        hbm_bytes_min=prediction.get("hbm_bytes_min"),
        hbm_bytes_cold=prediction.get("hbm_bytes_cold"),
        sm_bytes=prediction.get("sm_bytes"),
        hbm_counted=counted,
        l2_counted=counters.get("l2_bytes"),
        sm_counted=_sum(counters.get("sm_read_bytes"), counters.get("sm_write_bytes")),
        tensor_flops_counted=counters.get("tensor_flops"),
        hbm_used=used,
        hbm_source=source,
        predicted_s=_predicted_s(prediction),
        measured_s=median,
        p10_s=times.get("p10"),
        p90_s=times.get("p90"),
        samples=len(times.get("samples") or ()),
        discarded=int(measured.get("discarded") or 0),
        roof_s=roofs,
        roof_share=shares,
        bound=prediction.get("bound"),
        sms_used=prediction.get("sms_used"),
        kv_cache_bytes=prediction.get("kv_cache_bytes"),
        kv_cache_bytes_allocated=prediction.get("kv_cache_bytes_allocated"),
        workspace_bytes=prediction.get("workspace_bytes"),
        clock_hz=measured.get("clock_hz"),
        power_w=measured.get("power_w"),
        throttled=", ".join(map(str, measured.get("throttle_reasons") or ())),
        l2_state=measured.get("l2"),
        method=measured.get("method"),
        error=measured.get("error"),
        tolerance=measured.get("tolerance"),
        tensors=_tensors(prediction),
        verdict=". ".join(_sentences(fields, result, measured, told, device)),
        advice=advice(fields, result, measured, told, device),
        notes=tuple(map(str, fields.get("notes") or ())),
    )


def ceiling(device: Mapping[str, Any], key: str, roof: str) -> float | None:
    """Return a ceiling of ``roof``; the measured one falls back to the data sheet where nothing was measured."""
    found = (device["measured"].get(key) if roof == "measured" else None) or device["datasheet"].get(key)
    return found["value"] if found else None


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _used(prediction: Mapping[str, Any], counted: float | None, ours: bool) -> tuple[float | None, str | None]:
    if counted:
        return counted, "counted"
    if ours and prediction.get("hbm_bytes") is not None:
        return prediction["hbm_bytes"], "predicted"
    least = prediction.get("hbm_bytes_min")
    return least, None if least is None else "minimum"


def _roof_s(flops: int | None, used: float | None, dtype: str, device: Mapping[str, Any], roof: str) -> float | None:
    if roof == "measured" and not device["measured"]:
        return None
    peak, rate = ceiling(device, f"{dtype}_flop_per_s", roof), ceiling(device, "hbm_bytes_per_s", roof)
    times = [flops / peak if flops and peak else 0.0, used / rate if used and rate else 0.0]
    return max(times) or None


def _predicted_s(prediction: Mapping[str, Any]) -> dict[str, float | None]:
    own, time_s = prediction.get("roof") or "datasheet", prediction.get("time_s")
    times = {"datasheet": None, "measured": prediction.get("time_measured_roof_s")}
    return times if time_s is None else {**times, own: time_s}


def _tensors(prediction: Mapping[str, Any]) -> tuple[Tensor, ...]:
    sums: dict[tuple[str, str], list[int]] = {}
    for launch in prediction.get("launches") or ():
        for moved in launch.get("traffic") or ():
            total = sums.setdefault((str(moved.get("tensor")), str(moved.get("role"))), [0, 0])
            total[0] += moved.get("read_bytes", 0) + moved.get("write_bytes", 0)
            total[1] += moved.get("sm_read_bytes", 0) + moved.get("sm_write_bytes", 0)
    return tuple(Tensor(name, role, hbm, sm) for (name, role), (hbm, sm) in sums.items())


def _sentences(
    fields: Mapping[str, Any],
    result: Mapping[str, Any],
    measured: Mapping[str, Any],
    told: Mapping[str, Any],
    device: Mapping[str, Any],
) -> list[str]:
    """Return what is said of the point: its status, what was measured, and what binds it."""
    status, reason = fields["status"], fields.get("reason")
    if status not in ("ok", "predicted"):
        return [f"{status}: {reason}"]
    found = measured_verdict(result, measured, told, device) if measured else []
    if not told["ours"]:  # the plan that was predicted is not the one that ran
        return found
    theory = verdict(result, device)
    return [*found, *([theory[:1].upper() + theory[1:]] if theory else [])]
