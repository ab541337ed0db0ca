"""Time several implementations of one problem in turn, until each one's median is known well enough.

The loop knows nothing of CUDA: a ``Lane`` runs a batch of calls and returns seconds per call and how the GPU stood meanwhile.
Lanes take turns batch by batch, so a drift of clock or heat meets all of them alike.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from roofline.measure.clocks import ClockSummary, Reading, summarise


@dataclass(frozen=True, slots=True)
class Batch:
    """Seconds per call of some samples taken in a row, and the GPU while it took them. ``calls``: of each sample."""

    samples: tuple[float, ...]
    reading: Reading
    calls: int = 1


class Lane(Protocol):
    """One implementation, warmed up and ready to be timed."""

    def batch(self) -> Batch:
        """Run some calls to their end."""


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """When the samples of one point suffice.

    After ``min_samples``, when the 95 % confidence interval of the median (order statistics; Conover, Practical Nonparametric
    Statistics, 3rd ed., section 3.2) is within ``precision`` of the median on either side; at the latest after ``max_time_s``
    of samples or ``max_samples``.
    """

    min_samples: int = 20
    max_samples: int = 200
    max_time_s: float = 0.4
    precision: float = 0.002

    def done(self, samples: Sequence[float], spent_s: float) -> bool:
        """Whether to stop with ``samples`` after ``spent_s`` seconds of device time."""
        if len(samples) >= self.max_samples or (spent_s >= self.max_time_s and len(samples) >= min(5, self.min_samples)):
            return True
        if len(samples) < self.min_samples:
            return False
        return median_uncertainty(samples) <= self.precision


def median_uncertainty(samples: Sequence[float]) -> float:
    """Return half the width of the 95 % confidence interval of the median, relative to the median."""
    ordered, count = sorted(samples), len(samples)
    spread = 0.98 * math.sqrt(count)  # 1.96 sqrt(n)/2 ranks on each side of the middle
    low = max(math.floor(count / 2 - spread), 0)
    high = min(math.ceil(count / 2 + spread), count - 1)
    return (ordered[high] - ordered[low]) / 2 / percentile(ordered, 0.5)


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return the quantile of sorted values, linear between neighbours."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@dataclass(frozen=True, slots=True)
class Timed:
    """The samples of one lane that count, and what was thrown away."""

    samples: tuple[float, ...]
    discarded: int
    all_throttled: bool
    clocks: ClockSummary

    def quantiles(self) -> tuple[float, float, float]:
        """Return median, p10 and p90 in seconds."""
        ordered = sorted(self.samples)
        return percentile(ordered, 0.5), percentile(ordered, 0.1), percentile(ordered, 0.9)


@dataclass(slots=True)
class _Tally:
    kept: list[float] = field(default_factory=list)
    spoilt: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    spent_s: float = 0.0

    def add(self, batch: Batch) -> None:
        (self.spoilt if batch.reading.spoils else self.kept).extend(batch.samples)
        self.readings.append(batch.reading)
        self.spent_s += sum(batch.samples) * batch.calls

    def result(self) -> Timed:
        clocks = summarise(self.readings)
        if self.kept:
            return Timed(tuple(self.kept), len(self.spoilt), False, clocks)
        return Timed(tuple(self.spoilt), 0, True, clocks)


def interleave(
    lanes: Sequence[Lane], rule: StoppingRule, before_batch: Callable[[int], None] = lambda lane: None
) -> list[Timed]:
    """Time ``lanes`` in turn until ``rule`` stops each, and return their samples in order.

    ``before_batch`` is told which lane is about to run, so that a fault can be laid to its charge. Samples under a spoiling
    throttle reason are discarded and counted; if all of a lane's are, they are kept and flagged.
    """
    tallies = [_Tally() for _ in lanes]
    running = list(range(len(lanes)))
    while running:
        for index in list(running):
            before_batch(index)
            tally = tallies[index]
            tally.add(lanes[index].batch())
            # A lane that is always throttled must end too: what it threw away counts towards the limits.
            if rule.done(tally.kept or tally.spoilt, tally.spent_s):
                running.remove(index)
    return [tally.result() for tally in tallies]
