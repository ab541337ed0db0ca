"""The roofline in a terminal, drawn by plotext: the roof, and each configuration at its intensity."""

import os
import shutil
import sys
from collections.abc import Mapping
from math import ceil, log10
from math import floor as round_down
from typing import Any

from roofline.units import format_number, format_si

HEIGHT = 22
MARKERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MOST_WIDTH = 120


def draw(document: Mapping[str, Any]) -> None:
    """Print the roofline chart of an analysis to stdout: FLOP/s against FLOP per HBM byte, both logarithmic."""
    print(chart(document))  # noqa: T201


def chart(document: Mapping[str, Any]) -> str:
    """Return the chart as text; coloured only on a terminal that wants colour."""
    import plotext

    points = [result for result in document["results"] if result["intensity"]]
    if not points:
        return "nothing to draw: no configuration has an intensity"
    ridge = points[0]["ridge"]
    ceilings = {**document["device"]["datasheet"]}
    if document["conventions"]["roof"] == "measured":
        ceilings |= document["device"]["measured"]
    bandwidth = ceilings["hbm_bytes_per_s"]["value"]
    intensities = [point["intensity"] for point in points]
    low = 10 ** round_down(log10(min(intensities) / 1.5))
    high = 10 ** ceil(log10(max([*intensities, ridge or 0]) * 1.5))
    rates = [point["attainable_flop_per_s"] for point in points]
    lowest = 10 ** round_down(log10(min([*rates, low * bandwidth])))
    peak = ridge * bandwidth if ridge else high * bandwidth
    plotext.clear_figure()
    plotext.theme("clear" if _colourless() else "pro")
    plotext.plot_size(min(shutil.get_terminal_size((80, 24)).columns, MOST_WIDTH), HEIGHT)
    # Both axes are drawn as powers of ten: plotext's own log scale ignores limits.
    roof = [(low, low * bandwidth), (ridge, peak), (high, peak)] if ridge else [(low, low * bandwidth), (high, peak)]
    plotext.plot([log10(x) for x, _ in roof], [log10(y) for _, y in roof], marker="braille")
    for letter, point in zip(MARKERS, points, strict=False):
        plotext.scatter([log10(point["intensity"])], [log10(point["attainable_flop_per_s"])], marker=letter)
    plotext.xlim(log10(low), log10(high))
    plotext.ylim(log10(lowest), log10(peak * 2))
    decades = range(round(log10(low)), round(log10(high)) + 1)
    plotext.xticks([float(e) for e in decades], [format_number(10.0**e, 1) for e in decades])
    steps = range(ceil(log10(lowest)), int(log10(peak * 2)) + 1)
    plotext.yticks([float(e) for e in steps], [format_si(10.0**e, "FLOP/s", 1) for e in steps])
    plotext.xlabel("FLOP per HBM byte")
    ridge_text = f", ridge {format_number(ridge)} FLOP/B" if ridge else ""
    plotext.title(f"{document['device']['name']}: {format_si(bandwidth, 'B/s')}{ridge_text}")
    text: str = plotext.build()
    legend = [f"{letter} {point['configuration']}" for letter, point in zip(MARKERS, points, strict=False)]
    width = max(len(entry) for entry in legend) + 2
    per_line = max(80 // width, 1)
    lines = [
        "".join(entry.ljust(width) for entry in legend[i : i + per_line]).rstrip() for i in range(0, len(legend), per_line)
    ]
    return "\n".join([plotext.uncolorize(text) if _colourless() else text, *lines])


def _colourless() -> bool:
    return bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
