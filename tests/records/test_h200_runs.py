"""The runs that are kept under docs/results: they read, and hold what the project says of them."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

import pytest

from roofline.cache import hbm_traffic
from roofline.cost import ceil_div
from roofline.fields import plan_from, problem_fields, problem_from
from roofline.measure.suites import suite
from roofline.profiles import load
from roofline.records import Record, read
from roofline.reports.accuracy import REREADING_ABOVE
from roofline.variants import VARIANTS
from roofline.variants.flash import box_overhang_bytes

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "h200"
RUNS = sorted(RESULTS.glob("*.jsonl"))
OURS = [
    pytest.param(record, id=f"{path.stem} {number} {record.configuration}")
    for path in RUNS
    for number, record in enumerate(read(path).records)
    if record.measurement is not None and record.measurement.implementation.startswith("roofline/")
]
TIMED = [
    pytest.param(record, id=f"{path.stem} {number} {record.configuration} {record.implementation}")
    for path in RUNS
    for number, record in enumerate(read(path).records)
    if record.measurement is not None
]
ALLOCATOR_BYTES = 512  # torch rounds each tensor up to this
MOST_TENSORS = 9  # a paged point: Q, K and V pages, table, lengths, O, partials, their sums, counters
MOST_OF_UNEQUAL_LENGTHS = 13  # and starts of the sequences, of their rows and of their splits
ALLOCATOR_LEFTOVER = 2**20  # of a block for large tensors, which torch splits only if more than this is left
SPILLED = {("swa/split-kv", "fp8"), ("gqa/split-kv", "int8")}  # one register of each of the 128 threads of a CTA
SPILLED_BYTES = 128 * 4
INDEX_BYTES, SM_COUNT = 4, 132
DEFAULT = {json.dumps([one.name, problem_fields(one.problem)]) for one in suite("default")}


def test_there_are_runs_and_points() -> None:
    assert [run.name for run in RUNS] == ["default-with-peers.jsonl", "full-with-peers.jsonl"]
    assert len(OURS) == len(suite("default")) + len(suite("full"))
    assert {_key(case.values[0]) for case in OURS} >= DEFAULT


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_our_kernels_are_counted_and_the_peers_are_timed_beside_them(path: Path) -> None:
    run = read(path)
    assert {record.status for record in run.records} == {"ok", "unsupported"}
    assert all(case.values[0].counters is not None for case in OURS)
    beside = {record.implementation for record in run.records if record.status == "ok"}
    assert {"torch/cudnn", "fa3/fwd", "flashinfer/prefill", "flashinfer/paged", "flashmla/decode"} <= beside


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_hbm_ceiling_is_near_the_peak_of_the_counters_and_above_every_point(path: Path) -> None:
    run = read(path)
    ceiling = run.header.profile.measured["hbm_bytes_per_s"].value
    assert ceiling >= 0.96 * max(record.counters.hbm_peak_bytes_per_s for record in run.records if record.counters)
    timed = [record for record in run.records if record.measurement is not None]
    assert all(record.prediction.hbm_bytes_min <= 1.01 * ceiling * record.measurement.time_s.median for record in timed)


@pytest.mark.parametrize("record", TIMED)
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
    leftover = ALLOCATOR_LEFTOVER if expected > ALLOCATOR_LEFTOVER else 0
    tensors = MOST_TENSORS if record.problem["kv_len"] else MOST_OF_UNEQUAL_LENGTHS
    assert 0 <= record.measurement.max_memory_bytes - expected <= tensors * ALLOCATOR_BYTES + leftover + lists


@pytest.mark.parametrize("record", OURS)
def test_counted_hbm_bytes_are_those_of_the_prediction(record) -> None:  # type: ignore[no-untyped-def]
    counted = _hbm_counted(record)
    if _key(record) in DEFAULT:
        allowed = 0.03
    elif counted > REREADING_ABOVE * record.prediction.hbm_bytes_min:
        allowed = 0.08
    else:  # linear/parallel is predicted to read K and V again, and does not
        allowed = 0.06 if record.configuration == "linear/parallel" else 0.05
    assert _hbm_predicted(record) == pytest.approx(counted, rel=allowed)


def test_most_predictions_of_hbm_bytes_are_within_a_percent() -> None:
    errors = [abs(_hbm_predicted(case.values[0]) / _hbm_counted(case.values[0]) - 1) for case in OURS]
    assert median(errors) < 0.0025
    assert quantiles(errors, n=10)[-1] < 0.045


def _key(record: Record) -> str:
    return json.dumps([record.configuration, record.problem])


def _hbm_counted(record: Record) -> float:
    return record.counters.hbm_read_bytes + record.counters.hbm_write_bytes


def _hbm_predicted(record: Record) -> float:
    # Anew from problem, plan and profile: a stored prediction proves nothing.
    cost = VARIANTS[record.variant](problem_from(record.problem), plan_from(record.plan))
    return hbm_traffic(cost, load("h200-sxm-141gb")).hbm_bytes


@pytest.mark.parametrize("record", OURS)
def test_flops_and_sm_bytes_are_those_of_the_cost(record) -> None:  # type: ignore[no-untyped-def]
    """FLOPs to the last one but on the vector units; SM reads and writes to 0.1 %: lists of q tiles, of lengths (0.2 %)."""
    problem, plan = problem_from(record.problem), plan_from(record.plan)
    cost = VARIANTS[record.variant](problem, plan)
    executed = cost.flops_executed
    is_earlier = record.run_id == read(RESULTS / "full-with-peers.jsonl").header.run_id
    if is_earlier and plan.kernel == "hopper" and record.variant == "flash":  # no warp group skipped what another one ran
        executed = VARIANTS["flash"](problem, replace(plan, kernel=None)).flops_executed
    if record.plan["form"] != "recurrent":
        assert record.counters.tensor_flops == executed
    traffic = [moved for launch in cost.launches for moved in launch.traffic]
    if record.variant == "flash" and record.plan["kernel"] is None:
        pytest.skip("a decode step in tiles of 16 rows: boxes of 16 rows are counted for one")
    read_, written = (sum(moved) for moved in zip(*((m.sm_read_bytes, m.sm_write_bytes) for m in traffic), strict=True))
    if plan.kernel == "hopper" and record.variant == "flash":
        read_ += box_overhang_bytes(problem, plan, problem.kv)
    if (record.configuration, record.problem["kv_dtype"]) in SPILLED:
        written += cost.launches[0].ctas * SPILLED_BYTES  # mostly read back through the L1, which this does not count
    assert record.counters.sm_read_bytes == pytest.approx(read_, rel=1e-3 if len(problem.lengths) == 1 else 2e-3)
    assert record.counters.sm_write_bytes == pytest.approx(written, rel=1e-3)
