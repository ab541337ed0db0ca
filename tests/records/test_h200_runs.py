"""The runs that are kept under docs/results: they read, and hold what the project says of them."""

from pathlib import Path

import pytest

from roofline.cache import hbm_traffic
from roofline.fields import plan_from, problem_from
from roofline.profiles import load
from roofline.records import read
from roofline.variants import VARIANTS

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "h200"
RUNS = sorted(RESULTS.glob("*.jsonl"))
OURS = [
    pytest.param(record, id=f"{path.stem} {number} {record.configuration}")
    for path in RUNS
    for number, record in enumerate(read(path).records)
    if record.measurement is not None and record.measurement.implementation.startswith("roofline/")
]
ALLOCATOR_BYTES = 512  # torch rounds each tensor up to this
MOST_TENSORS = 8


def test_there_are_runs_and_points() -> None:
    assert len(RUNS) == 3
    assert len(OURS) > 90


@pytest.mark.parametrize("record", OURS)
def test_no_point_is_faster_than_its_measured_ceilings(record) -> None:  # type: ignore[no-untyped-def]
    assert record.prediction.time_measured_roof_s <= 1.01 * record.measurement.time_s.median


@pytest.mark.parametrize("record", OURS)
def test_a_point_allocates_its_tensors_and_its_workspace(record) -> None:  # type: ignore[no-untyped-def]
    if record.problem["mask"] == "window" and record.variant in ("split-kv", "paged"):
        pytest.skip("the cache that is given holds all keys, and the minimum counts those in the window")
    expected = record.prediction.hbm_bytes_min + record.prediction.workspace_bytes
    assert 0 <= record.measurement.max_memory_bytes - expected <= MOST_TENSORS * ALLOCATOR_BYTES


@pytest.mark.parametrize("record", [case for case in OURS if case.values[0].counters is not None])
def test_counted_hbm_bytes_are_within_three_percent_of_the_prediction(record) -> None:  # type: ignore[no-untyped-def]
    # Predicted anew from problem, plan and profile: a stored prediction proves nothing.
    cost = VARIANTS[record.variant](problem_from(record.problem), plan_from(record.plan))
    predicted = hbm_traffic(cost, load("h200-sxm-141gb")).hbm_bytes
    counted = record.counters.hbm_read_bytes + record.counters.hbm_write_bytes
    assert counted == pytest.approx(predicted, rel=0.03)
