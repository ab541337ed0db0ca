"""The roofline chart as a Plotly figure, for PNG and SVG files: plain data, drawn by Plotly's own exporter and a browser."""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from roofline.errors import InputError, MissingError, RooflineError
from roofline.reports.points import Point
from roofline.reports.view import ROOF_NAMES, Line, View
from roofline.units import format_si

# Okabe-Ito colours and one shape a variant, as in the page (templates/data.js).
STYLES = {
    "naive": ("#d55e00", "square"),
    "chunked": ("#b97a00", "diamond"),
    "flash": ("#0072b2", "circle"),
    "split-kv": ("#2a94c9", "triangle-up"),
    "paged": ("#00795a", "triangle-down"),
    "mla": ("#a8467f", "cross"),
    "linear": ("#555b63", "x"),
}
PEERS = ("star", "hexagram", "pentagon", "star-diamond", "star-square", "octagon")
WIDTH, HEIGHT = 1100, 700


def figure(view: View) -> dict[str, Any]:
    """Return the chart: FLOP/s against FLOP per HBM byte under both roofs, predicted (hollow) joined to measured (filled)."""
    at = {point.number: (_predicted(point, view.roof), _measured(point)) for point in view.points}
    known = [place for pair in at.values() for place in pair if place is not None]
    if not known:
        raise InputError("nothing to draw: no point has FLOPs, bytes and a time")
    low, high = min(x for x, _ in known) / 2, max([*(x for x, _ in known), 300]) * 2
    peers = list(dict.fromkeys(point.implementation for point in view.points if not point.is_ours))
    traces = _roof(view, low, high)
    for series in dict.fromkeys(point.series for point in view.points):
        own = [point for point in view.points if point.series == series]
        colour, shape = STYLES.get(own[0].variant, ("#6b7480", "circle"))
        if not own[0].is_ours:
            shape = PEERS[peers.index(own[0].implementation) % len(PEERS)]
        measured = [place for point in own if (place := at[point.number][1]) is not None]
        predicted = [place for point in own if (place := at[point.number][0]) is not None]
        joined = [pair for point in own if None not in (pair := at[point.number])]
        traces.append(_line([place for pair in joined for place in (*pair, (None, None))], "#6b7480"))
        traces.append(_marks(predicted, series, colour, f"{shape}-open", not measured))
        traces.append(_marks(measured, series, colour, shape, bool(measured)))
    log = {"type": "log", "gridcolor": "#e4e8ec", "linecolor": "#d0d7de"}
    title = f"{view.title}: {', '.join(dict.fromkeys(source.device for source in view.sources))}"
    return {
        "data": traces,
        "layout": {
            "title": {
                "text": f"{escape(title)}<br><sup>hollow: predicted at the {ROOF_NAMES[view.roof]} roof, filled: measured</sup>"
            },
            "width": WIDTH,
            "height": HEIGHT,
            "paper_bgcolor": "white",
            "plot_bgcolor": "white",
            "xaxis": {**log, "dtick": "D2", "tickformat": ",.2~r", "title": {"text": "FLOP per HBM byte"}},
            "yaxis": {**log, "title": {"text": "FLOP/s"}, "dtick": "D2", "tickformat": "~s"},
            "legend": {"orientation": "h", "y": -0.15},
        },
    }


def write_image(view: View, path: Path) -> None:
    """Write the chart to ``path``, a .png or .svg; raise ``MissingError`` where Plotly's exporter or its browser is missing."""
    drawn = figure(view)
    import plotly.graph_objects
    import plotly.io

    try:
        image = plotly.io.to_image(plotly.graph_objects.Figure(drawn), format=path.suffix.lstrip(".").lower(), scale=2)
    except Exception as error:  # no kaleido, no browser, a browser that does not start: each has its own exception
        first = re.sub(r"\s+", " ", str(error).strip() or type(error).__name__)[:160]
        raise MissingError(f"{path}: needs kaleido (pip install 'roofline[image]') and Chrome or Chromium: {first}") from None
    try:
        path.write_bytes(image)
    except OSError as error:
        raise RooflineError(f"{path}: {error.strerror}") from None


def _roof(view: View, low: float, high: float) -> list[dict[str, Any]]:
    dtypes = {point.dtype for point in view.points}
    traces = []
    for roof in dict.fromkeys(line.roof for line in view.ceilings):
        lines = [line for line in view.ceilings if line.roof == roof]
        peaks = [line for line in lines if line.level in dtypes]
        most = max((line.per_s for line in peaks), default=None)
        rates = [line for line in lines if line.level in ("HBM", "L2")]
        for line in _once(rates):
            end = min(most / line.per_s, high) if most else high
            ends: list[Any] = [(low, low * line.per_s), (end, end * line.per_s)]
            traces.append({**_line(ends, "#1b1f24"), **_named(line, "B/s", roof == view.roof)})
        start = min((most or high) / rate.per_s for rate in rates) if rates else low
        for line in _once(peaks):
            traces.append(
                {**_line([(start, line.per_s), (high, line.per_s)], "#1b1f24"), **_named(line, "FLOP/s", roof == view.roof)}
            )
    return traces


def _once(lines: Sequence[Line]) -> list[Line]:
    return list({(line.level, line.per_s): line for line in lines}.values())


def _named(line: Line, unit: str, chosen: bool) -> dict[str, Any]:
    dash = "solid" if chosen and line.level != "L2" else "dashdot" if chosen else "dot"
    style = {"color": "#1b1f24", "width": 1.6 if chosen else 1, "dash": dash}
    return {"name": f"{line.level} {format_si(line.per_s, unit)} ({ROOF_NAMES[line.roof]})", "showlegend": True, "line": style}


def _line(places: Sequence[Any], colour: str) -> dict[str, Any]:
    x, y = [place[0] for place in places], [place[1] for place in places]
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "showlegend": False, "line": {"color": colour, "width": 1}}


def _marks(places: Sequence[tuple[float, float]], name: str, colour: str, shape: str, listed: bool) -> dict[str, Any]:
    marker = {
        "symbol": shape,
        "size": 10,
        "color": colour,
        "line": {"width": 1.4 if shape.endswith("-open") else 0, "color": colour},
    }
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "name": escape(name),
        "showlegend": listed,
        "marker": marker,
    }


def _predicted(point: Point, roof: str) -> tuple[float, float] | None:
    time_s = point.predicted_s.get(roof) or point.predicted_s.get("datasheet")
    if not (point.is_ours and point.flops and point.hbm_bytes and time_s):
        return None
    return point.flops / point.hbm_bytes, point.flops / time_s


def _measured(point: Point) -> tuple[float, float] | None:
    if not (point.flops and point.hbm_used and point.measured_s):
        return None
    return point.flops / point.hbm_used, point.flops / point.measured_s
