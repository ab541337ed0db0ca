"""The page as a file: one piece, small, and with every string of a record as data."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from roofline.errors import InputError
from roofline.reports import html, modelpage
from roofline.reports.figure import figure
from roofline.reports.html import embedded, page
from roofline.reports.view import view_of_runs
from tests.reports import runs

DATA = re.compile(r'<script type="application/json" id="view">(.*?)</script>', re.DOTALL)


def view_in(text: str) -> Any:
    (found,) = DATA.findall(text)
    return json.loads(found)


def test_one_file_of_less_than_6_mb_for_a_thousand_points() -> None:
    text = page(view_of_runs([runs.many(1000)]))
    assert len(text.encode()) < 6e6
    assert len(view_in(text)["rows"]) == 1000


def test_nothing_is_loaded_from_anywhere() -> None:
    text = page(view_of_runs([runs.run()]))
    own = text.replace(html_of_plotly(), "")
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)[^"']+""", own)
    assert "http:" not in own
    assert "https:" not in own
    assert "default-src 'none'" in own


def html_of_plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def test_hostile_strings_stay_text() -> None:
    text = page(view_of_runs([runs.hostile()]))
    own = text.replace(html_of_plotly(), "")
    assert "<script>window.hacked" not in own
    assert "<img" not in own
    assert "\u2028" not in DATA.findall(text)[0]
    assert own.count("</script>") == 3  # the data, Plotly and the page's own
    assert runs.HOSTILE in view_in(text)["strings"]
    assert "{{ 7 * 7 }}" in own  # a name is no template either


def test_embedded_json_cannot_end_its_element() -> None:
    hostile = {"</script>": "<!-- & \u2028\u2029"}
    text = embedded(hostile)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == hostile


def test_points_are_embedded_with_exact_integers() -> None:
    shown = view_of_runs([runs.run()])
    data = html.data(shown)
    at = data["columns"].index("flops")
    assert [row[at] for row in data["rows"]] == [each.flops for each in shown.points]
    assert {len(row) for row in data["rows"]} == {len(data["columns"])}


def test_the_figure_of_png_and_svg_files() -> None:
    shown = view_of_runs([runs.run()])
    drawn = figure(shown)
    markers = [trace for trace in drawn["data"] if trace["mode"] == "markers"]
    hollow = [trace for trace in markers if trace["marker"]["symbol"].endswith("-open")]
    ours = [each for each in shown.points if each.is_ours]
    assert sum(len(trace["x"]) for trace in hollow) == len(ours)
    assert sum(len(trace["x"]) for trace in markers) == len(ours) + len(shown.points)
    assert drawn["layout"]["xaxis"]["type"] == drawn["layout"]["yaxis"]["type"] == "log"
    names = {trace.get("name") for trace in drawn["data"]}
    assert {"HBM 4.80 TB/s (data-sheet)", "HBM 4.27 TB/s (measured)", "bf16 790 TFLOP/s (measured)"} <= names
    with pytest.raises(InputError, match="nothing to draw"):
        figure(view_of_runs([runs.run(points=[])]))


def test_every_template_is_shipped() -> None:
    folder = Path(html.__file__).parent / "templates"
    assert {path.name for path in folder.iterdir()} == {
        "frame.html",
        "page.html",
        "model.html",
        "page.css",
        *html.SCRIPTS,
        *modelpage.SCRIPTS,
    }
