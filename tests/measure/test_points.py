"""The worker's side on the CPU: torch.cuda is replaced by a stand-in that takes the time and refuses graphs."""

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("roofline.kernels.reference")

from roofline.configurations import Request, configurations  # noqa: E402
from roofline.measure.cases import Case, cases  # noqa: E402
from roofline.measure.verdicts import complete  # noqa: E402
from roofline.measure.worker import implementations, points  # noqa: E402
from roofline.peers.inputs import dense_reference, make_dense  # noqa: E402
from roofline.profiles.load import load  # noqa: E402
from roofline.records import Measurement  # noqa: E402

pytestmark = pytest.mark.kernels
PROFILE = load("h200-sxm-141gb")
REQUEST = Request(n=64, d=16, heads=2, dtype="fp32", variants=("chunked",), phase="prefill")


class FakeEvent:
    """An event of a device that is always done."""

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: "FakeEvent") -> float:
        return (end.at - self.at) * 1e3


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no graphs here")

    stand_ins = {
        "Event": lambda enable_timing: FakeEvent(),
        "synchronize": lambda: None,
        "memory_allocated": lambda: 0,
        "max_memory_allocated": lambda: 4096,
        "reset_peak_memory_stats": lambda: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda: (2**30, 2**30),
        "_sleep": lambda cycles: None,
        "CUDAGraph": lambda: None,
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "current_stream": lambda: None,
        "set_stream": lambda stream: None,
        "stream": refuse,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return monkeypatch


def module(launch: Callable[..., Any], supports: Callable[..., Any] = lambda *_: None, **more: Any) -> Any:
    found = ModuleType("a kernel")
    found.__dict__.update(supports=supports, make_inputs=make_dense, launch=launch, reference=dense_reference, **more)
    return found


def right(inputs: Any, plan: Any, out: Any = None) -> Any:
    result = dense_reference(inputs).float()
    return result if out is None else out.copy_(result)


def wrong(inputs: Any, plan: Any, out: Any = None) -> Any:
    return right(inputs, plan, out).mul_(2)


def lazy(inputs: Any, plan: Any, out: Any = None) -> Any:
    """Leave its output alone if it is given one."""
    return right(inputs, plan) if out is None else out


def hungry(inputs: Any, plan: Any, out: Any = None) -> Any:
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 200 GiB\nmore")


def broken(inputs: Any, plan: Any, out: Any = None) -> Any:
    raise TypeError("launch() takes another argument")


def run(cuda: Any, modules: dict[str, Any]) -> tuple[Case, dict[str, dict], list[tuple[str, Any, Any]]]:
    def load_fake(name: str) -> Any:
        if isinstance(modules[name], Exception):
            raise modules[name]
        return modules[name]

    cuda.setattr(implementations, "load", load_fake)
    ((case,),) = cases(configurations(REQUEST), PROFILE)
    names = list(modules)
    events: list[tuple[str, dict]] = []
    request = {
        "problem": case.fields()["problem"],
        "l2_bytes": 2**14,
        "rule": {"max_samples": 8, "min_samples": 4, "max_time_s": 0.05},
        "cases": [{**case.wire(), "implementation": name} for name in names],
    }
    points.run(request, lambda event, **fields: events.append((event, fields)), device="cpu")
    results = {names[fields["case"]]: fields for event, fields in events if event == "result"}
    trail = [(event, fields.get("case"), fields.get("stage")) for event, fields in events]
    assert trail[-1][0] == "done"
    return case, results, trail


def test_a_good_case_is_checked_and_timed(cuda: Any) -> None:
    case, results, trail = run(cuda, {"a": module(right, backend=lambda inputs, plan: "operator x")})
    measurement = Measurement.model_validate(complete(results["a"]["measurement"], case))
    assert measurement.error < measurement.tolerance
    assert measurement.time_s.p10 <= measurement.time_s.median <= measurement.time_s.p90
    assert (measurement.implementation, measurement.backend_confirmed) == ("a", "operator x")
    assert (measurement.method, measurement.l2, measurement.max_memory_bytes) == ("events", "cold", 4096)
    stages = [stage for event, _, stage in trail if event == "start"]
    assert stages[:6] == ["inputs", "inputs", "launch", "wait", "check", "launch"]
    assert set(stages[7:]) == {"time"}


def test_each_way_to_fail_is_one_result_and_the_good_one_is_timed(cuda: Any) -> None:
    _, results, _ = run(
        cuda,
        {
            "good": module(right),
            "wrong": module(wrong),
            "lazy": module(lazy),
            "unsupported": module(right, supports=lambda *_: "no sliding window"),
            "absent": ImportError("no module", name="fa3_fwd_interface"),
            "hungry": module(hungry),
            "broken": module(broken),
            "another backend": module(right, backend=lambda *_: (_ for _ in ()).throw(RuntimeError("it ran flash"))),
        },
    )
    said = {name: (fields["status"], fields.get("reason")) for name, fields in results.items()}
    assert said["good"] == ("ok", None)
    assert said["wrong"][0] == "wrong"
    assert said["lazy"] == ("wrong", f"{64 * 2 * 16} of {64 * 2 * 16} elements are not finite or were not written")
    assert said["unsupported"] == ("unsupported", "no sliding window")
    assert said["absent"] == ("unsupported", "fa3_fwd_interface is not importable here")
    assert said["hungry"] == ("failed", "out of GPU memory: CUDA out of memory. Tried to allocate 200 GiB")
    assert said["broken"] == ("failed", "TypeError: launch() takes another argument")
    assert said["another backend"] == ("failed", "RuntimeError: it ran flash")


def test_cases_that_pass_take_turns(cuda: Any) -> None:
    _, results, trail = run(cuda, {"a": module(right), "b": module(right)})
    turns = [case for event, case, stage in trail if stage == "time"]
    assert turns[:2] == [0, 1]
    assert {fields["status"] for fields in results.values()} == {"ok"}


def test_a_lost_context_ends_the_process_after_its_result(cuda: Any) -> None:
    class Gone(BaseException):
        """Stands for the end of the process."""

    lost: list[int] = []

    def fault(inputs: Any, plan: Any, out: Any = None) -> Any:
        lost.append(1)
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")

    def synchronize() -> None:
        if lost:
            raise RuntimeError("CUDA error")

    def leave(code: int) -> None:
        assert code == points.STICKY_EXIT_CODE
        raise Gone

    cuda.setattr(torch.cuda, "synchronize", synchronize)
    cuda.setattr(points.os, "_exit", leave)
    with pytest.raises(Gone):
        run(cuda, {"a": module(fault)})


def test_inputs_are_made_in_the_form_of_the_plan(cuda: Any) -> None:
    asked: list[str | None] = []

    def make_inputs(problem: Any, seed: int, device: Any, form: str | None = None) -> Any:
        asked.append(form)
        return make_dense(problem, seed, device)

    problem = configurations(REQUEST)[0].problem
    points.make_inputs(
        SimpleNamespace(make_inputs=make_inputs), SimpleNamespace(form="absorbed"), problem, 0, torch.device("cpu")
    )
    assert asked == ["absorbed"]
