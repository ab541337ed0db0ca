"""The runs that are kept under docs/results: they read, and hold what the project says of them."""

from pathlib import Path

import pytest

from roofline.cache import hbm_traffic
from roofline.cost import ceil_div
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
MOST_TENSORS = 9  # a paged point: Q, K and V pages, table, lengths, O, partials, their sums, counters
INDEX_BYTES, SM_COUNT = 4, 132


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
    lists = 0
    if (
        record.variant == "flash" and record.plan.get("kernel") == "hopper"
    ):  # which q tiles each CTA runs, kept for the next call
        problem, q_tile = record.problem, record.plan["q_tile"]
        rows = ceil_div(problem["q_len"], q_tile) * problem["q_heads"] * problem["batch"]
        lists = INDEX_BYTES * SM_COUNT * (ceil_div(rows, SM_COUNT) + 4)
    assert 0 <= record.measurement.max_memory_bytes - expected <= MOST_TENSORS * ALLOCATOR_BYTES + lists


@pytest.mark.parametrize("record", [case for case in OURS if case.values[0].counters is not None])
def test_counted_hbm_bytes_are_within_three_percent_of_the_prediction(record) -> None:  # type: ignore[no-untyped-def]
    # Predicted anew from problem, plan and profile: a stored prediction proves nothing.
    cost = VARIANTS[record.variant](problem_from(record.problem), plan_from(record.plan))
    predicted = hbm_traffic(cost, load("h200-sxm-141gb")).hbm_bytes
    counted = record.counters.hbm_read_bytes + record.counters.hbm_write_bytes
    assert counted == pytest.approx(predicted, rel=0.03)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(record, id=f"{number} {record.configuration}")
        for number, record in enumerate(read(RESULTS / "default-with-peers.jsonl").records)
        if record.counters is not None and record.implementation.startswith("roofline/")
    ],
)
def test_flops_and_sm_bytes_are_those_of_the_cost(record) -> None:  # type: ignore[no-untyped-def]
    """FLOPs to the last one but on the vector units; SM reads and writes to 0.1 %: rows past the end, lists of q tiles."""
    cost = VARIANTS[record.variant](problem_from(record.problem), plan_from(record.plan))
    if record.plan["form"] != "recurrent":
        assert record.counters.tensor_flops == cost.flops_executed
    traffic = [moved for launch in cost.launches for moved in launch.traffic]
    if record.variant == "flash" and record.plan["kernel"] is None:
        pytest.skip("a decode step in tiles of 16 rows: boxes of 16 rows are counted for one")
    assert record.counters.sm_read_bytes == pytest.approx(sum(moved.sm_read_bytes for moved in traffic), rel=1e-3)
    assert record.counters.sm_write_bytes == pytest.approx(sum(moved.sm_write_bytes for moved in traffic), rel=1e-3)
