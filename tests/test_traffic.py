"""Predicted HBM bytes against DRAM counters of an H200, on the points that no parameter of ``roofline.cache`` was fitted to.

tests/data/h200/traffic.jsonl was made by ``python benchmarks/traffic.py``; docs/traffic-model.md says how. Nothing predicted is
stored: each prediction is made again here from problem, plan and profile. Every third point is held back.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roofline.profiles import load

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from traffic import RESOLVED_WRITES, Compared, compared  # noqa: E402
from traffic import quantile as quantile_of  # noqa: E402

FILE = ROOT / "tests" / "data" / "h200" / "traffic.jsonl"
H200 = load("h200-sxm-141gb")


POINTS = list(compared(FILE, H200))
HELD = [point for point in POINTS if point.is_held]


def streaming(point: Compared) -> bool:
    return point.is_streaming


def hard(point: Compared) -> bool:
    return point.is_hard


def errors(chosen: Callable[[Compared], bool], points: list[Compared] = HELD) -> list[tuple[float, str]]:
    return sorted((point.read_error, point.name) for point in points if chosen(point))


def quantile(sizes: list[tuple[float, str]], share: float) -> float:
    return quantile_of([size for size, _ in sizes], share)


def test_the_set_is_large_and_has_the_hard_points() -> None:
    assert len(POINTS) >= 150
    found = [point for point in POINTS if hard(point)]
    assert len(found) >= 60
    assert sum("'naive'" in point.name for point in found) >= 20
    assert sum("roofline/flash" in point.name for point in found) >= 20
    assert len(HELD) in range(len(POINTS) // 3 - 1, len(POINTS) // 3 + 2)


def test_streaming_points() -> None:
    found = errors(streaming)
    assert quantile(found, 0.5) <= 0.01
    assert found[-1][0] <= 0.05, found[-1]


def test_hard_points() -> None:
    found = errors(hard)
    assert len(found) >= 20
    assert quantile(found, 0.5) <= 0.04
    assert quantile(found, 0.9) <= 0.10
    assert found[-1][0] <= 0.20, found[-1]


def test_what_was_fitted_is_not_much_better_than_what_was_held_back() -> None:
    """A model with a parameter a point would be."""
    fitted = errors(hard, [point for point in POINTS if not point.is_held])
    assert quantile(errors(hard), 0.5) <= 2 * quantile(fitted, 0.5)


def test_writes_in_steady_state() -> None:
    found = sorted((point.write_error, point.name) for point in HELD)
    assert quantile(found, 0.5) <= 0.02
    assert quantile(found, 0.9) <= 0.08
    strict = sorted((point.strict_write_error, point.name) for point in HELD)
    assert quantile(strict, 0.5) <= 0.02
    resolved = sorted((point.strict_write_error, point.name) for point in HELD if point.writes >= RESOLVED_WRITES)
    assert len(resolved) >= 35
    assert quantile(resolved, 0.9) <= 0.08


@pytest.mark.parametrize("point", POINTS, ids=lambda point: str(point.number))
def test_no_prediction_is_below_the_minimum_or_above_the_sm_side(point: Compared) -> None:
    assert point.cost.hbm_bytes_min <= point.predicted_reads + point.predicted_writes <= point.cost.sm_bytes


def test_intensity_is_within_ten_percent_on_nineteen_points_in_twenty() -> None:
    ratios = [(point.predicted_reads + point.predicted_writes) / (point.reads + point.writes) for point in POINTS]
    close = sum(abs(1 / ratio - 1) <= 0.10 for ratio in ratios)
    assert close >= 0.95 * len(POINTS)


def test_the_textbook_counts_are_far_off_where_it_matters() -> None:
    """The medians that docs/traffic-model.md quotes for hard points, as errors of all HBM bytes."""
    medians = {}
    for name in ("hbm_bytes_min", "hbm_bytes_cold", "sm_bytes"):
        sizes = sorted(abs(getattr(p.cost, name) / (p.reads + p.writes) - 1) for p in POINTS if hard(p))
        medians[name] = sizes[len(sizes) // 2]
    assert medians["hbm_bytes_min"] > 0.3
    assert medians["hbm_bytes_cold"] > 0.02
    assert medians["sm_bytes"] > 1


@pytest.mark.parametrize("point", POINTS, ids=lambda point: str(point.number))
def test_flops_and_sm_reads_are_exact(point: Compared) -> None:
    """FLOPs to the last one; reads of our kernels within 0.2 %, where some loads hit L1."""
    cost, line, counters = point.cost, point.line, point.line["counters"]
    if not line["implementation"].startswith("roofline/"):
        pytest.skip("a peer: its plan is a guess")
    if (line["plan"]["form"]) != "recurrent":  # which runs on the vector units
        assert counters["tensor_flops"] == cost.flops_executed
    requested = sum(moved.sm_read_bytes for launch in cost.launches for moved in launch.traffic)
    assert counters["sm_read_bytes"] == pytest.approx(requested, rel=0.002)


def test_a_cold_call_reads_what_the_first_launch_on_an_empty_l2_must() -> None:
    """Counted apart: a call from an invalidated cache reads the minimum at least; some of what it writes is still dirty."""
    found = list(compared(FILE, H200, "cold"))
    assert len(found) >= 100
    for point in found:
        assert point.reads >= 0.99 * point.least_reads, point.name
        assert point.writes <= point.cold_writes * 1.05 + 5e6, point.name
