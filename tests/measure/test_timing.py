import pytest

from roofline.measure.clocks import REASONS, Reading, reason_names, summarise
from roofline.measure.timing import Batch, StoppingRule, interleave, median_uncertainty, percentile


class FakeLane:
    """Returns samples from a list, and readings that cycle; writes down that it ran."""

    def __init__(self, name: str, seconds: list[float], readings: list[Reading], log: list[str]) -> None:
        self.name, self.seconds, self.readings, self.log, self.batches = name, seconds, readings, log, 0

    def batch(self) -> Batch:
        self.log.append(self.name)
        reading = self.readings[self.batches % len(self.readings)]
        second = self.seconds[self.batches % len(self.seconds)]
        self.batches += 1
        return Batch((second, second * 1.001), reading)


FINE = Reading(1.98e9, 400.0, 0)
CAPPED = Reading(1.7e9, 699.0, REASONS["power cap"])
HOT = Reading(1.2e9, 300.0, REASONS["thermal slowdown (hardware)"])
RULE = StoppingRule(min_samples=10, max_samples=20, max_time_s=1.0)


def test_lanes_take_turns() -> None:
    log: list[str] = []
    lanes = [FakeLane(name, [1e-3], [FINE], log) for name in "abc"]
    told: list[int] = []
    interleave(lanes, RULE, told.append)
    assert log == ["a", "b", "c"] * 5
    assert told == [0, 1, 2] * 5


def test_a_steady_lane_stops_before_a_noisy_one() -> None:
    log: list[str] = []
    noisy = FakeLane("n", [1e-3, 2e-3, 3e-3], [FINE], log)
    steady, restless = interleave([FakeLane("s", [1e-3], [FINE], log), noisy], RULE)
    assert len(steady.samples) == 10
    assert len(restless.samples) == 20  # all that the rule allows


def test_time_is_a_limit_too() -> None:
    (timed,) = interleave([FakeLane("slow", [0.4, 0.9], [FINE], [])], RULE)
    assert len(timed.samples) == 6  # 5 at least, however slow


def test_the_time_of_a_graph_is_that_of_all_its_calls() -> None:
    class Graph:
        def batch(self) -> Batch:
            return Batch((1e-3, 1e-3), FINE, 250)

    (timed,) = interleave([Graph()], RULE)
    assert len(timed.samples) == 6  # a quarter of a second each: no more than the 5 at least


def test_samples_under_heat_are_discarded_and_counted() -> None:
    (timed,) = interleave([FakeLane("a", [1e-3], [FINE, HOT], [])], RULE)
    assert (len(timed.samples), timed.discarded, timed.all_throttled) == (10, 8, False)
    assert timed.clocks.throttle_reasons == ("thermal slowdown (hardware)",)


def test_if_all_would_go_they_are_kept_and_flagged() -> None:
    (timed,) = interleave([FakeLane("a", [1e-3], [HOT], [])], RULE)
    assert (len(timed.samples), timed.discarded, timed.all_throttled) == (10, 0, True)


def test_a_power_cap_is_recorded_and_not_discarded() -> None:
    (timed,) = interleave([FakeLane("a", [1e-3], [CAPPED], [])], RULE)
    assert (timed.discarded, timed.clocks.throttle_reasons, timed.clocks.clock_hz) == (0, ("power cap",), 1.7e9)


def test_percentiles_are_linear_between_neighbours() -> None:
    assert [percentile([1.0, 2.0, 4.0], fraction) for fraction in (0, 0.25, 0.5, 0.75, 1)] == [1, 1.5, 2, 3, 4]


def test_uncertainty_falls_with_the_number_of_samples() -> None:
    ten = [1 + 0.01 * index / 9 for index in range(10)]
    thousand = [1 + 0.01 * index / 999 for index in range(1000)]
    assert median_uncertainty(thousand) < 0.2 * median_uncertainty(ten)
    assert median_uncertainty([2.0] * 20) == 0


@pytest.mark.parametrize("name", REASONS)
def test_every_reason_but_idleness_is_named(name: str) -> None:
    assert reason_names(REASONS[name]) == (() if name == "gpu idle" else (name,))


def test_what_nvml_does_not_say_is_unknown() -> None:
    summary = summarise([Reading(), Reading()])
    assert (summary.clock_hz, summary.power_w, summary.throttle_reasons) == (None, None, ())
