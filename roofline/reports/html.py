"""A view as one HTML file: charts, table and verdicts, with nothing to load from anywhere.

The page is drawn in the browser from the view, which is embedded as JSON: names from a record are data there, put into the
page as text, never as markup.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any

from roofline import __version__
from roofline.reports.accuracy import by_variant
from roofline.reports.points import ROOFS, Point
from roofline.reports.view import View
from roofline.units import format_percent, format_si

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("basics.js", "data.js", "roofline.js", "charts.js", "table.js", "page.js")
TEXT = ("configuration", "variant", "implementation", "series", "status", "reason", "phase", "dtype", "problem", "family",
        "hbm_source", "bound", "throttled", "l2_state", "method", "verdict", "advice")  # fmt: skip
BY_ROOF = ("predicted_s", "roof_share")
LEFT_OUT = ("roof_s",)
DIGITS = 6  # significant digits of a float in the page; integers stay exact
SAME = 1e-9  # an error this small is rounding


def page(view: View) -> str:
    """Return the page of ``view``."""
    return rendered("page.html", SCRIPTS, data(view), view=view, accuracy=by_variant(view.errors))


def rendered(template: str, scripts: Sequence[str], embed: Mapping[str, Any], **values: Any) -> str:
    """Return ``template`` filled with ``values``, with styles, Plotly and ``scripts`` in it and ``embed`` as their data."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"error": _error, "signed": _signed, "time": _time}
    # Only what this package ships, and JSON without a character that could end its element, enters the page unescaped.
    return environment.get_template(template).render(
        **values,
        version=__version__,
        css=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        data=Markup(embedded(embed)),
        plotly=Markup(get_plotlyjs()),
        script=Markup("\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in scripts)),
    )


def data(view: View) -> dict[str, Any]:
    """Return what the page's scripts draw: points as rows of columns, each text once."""
    strings: dict[str, int] = {}

    def text(value: Any) -> int | None:
        return None if value is None else strings.setdefault(str(value), len(strings))

    names = [field.name for field in fields(Point) if field.name not in LEFT_OUT]
    columns = [column for name in names for column in ([f"{name}_{roof}" for roof in ROOFS] if name in BY_ROOF else [name])]
    rows = [[*_row(each, names, text), _short(each.prediction_error)] for each in view.points]
    return {
        "roof": view.roof,
        "sources": [source.name for source in view.sources],
        "ceilings": [line._asdict() for line in view.ceilings],
        "columns": [*columns, "prediction_error"],
        "text_columns": TEXT,
        "rows": rows,
        "strings": list(strings),
    }


def embedded(document: Any) -> str:
    """Return ``document`` as JSON that can stand in a script element: no text in it can end the element or open a comment."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _row(each: Point, names: Sequence[str], text: Any) -> list[Any]:
    row: list[Any] = []
    for name in names:
        value = getattr(each, name)
        if name in BY_ROOF:
            row += [_short(value.get(roof)) for roof in ROOFS]
        elif name in TEXT:
            row.append(text(value))
        elif name == "tensors":
            row.append(
                [[text(tensor.name), text(tensor.role), _short(tensor.hbm_bytes), _short(tensor.sm_bytes)] for tensor in value]
            )
        elif name == "notes":
            row.append([text(note) for note in value])
        else:
            row.append(_short(value))
    return row


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if not isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.{DIGITS}g}")


def _error(value: float | None) -> str:
    return "" if value is None else "0 %" if abs(value) < SAME else format_percent(value, 2)


def _signed(value: float | None) -> str:
    return "" if value is None else ("+" if value > SAME else "") + _error(value)


def _time(value: float | None) -> str:
    return "" if value is None else format_si(value, "s")
