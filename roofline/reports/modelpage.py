"""A whole model as one HTML file: the parts of its forward pass as stacked bars, and the tables of the terminal.

Drawn from the document of ``analyze --model --json``. Names from a model's file are data in the page, never markup.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from roofline.reports import model as words
from roofline.reports.html import rendered
from roofline.units import format_si

SCRIPTS = ("basics.js", "model.js")
MEASURES = {"time": ("time_s", "s"), "bytes": ("bytes", "B")}


def model_page(document: Mapping[str, Any]) -> str:
    """Return the page of a model's analysis."""
    cache = document["kv_cache"]
    return rendered(
        "model.html",
        SCRIPTS,
        data(document),
        document=document,
        title=f"{document['model']['name']} on {document['device']['name']}",
        words=words,
        passes=[
            {
                "title": words.pass_title(each),
                "rows": words.pass_rows(each),
                "total": words.total_row(each),
                "limits": list(words.limit_lines(each)),
                "predicted": list(words.predicted_lines(each, document)),
                "unknown": each["unknown"],
            }
            for each in document["passes"]
        ],
        cache_rows=list(words.cache_rows(cache)),
        capacity=list(_capacity(document)),
    )


def data(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the chart draws: a bar a phase and measure, and of every part its value in each bar and what binds it.

    A bar whose total is not known, as a time without a ceiling is, is left out.
    """
    bars = [
        (each, measure, field, unit)
        for each in document["passes"]
        for measure, (field, unit) in MEASURES.items()
        if each[field]
    ]
    found = [{part["name"]: part for part in each["parts"]} for each, *_ in bars]
    names = list(dict.fromkeys(part["name"] for each in document["passes"] for part in words.ordered_parts(each)))
    names.sort(key=lambda name: name in words.LAST_PARTS)
    return {
        "bars": [
            {
                "phase": each["phase"],
                "measure": measure,
                "unit": unit,
                "total": each[field],
                "shown": format_si(each[field], unit),
            }
            for each, measure, field, unit in bars
        ],
        "parts": [
            {
                "name": name,
                "values": [
                    parts[name][field] if name in parts else None for (_, _, field, _), parts in zip(bars, found, strict=True)
                ],
                "bounds": [parts[name]["bound"] if name in parts else None for parts in found],
            }
            for name in names
        ],
    }


def _capacity(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    room, n = document["capacity"], document["kv_cache"]["n"]
    if room is None:
        return
    labels = {"memory": "memory", "weight": "weights", "reserve": "reserve, kept free"}
    yield from ((label, format_si(room[f"{name}_bytes"], "B")) for name, label in labels.items())
    yield "left for caches", format_si(room["free_bytes"], "B") if room["free_bytes"] > 0 else "nothing"
    yield f"sequences of {n:,} tokens that fit", f"{room['sequences']:,}"
    yield "the same in full pages", f"{room['sequences_allocated']:,}"
