"""Print a run as a Markdown table: python docs/table.py RUN.jsonl.

The README shows those of docs/results/h200/default-with-peers.jsonl and full-with-peers.jsonl.
"""

import sys
from pathlib import Path

from roofline.records import read
from roofline.reports.points import Point
from roofline.reports.view import view_of_runs
from roofline.units import format_si

HEADER = (
    "| configuration | problem | time | rate | fastest peer | speed | HBM counted | predicted |",
    "|---|---|---|---|---|---|---|---|",
)
DTYPE_LEFT_OUT = ", bf16"


def table(path: Path) -> list[str]:
    """Return one line a configuration of ours, beside the fastest peer on the same inputs."""
    points = [point for point in view_of_runs([read(path)]).points if point.measured_s]
    lines = list(HEADER)
    for ours in points:
        if ours.is_ours:
            peers = [p for p in points if not p.is_ours and _same(p) == _same(ours)]
            lines.append(_line(ours, min(peers, key=lambda peer: peer.measured_s or 0.0, default=None)))
    return lines


def _same(point: Point) -> tuple[str, str, str]:
    return point.configuration, point.phase, point.problem


def _line(ours: Point, peer: Point | None) -> str:
    assert ours.measured_s is not None
    problem = f"{ours.phase}, {ours.problem.removesuffix(DTYPE_LEFT_OUT)}"
    if ours.phase == "prefill":
        rate = f"{format_si((ours.flops or 0) / ours.measured_s, 'FLOP/s')}"
    else:
        rate = f"{format_si((ours.hbm_used or 0) / ours.measured_s, 'B/s')}"
    beside = ("", "")
    if peer is not None and peer.measured_s:
        beside = (f"{peer.implementation} {format_si(peer.measured_s, 's')}", f"{peer.measured_s / ours.measured_s:.2f}x")
    counted, error = ours.hbm_counted, ours.prediction_error
    bytes_ = ("", "")
    if counted is not None and error is not None:
        percent = round(error * 100, 1)
        bytes_ = (format_si(counted, "B"), f"{percent:+.1f} %" if percent else "0.0 %")
    return f"| {' | '.join((ours.configuration, problem, format_si(ours.measured_s, 's'), rate, *beside, *bytes_))} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(table(Path(sys.argv[1]))) + "\n")
