"""Start-up time of `roofline analyze`, next to its two yardsticks, as CPU seconds of the whole process (least of several runs).

1. `python -c "import typer, rich.table, rich.console"`: the libraries alone (bar: at most 3x).
2. A Typer app with the same commands and options that prints a stored table (bar: at most 1.4x).

Run: python benchmarks/startup.py
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 30
ARGUMENTS = ("analyze", "--n", "2048", "--d", "64")

# The same Typer app, commands and options, with the work taken out: the lines and tables are stored, and rich draws them.
STORED = """
import inspect, json, typer
from pathlib import Path
from typing import Annotated
from rich.console import Console
from rich.table import Table
app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
@app.callback()
def root(version: bool = False, debug: bool = False) -> None: pass
def command(name, options):
    def run(**values): draw()
    parameters = [
        inspect.Parameter(p, inspect.Parameter.KEYWORD_ONLY, default=d, annotation=Annotated[t, typer.Option(*f, help=h)])
        for p, f, t, d, h in ((p, f, {{"bool": bool, "str": str | None}}[t], d, h) for p, f, t, d, h in options)
    ]
    run.__signature__ = inspect.Signature(parameters)
    run.__annotations__ = {{parameter.name: parameter.annotation for parameter in parameters}}
    app.command(name)(run)
def draw():
    console = Console(width=80, soft_wrap=True)
    for part in json.loads(Path({stored!r}).read_text()):
        if isinstance(part, str):
            console.print(part, highlight=False)
            continue
        table = Table(title=part[0], box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in part[1]:
            table.add_column(column, justify="right", no_wrap=True)
        for row in part[2]:
            table.add_row(*row)
        console.print(table)
for name, options in {options!r}.items():
    command(name, options)
app()
"""


def stored_parts(text: str) -> list[object]:
    """Split what the real command printed into lines and tables (title, columns, rows)."""
    parts: list[object] = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        cells = [[cell for cell in line.split("  ") if cell] for line in lines]
        if len(lines) > 3 and len(cells[1]) > 4:
            parts.append(
                (lines[0], ["", *cells[1]], [["" if i >= len(row) else row[i] for i in range(7)] for row in cells[2:]])
            )
        else:
            parts.extend(lines)
    return parts


def cpu_seconds(*commands: list[str]) -> list[float]:
    """Least CPU time, user and system, of each whole process; the commands take turns, so that none has a better machine."""
    best = [float("inf")] * len(commands)
    for _ in range(RUNS):
        for index, command in enumerate(commands):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best[index] = min(best[index], used)
    return best


def declared_options() -> dict[str, list[tuple[str, list[str], str, object, str]]]:
    """Every command of the real app with its options, as (parameter, flags, type, default, help)."""
    import typer.main

    from roofline.cli import app

    group = typer.main.get_command(app)
    found: dict[str, list[tuple[str, list[str], str, object, str]]] = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        found[name] = [
            (p.name, list(p.opts), "bool" if p.is_flag else "str", False if p.is_flag else None, p.help or "")
            for p in command.params
            if p.param_type_name == "option" and p.name != "help"
        ]
    return found


def main() -> None:
    """Print the three times and the two ratios."""
    with tempfile.TemporaryDirectory() as folder:
        parts, stored = Path(folder) / "parts.json", Path(folder) / "stored.py"
        printed = subprocess.run([sys.executable, "-m", "roofline", *ARGUMENTS], check=True, capture_output=True, text=True)
        parts.write_text(json.dumps(stored_parts(printed.stdout)))
        stored.write_text(STORED.format(options=declared_options(), stored=str(parts)))
        ours, libraries, typer_app = cpu_seconds(
            [sys.executable, "-m", "roofline", *ARGUMENTS],
            [sys.executable, "-c", "import typer, rich.table, rich.console"],
            [sys.executable, str(stored), *ARGUMENTS],
        )
    print(f"roofline {' '.join(ARGUMENTS[:5])}: {ours * 1e3:.0f} ms CPU (least of {RUNS}), {os.cpu_count()} cores")
    print(f"import of typer and rich alone: {libraries * 1e3:.0f} ms; ratio {ours / libraries:.2f} (bar 3)")
    print(f"Typer app, same options, stored table: {typer_app * 1e3:.0f} ms; ratio {ours / typer_app:.2f} (bar 1.4)")


if __name__ == "__main__":
    main()
