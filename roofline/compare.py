"""Two runs against each other, point by point: better, worse, or the samples cannot tell.

A change counts when both were timed in the same way, it is large enough to matter, the rank test of Mann and Whitney (Ann.
Math. Statist. 18, 1947, p. 50; normal approximation with tie correction) finds the samples different, and each median lies
outside the other run's p10 to p90. The last rule is needed because the samples of one run share its temperature and clock:
they are not independent, and a rank test alone calls every drift of half a percent significant.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roofline.errors import InputError
from roofline.records import Record, Run

Verdict = Literal["better", "worse", "cannot tell", "only in A", "only in B"]

MIN_EFFECT = 0.02  # two runs minutes apart differ by less
SIGNIFICANCE = 0.001
MIN_SAMPLES = 5
CLOCK_CHANGE = 0.01  # a difference in SM clock worth naming as the cause


@dataclass(frozen=True, slots=True)
class Change:
    """One point in both runs. ``change`` is B's median over A's, minus 1: below 0 is faster. ``problem``: its fields."""

    configuration: str
    implementation: str
    phase: str
    problem: Mapping[str, Any]
    verdict: Verdict
    reason: str
    before_s: float | None = None
    after_s: float | None = None
    change: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All points of two runs, in the order of the first."""

    changes: tuple[Change, ...]

    def count(self, verdict: Verdict) -> int:
        """Number of points with ``verdict``."""
        return sum(change.verdict == verdict for change in self.changes)

    @property
    def median_change(self) -> float | None:
        """Median of the changes of all points timed in both runs."""
        changes = sorted(change.change for change in self.changes if change.change is not None)
        if not changes:
            return None
        middle = len(changes) // 2
        return changes[middle] if len(changes) % 2 else (changes[middle - 1] + changes[middle]) / 2

    def exit_code(self, fail_on: str | None) -> int:
        """Exit code for CI: 1 if ``fail_on`` is ``worse`` and a point is worse or missing; ``InputError`` for another word."""
        if fail_on not in (None, "worse"):
            raise InputError(f"--fail-on {fail_on}: expected worse")
        return int(fail_on == "worse" and self.count("worse") + self.count("only in A") > 0)


def compare(before: Run, after: Run, min_effect: float = MIN_EFFECT) -> Comparison:
    """Match the points of two runs by problem and implementation; raise ``InputError`` when no point is in both."""
    old, new = _by_key(before), _by_key(after)
    if old and new and not old.keys() & new.keys():
        raise InputError(f"{before.path} and {after.path} have no point in common; expected runs of the same problems")
    changes = [_change(old[key], new[key], min_effect) if key in new else _missing(old[key], "only in A") for key in old]
    return Comparison((*changes, *(_missing(new[key], "only in B") for key in new if key not in old)))


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of the hypothesis that both samples are from one distribution."""
    pooled = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    total, rank_sum, ties, start = len(pooled), 0.0, 0, 0
    while start < total:
        end = start
        while end < total and pooled[end][0] == pooled[start][0]:
            end += 1
        rank = (start + end + 1) / 2  # the mean of the ranks start+1 .. end
        rank_sum += rank * sum(group == 0 for _, group in pooled[start:end])
        ties += (end - start) ** 3 - (end - start)
        start = end
    m, n = len(first), len(second)
    variance = m * n / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    distance = abs(rank_sum - m * (m + 1) / 2 - m * n / 2) - 0.5  # continuity correction
    return math.erfc(max(distance, 0.0) / math.sqrt(2 * variance))


def _by_key(run: Run) -> dict[str, Record]:
    points = (record for record in run.records if record.status != "predicted")
    return {_key(record): record for record in points}


def _key(record: Record) -> str:
    form = (record.plan or {}).get("form")
    return json.dumps([record.variant, form, record.implementation, record.problem], sort_keys=True)


def _missing(record: Record, verdict: Verdict) -> Change:
    time_s = record.measurement.time_s.median if record.measurement else None
    before, after = (time_s, None) if verdict == "only in A" else (None, time_s)
    return Change(*_name(record), verdict, "not in the other run", before, after)


def _name(record: Record) -> tuple[str, str, str, Mapping[str, Any]]:
    phase = record.prediction.phase if record.prediction else None
    return record.configuration, record.implementation or "", phase or "", record.problem


def _change(before: Record, after: Record, min_effect: float) -> Change:
    old, new = before.measurement, after.measurement
    name = _name(before)
    if old is None or new is None:
        if before.status == after.status or (old is None and new is None):
            return Change(*name, "cannot tell", f"{before.status} in A, {after.status} in B")
        verdict: Verdict = "worse" if new is None else "better"
        reason = f"{before.status} in A, {after.status} in B: {after.reason or before.reason}"
        return Change(*name, verdict, reason, old.time_s.median if old else None, new.time_s.median if new else None)
    a, b = old.time_s, new.time_s
    change = b.median / a.median - 1
    verdict, reason = "cannot tell", ""
    if (old.method, old.l2) != (new.method, new.l2):
        reason = f"timed as {old.method}, {old.l2} L2 -> {new.method}, {new.l2} L2"
    elif min(len(a.samples), len(b.samples)) < MIN_SAMPLES:
        reason = f"fewer than {MIN_SAMPLES} samples"
    elif abs(change) < min_effect:
        reason = f"less than {min_effect:.0%} apart"
    elif a.p10 <= b.median <= a.p90 or b.p10 <= a.median <= b.p90:
        reason = "the spreads (p10 to p90) overlap"
    elif (p := mann_whitney(a.samples, b.samples)) >= SIGNIFICANCE:
        reason = f"Mann-Whitney p = {p:.2g}"
    else:
        verdict, reason = ("worse" if change > 0 else "better"), f"Mann-Whitney p = {p:.2g}"
    return Change(*name, verdict, "; ".join([reason, *_causes(before, after)]), a.median, b.median, change)


def _causes(before: Record, after: Record) -> list[str]:
    """What else differs between the two points, and may be why they do."""
    old, new = before.measurement, after.measurement
    assert old is not None
    assert new is not None
    causes = []
    if old.clock_hz and new.clock_hz and abs(new.clock_hz / old.clock_hz - 1) >= CLOCK_CHANGE:
        causes.append(f"SM clock {old.clock_hz / 1e6:.0f} -> {new.clock_hz / 1e6:.0f} MHz")
    if set(old.throttle_reasons) != set(new.throttle_reasons):
        causes.append(f"throttled by {_listed(old.throttle_reasons)} -> {_listed(new.throttle_reasons)}")
    if old.implementation != new.implementation:
        causes.append(f"{old.implementation} -> {new.implementation}")
    if before.plan != after.plan:
        causes.append("another plan")
    return causes


def _listed(reasons: Sequence[str]) -> str:
    return " and ".join(reasons) or "nothing"
