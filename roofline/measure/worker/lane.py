"""Time calls on the GPU with events, or by replaying a graph where launching from Python is slower.

With events, a spin kernel at the head of each batch lets the host run ahead, so that no gap between launches is timed. A graph
holds whole turns of the rotation, at least a millisecond of them; its time is divided by its calls.
"""

import time
from typing import Literal, Protocol

import torch

from roofline.cost import ceil_div
from roofline.measure.clocks import ClockSource
from roofline.measure.timing import Batch

GRAPH_BELOW_S = 100e-6  # a call through Python costs 5 to 50 us a launch
HOST_BOUND = 0.7  # host time over device time from which the host may not keep ahead
GRAPH_TIME_S = 1e-3
MOST_CALLS_IN_GRAPH = 2000
BATCH_TIME_S = 10e-3
WARM_UP_S = 30e-3
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

    def __init__(self, rotation: Calls, clocks: ClockSource, graphs: bool = True) -> None:
        """Warm up, estimate the time of one call, and capture a graph if the host could not keep ahead."""
        self._rotation, self._clocks = rotation, clocks
        self._next = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 1  # of one sample
        device_s, host_s = self._estimate()
        self._host_s = host_s
        if graphs and (device_s < GRAPH_BELOW_S or host_s > HOST_BOUND * device_s):
            self._capture(device_s)
        self._samples = 1  # of one batch
        self._warm_up()

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
            self._sample()
            end.record()
        reading = self._clocks.read()
        torch.cuda.synchronize()
        seconds = tuple(start.elapsed_time(end) * 1e-3 / self._calls for start, end in zip(starts, ends, strict=True))
        return Batch(seconds, reading)

    def _sample(self) -> None:
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

    def _capture(self, device_s: float) -> None:
        """Capture a graph of whole turns; a case that cannot be captured stays with events."""
        turn = self._rotation.turn
        calls = turn * ceil_div(max(int(GRAPH_TIME_S / max(device_s, 1e-7)), 1), turn)
        calls = max(min(calls, MOST_CALLS_IN_GRAPH // turn * turn), turn)
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                self._rotation.call(0)  # lazy initialisation belongs outside of the capture
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                for index in range(calls):
                    self._rotation.call(index)
        except RuntimeError as error:
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            torch.cuda.synchronize()  # raises if more than the capture is broken
            return
        self._graph, self._calls = graph, calls

    def _warm_up(self) -> None:
        """Run for a while, so that clock and power are those of the work, and learn how many samples fill a batch."""
        start, end = (timer_event() for _ in range(2))
        began, samples = time.perf_counter(), 0
        start.record()
        while samples < 2 or time.perf_counter() - began < WARM_UP_S:
            for _ in range(4):
                self._sample()
            torch.cuda.synchronize()
            samples += 4
        end.record()
        torch.cuda.synchronize()
        sample_s = start.elapsed_time(end) * 1e-3 / samples
        self._samples = min(max(int(BATCH_TIME_S / sample_s), 1), MOST_SAMPLES_IN_BATCH)
