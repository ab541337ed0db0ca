"""Measuring put to the test on this GPU: calibrations and runs that should agree, faults that should cost one record each.

    python benchmarks/measuring.py FOLDER [--suite NAME] [--peers NAMES] [--count-peers]

FOLDER gets the run files. Prints what agrees with what, how long each part took, and at the end each bar with what was reached.
The run with peers comes last: if time is cut, the rest is there.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from roofline.compare import MIN_EFFECT, Comparison, compare
from roofline.configurations import Request
from roofline.measure.calibrate import Calibration, calibrate
from roofline.measure.doctor import doctor
from roofline.measure.options import Options, Progress
from roofline.measure.session import measure
from roofline.measure.verdicts import tensor_flops
from roofline.records import Record, read

FAULTS = ("fault/illegal-address", "fault/endless", "fault/wrong", "fault/out-of-memory")
ONE_PROBLEM = Request(n=1024, heads=8, kv_heads=8, variants=("chunked",), phase="prefill")


def main() -> None:
    """Run every part in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", default="", help="comma list, such as torch,fa3")
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--count-peers", action="store_true", help="hardware counters of peers too")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    names = tuple(filter(None, arguments.peers.split(",")))
    command = ("python", *sys.argv)
    options = Options(
        suite=arguments.suite, counters="off", calibrate=False, count_peers=arguments.count_peers, command=command
    )
    check(arguments.folder, options, names)


def check(folder: Path, options: Options, names: tuple[str, ...]) -> None:
    """Doctor, two calibrations, injected faults, the suite twice, and the suite with the peers ``names`` and counters."""
    began = time.monotonic()

    def lap(what: str) -> None:
        print(f"== {what}: {time.monotonic() - began:.0f} s since the start", flush=True)

    for finding in doctor(worker=options.worker):
        print(f"{finding.state:<8}{finding.name}: {finding.found}  {finding.advice}")
    lap("doctor")
    first = calibrate(worker=options.worker)
    show_calibration(first)
    lap("first calibration")
    faults = replace(
        options, request=ONE_PROBLEM, peers=(), implementations=FAULTS, timeout_s=10, output=folder / "faults.jsonl"
    )
    measure(faults, show)
    lap("faults")
    one, two = (measure(replace(options, output=folder / f"{name}.jsonl")) for name in ("first", "second"))
    comparison = compare(read(one.path), read(two.path))
    for change in comparison.changes:
        if change.verdict != "cannot tell" or abs(change.change or 0) >= MIN_EFFECT:
            print(f"{change.verdict}: {change.configuration} {change.implementation} {change.change:+.1%} {change.reason}")
    lap("the suite twice")
    second = calibrate(worker=options.worker)
    for before, after in zip(first.probed, second.probed, strict=True):
        if before.ceiling and before.value and after.value:
            print(f"{before.name}: {after.value / before.value - 1:+.2%} in the second calibration")
    lap("second calibration")
    full = measure(replace(options, peers=names, counters="auto", output=folder / "full.jsonl"), show)
    print(*full.notes, sep="\n")
    lap("the suite with peers and counters")
    records = [record for path in (one.path, two.path, full.path) for record in read(path).records]
    for text, reached, bar in bars(first, second, comparison, records):
        passed = "unknown" if reached is None else "pass" if reached <= bar else "FAIL"
        print(f"{passed:<8}{text}: {'not measured' if reached is None else f'{reached:.4f}'} (at most {bar:g})")


def bars(
    first: Calibration, second: Calibration, comparison: Comparison, records: Sequence[Record]
) -> Iterator[tuple[str, float | None, float]]:
    """What has to hold, as a figure that may be at most so large."""
    ceilings = [{one.ceiling: one.value for one in each.probed if one.ceiling and one.value} for each in (first, second)]
    for key in sorted(ceilings[0].keys() & ceilings[1].keys()):
        allowed = 0.03 if key.endswith(("_flop_per_s", "_op_per_s")) else 0.01
        yield f"two calibrations, {key}", abs(ceilings[1][key] / ceilings[0][key] - 1), allowed
    change = comparison.median_change
    yield "two runs, median difference", None if change is None else abs(change), 0.02
    yield "two runs, points called better or worse", comparison.count("better") + comparison.count("worse"), 0
    peaks = [record.counters.hbm_peak_bytes_per_s for record in records if record.counters]
    peak, hbm = max(filter(None, peaks), default=None), min(each.get("hbm_bytes_per_s", 0.0) for each in ceilings)
    yield "peak of the DRAM over the HBM read ceiling", peak / hbm if peak and hbm else None, 1 / 0.96
    timed = [(record, record.measurement) for record in records if record.measurement and record.prediction]
    rates = [record.prediction.hbm_bytes_min / measured.time_s.median for record, measured in timed]
    yield "fastest point over the HBM read ceiling", max(rates, default=0.0) / hbm if hbm else None, 1.01
    # The ceilings in the records are those of the second calibration only in the last run: each is held to its own.
    shares = [(record.prediction.time_measured_roof_s or 0) / measured.time_s.median for record, measured in timed]
    yield "predicted from measured ceilings over measured time", max(shares, default=None), 1.01


def show_calibration(calibration: Calibration) -> None:
    """One line a probe."""
    for one in calibration.probed:
        if one.value is None or one.median is None or one.spread is None:
            print(f"{one.name:<20}{one.missing}")
            continue
        sustained = f" sustained {one.sustained:.4g}" if one.sustained else ""
        clock = f"{(one.clock_hz or 0) / 1e6:.0f} MHz {one.power_w or 0:.0f} W {' '.join(one.throttle_reasons)}"
        print(
            f"{one.name:<20}{one.value:.4g} {one.unit} median {one.median:.4g}{sustained} ±{one.spread:.1%} {clock} ({one.how})"
        )


def show(progress: Progress) -> None:
    """One line a point."""
    if progress.record is not None:
        print(line(progress.record), flush=True)


def line(record: Record) -> str:
    """Time measured and predicted, and counted over predicted bytes."""
    name, measured, predicted = f"{record.configuration:<18}{record.implementation:<22}", record.measurement, record.prediction
    if measured is None or predicted is None:
        return f"{name}{record.status}: {record.reason}"
    share = (predicted.time_measured_roof_s or 0) / measured.time_s.median
    text = f"{name}{measured.time_s.median * 1e6:>10.1f} us {share:>7.1%} of the roof, {measured.method}, {measured.l2}"
    text += f", {len(measured.time_s.samples)} samples ±{(measured.time_s.p90 / measured.time_s.p10 - 1) / 2:.1%}"
    if record.counters is not None and predicted.hbm_bytes:
        read_, written = record.counters.hbm_read_bytes or 0, record.counters.hbm_write_bytes or 0
        text += f", counted {(read_ + written) / predicted.hbm_bytes:.3f} of the predicted bytes"
        text += f", tensor FLOPs {_counted_flops(record.counters.tensor_flops, record)}"
    return "  ".join([text, measured.backend_confirmed or "", *record.notes])


def _counted_flops(counted: float | None, record: Record) -> str:
    if counted is None or record.prediction is None:
        return "not counted"
    predicted = tensor_flops(record.prediction.flops_executed, (record.plan or {}).get("form"))
    return "as predicted" if counted == predicted else f"{counted:.0f}, predicted {predicted}"


if __name__ == "__main__":
    main()
