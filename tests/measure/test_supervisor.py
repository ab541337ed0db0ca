import sys
from pathlib import Path

import pytest

from roofline.errors import MissingError, RooflineError
from roofline.measure.supervisor import STAGE_LIMITS_S, Supervisor

FAKE_WORKER = (sys.executable, "-I", "-S", str(Path(__file__).parent / "fake_worker.py"))
REQUEST = {"op": "measure"}


def run(*names: str, limits: dict | None = None) -> tuple[dict[str, tuple[str, str | None]], int]:
    """Run implementations and return status and reason of each, and how many workers it took."""
    with Supervisor(FAKE_WORKER, limits={**STAGE_LIMITS_S, **(limits or {})}) as supervisor:
        outcomes = list(supervisor.run(REQUEST, [{"implementation": name} for name in names]))
        assert sorted(outcome.case for outcome in outcomes) == list(range(len(names)))  # exactly one each
        return {names[o.case]: (o.status, o.reason) for o in outcomes}, supervisor.workers_started


def test_all_is_well() -> None:
    outcomes, workers = run("a/1", "a/2")
    assert outcomes == {"a/1": ("ok", None), "a/2": ("ok", None)}
    assert workers == 1


@pytest.mark.parametrize(
    ("fault", "status", "reason", "workers"),
    [
        ("crash", "failed", "killed by SIGSEGV: CUDA error: an illegal memory access was encountered (stage launch)", 2),
        ("exit", "failed", "exit code 70 (stage launch)", 2),
        ("hang", "failed", "no answer for 0.3 s while in stage 'wait'; killed", 2),
        ("crash-in-timing", "failed", "killed by SIGSEGV (stage time)", 2),
        ("answered-then-crash", "failed", "RuntimeError: CUDA error", 2),
        ("oom", "failed", "out of GPU memory: tried to allocate 200 GiB", 1),
        ("wrong", "wrong", "relative error 1.4, allowed 0.004", 1),
        ("unsupported", "unsupported", "no sliding window", 1),
        ("silent", "failed", "the worker gave no result", 1),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_fault_costs_one_case(fault: str, status: str, reason: str, workers: int, place: int) -> None:
    names = ["a/1", "a/2"]
    names.insert(place, f"fault/{fault}")
    outcomes, started = run(*names, limits={"wait": 0.3})
    assert outcomes["a/1"] == outcomes["a/2"] == ("ok", None)
    got, why = outcomes[f"fault/{fault}"]
    assert got == status
    assert reason in why
    assert started == workers


def test_every_case_may_break() -> None:
    outcomes, started = run("fault/crash", "fault/exit", "fault/crash-in-timing")
    assert {status for status, _ in outcomes.values()} == {"failed"}
    assert started == 3


def test_what_libraries_print_is_passed_over() -> None:
    assert run("fault/babble")[0] == {"fault/babble": ("ok", None)}


def test_a_worker_that_lacks_something_says_so() -> None:
    with pytest.raises(MissingError, match="torch sees no CUDA device"), Supervisor((*FAKE_WORKER, "missing")) as supervisor:
        supervisor.start()


def test_a_worker_that_does_not_start_is_an_error() -> None:
    with pytest.raises(RooflineError, match=r"libcuda\.so\.1"), Supervisor((*FAKE_WORKER, "broken")) as supervisor:
        supervisor.start()
    with pytest.raises(RooflineError, match="cannot start a worker"), Supervisor(("/nowhere/python",)) as supervisor:
        supervisor.start()


def test_progress_names_case_and_stage() -> None:
    told: list[tuple[int, str]] = []
    with Supervisor(FAKE_WORKER) as supervisor:
        list(supervisor.run(REQUEST, [{"implementation": "a/1"}, {"implementation": "a/2"}], lambda *told_: told.append(told_)))
    assert told == [(0, "launch"), (1, "launch"), (0, "time"), (1, "time")]
