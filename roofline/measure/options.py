"""What a measuring run is asked for, what it tells while it runs, and what comes of it."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roofline.configurations import Configuration, Request, configurations
from roofline.measure import suites
from roofline.measure.supervisor import STAGE_LIMITS_S
from roofline.measure.timing import StoppingRule
from roofline.records import Record

WORKER = (sys.executable, "-m", "roofline.measure.worker")
CountersMode = Literal["auto", "ncu", "off"]
SECONDS_PER_POINT = 0.4  # of device time, at most


@dataclass(frozen=True, slots=True)
class Progress:
    """Told to whoever draws: ``done`` of ``total`` points, what is going on, and the point just written, if one was."""

    done: int
    total: int
    doing: str
    record: Record | None = None


Listener = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What ``roofline measure`` was asked for. ``chosen`` configurations go before a ``request``, that before the ``suite``."""

    chosen: tuple[Configuration, ...] = ()
    request: Request | None = None
    suite: str = "default"
    gpu: str | None = None
    peers: tuple[str, ...] = ()  # names of ``peers.PEERS``, each run where it can stand for our variant
    implementations: tuple[str, ...] = ()  # run besides our own for every configuration
    counters: CountersMode = "auto"
    count_peers: bool = False  # counters of peers too, after those of our kernels: each case takes two to three seconds
    l2: Literal["cold", "warm"] = "cold"
    output: Path | None = None
    resume: Path | None = None
    force: bool = False
    calibrate: bool = True
    seconds_per_point: float = SECONDS_PER_POINT
    timeout_s: float | None = None  # for one call and for one batch of samples; None: the limits of the supervisor
    seed: int = 0
    command: tuple[str, ...] = ()
    worker: tuple[str, ...] = WORKER

    def configurations(self) -> list[Configuration]:
        """The configurations to measure."""
        if self.chosen:
            return list(self.chosen)
        return configurations(self.request) if self.request is not None else suites.suite(self.suite)

    def limits(self) -> Mapping[str, float]:
        """Seconds that each stage of a point may take."""
        if self.timeout_s is None:
            return STAGE_LIMITS_S
        return {**STAGE_LIMITS_S, "wait": self.timeout_s, "time": self.timeout_s}

    def rule(self) -> StoppingRule:
        """When the samples of a point suffice."""
        return StoppingRule(max_time_s=self.seconds_per_point)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a run. All its points are in the file ``path``; ``records`` are those made now."""

    path: Path
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    interrupted: bool = False
