"""Rows of a sweep as they are made: CSV, JSON Lines or a table of fixed columns; memory does not grow with the grid."""

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from roofline.analysis import Result
from roofline.reports.output import Target, print_note
from roofline.sweep import COLUMNS, row
from roofline.units import format_number, format_si

FLUSH_ROWS = 1  # a person watching a terminal sees each row
BLOCK_ROWS = 1000  # a file or a pipe gets blocks

_HEAD = (
    f"{'configuration':<17}{'phase':<7}{'batch':>6}{'q_len':>9}{'kv_len':>9}{'HBM':>8}{'FLOP/B':>7}  {'bound':<8}{'time':>7}"
)


def write_sweep(results: Iterable[Result], to: Target) -> None:
    """Write one row per result in the form of ``to``; JSON is one object a line, so that a reader need not wait for the end."""
    with to.open() as stream:
        lines = {"csv": _csv, "json": _json_lines, "table": _table}[to.format](results)
        block = FLUSH_ROWS if stream.isatty() else BLOCK_ROWS
        while chunk := list(islice(lines, block)):
            stream.write("".join(chunk))
            if block == FLUSH_ROWS:
                stream.flush()
    if to.path is not None:
        print_note(f"wrote {to.path}")


class _Line:
    """A stream that hands back what was written, so that csv.writer makes one line at a time."""

    def write(self, text: str) -> str:
        return text


def _csv(results: Iterable[Result]) -> Iterator[str]:
    writer = csv.writer(_Line(), lineterminator="\n")
    yield _written(writer, COLUMNS)
    for result in results:
        yield _written(writer, row(result))


def _written(writer: Any, cells: Iterable[Any]) -> str:
    return str(writer.writerow(cells))


def _json_lines(results: Iterable[Result]) -> Iterator[str]:
    for result in results:
        yield json.dumps(dict(zip(COLUMNS, row(result), strict=True))) + "\n"


def _table(results: Iterable[Result]) -> Iterator[str]:
    yield _HEAD + "\n"
    for result in results:
        cells = dict(zip(COLUMNS, row(result), strict=True))
        intensity = "-" if cells["intensity"] is None else format_number(cells["intensity"])
        yield (
            f"{cells['configuration']:<17}{cells['phase']:<7}{cells['batch']:>6}{cells['q_len']:>9}{cells['kv_len']:>9}"
            f"{format_si(cells['hbm_bytes'], 'B'):>8}{intensity:>7}  {_bound(cells['bound']):<8}"
            f"{format_si(cells['time_s'], 's'):>7}\n"
        )


def _bound(bound: str) -> str:
    return {"parallelism": "few SMs"}.get(bound, bound)
