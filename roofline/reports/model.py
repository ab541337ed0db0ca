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

CROSSOVER = "Attention overtakes the MLP in FLOPs"
PASS_COLUMNS = ("FLOPs", "bytes", "bound by", "time ≥", "share")
MOST_RUNS = 8  # runs of equal layers that are written out before the rest is counted
LAST_PARTS = ("norms", "lm head")
LIMITS = (
    "Times and rates are speed-of-light limits: no engine beats them, real ones are slower. "
    "FLOPs are useful matrix FLOPs; bytes are of HBM, each tensor once."
)


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


def header_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Device, model, types and problem, one line each."""
    model, device, dtypes, cache = (document[key] for key in ("model", "device", "dtypes", "kv_cache"))
    roof = "data-sheet" if device["roof"] == "datasheet" else "measured"
    rates = [
        f"{label} {format_si(device[key], unit)}"
        for label, key, unit in ((dtypes["compute"], "flop_per_s", "FLOP/s"), ("HBM", "hbm_bytes_per_s", "B/s"))
        if device[key] is not None
    ]
    memory = [] if device["memory_bytes"] is None else [f"memory {format_si(device['memory_bytes'], 'B')}"]
    yield f"Device: {', '.join([*rates, *memory]) or 'no ceiling is known'} ({roof} roof)"
    body, total, active = (format_si(model[f"{which}_params"], "", 4).strip() for which in ("body", "total", "active"))
    text = f"Model: {model['model_type']}, {total} parameters, {body} in the matrices of its layers"
    yield text + (f", {active} active per token" if active != total else "")
    size = format_si(document["weights"]["bytes"], "B")
    yield f"Types: compute {dtypes['compute']}, weights {dtypes['weights']} ({size}), KV cache {dtypes['kv']}"
    yield f"Problem: batch {cache['batch']:,}, {cache['n']:,} tokens a sequence"


def own_notes(document: Mapping[str, Any]) -> Iterator[str]:
    """Notes on this size and device; those on the model itself are under what is not modelled."""
    return (note for note in document["notes"] if note not in document["model"]["notes"])


def _header(document: Mapping[str, Any], console: Console) -> None:
    model, device = document["model"], document["device"]
    console.print(Text(f"{model['name']} on {device['name']}", style="bold"), Text(f"({device['id']})", style="dim"))
    ceilings, *lines = header_lines(document)
    console.print(ceilings, highlight=False)
    for line in lines:
        _paragraph(line, console)
    for note in own_notes(document):
        _paragraph(f"Note: {note}", console, style="yellow")
    _paragraph(LIMITS, console, style="dim")


def _layers(model: Mapping[str, Any], console: Console) -> None:
    _section(f"Layers: {model['num_layers']}", console)
    for line in layer_lines(model):
        _paragraph(line, console, 2)


def layer_lines(model: Mapping[str, Any]) -> Iterator[str]:
    """Kinds of mixers with their sizes, then the layers in order."""
    for mixer in model["mixers"]:
        yield f"{mixer['layers']} × {_mixer(mixer)}"
    yield f"In order (count, kind + MLP width): {_order(model['layers'])}"


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
    console.print()
    table = _table(pass_title(each), PASS_COLUMNS)
    for part, cells in zip(ordered_parts(each), pass_rows(each), strict=True):
        _row(table, cells, part["bound"])
    _row(table, total_row(each), each["bound"], "bold")
    print_table(table, console)
    for line in limit_lines(each):
        _paragraph(line, console)
    for line in predicted_lines(each, document):
        _paragraph(line, console, style="dim")
    if each["unknown"]:
        _paragraph(f"No ceiling is known for: {', '.join(each['unknown'])}", console, style="yellow")


def pass_title(each: Mapping[str, Any]) -> str:
    """What the pass computes."""
    batch, decode = each["batch"], each["phase"] == "decode"
    sequences = f"{batch:,} {'sequence' if decode else 'prompt'}{'' if batch == 1 else 's'} of {each['n']:,} tokens"
    return f"Decode: one token for {sequences}" if decode else f"Prefill: {sequences}"


def ordered_parts(each: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts of a pass in the order of a layer, norms and LM head last."""
    return sorted(each["parts"], key=lambda part: part["name"] in LAST_PARTS)


def pass_rows(each: Mapping[str, Any]) -> list[list[str]]:
    """Name, FLOPs, bytes, bound, time and share of every part, as text."""
    total = each["time_s"]
    return [
        [*_cells(part["name"], part), "-" if not total or part["time_s"] is None else f"{part['time_s'] / total * 100:.1f} %"]
        for part in ordered_parts(each)
    ]


def total_row(each: Mapping[str, Any]) -> list[str]:
    """The same of the whole pass."""
    return [*_cells("all parts in turn", each), ""]


def predicted_lines(each: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    """The attention of a pass once more, as ``roofline analyze`` predicts it."""
    for predicted in document["attention"]:
        if predicted["phase"] == each["phase"]:
            kernel = f"{predicted['kind']} attention as {predicted['variant']}, predicted with its tiles and the L2"
            yield f"{kernel}: {format_si(predicted['time_s'], 's')}"


def limit_lines(each: Mapping[str, Any]) -> Iterator[str]:
    """The least time and the most tokens a second of a pass."""
    if each["time_s"] is None:
        return
    time, rate = format_si(each["time_s"], "s"), _rate(each["tokens_per_s_limit"])
    if each["phase"] == "prefill":
        yield f"Limit: latency at least {time}, at most {rate}"
    else:
        alone = "" if each["batch"] == 1 else f", {_rate(each['tokens_per_s_limit'] / each['batch'])} a sequence"
        yield f"Limit: a step takes at least {time}, so at most {rate}{alone}"
    yield f"The whole pass as one kernel, a stricter floor: {format_si(each['floor_s'], 's')}"


def cache_columns(cache: Mapping[str, Any]) -> tuple[str, str]:
    """What the columns of ``cache_rows`` are."""
    return "in use", f"in full pages of {cache['page_size']}"


def cache_rows(cache: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The KV cache of a token, a sequence, the batch, and of each kind of layer where there are several."""
    yield "one token, no window full", format_iec(cache["bytes_per_token"]), "-"
    sequence = f"a sequence of {cache['n']:,}"
    yield sequence, format_iec(cache["sequence_bytes"]), format_iec(cache["allocated_sequence_bytes"])
    yield f"batch of {cache['batch']:,}", format_iec(cache["batch_bytes"]), format_iec(cache["allocated_bytes"])
    if len(cache["kinds"]) > 1:
        for kind in cache["kinds"]:
            held = f", {kind['tokens']:,} tokens held" if kind["tokens"] else ""
            yield f"  {kind['layers']} × {kind['kind']}{held}", format_iec(kind["sequence_bytes"]), ""


def cache_lines(cache: Mapping[str, Any]) -> Iterator[str]:
    """What the figures of the cache leave open."""
    if cache["state_bytes"]:
        yield f"Of a sequence, {format_iec(cache['state_bytes'])} are states, which do not grow."
    if any(kind["tokens"] < cache["n"] for kind in cache["kinds"] if kind["bytes_per_token"]):
        yield "In use: a windowed layer holds its window. In full pages: an engine that keeps all tokens in every layer."


def _cache(document: Mapping[str, Any], console: Console) -> None:
    cache = document["kv_cache"]
    console.print()
    table = _table("KV cache", cache_columns(cache))
    for row in cache_rows(cache):
        table.add_row(*row)
    print_table(table, console)
    for line in cache_lines(cache):
        _paragraph(line, console, style="dim")


def capacity_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """What is left beside weights and reserve, and how many sequences fit into it."""
    room, cache = document["capacity"], document["kv_cache"]
    if room is None:
        yield "The memory of this device is not known."
        return
    memory, weights, reserve = (format_si(room[f"{name}_bytes"], "B") for name in ("memory", "weight", "reserve"))
    free = f"{format_si(room['free_bytes'], 'B')} for caches" if room["free_bytes"] > 0 else "nothing left for caches"
    yield f"{memory} - weights {weights} - reserve {reserve}: {free}"
    fit = f"{room['sequences']:,} sequences of {cache['n']:,} tokens fit"
    yield f"{fit} ({room['sequences_allocated']:,} in full pages)"


def _capacity(document: Mapping[str, Any], console: Console) -> None:
    _section("Capacity", console)
    for line in capacity_lines(document):
        _paragraph(line, console, 2)


def crossover_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """From which length on attention has more FLOPs than the MLP."""
    for phase, n in document["crossover_n"].items():
        yield f"{phase}: {'never (up to 2^32 tokens)' if n is None else f'from n = {n:,}'}"


def _crossover(document: Mapping[str, Any], console: Console) -> None:
    _section(CROSSOVER, console)
    for line in crossover_lines(document):
        _paragraph(line, console, 2)


def inferred_lines(model: Mapping[str, Any]) -> Iterator[str]:
    """Values that the model's file does not give, those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for entry in model["inferred"]:
        value = entry["value"]
        shown = f"{len(value)} values" if isinstance(value, list) and len(value) > 4 else value
        by_reason.setdefault(entry["reason"], []).append(f"{entry['field']} = {_json(shown)}")
    for reason, fields in by_reason.items():
        yield f"{', '.join(fields)} ({reason})"


def _inferred(model: Mapping[str, Any], console: Console) -> None:
    if model["inferred"]:
        _section("Not in the file, inferred", console)
    for line in inferred_lines(model):
        _paragraph(line, console, 2)


def _json(value: Any) -> str:
    return {None: "null", True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)


def _row(table: Table, cells: Sequence[str], bound: str | None, style: str = "") -> None:
    name, flops, size, binds, time, share = cells
    shown = Text(binds, style=BOUND_STYLES[bound]) if bound else binds
    table.add_row(name, flops, size, shown, time, share, style=style)


def _cells(name: str, figures: Mapping[str, Any]) -> list[str]:
    bound, time = figures["bound"], figures["time_s"]
    return [
        name,
        format_si(figures["flops"], "").strip() if figures["flops"] else "-",
        format_si(figures["bytes"], "B"),
        BOUND_NAMES[bound] if bound else "-",
        "-" if time is None else format_si(time, "s"),
    ]


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
