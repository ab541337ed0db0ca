"""A small header and records, for the tests of records and of what reads them."""

from typing import Any

from roofline.analysis import analyze
from roofline.configurations import Request, configurations
from roofline.fields import plan_fields, prediction_fields, problem_fields
from roofline.profiles.load import load
from roofline.records import SCHEMA, Header, Record, profile_fields

PROFILE = load("h200-sxm-141gb")
CONFIGURATION = configurations(Request(n=1024, variants=("flash",), phase="prefill"))[0]
RESULT = analyze(CONFIGURATION, PROFILE)
PREDICTION = prediction_fields(RESULT)


def header(run_id: str = "run-1") -> Header:
    return Header(schema=SCHEMA, run_id=run_id, created="2026-11-30T12:00:00+00:00", profile=profile_fields(PROFILE))


def times(median: float = 1e-3, spread: float = 0.002, count: int = 21) -> dict[str, Any]:
    samples = [median * (1 + spread * (index - count // 2) / count) for index in range(count)]
    return {"median": median, "p10": samples[count // 10], "p90": samples[-1 - count // 10], "samples": samples}


def measurement(median: float = 1e-3, **fields: Any) -> dict[str, Any]:
    return {
        "implementation": "roofline/flash",
        "time_s": times(median),
        "method": "graph",
        "l2": "cold",
        "error": 1e-3,
        "tolerance": 4e-3,
        **fields,
    }


def fields(**changed: Any) -> dict[str, Any]:
    return {
        "run_id": "run-1",
        "status": "ok",
        "configuration": CONFIGURATION.name,
        "variant": "flash",
        "implementation": "roofline/flash",
        "problem": problem_fields(CONFIGURATION.problem),
        "plan": plan_fields(RESULT.plan),
        "prediction": PREDICTION,
        "measurement": measurement(),
        **changed,
    }


def record(**changed: Any) -> Record:
    return Record.model_validate(fields(**changed))


def numbered(number: int) -> Record:
    """One of many points that differ."""
    return record(implementation=f"peer/{number}")
