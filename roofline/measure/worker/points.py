"""Run the cases of one problem: check each against its reference, then time them in turn."""

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch

from roofline.errors import InputError
from roofline.fields import plan_from, problem_from
from roofline.kernels.protocol import Inputs, Kernel
from roofline.measure.clocks import ClockSource, NoClocks, NvmlClocks
from roofline.measure.timing import StoppingRule, Timed, interleave
from roofline.measure.worker import Emit, implementations
from roofline.measure.worker.correctness import Check, check, token_major
from roofline.measure.worker.lane import CudaLane
from roofline.measure.worker.rotation import Rotation, rotate
from roofline.plan import Plan
from roofline.problem import Problem

STICKY_EXIT_CODE = 70  # the CUDA context is lost: nothing more can be run in this process
SAMPLE_DIGITS = 5


@dataclass(frozen=True, slots=True)
class _Prepared:
    case: int
    name: str
    module: Kernel
    rotation: Rotation
    lane: CudaLane
    check: Check
    max_memory_bytes: int
    backend: str | None


@dataclass(frozen=True, slots=True)
class _Request:
    """The parts of a request that all its cases share."""

    problem: Problem
    seed: int
    l2_bytes: int
    l2: str
    graphs: bool
    device: torch.device
    clocks: ClockSource


class _Refused(Exception):
    """A case that ends before it is timed, with its status and reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def run(fields: Mapping[str, Any], emit: Emit, device: str = "cuda") -> None:
    """Answer one ``measure`` request: a ``result`` for each case, then ``done``."""
    request = _Request(
        problem_from(fields["problem"]),
        fields.get("seed", 0),
        fields["l2_bytes"],
        fields.get("l2", "cold"),
        fields.get("graphs", True),
        torch.device(device),
        clock_source(fields.get("uuid")),
    )
    prepared, fresh = [], False
    for index, case in enumerate(fields["cases"]):
        try:
            prepared.append(_prepare(index, case, request, emit))
        except _Refused as refusal:
            emit("result", case=index, status=refusal.status, reason=refusal.reason)
        except torch.cuda.OutOfMemoryError as error:
            emit("result", case=index, status="failed", reason=f"out of GPU memory: {_first_line(error)}")
            fresh = True
        except Exception as error:
            emit("result", case=index, status="failed", reason=f"{type(error).__name__}: {_first_line(error)}")
            _leave_if_broken()
        _release()
    rule = StoppingRule(**fields.get("rule", {}))
    timed = interleave([one.lane for one in prepared], rule, lambda lane: emit("start", case=prepared[lane].case, stage="time"))
    for one, samples in zip(prepared, timed, strict=True):
        emit("result", case=one.case, status="ok", measurement=_measurement(one, samples))
    prepared.clear()
    _release()
    emit("done", fresh=fresh)


def clock_source(uuid: str | None) -> ClockSource:
    """Return where clocks are read: NVML, or nowhere if it is not there."""
    if uuid is None:
        return NoClocks()
    try:
        return NvmlClocks(uuid)
    except Exception:  # no library, no permission: a measurement without clocks is worth having
        return NoClocks()


def prepare_rotation(
    case: Mapping[str, Any], request: _Request, plan: Plan, module: Kernel, emit: Emit, index: int
) -> tuple[Rotation, Check, int]:
    """Make inputs, run one checked call, and return its rotation, the check and the bytes one call needs."""
    emit("start", case=index, stage="inputs")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    inputs = make_inputs(module, plan, request.problem, request.seed, request.device)
    torch.cuda.synchronize()
    emit("start", case=index, stage="launch")
    out = module.launch(inputs, plan)  # compiles, and gives the shape
    emit("start", case=index, stage="wait")
    torch.cuda.synchronize()
    out.fill_(float("nan"))
    torch.cuda.reset_peak_memory_stats()
    result = module.launch(inputs, plan, out)
    torch.cuda.synchronize()
    max_memory_bytes = torch.cuda.max_memory_allocated() - before
    emit("start", case=index, stage="check")
    checked = check(module, case["variant"], inputs, token_major(module, result, inputs))
    if checked.problem is not None:
        raise _Refused("wrong", checked.problem)
    emit("start", case=index, stage="launch")
    torch.cuda.empty_cache()  # what the reference took: the sets are counted in memory that is free
    rotation = rotate(module, plan, inputs, out, case["touched_bytes"], request.l2_bytes, request.l2)
    return rotation, checked, max_memory_bytes


def _prepare(index: int, case: Mapping[str, Any], request: _Request, emit: Emit) -> _Prepared:
    module, plan = resolve(case, request, emit, index)
    rotation, checked, max_memory_bytes = prepare_rotation(case, request, plan, module, emit, index)
    emit("start", case=index, stage="launch")
    confirm = getattr(module, "backend", None)
    backend = confirm(rotation.inputs[0], plan) if confirm is not None else None
    lane = CudaLane(rotation, request.clocks, request.graphs)
    check_replay(lane, module, rotation.inputs[0])
    return _Prepared(index, case["implementation"], module, rotation, lane, checked, max_memory_bytes, backend)


def check_replay(lane: CudaLane, module: Kernel, inputs: Inputs) -> None:
    """Refuse a case whose graph leaves its last output unwritten: work that was not captured would not be timed."""
    if not isinstance(lane.last, torch.Tensor):
        return
    lane.last.fill_(float("nan"))
    lane.sample()
    if not bool(torch.isfinite(token_major(module, lane.last, inputs)).all()):
        raise _Refused("wrong", "a replay of its graph leaves its output unwritten")


def resolve(case: Mapping[str, Any], request: _Request, emit: Emit, index: int) -> tuple[Kernel, Plan]:
    """Return the module and plan of a case; refuse it as unsupported if it cannot run here."""
    emit("start", case=index, stage="inputs")
    plan = plan_from(case["plan"])
    try:
        module = implementations.load(case["implementation"])
    except ImportError as error:
        raise _Refused("unsupported", f"{error.name or error} is not importable here") from None
    except InputError as error:
        raise _Refused("unsupported", str(error)) from None
    if reason := module.supports(request.problem, request.device, plan):
        raise _Refused("unsupported", reason)
    return module, plan


def make_inputs(module: Kernel, plan: Plan, problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return inputs in the form of ``plan``, where the module has inputs of several forms."""
    if plan.form is not None and "form" in signature(module.make_inputs).parameters:
        return module.make_inputs(problem, seed, device, form=plan.form)  # type: ignore[call-arg]
    return module.make_inputs(problem, seed, device)


def _measurement(one: _Prepared, timed: Timed) -> dict[str, Any]:
    median, p10, p90 = timed.quantiles()
    return {
        "implementation": one.name,
        "time_s": {"median": median, "p10": p10, "p90": p90, "samples": [_rounded(value) for value in timed.samples]},
        "method": one.lane.method,
        "l2": one.rotation.l2,
        "discarded": timed.discarded,
        "all_throttled": timed.all_throttled,
        "clock_hz": timed.clocks.clock_hz,
        "power_w": timed.clocks.power_w,
        "throttle_reasons": list(timed.clocks.throttle_reasons),
        "max_memory_bytes": one.max_memory_bytes,
        "error": one.check.error,
        "tolerance": one.check.tolerance,
        "backend_confirmed": one.backend,
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{SAMPLE_DIGITS}g}")


def _release() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def _leave_if_broken() -> None:
    """End the process if the CUDA context is lost, which every later call would report as its own error."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        os._exit(STICKY_EXIT_CODE)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
