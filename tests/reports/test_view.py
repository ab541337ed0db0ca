"""What a report shows, as data: nothing here looks at a page or a terminal."""

import json
import math
from pathlib import Path

import pytest

from roofline.analysis import Conventions, analyze_all, document
from roofline.configurations import Request
from roofline.records import Record, Run
from roofline.reports.accuracy import by_variant, error_table
from roofline.reports.points import Point, point
from roofline.reports.view import View, rows, to_dict, view_of_document, view_of_runs
from tests.reports import runs

FLASH = Request(n=4096, kv_heads=8, causal=True, variants=("flash",), phase="prefill")


@pytest.fixture(scope="module")
def shown() -> View:
    return view_of_runs([runs.run(points=[*runs.records(), *runs.broken()])])


def made(record: Record) -> Point:
    return point(1, 0, record.model_dump(), runs.header().profile.model_dump())


def timed(median: float | None = None, variant: str = "flash", phase: str = "prefill", **measured: object) -> Point:
    """The point of our kernel of ``variant``, its time set."""
    found = runs.records((Request(n=4096, batch=8, kv_heads=8, variants=(variant,), phase=phase),))  # type: ignore[arg-type]
    fields = found[0].model_dump()
    if median is not None:
        fields["measurement"]["time_s"] = {"median": median, "p10": median, "p90": median, "samples": [median]}
    fields["measurement"] |= measured
    return made(Record.model_validate(fields))


def test_points_keep_the_order_of_the_file_and_are_numbered(shown: View) -> None:
    assert [each.number for each in shown.points] == list(range(1, len(shown.points) + 1))
    assert shown.statuses == {"ok": 73, "wrong": 1, "failed": 1, "unsupported": 1, "predicted": 1}


def test_figures_of_a_point_are_those_of_the_record() -> None:
    record = runs.records((FLASH,))[0]
    assert record.prediction is not None
    assert record.counters is not None
    assert record.measurement is not None
    shown, counted = made(record), (record.counters.hbm_read_bytes or 0) + (record.counters.hbm_write_bytes or 0)
    assert (shown.flops, shown.hbm_bytes, shown.hbm_counted) == (record.prediction.flops, record.prediction.hbm_bytes, counted)
    assert (shown.hbm_used, shown.hbm_source) == (counted, "counted")
    assert shown.prediction_error == pytest.approx((record.prediction.hbm_bytes or 0) / counted - 1)
    assert (shown.tokens, shown.phase, shown.dtype) == (4096, "prefill", "bf16")
    assert shown.problem == "n 4k, batch 1, 32 heads, 8 KV, d 128, causal, bf16"
    # by hand: 4 d FLOPs a pair and head, half of the square and its diagonal
    flops = 4 * 128 * 32 * 4096 * 4097 // 2
    assert shown.flops == flops
    assert shown.roof_s["datasheet"] == pytest.approx(flops / 989.5e12)
    assert shown.roof_share["measured"] == pytest.approx(flops / 7.9e14 / record.measurement.time_s.median)


def test_bytes_by_tensor_add_up(shown: View) -> None:
    for each in shown.points:
        assert sum(tensor.hbm_bytes for tensor in each.tensors) == each.hbm_bytes
        assert sum(tensor.sm_bytes for tensor in each.tensors) == each.sm_bytes
    naive = {tensor.name: tensor.hbm_bytes for tensor in shown.points[0].tensors}
    assert naive["S"] + naive["P"] > 0.9 * sum(naive.values())


def test_peers_stand_on_minimum_bytes_and_are_not_judged_by_our_prediction(shown: View) -> None:
    peers = [each for each in shown.points if each.implementation.startswith("torch/")]
    assert peers
    assert {each.hbm_source for each in peers} == {"minimum"}
    assert all(each.prediction_error is None and not each.advice for each in peers)
    assert {each.series for each in peers} >= {"flash, torch/flash", "split-kv, torch/cudnn"}


def test_ours_and_peers_are_set_against_each_other() -> None:
    ours, *peers = view_of_runs([runs.run(points=runs.records((FLASH,))[:3])]).points
    assert [peer.implementation for peer in peers] == ["torch/flash", "torch/cudnn"]
    times = [each.measured_s or 0.0 for each in (ours, *peers)]
    assert ours.verdict.endswith(f"{times[2] / times[0]:.3f}x as fast as its fastest peer, torch/cudnn")
    assert peers[0].verdict.endswith(f"{times[0] / times[1]:.3f}x as fast as roofline/flash")


def test_a_point_without_a_time_says_why(shown: View) -> None:
    wrong = next(each for each in shown.points if each.status == "wrong")
    assert wrong.verdict == "wrong: relative error 0.31, allowed 0.004"
    assert wrong.measured_s is None
    assert wrong.advice.startswith("Fix the result first")


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (timed(), "of the measured roof"),
        (timed(variant="naive"), "P and S are"),
        (timed(1e-3), "Above the tensor peak: a ceiling or a count is wrong"),
        (timed(1e-6, "split-kv", "decode"), "Above the HBM roof with counted bytes: the ceiling is too low, calibrate again"),
        (timed(1e-6, "split-kv", "decode", l2="warm"), "Served by L2"),
        (timed(all_throttled=True), "Every sample was taken under thermal or hardware slowdown"),
    ],
)
def test_verdicts_of_measured_points(point: Point, words: str) -> None:
    assert words in point.verdict


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (timed(variant="naive"), "Keep S and P on chip: flash attention moves"),
        (timed(1.0, "split-kv", "decode"), "Memory idles"),
        (timed(1.0), "Tensor cores idle"),
        (timed(5e-6, "linear"), ""),
        (timed(all_throttled=True), "Measure again on a cooler GPU"),
        (timed(33e-6, "split-kv", "decode"), "At the memory limit: only fewer cache bytes help"),
    ],
)
def test_what_to_do_next(point: Point, words: str) -> None:
    assert words in point.advice


def test_the_error_table_against_hand_counts(shown: View) -> None:
    table = {(row.variant, row.estimate, row.counter): row for row in shown.errors}
    chunked = table["chunked", "prediction", "HBM bytes"]
    assert (chunked.points, chunked.median, chunked.worst) == (1, pytest.approx(0.15), pytest.approx(0.15))
    assert chunked.worst_point.startswith("mha/chunked, n 2k")
    assert table["all", "executed FLOPs", "tensor FLOPs"].worst == 0
    errors = sorted(abs(each.prediction_error) for each in shown.points if each.prediction_error is not None)
    overall = table["all", "prediction", "HBM bytes"]
    assert overall.points == len(errors) == 31
    assert overall.median == errors[15]
    assert overall.p90 == errors[math.ceil(0.9 * 31) - 1]
    lines = {line.variant: line for line in by_variant(shown.errors)}
    assert list(lines)[-1] == "all"
    assert lines["naive"].minimum is not None
    assert lines["naive"].minimum > 0.4
    counted = [each.hbm_counted / each.hbm_bytes_min for each in shown.points if each.prediction_error is not None]
    assert lines["streaming"].points == sum(times <= 1.03 for times in counted)
    assert lines["re-reading"].points == sum(times > 1.05 for times in counted)
    assert lines["streaming"].minimum is not None
    assert lines["streaming"].minimum <= 0.03


def test_no_counters_no_error_table() -> None:
    shown = view_of_runs([runs.run(points=runs.records((FLASH,), counted=False))])
    assert error_table(shown.points) == shown.errors == ()
    assert "No counters were read: bytes are predicted, not counted." in shown.summary
    assert {each.hbm_source for each in shown.points if each.is_ours} == {"predicted"}


def test_ceilings_keep_roofs_apart(shown: View) -> None:
    levels = {(line.roof, line.level): line.per_s for line in shown.ceilings}
    assert levels["datasheet", "HBM"] == 4.8e12
    assert levels["measured", "HBM"] == 4.27e12
    assert ("datasheet", "L2") not in levels
    assert levels["datasheet", "bf16"] == 989.5e12
    assert shown.roof == "measured"


def test_two_runs_are_compared() -> None:
    shown = view_of_runs([runs.run("a.jsonl"), runs.run("b.jsonl", runs.records(speed=1.2))])
    assert [source.name for source in shown.sources] == ["a.jsonl", "b.jsonl"]
    assert {each.run for each in shown.points} == {0, 1}
    assert {change["verdict"] for change in shown.changes} == {"better"}
    assert shown.summary[-1] == "Second run against the first: 73 better, 0 worse, 0 cannot tell."
    same = view_of_runs([runs.run("x/a.jsonl"), runs.run("y/a.jsonl"), runs.run("z/a.jsonl")])
    assert [source.name for source in same.sources] == ["a.jsonl (1)", "a.jsonl (2)", "a.jsonl (3)"]
    assert not same.changes


def test_a_torn_run_and_an_empty_one_say_so() -> None:
    torn = view_of_runs([Run(Path("t.jsonl"), runs.header(), tuple(runs.records((FLASH,))), torn=True)])
    assert torn.sources[0].notes == ("t.jsonl: the last line was cut off and left out",)
    empty = view_of_runs([Run(Path("e.jsonl"), runs.header(), ())])
    assert empty.sources[0].notes == ("e.jsonl: holds no points",)
    assert empty.summary == ("No points.",)


def test_an_analysis_is_a_view_of_predicted_points() -> None:
    request = Request(n=2048)
    results = analyze_all(request, runs.profile())
    shown = view_of_document(document(results, runs.profile(), Conventions(), ["a note"]))
    assert shown.statuses == {"predicted": len(results)}
    assert shown.roof == "datasheet"
    assert shown.sources[0].notes == ("a note",)
    assert [each.predicted_s["datasheet"] for each in shown.points] == [result.prediction.time_s for result in results]
    assert dict(shown.sources[0].facts)["Peaks"].startswith("dense, fp32 accumulate")
    measured = view_of_document(document(results, runs.profile(), Conventions(roof="measured")))
    assert measured.points[0].predicted_s["datasheet"] is None


def test_facts_of_a_run(shown: View) -> None:
    facts = dict(shown.sources[0].facts)
    assert facts["Driver"] == "580.82, CUDA 13.0"
    assert facts["Clocks"] == "SM clock at most 1.98 GHz, memory 3.20 GHz, power limit 700 W"
    assert facts["L2 state"].startswith("cold")
    assert "torch 2.11.0" in facts["Versions"]
    assert facts["SM clock"] == "1.83 GHz"
    capped = sum(each.throttled == "power cap" for each in shown.points)
    assert facts["Throttling"] == f"power cap on {capped} of 73 points"


def test_a_record_that_lacks_fields_still_has_a_point() -> None:
    bare = {"configuration": "x/flash", "variant": "flash", "status": "failed", "reason": "a hang", "problem": {}}
    shown = point(1, 0, bare, runs.header().profile.model_dump())
    assert (shown.verdict, shown.flops, shown.tensors) == ("failed: a hang", None, ())


def test_json_and_csv_of_a_view(shown: View) -> None:
    found = json.loads(json.dumps(to_dict(shown), allow_nan=False))
    assert found["schema"] == "roofline.view/1"
    assert len(found["points"]) == len(shown.points)
    flat = list(rows(found))
    assert {tuple(row) for row in flat} == {tuple(flat[0])}
    assert flat[0]["roof_share_measured"] == shown.points[0].roof_share["measured"]
