"""The progress of a measuring run on stderr: a bar on a terminal, a line a point elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from roofline.units import format_si


@contextlib.contextmanager
def drawn() -> Iterator[Callable[[Any], None]]:
    """Yield the listener of a run: it takes ``Progress`` values (done, total, doing, record)."""
    if not sys.stderr.isatty():
        yield _print
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def listen(progress: Any) -> None:
            bar.update(task, completed=progress.done, total=progress.total or None, description=progress.doing[:40])

        yield listen


def _print(progress: Any) -> None:
    record = progress.record
    if record is None:
        return
    measured = record.measurement
    outcome = format_si(measured.time_s.median, "s") if measured is not None else record.status
    name = measured.implementation if measured is not None else record.implementation
    sys.stderr.write(f"{progress.done}/{progress.total} {record.configuration} {name} {outcome}\n")
