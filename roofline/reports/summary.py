"""A view in a terminal of 80 columns: summary, a table of the points, verdicts, errors against counters, a text roofline."""

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roofline.reports.accuracy import ALL, REREADING, REREADING_ABOVE, STREAMING, STREAMING_AT_MOST, Accuracy, by_variant
from roofline.reports.output import print_by_heading, print_table
from roofline.reports.plot import MARKERS, chart
from roofline.reports.points import Point
from roofline.reports.problem_words import heading
from roofline.reports.view import ROOF_NAMES, View
from roofline.units import format_percent, format_si

POINT_COLUMNS = {"time": 11, "FLOP/s": 6, "roof": 5, "bound": 11, "HBM": 8, "error": 9}  # and their widths: "unsupported"
SAME = 1e-9  # an error this small is rounding
BAD = ("wrong", "failed", "unsupported")


# Where HBM bytes come from, if not from counters.
SOURCE_MARKS = {"predicted": "~", "minimum": "≥"}
SOURCE_WORDS = {"predicted": "predicted", "minimum": "the minimum, of a peer that was not counted"}


def render_view(view: View, console: Console) -> None:
    """Print the whole report."""
    for index, source in enumerate(view.sources):
        console.print(Text(source.name, style="bold"), Text(f"({source.device})", style="dim"))
        for label, value in source.facts:
            if label in ("Measured", "Command", "Driver", "Versions"):
                for line in wrap(f"{label}: {value}", console.width, subsequent_indent="  ", break_long_words=False):
                    console.print(Text(line, style="dim"))
        for note in source.notes:
            console.print(f"Note: {note}", markup=False, highlight=False, style="yellow")
        points = [point for point in view.points if point.run == index]
        if points:
            console.print()
            _print_points(points, view.roof, console)
            marks = {SOURCE_MARKS[point.hbm_source]: point.hbm_source for point in points if point.hbm_source in SOURCE_MARKS}
            if marks and any(point.hbm_source == "counted" for point in points):
                said = "; ".join(f"{mark} {SOURCE_WORDS[source]}" for mark, source in marks.items())
                console.print(Text(f"HBM: counted; {said}", style="dim"))
        console.print()
    for sentence in view.summary:
        for line in wrap(sentence, console.width):
            console.print(Text(line))
    console.print()
    for point in view.points:
        _verdict(point, view, console)
    if view.errors:
        console.print()
        print_table(error_rows(view), console)
    drawing = chart_of(view)
    if drawing is not None:
        console.print()
        console.print(Text.from_ansi(chart(drawing)))
        if len(drawing["results"]) > len(MARKERS):
            console.print(
                f"The first {len(MARKERS)} of {len(drawing['results'])} points; -o FILE.html draws all.", highlight=False
            )


def error_rows(view: View) -> Table:
    """Return the errors of the predicted HBM bytes by variant, next to those of the simpler counts."""
    table = _table("HBM bytes against counters: errors of the prediction, medians of simpler counts")
    for column in ("points", "median", "p90", "worst", "minimum", "cold", "SM side"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in by_variant(view.errors):
        figures = [_error(value) for value in (row.median, row.p90)]
        simple = [_error(value) for value in (row.minimum, row.cold, row.sm_side)]
        table.add_row(Text(row.variant), str(row.points), *figures, _signed(row.worst), *simple)
    return table


def render_validation(view: View, console: Console) -> None:
    """Print the error table of ``validate``, the worst points by name, and how exact the exact counts are."""
    console.print(
        Text(view.title, style="bold"), Text(f"({', '.join(dict.fromkeys(s.device for s in view.sources))})", style="dim")
    )
    rows = by_variant(view.errors)
    console.print(f"{rows[-1].points} points with counters; predictions are those stored with the run\n", highlight=False)
    print_table(error_rows(view), console)
    console.print()
    for row in rows:
        if row.variant not in (STREAMING, REREADING, ALL):
            console.print(Text(f"Worst of {row.variant}: {_signed(row.worst)}, {row.worst_point}"))
    if any(row.variant == REREADING for row in rows):
        said = f"{STREAMING}: counted at most {STREAMING_AT_MOST}x the minimum; {REREADING}: over {REREADING_ABOVE}x."
        console.print(Text(said, style="dim"))
    console.print(Text(_exact(rows[-1])))


def validation(view: View) -> dict[str, Any]:
    """Return what ``validate --json`` prints."""
    return {
        "schema": "roofline.validation/1",
        "runs": [source.name for source in view.sources],
        "errors": [row._asdict() for row in view.errors],
    }


def chart_of(view: View) -> dict[str, Any] | None:
    """Return the view as the analysis that ``plot`` draws: the dtype of most points, measured or predicted."""
    drawn = [point for point in view.points if point.flops and point.hbm_used and point.status not in BAD]
    if not drawn:
        return None
    dtypes = [point.dtype for point in drawn]
    dtype = max(dict.fromkeys(dtypes), key=dtypes.count)
    roof = {line.level: line for line in view.ceilings if line.run == drawn[0].run and line.roof == "datasheet"}
    if view.roof == "measured":
        roof |= {line.level: line for line in view.ceilings if line.run == drawn[0].run and line.roof == "measured"}
    if "HBM" not in roof:
        return None
    ridge = roof[dtype].per_s / roof["HBM"].per_s if dtype in roof else None
    results = []
    for point in drawn:
        time_s = point.measured_s or point.predicted_s.get(view.roof) or point.predicted_s.get("datasheet")
        if point.dtype == dtype and time_s and point.flops and point.hbm_used:
            name = f"{point.number} {point.configuration}" + ("" if point.is_ours else f" {point.implementation}")
            results.append(
                {
                    "configuration": name,
                    "intensity": point.flops / point.hbm_used,
                    "ridge": ridge,
                    "attainable_flop_per_s": point.flops / time_s,
                }
            )
    ceilings = {"hbm_bytes_per_s": {"value": roof["HBM"].per_s}}
    name = f"{view.sources[drawn[0].run].device}, {dtype}, {ROOF_NAMES[view.roof]} roof"
    device = {"name": name, "datasheet": ceilings, "measured": {}}
    return {"device": device, "conventions": {"roof": "datasheet"}, "results": results} if results else None


def _print_points(points: list[Point], roof: str, console: Console) -> None:
    """Print a heading a problem, and under it a line a point; the columns of all problems stand under each other."""
    name_width = max(len(_name(point)) for point in points)
    print_by_heading(
        points,
        lambda point: heading(point.configuration, point.phase, point.problem),
        lambda group, is_first: _points(group, roof, name_width, is_first),
        console,
    )


def _name(point: Point) -> str:
    maker = point.configuration.partition("/")[2] if point.is_ours else point.implementation
    return f"{point.number:>3} {maker}"


def _points(points: Iterable[Point], roof: str, name_width: int, show_header: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=show_header)
    table.add_column("    by", no_wrap=True, min_width=name_width)
    for column, width in POINT_COLUMNS.items():
        table.add_column(column, justify="left" if column == "bound" else "right", no_wrap=True, min_width=width)
    for point in points:
        name = Text(_name(point))
        if point.status in BAD:
            table.add_row(name, Text(point.status, style="yellow"))
            continue
        time_s = point.measured_s or point.predicted_s.get(roof) or point.predicted_s.get("datasheet")
        share = point.roof_share.get(roof)
        table.add_row(
            name,
            ("" if point.measured_s else "≥ ") + format_si(time_s, "s") if time_s else "-",
            format_si(point.flops / time_s, "") if point.flops and time_s else "-",
            format_percent(share, 2) if share else "-",
            Text(point.bound or "-") if point.is_ours else "",
            f"{SOURCE_MARKS.get(point.hbm_source or '', '')}{format_si(point.hbm_used, 'B')}" if point.hbm_used else "-",
            _signed(point.prediction_error),
        )
    return table


def _verdict(point: Point, view: View, console: Console) -> None:
    where = f", {view.sources[point.run].name}" if len(view.sources) > 1 else ""
    head = Text(f"{point.number} {point.configuration}", style="bold")
    console.print(head + Text(f" {point.implementation}{where}", style="dim"))
    sentences = [f"{point.phase}, {point.problem}.", f"{point.verdict}." if point.verdict else "", *point.notes, point.advice]
    for line in wrap(" ".join(sentence for sentence in sentences if sentence), console.width - 2):
        console.print(Text(f"  {line}"))


def _exact(row: Accuracy) -> str:
    said = [
        f"{name} {_signed(value)}"
        for name, value in (("SM bytes", row.sm_bytes), ("tensor FLOPs", row.flops))
        if value is not None
    ]
    return f"Counts that should be exact, at worst: {', '.join(said)}" if said else "SM bytes and tensor FLOPs were not counted"


def _table(title: str) -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    return table


def _error(value: float | None) -> str:
    return "-" if value is None else "0 %" if abs(value) < SAME else format_percent(value, 2)


def _signed(value: float | None) -> str:
    return "-" if value is None else ("+" if value > SAME else "") + _error(value)


def validation_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of ``validate --csv``."""
    return list(document["errors"])
