"""Where a document goes and in which form: stdout or a file, table, JSON or CSV."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, TypeVar, cast

from rich.console import Console

from roofline.errors import InputError, RooflineError

if TYPE_CHECKING:
    from rich.table import Table

Item = TypeVar("Item")
Format = Literal["table", "json", "csv"]
SUFFIXES: dict[str, Format] = {".json": "json", ".csv": "csv", ".txt": "table"}
PIPE_WIDTH = 80  # columns of text that goes to no terminal; nothing is cut there, long lines stay whole
UNCUT_WIDTH = 10_000  # columns that a table may take there


class Target(NamedTuple):
    """A form and a place: ``path`` or, where it is ``None``, stdout."""

    format: Format
    path: Path | None = None

    @contextlib.contextmanager
    def open(self) -> Iterator[TextIO]:
        """Yield the stream to write to; a failed write names the file. A file is written whole or keeps what it held."""
        if self.path is None:
            try:
                yield sys.stdout
                sys.stdout.flush()
            except BrokenPipeError:  # the reader of a pipe has what it wanted; Typer would make it exit code 1
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(0)
            return
        partial = self.path.with_name(self.path.name + ".partial")
        try:
            with partial.open("w", encoding="utf-8", newline="") as stream:
                yield stream
            os.replace(partial, self.path)
        except OSError as error:
            raise RooflineError(f"-o {self.path}: {error.strerror or error}") from None
        finally:
            partial.unlink(missing_ok=True)


def target(as_json: bool, as_csv: bool, path: Path | None, force: bool, also: Sequence[str] = ()) -> Target:
    """Return the target that the output options name; raise ``InputError`` where they contradict or would overwrite.

    ``also``: suffixes that the command takes besides and writes itself.
    """
    if as_json and as_csv:
        raise InputError("--json and --csv contradict each other: give one of them")
    named: Format | None = "json" if as_json else "csv" if as_csv else None
    if path is None:
        return Target(named or "table")
    suffix = SUFFIXES.get(path.suffix.lower())
    if named is None and suffix is None:
        raise InputError(f"-o {path}: expected a name that ends in {', '.join([*also, *SUFFIXES])}, or --json or --csv")
    if path.is_dir():
        raise InputError(f"-o {path}: is a folder")
    if not path.parent.is_dir():
        raise InputError(f"-o {path}: there is no folder {path.parent}")
    if path.exists() and not force:
        raise InputError(f"-o {path}: exists already; --force overwrites it")
    return Target(named or suffix or "table", path)


def write(
    document: Mapping[str, Any],
    rows: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]],
    render: Callable[[Mapping[str, Any], Console], None],
    to: Target,
) -> None:
    """Write ``document`` as a table by ``render``, as JSON, or as the CSV of its ``rows``."""
    with to.open() as stream:
        if to.format == "json":
            import json

            json.dump(document, stream, indent=2)
            stream.write("\n")
        elif to.format == "csv":
            listed = list(rows(document))
            write_csv(list(listed[0]) if listed else [], (list(row.values()) for row in listed), stream)
        else:
            render(document, console(stream))
    if to.path is not None:
        print_note(f"wrote {to.path}")


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]], stream: TextIO) -> None:
    """Write rows as they come; an unknown value is an empty cell."""
    import csv

    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def console(stream: TextIO) -> Console:
    """Return a console for ``stream``; off a terminal it has a fixed width and never cuts a line.

    What is printed is data: no markup, no emoji names, no highlighting of numbers.
    """
    if stream.isatty():
        return Console(file=stream, markup=False, emoji=False, highlight=False)
    return _wide(stream, PIPE_WIDTH)


def _wide(stream: TextIO, width: int) -> Console:
    return Console(file=stream, width=width, soft_wrap=True, markup=False, emoji=False, highlight=False)


def print_by_heading(
    items: Iterable[Item], heading_of: Callable[[Item], str], table_of: Callable[[Iterable[Item], bool], "Table"], to: Console
) -> None:
    """Print a table for each run of ``items`` with one heading, under it; ``table_of`` is told which one shows its columns."""
    from itertools import groupby
    from textwrap import wrap

    for number, (words, group) in enumerate(groupby(items, key=heading_of)):
        for line in wrap(words, to.width, subsequent_indent="  "):
            to.print(line, style="bold")
        print_table(table_of(group, number == 0), to)


def print_table(table: "Table", to: Console) -> None:
    """Print ``table``; off a terminal it is as wide as its cells, because one that has to fit cuts them."""
    wide = to if to.file.isatty() else _wide(cast(TextIO, to.file), UNCUT_WIDTH)
    wide.print(table)


def print_note(text: str) -> None:
    """Print a note for the person at the terminal: stderr, never data."""
    sys.stderr.write(f"roofline: {text}\n")


def analysis_rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One flat row per result: problem and figures, without launches."""
    for result in document["results"]:
        flat = {"device": document["device"]["id"]}
        flat |= {key: value for key, value in result.items() if not isinstance(value, dict | list)}
        flat |= {f"problem_{key}": value for key, value in result["problem"].items() if key != "lengths"}
        flat |= {f"plan_{key}": value for key, value in result["plan"].items()}
        yield flat
