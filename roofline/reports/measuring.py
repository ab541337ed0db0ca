"""Tables of what was measured: points beside their predictions, ceilings of a calibration, findings, and two runs compared."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roofline.reports.output import print_by_heading
from roofline.reports.problem_words import heading, problem_words
from roofline.units import format_number, format_percent, format_si

SHOWN_STATUS = {"wrong": "red", "failed": "red", "unsupported": "dim"}
STATE_STYLES = {"ok": "green", "note": "yellow", "missing": "red"}
COLUMN_WIDTH = 7  # "1.07 GB"; a run has a table a problem, and their columns stand under each other
VERDICT_STYLES = {"worse": "red", "better": "green", "only in A": "yellow", "only in B": "yellow"}


def run_document(path: str, records: list[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    """The points of a run as plain data, as its file holds them."""
    return {"schema": "roofline.run/1", "path": path, "notes": notes, "records": records}


def run_rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One flat row a point: its problem in words, times, bytes predicted and counted, and how it ended."""
    for record in document["records"]:
        measured, counters = record["measurement"] or {}, record["counters"] or {}
        predicted, times = record["prediction"] or {}, measured.get("time_s") or {}
        phase = predicted.get("phase") or ""
        yield {
            "configuration": record["configuration"],
            "phase": phase,
            "problem": problem_words(record["problem"], phase),
            "implementation": measured.get("implementation") or record["implementation"],
            "status": record["status"],
            "reason": record["reason"],
            "time_s": times.get("median"),
            "time_p10_s": times.get("p10"),
            "time_p90_s": times.get("p90"),
            "predicted_time_s": predicted.get("time_s"),
            "predicted_time_measured_roof_s": predicted.get("time_measured_roof_s"),
            "bound": predicted.get("bound"),
            "flops": predicted.get("flops"),
            "flop_per_s": measured.get("flop_per_s"),
            "hbm_bytes": predicted.get("hbm_bytes"),
            "hbm_bytes_counted": _counted(counters),
            "tensor_flops_counted": counters.get("tensor_flops"),
            "flops_executed": predicted.get("flops_executed"),
            "clock_hz": measured.get("clock_hz"),
            "power_w": measured.get("power_w"),
            "l2": measured.get("l2"),
        }


def render_run(document: Mapping[str, Any], console: Console) -> None:
    """Print predicted beside measured, a heading a problem and a line a point, and what to do with the file."""
    pairs = list(zip(document["records"], run_rows(document), strict=True))
    by_width = max((len(_by(row)) for _, row in pairs), default=0)
    print_by_heading(
        pairs, lambda pair: _heading(pair[1]), lambda group, is_first: _points_table(group, by_width, is_first), console
    )
    for text in [*_complaints(pairs), *document["notes"]]:
        console.print(text, highlight=False, markup=False)
    console.print("roof: time from the measured ceilings; HBM: predicted bytes; error: predicted against counted", style="dim")
    console.print(f"{document['path']}: roofline report {document['path']}", highlight=False, markup=False)


def _heading(row: Mapping[str, Any]) -> str:
    return heading(row["configuration"], row["phase"], row["problem"])


def _by(row: Mapping[str, Any]) -> str:
    """Who ran it: of ours the form too, which the implementation does not say (``roofline/absorbed``)."""
    name = row["implementation"] or ""
    return f"roofline/{row['configuration'].partition('/')[2]}" if name.startswith("roofline/") else name


def _points_table(pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], by_width: int, show_header: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=show_header)
    table.add_column("  by", no_wrap=True, min_width=by_width + 2)
    table.add_column("time", justify="right", no_wrap=True, min_width=len("unsupported"))
    for column in ("roof", "of roof", "HBM", "counted", "error"):
        table.add_column(column, justify="right", no_wrap=True, min_width=COLUMN_WIDTH)
    for record, row in pairs:
        by = f"  {_by(row)}"
        if record["status"] != "ok":
            table.add_row(by, Text(record["status"], style=SHOWN_STATUS.get(record["status"], "")))
            continue
        roof_s, time_s, counted = row["predicted_time_measured_roof_s"], row["time_s"], row["hbm_bytes_counted"]
        table.add_row(
            by,
            format_si(time_s, "s") if time_s else "-",
            format_si(roof_s, "s") if roof_s else "-",
            format_percent(roof_s / time_s, 2) if roof_s and time_s else "-",
            format_si(row["hbm_bytes"], "B") if row["hbm_bytes"] else "-",
            format_si(counted, "B") if counted else "-",
            f"{round(row['hbm_bytes'] / counted - 1, 3) + 0.0:+.1%}" if counted and row["hbm_bytes"] else "-",  # no -0.0%
        )
    return table


def _complaints(pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Iterator[str]:
    """What failed, a line each; what an implementation cannot do, once a reason."""
    refused = Counter[str]()
    for record, row in pairs:
        if record["status"] == "unsupported":
            refused[f"{row['implementation']}: unsupported: {record['reason']}"] += 1
        elif record["status"] != "ok":
            yield f"{row['configuration']} {row['implementation']}: {record['status']}: {record['reason']} ({row['problem']})"
    for text, count in refused.items():
        yield f"{text} ({count} point{'s' if count > 1 else ''})"


def calibration_document(calibration: Any) -> dict[str, Any]:
    """A calibration as plain data."""
    from dataclasses import asdict

    probed = [asdict(one) for one in calibration.probed]
    return {
        "schema": "roofline.calibration/1",
        "device": calibration.profile.id,
        "path": str(calibration.path),
        "notes": list(calibration.notes),
        "probes": probed,
    }


def calibration_rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One flat row a probe."""
    for probe in document["probes"]:
        yield {key: "; ".join(value) if isinstance(value, list | tuple) else value for key, value in probe.items()}


def render_calibration(document: Mapping[str, Any], console: Console) -> None:
    """Print each ceiling with its spread, clock and power, and where they are kept."""
    table = Table(
        title=f"Measured on {document['device']}", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.add_column("", no_wrap=True)
    for column in ("ceiling", "median", "spread", "clock", "power"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for probe in document["probes"]:
        if probe["value"] is None:
            table.add_row(probe["name"], Text(probe["missing"] or "not measured", style="dim"))
            continue
        table.add_row(
            probe["name"],
            format_si(probe["value"], probe["unit"]),
            format_number(probe["median"] / probe["value"]) if probe["median"] else "-",
            format_percent(probe["spread"], 2) if probe["spread"] is not None else "-",
            format_si(probe["clock_hz"], "Hz") if probe["clock_hz"] else "-",
            f"{probe['power_w']:.0f} W" if probe["power_w"] else "-",
            Text(", ".join(probe["throttle_reasons"]), style="red" if probe["spoilt"] else "dim"),
        )
    console.print(table)
    for note in document["notes"]:
        console.print(note, highlight=False, markup=False)
    console.print(f"kept in {document['path']}; `--roof measured` uses them", highlight=False, markup=False)


def findings_document(findings: list[Any]) -> dict[str, Any]:
    """What ``doctor`` found, as plain data."""
    from dataclasses import asdict

    return {"schema": "roofline.doctor/1", "findings": [asdict(finding) for finding in findings]}


def findings_rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row a finding."""
    yield from document["findings"]


def render_findings(document: Mapping[str, Any], console: Console) -> None:
    """Print a line a finding, and what to do about it."""
    for finding in document["findings"]:
        mark = Text(f"{finding['state']:<8}", style=STATE_STYLES[finding["state"]])
        console.print(mark + Text(f"{finding['name']}: {finding['found']}"))
        if finding["advice"]:
            console.print(Text(f"        {finding['advice']}", style="dim"))


def comparison_document(comparison: Any, before: str, after: str) -> dict[str, Any]:
    """Two runs compared, as plain data."""
    from dataclasses import asdict

    return {
        "schema": "roofline.comparison/1",
        "before": before,
        "after": after,
        "median_change": comparison.median_change,
        "changes": [asdict(change) for change in comparison.changes],
    }


def comparison_rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row a point."""
    yield from document["changes"]


def render_comparison(document: Mapping[str, Any], console: Console) -> None:
    """Print each point's change with its verdict, then by number its problem and the reason; what cannot be told comes last."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, justify in (("", "left"), ("by", "left"), ("A", "right"), ("B", "right"), ("change", "right"), ("", "left")):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    changes = sorted(document["changes"], key=lambda each: each["verdict"] == "cannot tell")
    for number, change in enumerate(changes, 1):
        table.add_row(
            f"{number} {change['configuration']}",
            change["implementation"],
            format_si(change["before_s"], "s") if change["before_s"] else "-",
            format_si(change["after_s"], "s") if change["after_s"] else "-",
            f"{change['change']:+.1%}" if change["change"] is not None else "-",
            Text(change["verdict"], style=VERDICT_STYLES.get(change["verdict"], "")),
        )
    console.print(f"A {document['before']}, B {document['after']}", highlight=False, markup=False)
    console.print(table)
    console.print()
    for number, change in enumerate(changes, 1):
        words = [change["phase"], problem_words(change["problem"], change["phase"])]
        said = f"{number} {', '.join(word for word in words if word)}: {change['reason']}"
        for line in wrap(said, console.width, subsequent_indent="  "):
            console.print(Text(line, style="dim"))
    if document["median_change"] is not None:
        console.print(f"median change {document['median_change']:+.2%}; below 0 is faster", highlight=False)


def _counted(counters: Mapping[str, Any]) -> float | None:
    read, written = counters.get("hbm_read_bytes"), counters.get("hbm_write_bytes")
    return None if read is None or written is None else float(read + written)
