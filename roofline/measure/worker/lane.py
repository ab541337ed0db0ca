"""Time calls on the GPU by replaying a graph of them; those that cannot be captured are timed with events, one by one.

A graph holds whole turns of the rotation, at least two milliseconds of them; its time is divided by its calls. How a case is
timed depends on whether it can be captured and on nothing that was measured, so that two runs time it alike. With events, a
spin kernel at the head of each batch lets the host run ahead, so that no gap between launches is timed.
"""

import time
from dataclasses import replace
from typing import Literal, Protocol

import torch

from roofline.cost import ceil_div
from roofline.measure.clocks import ClockSource
from roofline.measure.timing import Batch

GRAPH_TIME_S = 2e-3  # starting a graph costs a few microseconds
MOST_CALLS_IN_GRAPH = 2000
BATCH_TIME_S = 10e-3
# NVML's power of H100 is a mean over 25 ms, taken every 100 ms (arXiv:2312.02741): shorter loads are not seen
WARM_UP_S = 0.15
POWER_LAG_S = 0.125
MOST_SAMPLES_IN_BATCH = 8  # so that the fewest samples of a point are still some batches, each with its clock
SPIN_CYCLES_PER_S = 2e9  # at or above any SM clock, so that the spin is not shorter than asked
MOST_SPIN_S = 20e-3


def timer_event() -> torch.cuda.Event:
    """Return an event that takes the time when the stream reaches it."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class Calls(Protocol):
    """Work that can be launched again and again, the same after every ``turn`` calls."""

    @property
    def turn(self) -> int:
        """Calls after which the first comes again."""

    def call(self, index: int) -> object:
        """Launch call number ``index``."""


class CudaLane:
    """One case, warmed up, timed batch by batch."""

    def __init__(
        self,
        rotation: Calls,
        clocks: ClockSource,
        graphs: bool = True,
        graph_s: float = GRAPH_TIME_S,
        warm_up_s: float = WARM_UP_S,
    ) -> None:
        """Capture a graph of at least ``graph_s``, and warm up."""
        self._rotation, self._clocks = rotation, clocks
        self._next = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self.calls = 1  # of one sample
        self.last: object = None  # what the last call of the graph returned
        device_s, self._host_s = self._estimate()
        if graphs:
            self._capture(device_s, graph_s)
        self._samples = 1  # of one batch
        self._power_w: float | None = None
        self._warm_up(warm_up_s)

    @property
    def method(self) -> Literal["events", "graph"]:
        """How samples are taken."""
        return "events" if self._graph is None else "graph"

    def batch(self) -> Batch:
        """Run some samples to their end, and read the clock while the GPU works on them."""
        starts = [timer_event() for _ in range(self._samples)]
        ends = [timer_event() for _ in range(self._samples)]
        if self._graph is None:
            spin_s = min(self._host_s * self._samples, MOST_SPIN_S)
            torch.cuda._sleep(int(spin_s * SPIN_CYCLES_PER_S))  # type: ignore[no-untyped-call]
        for start, end in zip(starts, ends, strict=True):
            start.record()
            self.sample()
            end.record()
        reading = self._clocks.read()
        torch.cuda.synchronize()
        seconds = tuple(start.elapsed_time(end) * 1e-3 / self.calls for start, end in zip(starts, ends, strict=True))
        # Batches are too short for the power to be that of this lane: it was read at the end of the warm-up.
        return Batch(seconds, reading if self._power_w is None else replace(reading, power_w=self._power_w), self.calls)

    def sample(self) -> None:
        """Launch what one sample times: a graph, or one call."""
        if self._graph is not None:
            self._graph.replay()
        else:
            self._rotation.call(self._next)
            self._next += 1

    def _estimate(self) -> tuple[float, float]:
        """Return seconds of one call on the device and on the host."""
        for index in range(2):
            self._rotation.call(index)
        torch.cuda.synchronize()
        start, end = (timer_event() for _ in range(2))
        calls = 4
        start.record()
        began = time.perf_counter()
        for index in range(calls):
            self._rotation.call(index)
        host_s = (time.perf_counter() - began) / calls
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e-3 / calls, host_s

    def _capture(self, device_s: float, graph_s: float) -> None:
        """Capture a graph of whole turns; a case that cannot be captured stays with events."""
        calls, stream = self._whole_turns(graph_s / max(device_s, 1e-7)), torch.cuda.current_stream()
        try:
            self._captured(calls)
            replay_s = self._replay_s()
            if replay_s < graph_s and calls < (more := self._whole_turns(calls * graph_s / replay_s)):
                self._captured(more)  # the estimate was that of the host
        except Exception:  # CUDA's refusal, too little memory, or a library that notices the capture
            self._graph, self.calls, self.last = None, 1, None
            torch.cuda.set_stream(stream)  # a capture that fails does not leave its own
            torch.cuda.synchronize()  # raises if more than the capture is broken
            torch.cuda.empty_cache()

    def _whole_turns(self, calls: float) -> int:
        turn = self._rotation.turn
        return max(min(turn * ceil_div(max(int(calls), 1), turn), MOST_CALLS_IN_GRAPH // turn * turn), turn)

    def _captured(self, calls: int) -> None:
        self._graph = self.last = None  # its memory is wanted for the next
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._rotation.call(0)  # lazy initialisation belongs outside of the capture
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for index in range(calls):
                self.last = self._rotation.call(index)
        self._graph, self.calls = graph, calls

    def _replay_s(self) -> float:
        self.sample()  # the first replay uploads the graph
        start, end = (timer_event() for _ in range(2))
        start.record()
        self.sample()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def _warm_up(self, seconds: float) -> None:
        """Run for a while, so that clock and power are those of the work, and learn how many samples fill a batch."""
        start, end = (timer_event() for _ in range(2))
        began, samples = time.perf_counter(), 0
        start.record()
        while samples < 2 or time.perf_counter() - began < seconds:
            for _ in range(4):
                self.sample()
            torch.cuda.synchronize()
            samples += 4
        end.record()
        torch.cuda.synchronize()
        self.sample_s = start.elapsed_time(end) * 1e-3 / samples
        self._samples = min(max(int(BATCH_TIME_S / self.sample_s), 1), MOST_SAMPLES_IN_BATCH)
        if seconds >= POWER_LAG_S:
            self.sample()
            self._power_w = self._clocks.read().power_w
            torch.cuda.synchronize()
