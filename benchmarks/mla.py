"""Absorbed MLA against FlashMLA, in turns in one run: 16, 64 and 128 heads, 512 + 64, bf16.

    python benchmarks/mla.py [--random N] [--limit SECONDS]

Ours runs with the plan that ``plan.choose`` gives, a Hopper kernel; the plain Triton kernel runs beside it.
Each output is first compared with float64 (two sequences) and with the peer's (all). A sample is one launch, between events,
behind a pause in which the host gets ahead; the caches exceed the L2 by far, so each launch starts cold. ``--random``: so many
launches of the Hopper kernels over random problems, each run twice and compared with itself, bit for bit, and with float64.
Past the limit the process says where it hangs and ends. Prints ratios and their geometric mean against the bars; writes
$OUT/mla.json if OUT is set.
"""

import argparse
import faulthandler
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from roofline import profiles
from roofline.kernels import combine, mla, reference
from roofline.kernels.protocol import Inputs
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Choices, Plan, choose
from roofline.problem import LatentKV, Problem, uniform
from roofline.profiles.profile import Profile

CASES = ((128, 4096, 16), (32, 8192, 64), (128, 4096, 128), (64, 8192, 128))  # batch, latents, heads
LEAST_MEAN, LEAST_RATIO = 1.0, 0.9
SAMPLES = 20
PAUSE_CYCLES = 1_500_000  # a little under a millisecond
ABSORBED = Choices(form="absorbed")
SCALE = (128 + 64) ** -0.5 * math.log2(math.e)
MOST_ERROR = 5e-3  # bf16: about 2e-3 against float64
CUDA = torch.device("cuda")


def problem(batch: int, kv_len: int, heads: int, q_len: int = 1, mask: Mask = FULL) -> Problem:
    """Absorbed MLA with the sizes of DeepSeek-V2."""
    return Problem(heads, LatentKV(512, 64, 128, 128), uniform(batch, q_len, kv_len), mask)


def device_profile() -> Profile:
    """The profile of the H200, with the SMs of the GPU at hand."""
    sm_count = torch.cuda.get_device_properties(CUDA).multi_processor_count
    return replace(profiles.load("h200-sxm-141gb"), sm_count=sm_count)


def plans(case: Problem, profile: Profile) -> dict[str, Plan]:
    """The chosen plan, and that of the plain kernel."""
    choices = {"ours": ABSORBED, "plain": replace(ABSORBED, portable=True)}
    return {name: choose("mla", "roofline/mla", case, profile, choice) for name, choice in choices.items()}


def compile_like(case: Problem, names: tuple[str, ...] = ("ours", "plain")) -> None:
    """Fill Triton's cache in a process of its own, with shorter sequences."""
    for name, plan in plans(case, device_profile()).items():
        if name in names:
            short = problem(2, 1024, case.q_heads, case.lengths[0].q_len, case.mask)
            mla.launch(mla.make_inputs(short, 0, CUDA), plan)
            torch.cuda.synchronize()


def check(case: Problem, inputs: Inputs, out: torch.Tensor, peer: torch.Tensor | None) -> float:
    """Return the largest relative error: against float64 in the first two sequences, and against the peer in all."""
    q_len, kv_len, batch = case.lengths[0]
    few = min(batch, 2)
    first = replace(case, lengths=uniform(few, q_len, kv_len))
    tensors = {"q": inputs.tensors["q"][: few * q_len], "cache": inputs.tensors["cache"][: few * kv_len]}
    errors = [reference.relative_error(out[: few * q_len], mla.reference(Inputs(first, tensors)))]
    if peer is not None:
        errors.append(reference.relative_error(out, peer))
    return float("nan") if any(error != error for error in errors) else max(errors)


def time_in_turns(launches: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in launches}
    for sample in range(SAMPLES + 2):
        for name, launch in launches.items():
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(PAUSE_CYCLES)
            start.record()
            launch()
            stop.record()
            stop.synchronize()
            if sample >= 2:
                times[name].append(start.elapsed_time(stop) / 1e3)
    return {name: statistics.median(samples) for name, samples in times.items()}


def measure(case: Problem, profile: Profile) -> list[dict[str, Any]]:
    """One row an implementation, the peer first."""
    from roofline.peers import flashmla  # loads the peer

    inputs, rows = flashmla.make_inputs(case, 1, CUDA), []
    chosen = plans(case, profile)
    want = flashmla.token_major(flashmla.launch(inputs, chosen["ours"]), inputs)
    out = torch.empty(want.shape, dtype=want.dtype, device=CUDA)
    launches: dict[str, Callable[[], object]] = {"flashmla": lambda: flashmla.launch(inputs, chosen["ours"])}
    errors = {"flashmla": check(case, inputs, want, None)}
    for name, plan in chosen.items():
        out.fill_(torch.nan)
        errors[name] = check(case, inputs, mla.launch(inputs, plan, out), want)
        if errors[name] <= MOST_ERROR:
            launches[name] = lambda plan=plan: mla.launch(inputs, plan, out)
    times = time_in_turns(launches)
    batch, kv_len, heads = case.batch, case.lengths[0].kv_len, case.q_heads
    for name, error in errors.items():
        row: dict[str, Any] = {"batch": batch, "kv_len": kv_len, "heads": heads, "implementation": name, "error": error}
        if name in chosen:
            plan = chosen[name]
            row["plan"] = f"{plan.q_tile}x{plan.kv_tile} w{plan.warps} s{plan.stages} /{plan.splits}"
        if name in times:
            row |= {"time_s": times[name], "ratio": times["flashmla"] / times[name]}
            row["flop_per_s"] = 2 * batch * heads * kv_len * (576 + 512) / times[name]
            row["bytes_per_s"] = batch * kv_len * 576 * 2 / times[name]
        rows.append(row)
    return rows


def show(row: dict[str, Any]) -> str:
    """One line of the table."""
    start = (
        f"{row['batch']:>4} x {row['kv_len']:<5}{row['heads']:>4} heads  {row['implementation']:<9}{row.get('plan', ''):<18}"
    )
    if "time_s" not in row:
        return f"{start}WRONG: relative error {row['error']:.3g}"
    rates = f"{row['time_s'] * 1e6:8.1f} us {row['flop_per_s'] / 1e12:7.1f} TFLOP/s {row['bytes_per_s'] / 1e12:6.2f} TB/s"
    return f"{start}{rates} {row['ratio']:6.3f}  error {row['error']:.1e}"


def random_launches(count: int, profile: Profile) -> int:
    """Launch the Hopper kernels ``count`` times, twice each; return how many differ from themselves or from float64."""
    chance, wrong = random.Random(torch.seed()), 0
    for index in range(count):
        batch, q_len = chance.randint(1, 4), chance.randint(1, 3)
        heads = chance.choice((chance.randint(1, 16 // q_len), chance.randint(17, 32) // q_len, chance.randint(33, 128)))
        kv_len, mask = chance.randint(1, 700), chance.choice((FULL, CAUSAL))
        case = problem(batch, kv_len, heads, q_len, mask)
        plan = choose("mla", "roofline/mla", case, profile, replace(ABSORBED, splits=chance.randint(1, 4)))
        inputs = mla.make_inputs(case, index, CUDA)
        first, second = (run_alone(case, plan, inputs) for _ in range(2))
        if not torch.equal(first, second) or not check(case, inputs, first, None) <= 2 * MOST_ERROR:
            wrong += 1
            print(f"WRONG: batch {batch}, q_len {q_len}, kv_len {kv_len}, {heads} heads, {mask}, {plan.splits} splits")
    return wrong


def run_alone(case: Problem, plan: Plan, inputs: Inputs) -> torch.Tensor:
    """Run a Hopper kernel without our combine, which would be compiled anew for most random problems."""
    q, cache = inputs.tensors["q"], inputs.tensors["cache"]
    out = torch.full((*q.shape[:2], 512), torch.nan, dtype=q.dtype, device=CUDA)
    if plan.splits == 1:
        mla.hopper(plan).launch(case, plan, (q, cache, out), None, None, SCALE)
        return out
    partial, lse = combine.workspace(case, plan, 512, CUDA)
    partial.zero_()
    lse.fill_(-torch.inf)  # splits without keys write nothing
    mla.hopper(plan).launch(case, plan, (q, cache, out), partial, lse, SCALE)
    exponents = lse[:, : plan.splits]
    weights = torch.exp2(exponents - exponents.amax(1, keepdim=True)).nan_to_num(0.0)  # rows without keys
    total = weights.sum(1, keepdim=True)
    combined = torch.einsum("rs,rsd->rd", weights / total.where(total > 0, 1.0), partial)
    return combined.view(out.shape).to(out.dtype)


def verdict(text: str, reached: float, bar: float) -> str:
    """One line: whether a bar is reached."""
    return f"{'pass' if reached >= bar else 'FAIL'}  {text}: {reached:.3f} (at least {bar:g})"


def main() -> None:
    """Compile, check, time, launch at random, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=0, help="random launches of the Hopper kernels")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which the process ends itself")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.limit, exit=True)
    began, profile = time.monotonic(), device_profile()
    cases = [problem(*case) for case in CASES]
    shapes = [(batch, heads, mask) for batch in (132, 2) for heads in (8, 16, 64) for mask in (FULL, CAUSAL)]
    odd = [problem(batch, 4096, heads, 2, mask) for batch, heads, mask in shapes] if options.random else []
    with ProcessPoolExecutor(len(cases) + len(odd), get_context("spawn")) as pool:
        compiled = [pool.submit(compile_like, case) for case in cases]
        compiled += [pool.submit(compile_like, case, ("ours",)) for case in odd]
        for done in compiled:
            done.result()
    print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    rows = []
    for case in cases:
        rows += measure(case, profile)
        torch.cuda.empty_cache()
    if "OUT" in os.environ:
        Path(os.environ["OUT"], "mla.json").write_text(json.dumps({"device": torch.cuda.get_device_name(CUDA), "rows": rows}))
    print(*map(show, rows), sep="\n", flush=True)
    ours = [row.get("ratio", 0.0) for row in rows if row["implementation"] == "ours"]
    mean = statistics.geometric_mean(ours) if all(ours) else 0.0
    lines = [verdict("geometric mean of ours / FlashMLA", mean, LEAST_MEAN), verdict("lowest ratio", min(ours), LEAST_RATIO)]
    if options.random:
        lines.append(verdict("random launches that agree", 1 - random_launches(options.random, profile) / options.random, 1.0))
    print(*lines, f"{time.monotonic() - began:.0f} s", sep="\n")
    sys.exit(any(line.startswith("FAIL") for line in lines))


if __name__ == "__main__":
    main()
