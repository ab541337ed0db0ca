"""A whole model for a terminal of 80 columns or more, drawn from the document of ``analyze --model --json``."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roofline.reports.output import print_table
from roofline.reports.terminal import BOUND_NAMES, BOUND_STYLES
from roofline.units import format_iec, format_number, format_si

MOST_RUNS = 8  # runs of equal layers that are written out before the rest is counted
LAST_PARTS = ("norms", "lm head")


def render_model(document: Mapping[str, Any], console: Console) -> None:
    """Print the model, its layers, the parts and limits of each pass, the cache, what fits, and what was inferred."""
    _header(document, console)
    _layers(document["model"], console)
    for each in document["passes"]:
        _pass(each, document, console)
    _cache(document, console)
    _capacity(document, console)
    _crossover(document, console)
    _inferred(document["model"], console)
    _section("Not modelled", console)
    for text in document["not_modelled"]:
        _paragraph(text, console, 2)


def _header(document: Mapping[str, Any], console: Console) -> None:
    model, device, dtypes, cache = (document[key] for key in ("model", "device", "dtypes", "kv_cache"))
    console.print(Text(f"{model['name']} on {device['name']}", style="bold"), Text(f"({device['id']})", style="dim"))
    roof = "data-sheet" if device["roof"] == "datasheet" else "measured"
    rates = [
        f"{label} {format_si(device[key], unit)}"
        for label, key, unit in ((dtypes["compute"], "flop_per_s", "FLOP/s"), ("HBM", "hbm_bytes_per_s", "B/s"))
        if device[key] is not None
    ]
    memory = [] if device["memory_bytes"] is None else [f"memory {format_si(device['memory_bytes'], 'B')}"]
    console.print(f"Device: {', '.join([*rates, *memory]) or 'no ceiling is known'} ({roof} roof)", highlight=False)
    body, total, active = (format_si(model[f"{which}_params"], "", 4).strip() for which in ("body", "total", "active"))
    text = f"Model: {model['model_type']}, {total} parameters, {body} in the matrices of its layers"
    _paragraph(text + (f", {active} active per token" if active != total else ""), console)
    size = format_si(document["weights"]["bytes"], "B")
    _paragraph(f"Types: compute {dtypes['compute']}, weights {dtypes['weights']} ({size}), KV cache {dtypes['kv']}", console)
    _paragraph(f"Problem: batch {cache['batch']:,}, {cache['n']:,} tokens a sequence", console)
    for note in document["notes"]:
        if note not in model["notes"]:
            _paragraph(f"Note: {note}", console, style="yellow")
    limits = "Times and rates are speed-of-light limits: no engine beats them, real ones are slower."
    _paragraph(f"{limits} FLOPs are useful matrix FLOPs; bytes are of HBM, each tensor once.", console, style="dim")


def _layers(model: Mapping[str, Any], console: Console) -> None:
    _section(f"Layers: {model['num_layers']}", console)
    for mixer in model["mixers"]:
        _paragraph(f"{mixer['layers']} × {_mixer(mixer)}", console, 2)
    _paragraph(f"In order (count, kind + MLP width): {_order(model['layers'])}", console, 2)


def _mixer(mixer: Mapping[str, Any]) -> str:
    if "q_heads" not in mixer:
        return f"{mixer['kind']}: a state of {mixer['state_values']:,} values, no KV cache"
    heads = f"{mixer['kind']} attention: {mixer['q_heads']} query heads"
    if mixer["latent_dim"] is not None:
        shape = f"{mixer['head_dim']} + {mixer['rope_dim']} (RoPE), values {mixer['v_head_dim']}"
        return f"{heads} of {shape}; latent of {mixer['latent_dim']} + {mixer['rope_dim']} cached a token"
    values = f", values {mixer['v_head_dim']}" if mixer["v_head_dim"] != mixer["head_dim"] else ""
    return f"{heads}, {mixer['kv_heads']} KV heads, head size {mixer['head_dim']}{values}"


def _order(runs: Sequence[Mapping[str, Any]]) -> str:
    """Runs of equal layers, a repeating stretch once: ``10 × (5 window 1024 + mlp, 1 full + mlp), 2 window 1024 + mlp``."""
    texts = [f"{run['count']} {' + '.join(filter(None, (_reach(run['kind']), run['mlp'])))}" for run in runs]
    for period in range(1, min(len(texts) // 2, MOST_RUNS) + 1):
        times = next((k for k in range(len(texts) // period, 1, -1) if texts[: period * k] == texts[:period] * k), 0)
        rest = texts[period * times :]
        if times and len(rest) <= max(period, 2):
            return ", ".join((f"{times} × ({', '.join(texts[:period])})", *rest))
    more = [f"and {len(texts) - MOST_RUNS} more runs (--json lists them)"] if len(texts) > MOST_RUNS else []
    return ", ".join((*islice(texts, MOST_RUNS), *more))


def _reach(kind: str) -> str | None:
    return None if kind == "no mixer" else kind


def _pass(each: Mapping[str, Any], document: Mapping[str, Any], console: Console) -> None:
    batch, total, decode = each["batch"], each["time_s"], each["phase"] == "decode"
    sequences = f"{batch:,} {'sequence' if decode else 'prompt'}{'' if batch == 1 else 's'} of {each['n']:,} tokens"
    title = f"Decode: one token for {sequences}" if decode else f"Prefill: {sequences}"
    console.print()
    table = _table(title, ("FLOPs", "bytes", "bound by", "time ≥", "share"))
    for part in sorted(each["parts"], key=lambda part: part["name"] in LAST_PARTS):
        share = "-" if not total or part["time_s"] is None else f"{part['time_s'] / total * 100:.1f} %"
        _row(table, part["name"], part, share)
    _row(table, "all parts in turn", each, "", "bold")
    print_table(table, console)
    for line in _limits(each):
        _paragraph(line, console)
    for predicted in document["attention"]:
        if predicted["phase"] == each["phase"]:
            kernel = f"{predicted['kind']} attention as {predicted['variant']}, predicted with its tiles and the L2"
            _paragraph(f"{kernel}: {format_si(predicted['time_s'], 's')}", console, style="dim")
    if each["unknown"]:
        _paragraph(f"No ceiling is known for: {', '.join(each['unknown'])}", console, style="yellow")


def _limits(each: Mapping[str, Any]) -> Iterator[str]:
    if each["time_s"] is None:
        return
    time, rate = format_si(each["time_s"], "s"), _rate(each["tokens_per_s_limit"])
    if each["phase"] == "prefill":
        yield f"Limit: latency at least {time}, at most {rate}"
    else:
        alone = "" if each["batch"] == 1 else f", {_rate(each['tokens_per_s_limit'] / each['batch'])} a sequence"
        yield f"Limit: a step takes at least {time}, so at most {rate}{alone}"
    yield f"The whole pass as one kernel, a stricter floor: {format_si(each['floor_s'], 's')}"


def _cache(document: Mapping[str, Any], console: Console) -> None:
    cache = document["kv_cache"]
    console.print()
    table = _table("KV cache", ("in use", f"in full pages of {cache['page_size']}"))
    table.add_row("one token, no window full", format_iec(cache["bytes_per_token"]), "-")
    sequence = f"a sequence of {cache['n']:,}"
    table.add_row(sequence, format_iec(cache["sequence_bytes"]), format_iec(cache["allocated_sequence_bytes"]))
    batch = f"batch of {cache['batch']:,}"
    table.add_row(batch, format_iec(cache["batch_bytes"]), format_iec(cache["allocated_bytes"]))
    if len(cache["kinds"]) > 1:
        for kind in cache["kinds"]:
            held = f", {kind['tokens']:,} tokens held" if kind["tokens"] else ""
            table.add_row(f"  {kind['layers']} × {kind['kind']}{held}", format_iec(kind["sequence_bytes"]), "")
    print_table(table, console)
    if cache["state_bytes"]:
        _paragraph(f"Of a sequence, {format_iec(cache['state_bytes'])} are states, which do not grow.", console, style="dim")
    if any(kind["tokens"] < cache["n"] for kind in cache["kinds"] if kind["bytes_per_token"]):
        text = "In use: a windowed layer holds its window. In full pages: an engine that keeps all tokens in every layer."
        _paragraph(text, console, style="dim")


def _capacity(document: Mapping[str, Any], console: Console) -> None:
    room, cache = document["capacity"], document["kv_cache"]
    _section("Capacity", console)
    if room is None:
        _paragraph("The memory of this device is not known.", console, 2)
        return
    memory, weights, reserve = (format_si(room[f"{name}_bytes"], "B") for name in ("memory", "weight", "reserve"))
    free = f"{format_si(room['free_bytes'], 'B')} for caches" if room["free_bytes"] > 0 else "nothing left for caches"
    _paragraph(f"{memory} - weights {weights} - reserve {reserve}: {free}", console, 2)
    fit = f"{room['sequences']:,} sequences of {cache['n']:,} tokens fit"
    _paragraph(f"{fit} ({room['sequences_allocated']:,} in full pages)", console, 2)


def _crossover(document: Mapping[str, Any], console: Console) -> None:
    _section("Attention overtakes the MLP in FLOPs", console)
    for phase, n in document["crossover_n"].items():
        when = "never (up to 2^32 tokens)" if n is None else f"from n = {n:,}"
        _paragraph(f"{phase}: {when}", console, 2)


def _inferred(model: Mapping[str, Any], console: Console) -> None:
    if model["inferred"]:
        _section("Not in the file, inferred", console)
    by_reason: dict[str, list[str]] = {}
    for entry in model["inferred"]:
        value = entry["value"]
        shown = f"{len(value)} values" if isinstance(value, list) and len(value) > 4 else value
        by_reason.setdefault(entry["reason"], []).append(f"{entry['field']} = {_json(shown)}")
    for reason, fields in by_reason.items():
        _paragraph(f"{', '.join(fields)} ({reason})", console, 2)


def _json(value: Any) -> str:
    return {None: "null", True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)


def _row(table: Table, name: str, figures: Mapping[str, Any], share: str, style: str = "") -> None:
    bound, time = figures["bound"], figures["time_s"]
    table.add_row(
        name,
        format_si(figures["flops"], "").strip() if figures["flops"] else "-",
        format_si(figures["bytes"], "B"),
        Text(BOUND_NAMES[bound], style=BOUND_STYLES[bound]) if bound else "-",
        "-" if time is None else format_si(time, "s"),
        share,
        style=style,
    )


def _rate(per_s: float) -> str:
    """Tokens per second to three digits, without a prefix."""
    return f"{float(f'{per_s:.3g}'):,.0f} tokens/s" if per_s >= 100 else f"{format_number(per_s)} tokens/s"


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="left" if column == "bound by" else "right", no_wrap=True)
    return table


def _section(title: str, console: Console) -> None:
    console.print()
    console.print(Text(title, style="bold"))


def _paragraph(text: str, console: Console, indent: int = 0, style: str = "") -> None:
    hanging = " " * (indent + 2)
    lines = wrap(text, console.width, initial_indent=" " * indent, subsequent_indent=hanging, break_on_hyphens=False)
    for line in lines:
        console.print(Text(line, style=style))
