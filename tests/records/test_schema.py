from dataclasses import asdict

import pytest
from pydantic import ValidationError

from roofline.fields import plan_from, problem_from
from roofline.records import Record, profile_fields, profile_from
from tests.records.example import CONFIGURATION, PROFILE, RESULT, fields, measurement, record

COUNTERS = {"mode": "steady", "calls": 8, "hbm_read_bytes": 1e9}
GATED = {"measurement": measurement(), "counters": COUNTERS, "reason": "why"}
# status -> the gated fields it may have, and those it must have
ALLOWED = {
    "predicted": (set(), {"prediction"}),
    "ok": ({"measurement", "counters"}, {"measurement"}),
    "wrong": ({"reason"}, {"reason"}),
    "unsupported": ({"reason"}, {"reason"}),
    "failed": ({"reason"}, {"reason"}),
}


def given(status: str, names: set[str]) -> dict:
    bare = {**fields(), "status": status, "measurement": None}
    return {**bare, **{name: GATED[name] for name in names}}


@pytest.mark.parametrize("status", ALLOWED)
def test_a_status_admits_what_it_allows(status: str) -> None:
    allowed, needed = ALLOWED[status]
    assert Record.model_validate(given(status, allowed | needed - {"prediction"})).status == status


@pytest.mark.parametrize(("status", "name"), [(s, n) for s, (allowed, _) in ALLOWED.items() for n in GATED if n not in allowed])
def test_a_status_forbids_the_rest(status: str, name: str) -> None:
    needed = ALLOWED[status][1]
    with pytest.raises(ValidationError, match=f"status '{status}' has no {name}"):
        Record.model_validate(given(status, (needed - {"prediction"}) | {name}))


@pytest.mark.parametrize("status", ALLOWED)
def test_a_status_demands_what_it_needs(status: str) -> None:
    for name in ALLOWED[status][1]:
        lacking = {**given(status, ALLOWED[status][1] - {name, "prediction"}), name: None}
        with pytest.raises(ValidationError, match=f"status '{status}' needs {name}"):
            Record.model_validate(lacking)


@pytest.mark.parametrize("median", [0.0, -1.0, float("nan"), float("inf")])
def test_no_time_is_zero_negative_or_not_a_number(median: float) -> None:
    with pytest.raises(ValidationError):
        record(measurement={**measurement(), "time_s": {"median": median, "p10": 1, "p90": 1, "samples": [1]}})


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="latency"):
        record(latency=3)


def test_problem_and_plan_come_back_from_a_record() -> None:
    stored = record()
    assert problem_from(stored.problem) == CONFIGURATION.problem
    assert plan_from(stored.plan) == RESULT.plan


def test_the_profile_comes_back_from_a_header() -> None:
    assert asdict(profile_from(profile_fields(PROFILE))) == asdict(PROFILE)
