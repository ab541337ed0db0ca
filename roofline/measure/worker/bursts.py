"""What a card does for a moment after a rest, and what it keeps up: matrix products meet the power limit within a second.

The best rate of a power-limited card depends on what it did before, so each burst starts from rest. A burst is shorter than the
limiter needs to react.
"""

import time
from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any

import torch

from roofline.kernels.probes import Probe
from roofline.measure.clocks import ClockSource, summarise
from roofline.measure.worker.lane import POWER_LAG_S, CudaLane, timer_event

REST_S = 0.75
BURST_S = 30e-3
BURSTS = 2  # of each way, in turn
LEAST_SAMPLES = 3  # in a burst
SUSTAINED_S = 1.0  # of load before the sustained rate is read
STEADY_S = 0.25  # for so long


class _Once:
    """One probe as ``CudaLane`` wants it."""

    turn = 1

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def call(self, index: int) -> object:
        return self._probe.run()


def best_and_sustained(ways: Mapping[str, Probe], clocks: ClockSource, sustained: bool) -> dict[str, Any]:
    """Return the bursts of each way, and the rate that the last way keeps up if ``sustained``."""
    lanes = {how: CudaLane(_Once(probe), clocks, warm_up_s=0.0) for how, probe in ways.items()}
    bursts = []
    for _ in range(BURSTS):
        for how, lane in lanes.items():
            torch.cuda.synchronize()
            time.sleep(REST_S)
            bursts.append({"how": how, "work": ways[how].amount, **burst(lane, clocks)})
    how = list(ways)[-1]
    rate = ways[how].amount / steady_s(lanes[how]) if sustained else None
    return {"ways": bursts, "by": "median", "sustained": rate}


def burst(lane: CudaLane, clocks: ClockSource) -> dict[str, Any]:
    """Load the card for ``BURST_S``; return seconds of each call, and clock and power meanwhile.

    NVML may look at the power only after the burst, so the highest it says until then is kept.
    """
    events = [timer_event() for _ in range(1 + max(ceil(BURST_S / lane.sample_s), LEAST_SAMPLES))]
    events[0].record()
    for event in events[1:]:
        lane.sample()
        event.record()
    readings = [clocks.read()]
    while not events[-1].query():  # type: ignore[no-untyped-call]
        readings.append(clocks.read())
    torch.cuda.synchronize()
    powers = [reading.power_w for reading in readings]
    ended = time.perf_counter()
    while time.perf_counter() - ended < POWER_LAG_S:
        powers.append(clocks.read().power_w)
        time.sleep(POWER_LAG_S / 10)
    state = summarise(readings)
    return {
        "samples": [start.elapsed_time(end) * 1e-3 / lane.calls for start, end in pairwise(events)],
        "clock_hz": state.clock_hz,
        "power_w": max((power for power in powers if power is not None), default=None),
        "reasons": state.reasons,
    }


def steady_s(lane: CudaLane) -> float:
    """Return seconds of a call after ``SUSTAINED_S`` of load, the median over ``STEADY_S``."""
    seconds: list[float] = []
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < SUSTAINED_S + STEADY_S or not seconds:
        start, end = (timer_event() for _ in range(2))
        start.record()
        for _ in range(4):
            lane.sample()
        end.record()
        end.synchronize()
        if elapsed >= SUSTAINED_S:
            seconds.append(start.elapsed_time(end) * 1e-3 / 4 / lane.calls)
    return median(seconds)
