"""Timing on a device that is not there: it has a clock of its own, and every call costs what the test says."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("roofline.kernels.reference")

from roofline.kernels.probes import Probe  # noqa: E402
from roofline.measure.calibrate import PROBES, evaluate  # noqa: E402
from roofline.measure.clocks import REASONS, Reading  # noqa: E402
from roofline.measure.worker import bursts, points  # noqa: E402
from roofline.measure.worker.lane import GRAPH_TIME_S, CudaLane  # noqa: E402

pytestmark = pytest.mark.kernels
REPLAY_S = 5e-6  # what starting a graph costs


class Device:
    """Runs calls at once, or writes them into the graph that is being captured."""

    def __init__(self) -> None:
        self.now, self.capturing, self.stream, self.refuses = 0.0, None, "default", False

    def work(self, seconds: float) -> None:
        if self.capturing is None:
            self.now += seconds
        elif self.refuses:
            raise ValueError("not while capturing")
        else:
            self.capturing.append(seconds)

    @contextmanager
    def graph(self, graph: Any, stream: Any) -> Iterator[None]:
        self.capturing, self.stream = graph.calls, stream
        yield  # as in torch, a capture that fails leaves its stream
        self.capturing, self.stream = None, "default"

    def make_graph(self) -> Any:
        graph = SimpleNamespace(calls=[])
        graph.replay = lambda: self.work(REPLAY_S + sum(graph.calls))
        return graph

    def make_event(self, enable_timing: bool) -> Any:
        event = SimpleNamespace(query=lambda: True, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: (end.at - event.at) * 1e3
        return event

    def set_stream(self, stream: Any) -> None:
        self.capturing, self.stream = None, stream


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    stand_ins = {
        "Event": found.make_event,
        "CUDAGraph": found.make_graph,
        "graph": found.graph,
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "stream": lambda stream: contextmanager(lambda: iter([None]))(),
        "current_stream": lambda: found.stream,
        "set_stream": found.set_stream,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "_sleep": lambda cycles: None,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return found


class Calls:
    """Calls of ``seconds``; the first few take longer, as if the host were slow."""

    def __init__(self, device: Device, seconds: float, turn: int = 1, slow: int = 0) -> None:
        self.device, self.seconds, self.turn, self.slow = device, seconds, turn, slow
        self.out = torch.zeros(2)

    def call(self, index: int) -> torch.Tensor:
        self.slow -= 1
        self.device.work(self.seconds * (20 if self.slow >= 0 else 1))
        return self.out


class Clocks:
    """A card at full clock; its power rises from reading to reading."""

    def __init__(self) -> None:
        self.power_w = 100.0

    def read(self) -> Reading:
        self.power_w += 1
        return Reading(1.98e9, self.power_w, REASONS["power cap"])


@pytest.mark.parametrize("seconds", [2e-6, 5e-5, 2e-4, 1e-2])
@pytest.mark.parametrize("slow", [0, 6])
def test_every_call_that_can_be_captured_is_timed_in_a_graph_of_whole_turns(device: Device, seconds: float, slow: int) -> None:
    lane = CudaLane(Calls(device, seconds, 30, slow), Clocks(), warm_up_s=0)
    assert lane.method == "graph"
    assert lane.calls % 30 == 0
    assert lane.calls * seconds >= 0.95 * min(GRAPH_TIME_S, 2000 * seconds)
    batch = lane.batch()
    assert batch.samples[0] == pytest.approx(seconds + REPLAY_S / lane.calls)
    assert batch.calls == lane.calls


def test_a_case_that_refuses_is_timed_with_events_on_its_own_stream(device: Device) -> None:
    device.refuses = True
    lane = CudaLane(Calls(device, 1e-4), Clocks(), warm_up_s=0)
    assert (lane.method, lane.calls, lane.last, device.stream) == ("events", 1, None, "default")
    assert lane.batch().samples[0] == pytest.approx(1e-4)


def test_power_is_that_of_the_warm_up(device: Device) -> None:
    lane = CudaLane(Calls(device, 1e-4), Clocks())
    assert [lane.batch().reading.power_w for _ in range(3)] == [101.0] * 3


def test_a_graph_that_does_not_write_is_refused(device: Device) -> None:
    lane = CudaLane(Calls(device, 1e-4), Clocks(), warm_up_s=0)
    with pytest.raises(points._Refused, match="leaves its output unwritten"):
        points.check_replay(lane, SimpleNamespace(), None)
    lane.sample = lambda: lane.last.fill_(1)
    points.check_replay(lane, SimpleNamespace(), None)


def test_the_best_burst_counts_by_its_median(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("REST_S", 0), ("POWER_LAG_S", 0.01), ("SUSTAINED_S", 0.01), ("STEADY_S", 0.01)):
        monkeypatch.setattr(bursts, name, seconds)
    ways = {how: Probe("matmul", lambda s=s: device.work(s), 10**9, "FLOP") for how, s in (("fast", 1e-3), ("slow", 2e-3))}
    answer = bursts.best_and_sustained(ways, Clocks(), sustained=True)
    assert [way["how"] for way in answer["ways"]] == ["fast", "slow"] * bursts.BURSTS
    assert all(sum(way["samples"]) >= bursts.BURST_S / 2.1 for way in answer["ways"])  # samples are seconds a call
    answer["ways"][2]["samples"][0] = 1e-6  # one lucky sample is not a ceiling
    probe = next(probe for probe in PROBES if probe.operation == "matmul")
    probed = evaluate(probe, answer)
    assert probed.how == "fast"
    assert probed.value == probed.median == pytest.approx(1e12, rel=0.01)
    assert probed.sustained == pytest.approx(0.5e12, rel=0.01)
    assert (probed.clock_hz, probed.throttle_reasons) == (1.98e9, ("power cap",))
    assert probed.power_w > 100
