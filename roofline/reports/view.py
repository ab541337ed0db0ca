"""What a report shows, as data: runs or an analysis become a ``View``, which the terminal and the page only draw.

Pure, and tested as data. It needs nothing but the records: no torch, no kernels, no device.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from roofline.reports.accuracy import ALL, ErrorRow, error_table
from roofline.reports.beside import beside
from roofline.reports.facts import condition_facts, document_facts, run_facts
from roofline.reports.points import ROOFS, Point, point
from roofline.units import format_percent, format_si

if TYPE_CHECKING:
    from roofline.records import Run

SCHEMA = "roofline.view/1"
ROOF_NAMES = {"datasheet": "data-sheet", "measured": "measured"}
MEMORY = {"hbm_bytes_per_s": "HBM", "l2_bytes_per_s": "L2"}


class Line(NamedTuple):
    """One ceiling of one run: ``level`` is HBM, L2 or the dtype of a matrix peak; ``per_s`` in B/s or FLOP/s."""

    run: int
    roof: str
    level: str
    kind: str
    per_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Source:
    """A run file, or an analysis: its name, device, and the facts and notes a reader has to know."""

    name: str
    device: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Everything a report shows. ``roof`` is the one it starts with."""

    title: str
    roof: str
    sources: tuple[Source, ...]
    ceilings: tuple[Line, ...]
    points: tuple[Point, ...]
    errors: tuple[ErrorRow, ...]
    summary: tuple[str, ...]
    changes: tuple[Mapping[str, Any], ...] = ()

    @property
    def statuses(self) -> dict[str, int]:
        """Number of points by status, in the order they first appear."""
        counts: dict[str, int] = {}
        for each in self.points:
            counts[each.status] = counts.get(each.status, 0) + 1
        return counts


def view_of_runs(runs: Sequence["Run"]) -> View:
    """Return the view of one or more runs, their points numbered through; two runs are compared too."""
    points: list[Point] = []
    sources, ceilings = [], []
    names = _names([run.path.name for run in runs])
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        device = run.header.profile.model_dump()
        points += [point(len(points) + at, index, record.model_dump(), device) for at, record in enumerate(run.records, 1)]
        notes = [f"{name}: the last line was cut off and left out"] if run.torn else []
        notes += [] if run.records else [f"{name}: holds no points"]
        measured = [record.measurement.model_dump() for record in run.records if record.measurement is not None]
        facts = (*run_facts(run.header.model_dump()), *condition_facts(measured))
        sources.append(Source(name, device["name"], facts, tuple(notes)))
        ceilings += _lines(index, device)
    changes: tuple[Mapping[str, Any], ...] = ()
    if len(runs) == 2 and all(run.records for run in runs):
        changes = _changes(*runs)
    return _view(" and ".join(names), points, sources, ceilings, changes)


def view_of_document(document: Mapping[str, Any]) -> View:
    """Return the view of an analysis, as ``analyze --json`` prints it: predicted points only."""
    device, roof = document["device"], document["conventions"]["roof"]
    points = []
    for number, result in enumerate(document["results"], 1):
        prediction = {**result, "roof": roof}
        names = {key: result[key] for key in ("configuration", "variant", "problem", "plan")}
        points.append(point(number, 0, {"status": "predicted", "prediction": prediction, **names}, device))
    source = Source("analysis", device["name"], document_facts(document), tuple(document["conventions"]["notes"]))
    return _view(f"Analysis on {device['name']}", points, [source], _lines(0, device), (), roof)


def to_dict(view: View) -> dict[str, Any]:
    """Return the view as ``report --json`` prints it."""
    return {
        "schema": SCHEMA,
        **asdict(view),
        "ceilings": [line._asdict() for line in view.ceilings],
        "errors": [row._asdict() for row in view.errors],
        "points": [
            {
                **asdict(each),
                "tensors": [tensor._asdict() for tensor in each.tensors],
                "prediction_error": each.prediction_error,
            }
            for each in view.points
        ],
    }


def rows(document: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """One flat row a point of ``to_dict``: figures by roof get its name behind theirs, tensors are left out."""
    for each in document["points"]:
        flat: dict[str, Any] = {"source": document["sources"][each["run"]]["name"]}
        for key, value in each.items():
            if isinstance(value, dict):
                flat |= {f"{key}_{inner}": deep for inner, deep in value.items()}
            elif key == "notes":
                flat[key] = "; ".join(value)
            elif key != "tensors":
                flat[key] = value
        yield flat


def _view(
    title: str,
    points: Sequence[Point],
    sources: Sequence[Source],
    ceilings: Sequence[Line],
    changes: tuple[Mapping[str, Any], ...],
    roof: str | None = None,
) -> View:
    measured = any(line.roof == "measured" and line.level == "HBM" for line in ceilings)
    timed = any(each.measured_s is not None for each in points)
    chosen = roof or ("measured" if measured and timed else "datasheet")
    points = beside(points)
    errors = error_table(points)
    summary = tuple(_summary(points, errors, changes))
    return View(title, chosen, tuple(sources), tuple(ceilings), tuple(points), errors, summary, changes)


def _names(names: Sequence[str]) -> list[str]:
    """Run files of one name are told apart by a number."""
    return [name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})" for at, name in enumerate(names)]


def _lines(run: int, device: Mapping[str, Any]) -> list[Line]:
    found = []
    for roof in ROOFS:
        for key, each in device[roof].items():
            level = MEMORY.get(key) or (key.removesuffix("_flop_per_s") if key.endswith("_flop_per_s") else None)
            if level is not None:
                found.append(Line(run, roof, level, each["kind"], each["value"], each["source"]))
    return found


def _changes(before: "Run", after: "Run") -> tuple[Mapping[str, Any], ...]:
    from roofline.compare import compare
    from roofline.errors import InputError

    try:
        return tuple(asdict(change) for change in compare(before, after).changes)
    except InputError:  # nothing in common: two runs side by side, and nothing to compare
        return ()


def _summary(points: Sequence[Point], errors: Sequence[ErrorRow], changes: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """A sentence each on what was measured, the best points, the quality of the prediction, and what went wrong."""
    timed = [each for each in points if each.measured_s]
    if timed:
        yield f"{len(timed)} of {len(points)} points timed."
    elif points:
        yield f"{len(points)} points predicted, none measured."
    else:
        yield "No points."
    for phase, rate, unit in (("prefill", "flops", "FLOP/s"), ("decode", "hbm_used", "B/s")):
        able = [each for each in timed if each.phase == phase and each.is_ours and getattr(each, rate)]
        if able:
            best = max(able, key=lambda each: getattr(each, rate) / each.measured_s)
            yield f"Fastest {phase}: {_best(best, rate, unit)}."
    overall = [row for row in errors if row.estimate == "prediction"]
    row = next((row for row in overall if row.variant == ALL), overall[0] if overall else None)
    if row is not None:
        cold = next((e for e in errors if e.variant == row.variant and e.estimate == "cold launches"), None)
        beside = f"; counting cold launches is off by {format_percent(cold.median, 2)}" if cold else ""
        within = format_percent(row.median, 2)
        yield f"HBM bytes are predicted within {within} of the counters (median of {row.points}{beside})."
    elif timed:
        yield "No counters were read: bytes are predicted, not counted."
    broken = [each for each in points if each.status in ("wrong", "failed")]
    if broken:
        yield f"{len(broken)} points are wrong or failed: {', '.join(dict.fromkeys(each.configuration for each in broken))}."
    if changes:
        counts = {name: sum(each["verdict"] == name for each in changes) for name in ("better", "worse", "cannot tell")}
        yield "Second run against the first: " + ", ".join(f"{count} {name}" for name, count in counts.items()) + "."


def _best(best: Point, rate: str, unit: str) -> str:
    share = best.roof_share["measured"] or best.roof_share["datasheet"]
    roof = "measured" if best.roof_share["measured"] else "datasheet"
    of_roof = f", {format_percent(share, 2)} of the {ROOF_NAMES[roof]} roof" if share else ""
    value = format_si(getattr(best, rate) / (best.measured_s or 1.0), unit)
    return f"{best.configuration} ({best.problem}) at {value}{of_roof}"
