"""The page of a whole model: from its document to the bars, and as a file that opens offline with every name as text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from roofline.models import analyze_model, document, load_model
from roofline.profiles.load import load
from roofline.reports.modelpage import data, model_page
from tests.reports.runs import HOSTILE
from tests.reports.test_browser import browser  # noqa: F401  # a fixture
from tests.reports.test_page import html_of_plotly, view_in


def made(model: str | Path = "llama-3-8b", device: str = "h100-sxm5-80gb", n: int = 2048, **settings: Any) -> dict[str, Any]:
    return document(analyze_model(load_model(model), load(device), n, **settings))


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / HOSTILE  # its slashes make folders in folders
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "mistral", "num_hidden_layers": 3}))
    return made(folder)


@pytest.mark.parametrize("model", ["llama-3-8b", "gemma-3-27b", "deepseek-v3", "jamba-v0.1", "minimax-text-01"])
def test_the_bars_are_the_passes_of_the_document(model: str) -> None:
    shown = made(model, batch=4)
    drawn = data(shown)
    assert [(bar["phase"], bar["measure"]) for bar in drawn["bars"]] == [
        (phase, measure) for phase in ("prefill", "decode") for measure in ("time", "bytes")
    ]
    for row, bar in enumerate(drawn["bars"]):
        (each,) = [one for one in shown["passes"] if one["phase"] == bar["phase"]]
        field = "time_s" if bar["measure"] == "time" else "bytes"
        held = {part["name"]: (part[field], part["bound"]) for part in each["parts"]}
        found = {part["name"]: (part["values"][row], part["bounds"][row]) for part in drawn["parts"]}
        assert found == held
        assert bar["total"] == each[field]
        assert sum(part["values"][row] for part in drawn["parts"]) == pytest.approx(bar["total"])


def test_parts_of_llama_3_8b_in_the_order_of_a_layer() -> None:
    """Decode: 32 layers of 3 x 4096 x 14336 weights in bf16, 11.27 GB, plus activations, at 3.35 TB/s."""
    drawn = data(made())
    names = ["embeddings", "qkv projection", "o projection", "mlp", "attention (full)", "norms", "lm head"]
    assert [part["name"] for part in drawn["parts"]] == names
    mlp = drawn["parts"][3]
    assert mlp["bounds"] == ["tensor", "tensor", "hbm", "hbm"]
    assert mlp["values"][3] == pytest.approx(32 * 3 * 4096 * 14336 * 2, rel=1e-3)
    assert mlp["values"][2] == pytest.approx(32 * 3 * 4096 * 14336 * 2 / 3.35e12, rel=1e-2)


def test_one_phase_and_unknown_ceilings() -> None:
    shown = made(phases=("decode",))
    assert {bar["phase"] for bar in data(shown)["bars"]} == {"decode"}
    assert "Prefill:" not in model_page(shown)
    (each,) = shown["passes"]
    unknown = {**each, "time_s": None, "parts": [{**part, "time_s": None, "bound": None} for part in each["parts"]]}
    without = {**shown, "passes": [{**unknown, "unknown": ["hbm", "tensor"]}], "capacity": None}
    assert [bar["measure"] for bar in data(without)["bars"]] == ["bytes"]
    text = model_page(without)
    assert "No ceiling is known for: hbm, tensor" in text
    assert "The memory of this device is not known." in text


def test_the_page_holds_every_section_and_loads_nothing() -> None:
    shown = made("gemma-3-27b", n=8192)
    own = model_page(shown).replace(html_of_plotly(), "")
    for heading in ("Parts of the forward pass", "KV cache", "Capacity", "Not modelled", "Conventions"):
        assert f">{heading}</h2>" in own
    assert "attention (window 1024)" in own
    assert "in full pages of 16" in own
    assert "speed-of-light limits" in own
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)[^"']+""", own)
    assert "default-src 'none'" in own
    inferred = model_page(made()).replace(html_of_plotly(), "")
    assert "head_dim = 128 (hidden size / attention heads)" in inferred


def test_a_hostile_name_stays_text(hostile: dict[str, Any]) -> None:
    text = model_page(hostile)
    own = text.replace(html_of_plotly(), "")
    assert hostile["model"]["name"].endswith(HOSTILE)
    assert "<script>window.hacked" not in own
    assert "<img" not in own
    assert own.count("</script>") == 3  # the data, Plotly and the page's own
    assert "{{ 7 * 7 }}" in own
    assert view_in(text)["bars"]


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_opens_offline(browser: Any, tmp_path: Path, hostile: dict[str, Any], width: int) -> None:  # noqa: F811
    hostile["passes"][0]["parts"][0]["name"] = HOSTILE  # no part is called so; if one were, it would be text
    for name, shown in (("hostile", hostile), ("hybrid", made("jamba-v0.1", batch=64))):
        path = tmp_path / f"{name}.html"
        path.write_text(model_page(shown), encoding="utf-8")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get_log("browser")
        browser.get(path.as_uri())
        assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
        assert browser.execute_script("return window.hacked === undefined && document.images.length === 0")
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        drawn = browser.execute_script("return document.getElementById('parts').data.map((trace) => [trace.meta, ...trace.x])")
        expected = data(shown)
        assert [trace[0] for trace in drawn] == [part["name"] for part in expected["parts"]]
        for row in range(len(expected["bars"])):
            assert sum(trace[1 + row] for trace in drawn) == pytest.approx(100)
        hover = browser.execute_script(
            "return document.getElementById('parts').data.find((trace) => trace.meta === 'mlp').hovertext[0]"
        )
        assert "bound by tensor" in hover
        browser.execute_script("document.getElementById('theme').click()")
        assert browser.get_log("browser") == []
