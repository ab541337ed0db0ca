"""Tables of an analysis for a terminal of 80 columns or more, drawn with rich from the document that ``--json`` prints."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roofline.reports.output import print_table
from roofline.reports.verdicts import verdict
from roofline.units import format_iec, format_number, format_si

PHASES = {"prefill": "Prefill", "decode": "Decode"}
BOUND_NAMES = {"hbm": "HBM", "l2": "L2", "tensor": "tensor", "exp": "exp", "vector": "vector", "launch": "launch"}
BOUND_STYLES = {
    "hbm": "cyan",
    "tensor": "green",
    "exp": "magenta",
    "vector": "magenta",
    "parallelism": "yellow",
    "launch": "yellow",
}


def render_analysis(document: Mapping[str, Any], console: Console) -> None:
    """Print the whole analysis: header, a table of limits and one of bytes per phase, and a verdict per configuration."""
    _header(document, console)
    for phase, title in PHASES.items():
        results = [result for result in document["results"] if result["phase"] == phase]
        if results:
            _phase(f"{title}: {_lengths(results[0]['problem'], phase)}", results, document["device"], console)
    _footer(document, console)


def _header(document: Mapping[str, Any], console: Console) -> None:
    device, conventions, results = document["device"], document["conventions"], document["results"]
    problem = results[0]["problem"]
    dtype, roof = problem["dtype"], conventions["roof"]
    ceilings = {**device["datasheet"], **(device["measured"] if roof == "measured" else {})}
    facts = []
    if f"{dtype}_flop_per_s" in ceilings:
        facts.append(f"{dtype} {format_si(ceilings[f'{dtype}_flop_per_s']['value'], 'FLOP/s')}")
    if "hbm_bytes_per_s" in ceilings:
        facts.append(f"HBM {format_si(ceilings['hbm_bytes_per_s']['value'], 'B/s')}")
    ridge = results[0]["ridge"]
    if ridge is not None:
        facts.append(f"ridge {format_number(ridge)} FLOP/B")
    if device["sm_count"] is not None:
        facts.append(f"{device['sm_count']} SMs")
    if device["l2_bytes"] is not None:
        facts.append(f"L2 {format_iec(device['l2_bytes'])}")
    roof_name = "data-sheet" if roof == "datasheet" else "measured"
    console.print(Text(f"{device['name']}, {roof_name} roof", style="bold"), Text(f"({device['id']})", style="dim"))
    console.print(", ".join(facts), highlight=False)
    console.print(_shape(problem), highlight=False)
    for note in conventions["notes"]:
        console.print(f"Note: {note}", style="dim", highlight=False)
    console.print(
        f"FLOPs are useful matmul FLOPs ({conventions['flop_convention']}); times are lower bounds at this roof", style="dim"
    )


def _shape(problem: Mapping[str, Any]) -> str:
    parts = [problem["dtype"], f"batch {problem['batch']}", f"{problem['q_heads']} query heads", f"d {problem['head_dim']}"]
    if problem["v_head_dim"] != problem["head_dim"]:
        parts.append(f"dv {problem['v_head_dim']}")
    if problem["kv_dtype"] != problem["dtype"]:
        parts.append(f"KV cache {problem['kv_dtype']}")
    parts.append({"full": "full mask", "causal": "causal", "window": f"window {problem['window']}"}[problem["mask"]])
    if problem["layers"] > 1:
        parts.append(f"KV cache of {problem['layers']} layers")
    return ", ".join(parts)


def _lengths(problem: Mapping[str, Any], phase: str) -> str:
    if problem["lengths"] is not None:
        lengths = problem["lengths"]
        shown = ", ".join(f"{kv_len}" + (f" x{count}" if count > 1 else "") for _, kv_len, count in lengths[:6])
        more = f" and {len(lengths) - 6} more" if len(lengths) > 6 else ""
        return f"{problem['batch']} sequences of {shown}{more} keys"
    return f"{problem['q_len']} {'query' if problem['q_len'] == 1 else 'queries'} x {problem['kv_len']} keys"


def _phase(title: str, results: Sequence[Mapping[str, Any]], device: Mapping[str, Any], console: Console) -> None:
    limits = _table(title, ("FLOPs", "HBM bytes", "FLOP/B", "bound by", "time ≥", "FLOP/s ≤"))
    for result in results:
        limits.add_row(
            result["configuration"],
            format_si(result["flops"], "", 3).strip(),
            format_si(result["hbm_bytes"], "B"),
            "-" if result["intensity"] is None else format_number(result["intensity"]),
            Text(_bound(result, device), style=BOUND_STYLES.get(result["bound"], "")),
            format_si(result["time_s"], "s"),
            format_si(result["attainable_flop_per_s"], ""),
        )
    console.print()
    print_table(limits, console)
    sizes = _table(
        "Bytes: minimum, cold launches, predicted, SM side", ("minimum", "cold", "HBM", "SM side", "KV cache", "scratch")
    )
    for result in results:
        sizes.add_row(
            result["configuration"],
            *(format_si(result[key], "B") for key in ("hbm_bytes_min", "hbm_bytes_cold", "hbm_bytes", "sm_bytes")),
            format_iec(result["kv_cache_bytes"]),
            format_iec(result["workspace_bytes"]) if result["workspace_bytes"] else "-",
        )
    console.print()
    print_table(sizes, console)
    console.print()
    for result in results:
        console.print(Text(result["configuration"], style="bold"))
        for line in wrap(verdict(result, device), console.width - 2):
            console.print(f"  {line}", highlight=False)


def _footer(document: Mapping[str, Any], console: Console) -> None:
    flash = next((r for r in document["results"] if r["variant"] in ("flash", "naive", "split-kv")), None)
    console.print()
    if flash is not None:
        problem = flash["problem"]
        heads, batch = problem["q_heads"], problem["batch"]
        each = f"{format_si(flash['flops'] / heads / batch, 'FLOP')} and {format_iec(_score_bytes(problem))} of S"
        console.print(f"One query head of one sequence ({flash['configuration']}, {flash['phase']}): {each}.", highlight=False)
    for result in document["results"]:
        projections = result["mla_projections"]
        if projections is not None and not projections["included"]:
            console.print(
                f"{result['configuration']} leaves out the projections W_UK, W_UV: {format_si(projections['flops'], 'FLOP')}, "
                f"{format_si(projections['hbm_bytes_cold'], 'B')} (--mla-projections).",
                highlight=False,
            )
    unknown = sorted({name for result in document["results"] for name in result["unknown"]})
    if unknown:
        console.print(f"No ceiling is known for: {', '.join(unknown)}. These never bind.", style="yellow", highlight=False)


def _score_bytes(problem: Mapping[str, Any]) -> int:
    """Bytes of one S matrix, which only naive attention moves."""
    lengths = problem["lengths"] or [(problem["q_len"], problem["kv_len"], problem["batch"])]
    element_bits = {"fp32": 32, "tf32": 32, "fp8": 8}.get(problem["dtype"], 16)
    return int(max(q_len * kv_len for q_len, kv_len, _ in lengths)) * element_bits // 8


def _bound(result: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    if result["bound"] == "parallelism":
        return f"{result['sms_used']} of {device['sm_count']} SMs"
    return BOUND_NAMES[result["bound"]]


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="left" if column == "bound by" else "right", no_wrap=True)
    return table
