import random
from pathlib import Path

import pytest
from rich.console import Console

from roofline.compare import compare, mann_whitney
from roofline.errors import InputError
from roofline.records import Record, Run
from roofline.reports.measuring import comparison_document, render_comparison
from tests.records.example import header, measurement, record, times


def run(*records: Record) -> Run:
    return Run(Path("run.jsonl"), header(), records)


def timed(median: float, spread: float = 0.004, count: int = 21, **fields: object) -> Record:
    return record(measurement=measurement(time_s=times(median, spread, count), **fields))


@pytest.mark.parametrize(
    ("after", "verdict", "because"),
    [
        (timed(1.05e-3), "worse", "Mann-Whitney"),
        (timed(0.95e-3), "better", "Mann-Whitney"),
        (timed(1.01e-3), "cannot tell", "less than 2% apart"),
        (timed(1.05e-3, spread=0.2), "cannot tell", "spreads"),
        (timed(1.50e-3, count=4), "cannot tell", "fewer than 5"),
        (timed(1.50e-3, method="events"), "cannot tell", "timed as graph, cold L2 -> events, cold L2"),
        (timed(0.50e-3, l2="warm"), "cannot tell", "timed as graph, cold L2 -> graph, warm L2"),
        (timed(1.05e-3, clock_hz=1.8e9), "worse", "SM clock 1980 -> 1800 MHz"),
        (timed(1.05e-3, throttle_reasons=["power cap"]), "worse", "throttled by nothing -> power cap"),
        (record(status="wrong", measurement=None, reason="relative error 1"), "worse", "ok in A, wrong in B: relative error 1"),
    ],
)
def test_verdicts(after: Record, verdict: str, because: str) -> None:
    (change,) = compare(run(timed(1e-3, clock_hz=1.98e9)), run(after)).changes
    assert change.verdict == verdict
    assert because in change.reason


def test_a_run_equals_itself() -> None:
    points = run(timed(1e-3))
    comparison = compare(points, points)
    assert [change.verdict for change in comparison.changes] == ["cannot tell"]
    assert comparison.median_change == 0
    assert comparison.exit_code("worse") == 0


def test_points_of_one_run_only() -> None:
    here, gone, new = record(), record(implementation="torch/cudnn"), record(implementation="fa3/fwd")
    comparison = compare(run(here, gone), run(here, new))
    assert [change.verdict for change in comparison.changes] == ["cannot tell", "only in A", "only in B"]


def test_exit_code_for_ci() -> None:
    worse = compare(run(timed(1e-3)), run(timed(2e-3)))
    better = compare(run(timed(2e-3)), run(timed(1e-3)))
    assert (worse.exit_code("worse"), worse.exit_code(None), better.exit_code("worse")) == (1, 0, 0)
    with pytest.raises(InputError, match="--fail-on slower: expected worse"):
        worse.exit_code("slower")


def test_runs_of_other_problems_are_refused() -> None:
    with pytest.raises(InputError, match="no point in common"):
        compare(run(record()), run(record(implementation="torch/cudnn")))


def test_another_plan_is_named_as_a_cause() -> None:
    after = record(plan={**record().plan, "q_tile": 64}, measurement=measurement(2e-3))
    (change,) = compare(run(record()), run(after)).changes
    assert "another plan" in change.reason


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # U = 0, mean 12.5, variance 25 x 11 / 12; z = 12 / 4.787
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 0.012186),
        # ranks 1, 3, 3, 5.5, 8, 8: U = 7.5, mean 18; ties 24 + 6 + 24: variance 3 x (13 - 54 / 132); z = 10 / 6.146
        ([1, 2, 2, 3, 5, 5], [2, 3, 5, 6, 7, 8], 0.103720),
        ([1, 1, 1], [1, 1, 1], 1.0),
    ],
)
def test_mann_whitney(first: list[float], second: list[float], expected: float) -> None:
    assert mann_whitney(first, second) == pytest.approx(expected, rel=1e-4)


def test_the_rank_test_alone_would_call_noise_significant_no_oftener_than_it_says() -> None:
    draw = random.Random(7).gauss
    p_values = [mann_whitney([draw(0, 1) for _ in range(20)], [draw(0, 1) for _ in range(20)]) for _ in range(400)]
    assert sum(p < 0.05 for p in p_values) < 400 * 0.09


def test_the_terminal_names_each_point_by_its_problem_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    comparison = compare(run(timed(1e-3, clock_hz=1.98e9)), run(timed(1.05e-3, clock_hz=1.8e9)))
    document = comparison_document(comparison, "monday.jsonl", "tuesday.jsonl")
    render_comparison(document, Console(width=80, force_terminal=False))
    out = capsys.readouterr().out
    assert document["changes"][0]["problem"] == record().problem
    assert "\n1 prefill, n 1k, batch 1, 32 heads" in out
    assert "SM clock 1980 -> 1800 MHz" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
