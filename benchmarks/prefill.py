"""Flash prefill beside the best kernels of others on a GPU: one interleaved run, a sweep against float64, a stress test.

Run: python benchmarks/prefill.py [--parts points sweep stress] [--rows FILE] [--stress-launches N].

Points: 16k tokens, heads times head size 2048, n 1k to 16k, d 64 and 128, full and causal, bf16. Every implementation gets the
same tensors in its native layout, ours also its output; a CUDA graph of each rotates over inputs of more than twice the L2, and
the graphs are replayed in turns: medians. Each is compared with float64 before it is timed. A row is written as it is made; the
tables come last, with what the ratios have to reach. A part that hangs is ended, with a traceback, and fails the run.
"""

import argparse
import faulthandler
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

from roofline import profiles
from roofline.dtypes import DTYPES
from roofline.kernels import flash, reference
from roofline.kernels.protocol import Inputs
from roofline.masks import CAUSAL, FULL, Mask
from roofline.peers import PEERS
from roofline.plan import Choices, Plan, choose
from roofline.problem import GroupedKV, Problem, uniform
from roofline.profiles.profile import Profile

TOKENS, WIDTH = 16384, 2048
LENGTHS = (1024, 2048, 4096, 8192, 16384)
SAMPLES = 7
LEAST_GRAPH_S = 2.5e-3
ROTATED_L2S = 2.2
REFERENCE_HEADS = 2
CUDA = torch.device("cuda")
OURS, PLAIN = "roofline/hopper", "roofline/plain"
PEER_NAMES = ("fa3/fwd", "torch/cudnn", "torch/flash")
MASKS = {"full": FULL, "causal": CAUSAL}
Q_SCALES = (1, 8)  # of scores in the sweep and the stress test: larger ones grow from tile to tile, and O is rescaled
HANG_S = 45  # no part takes as long


class Bar(NamedTuple):
    """What the ratio of ``ours`` to ``peer`` has to reach: as the geometric mean of all points, and at each."""

    ours: str
    peer: str
    mean: float
    least: float


BARS = (Bar(OURS, "fa3/fwd", 1.00, 0.92), Bar(OURS, "torch/cudnn", 1.05, 0.90), Bar(PLAIN, "torch/flash", 1.40, 0.0))


@dataclass(frozen=True)
class Runner:
    """An implementation of one problem: ``run(i)`` launches it on the i-th inputs, ``result(out)`` is token-major."""

    name: str
    run: Callable[[int], torch.Tensor]
    result: Callable[[torch.Tensor], torch.Tensor]


def device_profile() -> Profile:
    """The profile whose plans run here: that of the architecture, with the SMs of the device."""
    properties = torch.cuda.get_device_properties(CUDA)
    capability = f"{properties.major}.{properties.minor}"
    return replace(profiles.load("h200-sxm-141gb"), compute_capability=capability, sm_count=properties.multi_processor_count)


def point(d: int, mask: str, n: int) -> Problem:
    """One of the points."""
    heads = WIDTH // d
    return Problem(heads, GroupedKV(heads, d, d), uniform(TOKENS // n, n, n), MASKS[mask])


def plans_of(problem: Problem, profile: Profile) -> dict[str, Plan]:
    """The plan that ``choose`` gives here, and the portable one."""
    portable = choose("flash", "roofline/flash", problem, profile, Choices(portable=True))
    chosen = choose("flash", "roofline/flash", problem, profile)
    return {OURS: chosen, PLAIN: portable} if chosen.kernel else {PLAIN: portable}


def runners(problem: Problem, inputs: list[Inputs], out: torch.Tensor, profile: Profile) -> Iterator[Runner]:
    """Ours and the peers that run here."""
    for name, plan in plans_of(problem, profile).items():
        yield Runner(name, lambda i, plan=plan: flash.launch(inputs[i], plan, out), lambda result: result)
    for name in PEER_NAMES:
        try:
            peer = import_module(PEERS[name].module)
            reason = peer.supports(problem, CUDA)
            prepared = (
                None if reason else peer.make_inputs(replace(problem, lengths=uniform(1, *problem.lengths[0][:2])), 0, CUDA)
            )
        except Exception as error:  # a peer that is not there, or fails, is missing from the table
            reason, prepared = f"{type(error).__name__}: {error}".splitlines()[0], None
        if prepared is None:
            print(f"{name}: {reason}", flush=True)
            continue
        theirs = [replace(prepared, problem=problem, tensors=one.tensors) for one in inputs]
        yield Runner(
            name,
            lambda i, peer=peer, theirs=theirs: peer.launch(theirs[i], None),
            lambda result, peer=peer, one=theirs[0]: peer.token_major(result, one),
        )


def error_of(problem: Problem, inputs: Inputs, out: torch.Tensor) -> tuple[float, float]:
    """Relative error of some heads of the first sequence against float64, and what is allowed."""
    q_len, kv_len, _ = problem.lengths[0]
    heads = min(REFERENCE_HEADS, problem.kv.heads)
    one = replace(
        problem, q_heads=heads * problem.group, kv=problem.kv._replace(heads=heads), lengths=uniform(1, q_len, kv_len)
    )
    q, k, v = (
        inputs.tensors["q"][:q_len, : one.q_heads],
        inputs.tensors["k"][:kv_len, :heads],
        inputs.tensors["v"][:kv_len, :heads],
    )
    expected = reference.attention(q, k, v, one)
    allowed = reference.tolerance(reference.plain(q, k, v, one), expected, one)
    return reference.relative_error(out[:q_len, : one.q_heads], expected), allowed


def graph_of(runner: Runner, count: int) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of enough launches, over all inputs in turn, and how many it has."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    runner.run(0)
    start.record()
    runner.run(1)
    stop.record()
    stop.synchronize()
    launches = count * max(math.ceil(LEAST_GRAPH_S * 1e3 / max(start.elapsed_time(stop), 1e-2) / count), 1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(launches):
            runner.run(index % count)
    return graph, launches


def time_point(problem: Problem, profile: Profile) -> dict[str, Any]:
    """Check every implementation, then time them in turns; seconds of one launch, or why there are none."""
    first = flash.make_inputs(problem, random.getrandbits(31), CUDA)
    size = sum(tensor.nbytes for tensor in first.tensors.values())
    count = max(math.ceil(ROTATED_L2S * torch.cuda.get_device_properties(CUDA).L2_cache_size / size), 2)
    inputs = [first, *(flash.make_inputs(problem, random.getrandbits(31), CUDA) for _ in range(count - 1))]
    out = torch.full_like(first.tensors["q"], torch.nan)
    graphs, wrong = {}, {}
    for runner in runners(problem, inputs, out, profile):
        try:
            out.fill_(torch.nan)
            error, allowed = error_of(problem, first, runner.result(runner.run(0)))
            if not error <= allowed:
                wrong[runner.name] = f"relative error {error:.3g}, allowed {allowed:.3g}"
                continue
            graphs[runner.name] = graph_of(runner, count)
        except Exception as failure:  # one implementation that fails is a row without its time
            wrong[runner.name] = f"{type(failure).__name__}: {failure}".splitlines()[0][:150]
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for sample in range(SAMPLES + 1):
        for name, (graph, launches) in graphs.items():
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            if sample:
                times[name].append(start.elapsed_time(stop) / 1e3 / launches)
    return {"time_s": {name: statistics.median(samples) for name, samples in times.items()}, "failed": wrong}


def run_points(rows_file: Path, profile: Profile) -> list[dict[str, Any]]:
    """All points; each row is appended to the file as it is made."""
    rows = []
    for d in (128, 64):
        for mask in MASKS:
            for n in LENGTHS:
                watch()
                problem = point(d, mask, n)
                row = {"part": "points", "d": d, "mask": mask, "n": n, **time_point(problem, profile)}
                flops = 2 * problem.pairs * problem.q_heads * 2 * d
                row["flop_per_s"] = {name: flops / seconds for name, seconds in row["time_s"].items()}
                rows.append(row)
                append(rows_file, row)
                rates = ", ".join(f"{name} {rate / 1e12:.0f}" for name, rate in row["flop_per_s"].items())
                print(f"d {d} {mask} n {n}: {rates}", flush=True)
                torch.cuda.empty_cache()
    return rows


def edges() -> Iterator[Problem]:
    """Problems with edges for the sweep."""
    lengths = ((9, 9), (64, 64), (129, 257), (130, 257), (777, 777), (300, 1000), (1024, 1024), (2048, 2048), (1000, 4100))
    for d in (64, 128, 256):
        for mask in (FULL, CAUSAL, Mask(True, 200)):
            for index, (q_len, kv_len) in enumerate(lengths):
                dtype = DTYPES["fp16" if index % 2 else "bf16"]
                yield Problem(4, GroupedKV(2, d, d), uniform(3, q_len, kv_len), mask, dtype, dtype)


def run_sweep(profile: Profile) -> tuple[int, list[str]]:
    """Compare the Hopper kernel with float64 over edges; return how many problems, and what was wrong."""
    failed, count = [], 0
    for problem in edges():
        watch()
        count += 1
        if reason := check(problem, profile):
            failed.append(reason)
    return count, failed


def run_stress(launches: int, profile: Profile) -> tuple[int, list[str]]:
    """Launch random shapes, small ones mostly; every output must be written, every tenth is compared with float64."""
    failed = []
    for index in range(launches):
        if index % 50 == 0:
            torch.cuda.synchronize()
            watch()
        q_len = random.randint(9, 400) if random.random() < 0.9 else random.randint(400, 3000)
        kv_len = q_len + random.choice((0, 0, random.randint(0, 600)))
        d, group, kv_heads = random.choice((64, 128, 256)), random.choice((1, 2, 4)), random.choice((1, 2, 5))
        mask = random.choice((FULL, CAUSAL, Mask(True, random.randint(1, 500))))
        dtype = DTYPES[random.choice(("bf16", "fp16"))]
        problem = Problem(
            kv_heads * group, GroupedKV(kv_heads, d, d), uniform(random.randint(1, 5), q_len, kv_len), mask, dtype, dtype
        )
        if reason := check(problem, profile, exact=index % 10 == 0):
            failed.append(reason)
    torch.cuda.synchronize()
    return launches, failed


def check(problem: Problem, profile: Profile, exact: bool = True) -> str | None:
    """Run one problem and return what is wrong, or ``None``."""
    plan = choose("flash", "roofline/flash", problem, profile)
    inputs = flash.make_inputs(problem, random.getrandbits(31), CUDA)
    inputs.tensors["q"].mul_(random.choice(Q_SCALES))
    out = flash.launch(inputs, plan, torch.full_like(inputs.tensors["q"], torch.nan))
    if not exact:
        return f"{problem} {plan}: unwritten or not finite" if not bool(out.isfinite().all()) else None
    error, allowed = error_of(problem, inputs, out)
    complete = bool(out.isfinite().all())
    return None if complete and error <= allowed else f"{problem} {plan}: relative error {error:.3g}, allowed {allowed:.3g}"


def append(rows_file: Path, row: dict[str, Any]) -> None:
    """Add one line to the file of rows."""
    with rows_file.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def watch() -> None:
    """Put off the end of a run that hangs."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)


def print_points(rows: list[dict[str, Any]]) -> bool:
    """Print rates, ratios and whether the bars are met; return whether all are."""
    names = [name for name in (OURS, PLAIN, *PEER_NAMES) if any(name in row["time_s"] for row in rows)]
    print("\nTFLOP/s of useful FLOPs".ljust(24) + "".join(f"{name:>17}" for name in names))
    for row in rows:
        rates = "".join(
            f"{row['flop_per_s'][name] / 1e12:17.1f}" if name in row["flop_per_s"] else f"{'-':>17}" for name in names
        )
        print(f"d {row['d']:<4}{row['mask']:<7} n {row['n']:<8}".ljust(23) + rates)
        for name, reason in row["failed"].items():
            print(f"  {name}: {reason}")
    met = all(not row["failed"] for row in rows)
    for bar in BARS:
        ratios = {
            (row["d"], row["mask"], row["n"]): row["time_s"][bar.peer] / row["time_s"][bar.ours]
            for row in rows
            if bar.ours in row["time_s"] and bar.peer in row["time_s"]
        }
        if not ratios:
            print(f"{bar.ours} / {bar.peer}: not measured  FAIL")
            met = False
            continue
        mean, worst = statistics.geometric_mean(ratios.values()), min(ratios, key=lambda key: ratios[key])
        passed = mean >= bar.mean and ratios[worst] >= bar.least and len(ratios) == len(rows)
        met = met and passed
        parts = ", ".join(
            f"d {d} {mask} {statistics.geometric_mean([r for (rd, rm, _), r in ratios.items() if (rd, rm) == (d, mask)]):.3f}"
            for d in (128, 64)
            for mask in MASKS
            if any((rd, rm) == (d, mask) for rd, rm, _ in ratios)
        )
        where = "d {} {} n {}".format(*worst)
        print(
            f"{bar.ours} / {bar.peer}: geometric mean {mean:.3f} (>= {bar.mean:.2f}), least {ratios[worst]:.3f} at {where} "
            f"(>= {bar.least:.2f})  {'pass' if passed else 'FAIL'}; {parts}"
        )
    return met


def main() -> int:
    """Run the parts, print what they gave, and return 1 if anything is wrong or below its bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", default=["points", "sweep", "stress"], choices=["points", "sweep", "stress"])
    parser.add_argument("--rows", type=Path, default=Path("prefill.jsonl"), help="file the rows are appended to")
    parser.add_argument("--stress-launches", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.getrandbits(31) if options.seed is None else options.seed
    random.seed(seed)
    begin, profile, passed, rows = time.monotonic(), device_profile(), True, []
    device = {"name": torch.cuda.get_device_name(CUDA), "torch": torch.__version__, "cuda": torch.version.cuda}
    append(options.rows, {"part": "header", "device": device, "tokens": TOKENS, "width": WIDTH, "seed": seed})
    if "points" in options.parts:
        rows = run_points(options.rows, profile)
        print(f"points: {time.monotonic() - begin:.0f} s", flush=True)
        passed = print_points(rows)
    checks = {"sweep": lambda: run_sweep(profile), "stress": lambda: run_stress(options.stress_launches, profile)}
    for part, run in checks.items():
        if part not in options.parts:
            continue
        count, failed = run()
        append(options.rows, {"part": part, "problems": count, "failed": failed})
        for reason in failed[:5]:
            print(f"  {reason}")
        print(f"{part}: {count - len(failed)} of {count} correct  {'FAIL' if failed else 'pass'}", flush=True)
        passed = passed and not failed
    faulthandler.cancel_dump_traceback_later()
    print(f"seed {seed}, {device['name']}, {time.monotonic() - begin:.0f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
