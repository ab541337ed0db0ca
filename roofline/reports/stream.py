"""Rows of a sweep as they are made: CSV, JSON Lines or a table of fixed columns; memory does not grow with the grid."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from roofline.analysis import Result
from roofline.reports.output import Target, print_note
from roofline.sweep import COLUMNS, row
from roofline.units import format_iec, format_number, format_si

if TYPE_CHECKING:
    from roofline.models import ModelAnalysis

Row = tuple[Any, ...]

FLUSH_ROWS = 1  # a person watching a terminal sees each row
BLOCK_ROWS = 1000  # a file or a pipe gets blocks

_HEAD = (
    f"{'configuration':<17}{'phase':<7}{'batch':>6}{'q_len':>9}{'kv_len':>9}{'HBM':>8}{'FLOP/B':>7}  {'bound':<8}{'time':>7}"
)
_MODEL_HEAD = (
    f"{'phase':<7}{'batch':>6}{'n':>9}{'FLOPs':>8}{'bytes':>9}  {'bound':<7}"
    f"{'time ≥':>8}{'tok/s ≤':>8}{'KV cache':>9}{'fit':>7}"
)


def write_sweep(results: Iterable[Result], to: Target) -> None:
    """Write one row per result in the form of ``to``; JSON is one object a line, so that a reader need not wait for the end."""
    _write(COLUMNS, map(row, results), _HEAD, _attention_line, to)


def write_model_sweep(results: Iterable["ModelAnalysis"], to: Target) -> None:
    """Write one row per length, batch and phase of a model."""
    from roofline.models import SWEEP_COLUMNS, sweep_rows

    _write(SWEEP_COLUMNS, (cells for result in results for cells in sweep_rows(result)), _MODEL_HEAD, _model_line, to)


def _write(
    columns: Sequence[str], rows: Iterable[Row], head: str, line: Callable[[Mapping[str, Any]], str], to: Target
) -> None:
    with to.open() as stream:
        if to.format == "csv":
            lines = _csv(columns, rows)
        elif to.format == "json":
            lines = (json.dumps(dict(zip(columns, cells, strict=True))) + "\n" for cells in rows)
        else:
            drawn = (line(dict(zip(columns, cells, strict=True))) for cells in rows)
            lines = (text + "\n" for text in chain((head,), drawn))
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


def _csv(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    writer: Any = csv.writer(_Line(), lineterminator="\n")
    return (str(writer.writerow(cells)) for cells in chain((columns,), rows))


def _attention_line(cells: Mapping[str, Any]) -> str:
    intensity = "-" if cells["intensity"] is None else format_number(cells["intensity"])
    return (
        f"{cells['configuration']:<17}{cells['phase']:<7}{cells['batch']:>6}{cells['q_len']:>9}{cells['kv_len']:>9}"
        f"{format_si(cells['hbm_bytes'], 'B'):>8}{intensity:>7}  {_bound(cells['bound']):<8}"
        f"{format_si(cells['time_s'], 's'):>7}"
    )


def _model_line(cells: Mapping[str, Any]) -> str:
    time, rate = cells["time_s"], cells["tokens_per_s_limit"]
    return (
        f"{cells['phase']:<7}{cells['batch']:>6}{cells['n']:>9}{format_si(cells['flops'], ''):>8}"
        f"{format_si(cells['bytes'], 'B'):>9}  {cells['bound'] or '-':<7}{'-' if time is None else format_si(time, 's'):>8}"
        f"{'-' if rate is None else format_si(rate, ''):>8}{format_iec(cells['kv_cache_bytes']):>9}"
        f"{'-' if cells['sequences'] is None else cells['sequences']:>7}"
    )


def _bound(bound: str) -> str:
    return {"parallelism": "few SMs"}.get(bound, bound)
