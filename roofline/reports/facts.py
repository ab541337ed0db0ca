"""The environment and conventions of a report, as pairs of label and value. Pure; a fact that is unknown is left out."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from roofline.profiles.profile import CEILING_UNITS
from roofline.units import format_iec, format_si

Fact = tuple[str, str]
PEAKS = "dense, fp32 accumulate; data-sheet and measured values are kept apart"


def run_facts(header: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Return the facts of a run's header."""
    return tuple((label, text) for label, text in _run_facts(header) if text)


def condition_facts(measurements: Iterable[Mapping[str, Any]]) -> tuple[Fact, ...]:
    """Return under which clocks and limits the points of a run were timed."""
    timed = list(measurements)
    clocks = [each["clock_hz"] for each in timed if each.get("clock_hz")]
    reasons = [str(reason) for each in timed for reason in each.get("throttle_reasons") or ()]
    discarded = sum(each.get("discarded") or 0 for each in timed)
    kept = sum(bool(each.get("all_throttled")) for each in timed)
    facts = []
    if clocks:
        low, high = format_si(min(clocks), "Hz"), format_si(max(clocks), "Hz")
        facts.append(("SM clock", low if low == high else f"{low} to {high} (medians of points)"))
    if timed:
        counts = [f"{reason} on {reasons.count(reason)} of {len(timed)} points" for reason in dict.fromkeys(reasons)]
        counts += [f"{discarded} samples discarded"] if discarded else []
        counts += [f"{kept} points throttled throughout"] if kept else []
        facts.append(("Throttling", _joined(*counts) or "none seen"))
    return tuple(facts)


def document_facts(document: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Return the facts of an analysis."""
    conventions = document["conventions"]
    counted = {"exact": "useful matmul FLOPs of unmasked pairs", "full": "mask ignored", "half": "plain causal square halved"}
    flops = conventions["flop_convention"]
    facts = [
        ("FLOPs", f"{flops}: {counted.get(flops, '')}"),
        ("Times", "lower bounds at the roof"),
        ("HBM bytes", str(conventions["hbm_bytes"])),
        ("Peaks", PEAKS),
    ]
    return (*_device_facts(document["device"]), *facts)


def _run_facts(header: Mapping[str, Any]) -> Iterator[Fact]:
    environment = header.get("environment") or {}
    worker, state = _dict(environment, "worker"), _dict(environment, "gpu_state")
    settings = _dict(environment, "settings")
    yield "Measured", str(header.get("created", ""))
    yield "Run", str(header.get("run_id", ""))
    yield "Command", shlex.join(map(str, header.get("command") or ()))
    yield from _device_facts(header["profile"])
    yield "Driver", _joined(state.get("driver"), "CUDA " + str(state["cuda_driver"]) if state.get("cuda_driver") else None)
    limits = [_si(state.get("sm_clock_max_hz"), "Hz", "SM clock at most "), _si(state.get("memory_clock_hz"), "Hz", "memory ")]
    yield "Clocks", _joined(*limits, _si(state.get("power_limit_w"), "W", "power limit "))
    ecc = {True: "on", False: "off"}.get(state.get("ecc"))  # type: ignore[arg-type]
    yield "ECC", ecc or ""
    versions = {"roofline": environment.get("roofline"), "Python": environment.get("python")}
    versions |= {name: worker.get(name) for name in ("torch", "triton", "cuda", "cudnn")}
    versions |= {name: version for name, version in _dict(environment, "packages").items() if name not in versions}
    yield "Versions", _joined(*(f"{name} {version}" for name, version in versions.items() if version))
    yield "System", str(environment.get("platform") or "")
    yield "FLOPs", "exact: useful matmul FLOPs of unmasked pairs"
    yield "Times", "medians; correct result checked first; thermal and hardware slowdown discarded, power caps kept"
    l2 = settings.get("l2")
    yield "L2 state", {"cold": "cold: inputs rotate over more than the L2", "warm": "warm"}.get(str(l2), "see each point")
    yield "HBM bytes", "counted where counters ran, else predicted in steady state with rotating inputs; minimum for peers"
    yield "Peaks", PEAKS


def _device_facts(device: Mapping[str, Any]) -> Iterator[Fact]:
    sms, l2, memory = device.get("sm_count"), device.get("l2_bytes"), device.get("memory_bytes")
    parts = [f"{sms} SMs" if sms else None, f"L2 {format_iec(l2)}" if l2 else None]
    yield "Device", _joined(device["name"], *parts, f"memory {format_iec(memory)}" if memory else None)
    for roof, label in (("datasheet", "Data-sheet ceilings"), ("measured", "Measured ceilings")):
        shown = [_ceiling(key, each["value"]) for key, each in device[roof].items()]
        yield label, _joined(*shown) or ("none: run roofline calibrate" if roof == "measured" else "")


def _ceiling(key: str, value: float) -> str:
    unit = CEILING_UNITS.get(key, "")
    name = key.removesuffix("_per_s").removesuffix("_s").replace("_bytes", "").replace("_flop", "").replace("_", " ")
    return f"{name} {format_si(value, unit)}"


def _dict(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    return value if isinstance(value, Mapping) else {}


def _si(value: Any, unit: str, label: str) -> str | None:
    return f"{label}{format_si(value, unit)}" if isinstance(value, int | float) and value else None


def _joined(*parts: str | None) -> str:
    return ", ".join(str(part) for part in parts if part)
