"""The list of shipped models: what distinguishes each, and where its facts are from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from roofline.dtypes import DTYPES
from roofline.models import ModelSpec, model_dict
from roofline.models.kvcache import model_cache
from roofline.reports.output import print_table
from roofline.units import format_iec, format_si

SCHEMA = "roofline.models/1"


def document(specs: Sequence[ModelSpec]) -> dict[str, Any]:
    """The models as other programs read them."""
    bf16 = DTYPES["bf16"]
    per_token = [model_cache(spec, 1, 1, bf16, bf16).bytes_per_token for spec in specs]
    listed = [{**model_dict(spec), "kv_bytes_per_token_bf16": each} for spec, each in zip(specs, per_token, strict=True)]
    return {"schema": SCHEMA, "models": listed}


def rows(listed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One flat row per model."""
    for model in listed["models"]:
        flat = {key: value for key, value in model.items() if not isinstance(value, dict | list)}
        yield flat | {"layers": _layers(model)}


def render(listed: Mapping[str, Any], console: Console) -> None:
    """Print one line per model."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("model", no_wrap=True)
    for column in ("params", "active", "KV/token"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("layers by kind of attention")
    for model in listed["models"]:
        total, active = (format_si(model[key], "").strip() for key in ("total_params", "active_params"))
        table.add_row(model["name"], total, active, format_iec(model["kv_bytes_per_token_bf16"]), _layers(model))
    print_table(table, console)
    console.print("KV/token: bf16, no window full. `roofline analyze --model NAME` analyzes one.", style="dim")


def _layers(model: Mapping[str, Any]) -> str:
    return ", ".join(f"{mixer['layers']} {mixer['kind']}" for mixer in model["mixers"])
