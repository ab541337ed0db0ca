"""The explanation of a request as one document: for each configuration its quantities, lines, totals and divisions.

Each formula is checked against the figure that the cost function counted, so that the two cannot drift apart.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roofline.analysis import Conventions, Result, analyze, document, problem_dict, to_dict
from roofline.configurations import Request, configurations
from roofline.errors import RooflineError
from roofline.explain.counts import distinct
from roofline.explain.formula import Formula, Quantity, product
from roofline.explain.kv_cache import per_token
from roofline.explain.launches import Figures, LaunchFormulas
from roofline.explain.times import launch_times
from roofline.explain.totals import totals
from roofline.explain.variants import FORMULAS
from roofline.profiles.profile import Profile
from roofline.units import format_percent

SCHEMA = "roofline.explanation/1"
WORK = ("flops", "flops_executed", "exp_ops", "vector_ops")


class Moved(NamedTuple):
    """One direction of a tensor's traffic: the figures of the cost, and the one of the L2 model."""

    least: str
    requested: str
    predicted: str


DIRECTIONS = (
    Moved("read_bytes_min", "sm_read_bytes", "read_bytes"),
    Moved("write_bytes_min", "sm_write_bytes", "write_bytes"),
)


def explain_all(request: Request, profile: Profile, conventions: Conventions, notes: Iterable[str] = ()) -> dict[str, Any]:
    """Explain every configuration of ``request``: the document that ``explain --json`` prints."""
    results = [analyze(configuration, profile, conventions) for configuration in configurations(request)]
    frame = document((), profile, conventions, notes)
    return {
        "schema": SCHEMA,
        "device": frame["device"],
        "conventions": frame["conventions"],
        "explanations": [explain(result, profile, conventions) for result in results],
    }


def explain(result: Result, profile: Profile, conventions: Conventions) -> dict[str, Any]:
    """Explain one result. Raises ``RooflineError`` where a formula does not give the figure that was counted."""
    configuration, problem = result.configuration, result.configuration.problem
    figures, formulas = to_dict(result), FORMULAS[configuration.variant](problem, result.plan)
    counted = {**figures, "flops_exact": result.cost.flops}
    sums = totals(result, formulas, conventions)
    for quantity in sums:
        _check(configuration.name, quantity.symbol, quantity.formula, counted[quantity.symbol])
    quantities = distinct(formulas.quantities)
    if configuration.variant != "linear":  # whose state does not grow
        quantities.append(per_token(problem))
    launches = []
    for position, (explained, launch) in enumerate(zip(formulas.launches, figures["launches"], strict=True)):
        entries = result.prediction.hbm.launches[position]
        hbm_bytes = sum(entry.read_bytes + entry.write_bytes for entry in entries)
        launches.append(
            {
                "name": launch["name"],
                "count": launch["count"],
                "ctas": launch["ctas"],
                "lines": list(_lines(configuration.name, explained, launch, result.cost.launches[position].traffic)),
                "times": launch_times(result.cost.launches[position], hbm_bytes, result, profile, conventions.roof),
                "bound": launch["bound"],
                "time_s": launch["time_s"],
            }
        )
    overhead = result.prediction.units["launch"]
    return {
        "configuration": configuration.name,
        "variant": configuration.variant,
        "phase": configuration.phase,
        "problem": problem_dict(problem),
        "plan": figures["plan"],
        "quantities": [_quantity(quantity) for quantity in quantities],
        "launches": launches,
        "totals": [_quantity(quantity) for quantity in sums],
        "reasons": figures["reasons"],
        "intensity": {"flops": result.flops, "hbm_bytes": figures["hbm_bytes"], "value": figures["intensity"]},
        "ridge": {**_ridge(result, profile, conventions), "value": figures["ridge"]},
        "launch_overhead": {"launches": overhead.work, "time_s": overhead.time_s},
        "unknown": figures["unknown"],
        "bound": figures["bound"],
        "time_s": figures["time_s"],
        "attainable_flop_per_s": figures["attainable_flop_per_s"],
    }


def explanation_rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One flat row per formula: quantities, lines and totals in the order in which they are printed."""
    for explanation in document["explanations"]:
        head = {key: explanation[key] for key in ("configuration", "phase")}
        for quantity in explanation["quantities"]:
            yield _row(head, "quantity", quantity["symbol"], quantity, quantity["meaning"])
        for launch in explanation["launches"]:
            for line in launch["lines"]:
                yield _row(head, "launch", line["figure"], line, line["reason"], launch["name"], line["tensor"])
        for entry in explanation["totals"]:
            yield _row(head, "total", entry["symbol"], entry, entry["meaning"])


def _row(
    head: Mapping[str, Any],
    kind: str,
    figure: str,
    entry: Mapping[str, Any],
    meaning: str | None,
    launch: str | None = None,
    tensor: str | None = None,
) -> dict[str, Any]:
    row = {**head, "kind": kind, "launch": launch, "tensor": tensor, "figure": figure}
    return {**row, "formula": entry["formula"], "value": entry["value"], "meaning": meaning}


def _lines(name: str, explained: LaunchFormulas, launch: Mapping[str, Any], counted: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for figure in WORK:
        if launch[figure]:
            yield _line(name, None, None, figure, explained.work, launch[figure])
    for traffic, count in zip(launch["traffic"], counted, strict=True):
        tensor, role, figures = traffic["tensor"], traffic["role"], explained.tensors[traffic["tensor"]]
        if count.tensor_bytes is not None:
            yield _line(name, tensor, role, "tensor_bytes", figures, count.tensor_bytes)
        for moved in DIRECTIONS:
            if traffic[moved.least] or traffic[moved.requested]:
                yield _line(name, tensor, role, moved.least, figures, traffic[moved.least])
                yield _line(name, tensor, role, moved.requested, figures, traffic[moved.requested])
                edge = count.edge_bytes if moved.predicted == "read_bytes" else 0
                formula, reason = _predicted(traffic, moved, edge)
                line = _line(name, tensor, role, moved.predicted, {moved.predicted: formula}, traffic[moved.predicted])
                yield {**line, "reason": reason}


def _line(name: str, tensor: str | None, role: str | None, figure: str, formulas: Figures, counted: int) -> dict[str, Any]:
    formula = formulas[figure]
    _check(name, figure if tensor is None else f"{tensor} {figure}", formula, counted)
    return {"tensor": tensor, "role": role, "figure": figure, **formula.to_dict(), "reason": None}


def _predicted(traffic: Mapping[str, Any], moved: Moved, edge: int) -> tuple[Formula, str]:
    """The HBM bytes as the minimum, more or less, and why in a few words; ``edge``: bytes before a window in its first tile."""
    least, requested, predicted = traffic[moved.least], traffic[moved.requested], traffic[moved.predicted]
    is_read, role = moved.predicted == "read_bytes", traffic["role"]
    once = product(("minimum", least)) + product(("before the window", edge)) if edge else product(("minimum", least))
    if predicted > least + edge:
        more = once + product(("read again", predicted - least - edge))
        return more, f"{predicted / least:.2f} times the minimum: the L2 is too small for what is in flight"
    if edge and predicted == least + edge:
        return once, "tiles are read whole"
    if predicted == least:
        if role == "intermediate":
            return product(("minimum", least)), "does not stay in L2" if is_read else "leaves the L2 before it is written again"
        if not is_read:
            return product(("minimum", least)), "written once"
        again = "; the L2 serves the re-reads" if requested > 1.05 * least else ""
        return product(("minimum", least)), f"inputs start cold{again}"
    kept = format_percent(1 - predicted / least)
    if role != "intermediate":
        return product(("missing the L2", predicted)), f"{kept} still in L2 from an earlier launch"
    action = "read from the L2" if is_read else "written again before it leaves the L2"
    return product(("missing the L2", predicted)), f"{kept} {action}"


def _ridge(result: Result, profile: Profile, conventions: Conventions) -> dict[str, float | None]:
    dtype = result.configuration.problem.dtype.name
    peak = profile.ceiling(f"{dtype}_flop_per_s", conventions.roof)
    hbm = profile.ceiling("hbm_bytes_per_s", conventions.roof)
    return {"flop_per_s": peak.value if peak else None, "bytes_per_s": hbm.value if hbm else None}


def _quantity(quantity: Quantity) -> dict[str, Any]:
    return {"symbol": quantity.symbol, "meaning": quantity.meaning, **quantity.formula.to_dict()}


def _check(configuration: str, figure: str, formula: Formula, counted: int) -> None:
    if formula.value != counted:
        raise RooflineError(
            f"{configuration}: the formula of {figure}, {formula.text()} = {formula.value:,}, is not what was counted, "
            f"{counted:,}: please report this"
        )
