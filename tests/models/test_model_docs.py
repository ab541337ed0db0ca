"""docs/models.md keeps up with the code: its lists are complete, its example runs and gives the numbers beside it."""

import re
from pathlib import Path

import pytest

import roofline
from roofline.models import shipped_models
from roofline.models.families import FAMILIES

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()


def listed(heading: str) -> set[str]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"`([^` ]+)`", section))


def test_families_and_names_are_listed() -> None:
    assert set(FAMILIES) <= listed("Families")
    assert listed("Shipped names") == set(shipped_models())


def test_the_example() -> None:
    result = roofline.analyze_model("llama-3-8b", "h100-sxm5-80gb", n=2048, batch=1)
    assert result.prefill is not None
    assert result.decode is not None
    assert result.prefill.floor_s == pytest.approx(0.0300, abs=5e-5)
    assert result.decode.tokens_per_s == pytest.approx(219, abs=0.5)
    assert result.cache.bytes_per_token == 131072
    assert result.capacity is not None
    assert result.capacity.sequences == 224
