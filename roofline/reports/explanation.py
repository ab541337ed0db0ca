"""An explanation for a terminal of 80 columns or more: each figure, its formula with the numbers put in, its exact value."""

import re
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.text import Text

from roofline.reports.terminal import BOUND_NAMES
from roofline.units import format_number, format_si

NAME_WIDTH = 10  # columns of the name of a figure
MIN_FORMULA_WIDTH = 24
_OPERATORS = re.compile(r"( [×+-] (?=[0-9]))")
FIGURES = {
    "flops": ("FLOPs", "FLOP"),
    "flops_executed": ("executed", "FLOP"),
    "exp_ops": ("exp", "exp"),
    "vector_ops": ("vector", "op"),
    "tensor_bytes": ("once", "B"),
    "read_bytes_min": ("minimum", "B"),
    "write_bytes_min": ("minimum", "B"),
    "sm_read_bytes": ("SM side", "B"),
    "sm_write_bytes": ("SM side", "B"),
    "read_bytes": ("HBM", "B"),
    "write_bytes": ("HBM", "B"),
}
TOTALS = {
    "flops_exact": ("FLOPs", "FLOP"),
    "flops": ("FLOPs", "FLOP"),
    "flops_executed": ("executed", "FLOP"),
    "exp_ops": ("exp", "exp"),
    "vector_ops": ("vector", "op"),
    "hbm_bytes_min": ("minimum", "B"),
    "hbm_bytes_cold": ("cold", "B"),
    "hbm_bytes": ("HBM", "B"),
    "sm_bytes": ("SM side", "B"),
    "kv_cache_bytes": ("KV cache", "B"),
    "kv_cache_bytes_allocated": ("allocated", "B"),
    "workspace_bytes": ("workspace", "B"),
}


def render_explanation(document: Mapping[str, Any], console: Console) -> None:
    """Print every configuration: quantities, lines of each launch, totals, and the divisions that give the time."""
    device, conventions = document["device"], document["conventions"]
    roof = "data-sheet" if conventions["roof"] == "datasheet" else "measured"
    console.print(Text(f"{device['name']}, {roof} roof", style="bold"), Text(f"({device['id']})", style="dim"))
    for note in conventions["notes"]:
        _paragraph(f"Note: {note}", console, 0, "dim")
    legend = "minimum: distinct bytes. SM side: what the SMs request, in 32-byte sectors. HBM: predicted, in steady state."
    _paragraph(legend, console, 0, "dim")
    for explanation in document["explanations"]:
        console.print()
        _explanation(explanation, device, console)


def _explanation(explanation: Mapping[str, Any], device: Mapping[str, Any], console: Console) -> None:
    rows = _Rows(explanation, console)
    console.print(Text(f"{explanation['configuration']}, {explanation['phase']}", style="bold"))
    _paragraph(_problem(explanation["problem"]), console, 2)
    _paragraph(_plan(explanation["plan"]), console, 2)
    console.print()
    console.print(Text("Quantities", style="bold"))
    for quantity in explanation["quantities"]:
        _heading(quantity["symbol"], quantity["meaning"], console)
        rows.print("", quantity, "")
    for launch in explanation["launches"]:
        console.print()
        times = f", {launch['count']:,} times" if launch["count"] != 1 else ""
        title = f"Launch {launch['name']}{times}"
        console.print(Text(title, style="bold"), Text(f"({launch['ctas']:,} CTAs)", style="dim"))
        _launch(launch, rows, console)
    console.print()
    console.print(Text("Totals", style="bold"))
    for total in explanation["totals"]:
        rows.print(*_named(TOTALS[total["symbol"]], total), total["symbol"] == "hbm_bytes")
    for reason in explanation["reasons"]:
        _paragraph(f"L2 model: {reason}", console, 2 + 2 + NAME_WIDTH, "dim")
    console.print()
    console.print(Text("Time at the roof", style="bold"))
    for line in _divisions(explanation, device):
        _paragraph(line, console, 2)


def _named(names: tuple[str, str], entry: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], str]:
    return names[0], entry, names[1]


def _launch(launch: Mapping[str, Any], rows: "_Rows", console: Console) -> None:
    shown: tuple[Any, ...] = ()
    for line in launch["lines"]:
        direction = {"read_bytes_min": "read", "write_bytes_min": "written"}.get(line["figure"])
        if line["figure"] == "tensor_bytes":
            direction = ""
        group = (line["tensor"], direction)
        if line["tensor"] is not None and direction is not None and group != shown:
            shown = group
            _heading(line["tensor"], f"{line['role']}, {direction}" if direction else line["role"], console)
        rows.print(*_named(FIGURES[line["figure"]], line))


def _heading(name: str, meaning: str, console: Console) -> None:
    first, *rest = wrap(f"{name}: {meaning}", console.width - 2, subsequent_indent="  ", break_long_words=False)
    console.print(Text.assemble("  ", (name, "cyan"), first.removeprefix(name)))
    for line in rest:
        console.print(Text(f"  {line}"))


class _Rows:
    """Lines of name, formula and value; the values of one configuration stand in one column."""

    def __init__(self, explanation: Mapping[str, Any], console: Console) -> None:
        self.console = console
        lines = [line for launch in explanation["launches"] for line in launch["lines"]]
        values = [entry["value"] for entry in (*explanation["quantities"], *lines, *explanation["totals"])]
        self.value_width = max(len(f"{value:,}") for value in values)
        self.prefix_width = len("9.99 GFLOP")
        self.formula_width = console.width - 4 - NAME_WIDTH - 1 - self.value_width - 2 - self.prefix_width
        if self.formula_width < MIN_FORMULA_WIDTH:  # numbers so long that the prefixes have to go
            self.formula_width += self.prefix_width - len(" FLOP")
            self.prefix_width = 0

    def print(self, name: str, entry: Mapping[str, Any], unit: str, important: bool = False) -> None:
        """Print one figure; its formula is wrapped between factors and the value stands on the last line."""
        value = entry["value"]
        lines = _wrap(entry.get("reason") or _unbreakable(entry["formula"]), self.formula_width)
        for line in lines[:-1]:
            self.console.print(Text(f"    {name:<{NAME_WIDTH}}{line}"))
            name = ""
        prefixed = format_si(value, unit) if unit else ""
        tail = f" {value:>{self.value_width},}"
        tail += f"  {prefixed:>{self.prefix_width}}" if self.prefix_width else f" {unit}"
        row = f"    {name:<{NAME_WIDTH}}{lines[-1]:<{self.formula_width}}"
        self.console.print(Text.assemble(row, (tail.rstrip(), "bold" if important else "")))


def _unbreakable(formula: str) -> str:
    """The formula with spaces that do not break, but before ×, + and - between factors: a number stays with its name."""
    parts, depth = [], 0
    for part in _OPERATORS.split(formula):
        is_operator = depth == 0 and part in (" × ", " + ", " - ")
        parts.append(f" {part.strip()}\xa0" if is_operator else part.replace(" ", "\xa0"))
        depth += part.count("(") - part.count(")")
    return "".join(parts)


def _wrap(text: str, width: int) -> list[str]:
    lines = wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    fitted = (wrap(line.replace("\xa0", " "), width, break_long_words=False, break_on_hyphens=False) for line in lines)
    return [piece for line in fitted for piece in line]


def _paragraph(text: str, console: Console, indent: int, style: str = "") -> None:
    for line in wrap(text, console.width - indent, break_long_words=False, break_on_hyphens=False, subsequent_indent="  "):
        console.print(Text(" " * indent + line, style=style))


def _problem(problem: Mapping[str, Any]) -> str:
    if problem["lengths"] is None:
        parts = [f"batch {problem['batch']:,}", f"{problem['q_len']:,} queries × {problem['kv_len']:,} keys"]
    else:
        runs = [f"{count:,} of {q_len:,} × {kv_len:,}" for q_len, kv_len, count in problem["lengths"]]
        parts = [f"batch {problem['batch']:,} (sequences of queries × keys: {', '.join(runs)})"]
    parts.append(f"{problem['q_heads']} query heads")
    if problem["kv_heads"] is not None:
        parts.append(f"{problem['kv_heads']} KV heads")
    parts.append(f"d {problem['head_dim']}, dv {problem['v_head_dim']}")
    if problem["latent_dim"] is not None:
        parts.append(f"latent {problem['latent_dim']} + RoPE {problem['rope_dim']}")
    parts.append({"full": "full mask", "causal": "causal", "window": f"window {problem['window']}"}[problem["mask"]])
    parts.append(problem["dtype"] + (f", KV cache {problem['kv_dtype']}" if problem["kv_dtype"] != problem["dtype"] else ""))
    return ", ".join(parts)


def _plan(plan: Mapping[str, Any]) -> str:
    parts = [f"tile {plan['q_tile']} × {plan['kv_tile']}", f"d padded to {plan['head_dim_tile']}"]
    parts.append(f"dv padded to {plan['v_head_dim_tile']}")
    if plan["q_chunk"]:
        parts.append(f"blocks of {plan['q_chunk']:,} queries × {plan['kv_chunk']:,} keys")
    if plan["packed"]:
        parts.append(f"{plan['splits']} split{'s' * (plan['splits'] != 1)}")
    return ", ".join(parts)


def _divisions(explanation: Mapping[str, Any], device: Mapping[str, Any]) -> Iterator[str]:
    intensity, ridge = explanation["intensity"], explanation["ridge"]
    if intensity["value"] is not None:
        quotient = f"{intensity['flops']:,} FLOP / {intensity['hbm_bytes']:,} B"
        yield f"intensity = {quotient} = {format_number(intensity['value'], 4)} FLOP/B"
    if ridge["value"] is not None:
        quotient = f"{_rate(ridge['flop_per_s'])} FLOP/s / {_rate(ridge['bytes_per_s'])} B/s"
        yield f"ridge = {quotient} = {format_number(ridge['value'], 4)} FLOP/B"
    for launch in explanation["launches"]:
        for time in launch["times"]:
            yield f"{launch['name']}, {BOUND_NAMES.get(time['unit'], time['unit'])}: {_division(time)}"
        units = [time["unit"] for time in launch["times"]]
        if units.count("vector") > 1:  # IEEE fp32 products run there too
            together = sum(time["time_s"] or 0.0 for time in launch["times"] if time["unit"] == "vector")
            yield f"{launch['name']}, vector, both together: {format_si(together, 's', 4)}"
        longest = ", the longest of these" if len(units) > 1 else ""
        yield f"{launch['name']} takes {format_si(launch['time_s'], 's', 4)}{longest}: bound by {_bound(launch['bound'])}"
    overhead = explanation["launch_overhead"]
    if overhead["time_s"]:
        yield f"launch overhead: {overhead['launches']:,} launches, {format_si(overhead['time_s'], 's', 4)}"
    if explanation["unknown"]:
        yield f"no ceiling is known for: {', '.join(explanation['unknown'])}"
    total = format_si(explanation["time_s"], "s", 4)
    yield f"time = {total}, bound: {_bound(explanation['bound'])}"
    flops = f"{intensity['flops']:,} FLOP / {total}"
    yield f"rate = {flops} = {format_si(explanation['attainable_flop_per_s'], 'FLOP/s', 4)}"


def _bound(name: str) -> str:
    return BOUND_NAMES.get(name, name)


def _division(time: Mapping[str, Any]) -> str:
    if time["per_s"] is None:
        return f"{time['work']:,} {time['work_unit']}, no ceiling is known"
    text = f"{time['work']:,} {time['work_unit']} / {_rate(time['per_s'])} {time['work_unit']}/s"
    if time["busy"] is not None:
        text += f" / ({time['busy'][0]:,} of {time['busy'][1]:,} SMs)"
    return f"{text} = {format_si(time['time_s'], 's', 4)}"


def _rate(per_s: float) -> str:
    """A ceiling to six digits, as a calculator takes it: ``9.894e14``."""
    return f"{per_s:.6g}".replace("e+", "e")
