"""Realistic runs for the tests of reports: real predictions, and measurements made up around them with seeded noise.

Everything a run can hold is here: counters, peers, warm and throttled points, wrong, failed and unsupported ones. Nothing here
is a measurement, and nothing here is published.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofline.analysis import Conventions, analyze
from roofline.configurations import Configuration, Request, configurations
from roofline.fields import plan_fields, prediction_fields, problem_fields
from roofline.profiles.load import load
from roofline.profiles.profile import Ceiling, Profile
from roofline.records import SCHEMA, Header, Record, Run, Writer, profile_fields

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'><!-- \u2028 {{ 7 * 7 }}"
MEASURED = {
    "hbm_bytes_per_s": 4.27e12,
    "l2_bytes_per_s": 1.1e13,
    "bf16_flop_per_s": 7.9e14,
    "fp16_flop_per_s": 7.9e14,
    "exp_per_s": 3.9e12,
    "cta_read_bytes_per_s": 6.1e10,
    "launch_s": 1.2e-6,
}
EFFICIENCY = {"naive": 0.86, "chunked": 0.8, "flash": 0.82, "split-kv": 0.95, "paged": 0.91, "mla": 0.7, "linear": 0.6}
REQUESTS = (
    Request(n=2048),
    *(Request(n=n, kv_heads=8, causal=True, variants=("flash",), phase="prefill") for n in (1024, 4096, 16384)),
    *(Request(n=n, batch=32, kv_heads=8, variants=("split-kv", "paged"), phase="decode") for n in (2048, 8192)),
    Request(n=4096, kv_heads=8, dtype="fp16", variants=("flash",), phase="prefill"),
)


def profile() -> Profile:
    """An H200 with ceilings such as calibrate leaves."""
    measured = {key: Ceiling(value, "measured", "test data") for key, value in MEASURED.items()}
    return replace(load("h200-sxm-141gb"), measured=measured)


def header(run_id: str = "run-1", device: Profile | None = None, command: Sequence[str] = ("roofline", "measure")) -> Header:
    state = {"driver": "580.82", "cuda_driver": "13.0", "sm_clock_max_hz": 1.98e9, "memory_clock_hz": 3.2e9, "ecc": True}
    return Header(
        schema=SCHEMA,
        run_id=run_id,
        created="2026-11-30T12:00:00+00:00",
        command=list(command),
        environment={
            "roofline": "0.1.0",
            "python": "3.12.3",
            "platform": "Linux",
            "packages": {"nvidia-ml-py": "13.615"},
            "gpu_state": {**state, "power_limit_w": 700.0},
            "worker": {"torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0"},
            "settings": {"l2": "cold"},
        },
        profile=profile_fields(device or profile()),
    )


def records(requests: Iterable[Request] = REQUESTS, seed: int = 0, speed: float = 1.0, counted: bool = True) -> list[Record]:
    """Timed points of ``requests``, with two peers beside flash and split-KV; ``speed`` scales every rate."""
    noise, device = random.Random(seed), profile()
    found = []
    for configuration in dict.fromkeys(each for request in requests for each in configurations(request)):
        found.append(_timed(configuration, device, noise, f"roofline/{configuration.variant}", speed, counted))
        if configuration.variant in ("flash", "split-kv"):
            found += [
                _timed(configuration, device, noise, name, speed * rate, False)
                for name, rate in (("torch/flash", 0.7), ("torch/cudnn", 1.1))
            ]
    return found


def run(path: str = "h200.jsonl", points: Sequence[Record] | None = None, **header_fields: Any) -> Run:
    return Run(Path(path), header(**header_fields), tuple(records() if points is None else points))


def broken(name: str = "mha/naive") -> list[Record]:
    """One point of each status without a time, and one that is only predicted."""
    configuration = configurations(Request(n=8192, variants=("naive",), phase="prefill"))[0]
    base = _fields(configuration, profile(), "roofline/naive") | {"configuration": name}
    reasons = {
        "wrong": "relative error 0.31, allowed 0.004",
        "failed": "CUDA error: an illegal memory access",
        "unsupported": "fp8 has no kernel here",
    }
    statuses = [
        {**base, "status": status, "reason": reason, "implementation": f"{status}/x"} for status, reason in reasons.items()
    ]
    return [Record.model_validate(fields) for fields in [*statuses, {**base, "status": "predicted"}]]


def hostile() -> Run:
    """A run in which every string is an attack."""
    points = broken(HOSTILE)
    timed = records((Request(n=1024, variants=("flash",), phase="prefill"),))
    changed = [
        record.model_copy(update={"configuration": HOSTILE, "notes": [HOSTILE], "reason": HOSTILE if record.reason else None})
        for record in [*points, *timed]
    ]
    return Run(Path("evil</title><script>.jsonl"), header(HOSTILE, command=("roofline", HOSTILE)), tuple(changed))


def many(count: int) -> Run:
    """``count`` points that differ, cheaply: one prediction of each configuration, scaled."""
    noise, found = random.Random(1), records()
    points = []
    for index in range(count):
        record = found[index % len(found)]
        assert record.measurement is not None
        assert record.prediction is not None
        flops = int(record.prediction.flops * 2 ** noise.uniform(-3, 3))
        bytes_ = record.prediction.hbm_bytes or 1.0
        floor_s = max(flops / MEASURED["bf16_flop_per_s"], bytes_ / MEASURED["hbm_bytes_per_s"])
        median = floor_s / EFFICIENCY[record.variant] * noise.uniform(1, 1.4)
        times = {"median": median, "p10": median, "p90": median, "samples": [median]}
        measurement = record.measurement.model_copy(update={"time_s": record.measurement.time_s.model_validate(times)})
        prediction = record.prediction.model_copy(update={"flops": flops, "time_s": floor_s, "time_measured_roof_s": floor_s})
        problem = {**record.problem, "batch": 1 + index // len(found)}
        points.append(record.model_copy(update={"measurement": measurement, "prediction": prediction, "problem": problem}))
    return run("many.jsonl", points)


def write(path: Path, points: Iterable[Record], **header_fields: Any) -> Path:
    """Write a run file through the real writer."""
    with Writer.create(path, header(**header_fields), force=True) as writer:
        for record in points:
            writer.append(record)
    return path


def _fields(configuration: Configuration, device: Profile, implementation: str) -> dict[str, Any]:
    result = analyze(configuration, device)
    floor_s = analyze(configuration, device, Conventions(roof="measured")).prediction.time_s
    ours = implementation.startswith("roofline/")
    return {
        "run_id": "run-1",
        "configuration": configuration.name,
        "variant": configuration.variant,
        "implementation": implementation,
        "problem": problem_fields(configuration.problem),
        "plan": plan_fields(result.plan) if ours else None,
        "prediction": {**prediction_fields(result), "time_measured_roof_s": floor_s},
    }


def _timed(
    configuration: Configuration, device: Profile, noise: random.Random, implementation: str, speed: float, counted: bool
) -> Record:
    fields = _fields(configuration, device, implementation)
    prediction = fields["prediction"]
    median = prediction["time_measured_roof_s"] / EFFICIENCY[configuration.variant] / speed * noise.uniform(1, 1.05) + 3e-6
    spread = [median * (1 + noise.gauss(0, 0.004)) for _ in range(21)]
    samples = sorted(spread)
    off = noise.uniform(0.97, 1.03) if configuration.variant != "chunked" else 1.15
    total = prediction["hbm_bytes"] / off
    written = min(total * 0.3, 3e7)
    counters = {
        "hbm_read_bytes": total - written,
        "hbm_write_bytes": written,
        "l2_bytes": prediction["sm_bytes"] * noise.uniform(0.6, 0.9),
        "sm_read_bytes": prediction["sm_bytes"] * 0.9,
        "sm_write_bytes": prediction["sm_bytes"] * 0.1,
        "tensor_flops": prediction["flops_executed"],
        "mode": "steady",
        "calls": 20,
    }
    measurement = {
        "implementation": implementation,
        "time_s": {"median": samples[10], "p10": samples[2], "p90": samples[18], "samples": spread},
        "method": "events" if prediction["time_s"] > 1e-4 else "graph",
        "l2": "cold",
        "clock_hz": 1.83e9,
        "power_w": 520.0,
        "throttle_reasons": ["power cap"] if prediction["bound"] == "tensor" else [],
        "error": 1.1e-3,
        "tolerance": 4e-3,
        "flop_per_s": prediction["flops"] / median,
    }
    return Record.model_validate(
        {**fields, "status": "ok", "measurement": measurement, "counters": counters if counted else None}
    )
