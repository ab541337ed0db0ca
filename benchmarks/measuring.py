"""Measuring put to the test on this GPU: calibrations and runs that should agree, faults that should cost one record each.

    python benchmarks/measuring.py FOLDER [--peers NAMES] [--suite NAME]

FOLDER gets the run files. Prints what agrees with what, and how long each part took.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from roofline.compare import compare
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
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    names = tuple(filter(None, arguments.peers.split(",")))
    check(arguments.folder, Options(suite=arguments.suite, peers=names, counters="off", calibrate=False))


def check(folder: Path, options: Options) -> None:
    """Doctor, two calibrations, injected faults, the suite with counters, and the suite again."""
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
    one = measure(replace(options, counters="auto", output=folder / "first.jsonl"), show)
    print(*one.notes, sep="\n")
    lap("the suite, with counters")
    two = measure(replace(options, output=folder / "second.jsonl"))
    lap("the suite again")
    comparison = compare(read(one.path), read(two.path))
    for change in comparison.changes:
        if change.verdict != "cannot tell":
            print(f"{change.verdict}: {change.configuration} {change.implementation} {change.change:+.1%} {change.reason}")
    print(f"median difference of the two runs {comparison.median_change:+.2%}")
    second = calibrate(worker=options.worker)
    for before, after in zip(first.probed, second.probed, strict=True):
        if before.ceiling and before.value and after.value:
            print(f"{before.name}: {after.value / before.value - 1:+.2%} in the second calibration")
    lap("second calibration")


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
