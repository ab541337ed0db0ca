"""Time the portable flash kernel over candidate plans on the GPU at hand, to set the tables of ``roofline.plan`` from data.

Every candidate of a head size is compiled first (in processes of their own, so the compiler uses all cores), checked once
against float64, then timed in turns with the others: median of event times, inputs rotated over more than twice the L2.
Prints TFLOP/s of useful FLOPs last; writes $OUT/kernels.json if OUT is set.
"""

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch

from roofline.dtypes import DTYPES
from roofline.kernels import flash, reference
from roofline.kernels.protocol import Inputs
from roofline.masks import CAUSAL, FULL
from roofline.plan import Choices, Plan, choose
from roofline.problem import GroupedKV, Problem, uniform
from roofline.profiles.profile import Profile

TOKENS = 16384
LENGTHS = (1024, 4096, 16384)
WIDTH = 2048  # heads times head size
SAMPLES = 12
ROTATED_BYTES_PER_L2 = 2.5


class Candidate(NamedTuple):
    """Launch choices to compare."""

    q_tile: int
    kv_tile: int
    warps: int
    stages: int
    ctas_per_sm: int


CANDIDATES = {
    64: [
        Candidate(128, 64, 4, 3, 2),
        Candidate(128, 64, 4, 2, 2),
        Candidate(128, 64, 8, 3, 2),
        Candidate(128, 128, 4, 2, 2),
        Candidate(128, 128, 8, 2, 1),
        Candidate(64, 128, 4, 2, 3),
        Candidate(64, 64, 4, 3, 3),
    ],
    128: [
        Candidate(128, 64, 8, 2, 2),
        Candidate(128, 64, 4, 2, 2),
        Candidate(128, 64, 8, 3, 1),
        Candidate(128, 128, 8, 2, 1),
        Candidate(128, 32, 8, 3, 2),
        Candidate(64, 64, 4, 2, 2),
        Candidate(64, 128, 4, 2, 1),
    ],
    256: [
        Candidate(128, 64, 8, 2, 1),
        Candidate(128, 32, 8, 3, 1),
        Candidate(64, 64, 4, 2, 1),
    ],
}
MASKS = {"full": FULL, "causal": CAUSAL}


class Case(NamedTuple):
    """One point to time."""

    d: int
    mask: str
    n: int
    candidate: Candidate

    def problem(self) -> Problem:
        """The attention problem, bf16."""
        heads = WIDTH // self.d
        lengths = uniform(TOKENS // self.n, self.n, self.n)
        return Problem(heads, GroupedKV(heads, self.d, self.d), lengths, MASKS[self.mask], DTYPES["bf16"], DTYPES["bf16"])

    def plan(self) -> Plan:
        """The plan that `choose` gives, with the candidate's choices in place of the table's."""
        base = choose(
            "flash", "roofline/flash", self.problem(), Profile("here", "here", "nvidia", "", "9.0"), Choices(portable=True)
        )
        return replace(base, **self.candidate._asdict())


def run(case: Case) -> str | None:
    """Compile and run one case (also in a process of its own, which fills Triton's cache); return why it failed."""
    try:
        inputs = flash.make_inputs(case.problem(), 0, torch.device("cuda"))
        flash.launch(inputs, case.plan())
        torch.cuda.synchronize()
    except Exception as error:  # a candidate that does not fit the device is a result, not the end
        return f"{type(error).__name__}: {error}".splitlines()[0][:100]
    return None


def rotation(problem: Problem) -> list[Inputs]:
    """Fresh random inputs that together exceed the L2, so that no call finds its own data there."""
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    first = flash.make_inputs(problem, torch.seed() % 2**31, torch.device("cuda"))
    size = sum(tensor.nbytes for tensor in first.tensors.values())
    count = max(int(ROTATED_BYTES_PER_L2 * l2_bytes / size) + 1, 2)
    return [first] + [flash.make_inputs(problem, torch.seed() % 2**31, torch.device("cuda")) for _ in range(count - 1)]


def expectation(inputs: Inputs) -> tuple[torch.Tensor, float]:
    """Two heads of the first sequence in float64, and the relative error allowed to them."""
    q_len, kv_len, _ = inputs.problem.lengths[0]
    one = replace(inputs.problem, lengths=uniform(1, q_len, kv_len))
    q, k, v = (inputs.tensors[name][:q_len, :2] for name in "qkv")
    expected = reference.attention(q, k, v, one)
    return expected, reference.tolerance(reference.plain(q, k, v, one), expected, one)


def time_cases(cases: list[Case]) -> dict[Case, float]:
    """Return the median seconds of the candidates of one problem, measured in turns."""
    problem = cases[0].problem()
    inputs, plans = rotation(problem), {case: case.plan() for case in cases}
    times: dict[Case, list[float]] = {case: [] for case in cases}
    expected, allowed = expectation(inputs[0])
    for case in cases:
        out = flash.launch(inputs[0], plans[case], torch.full_like(inputs[0].tensors["q"], torch.nan))
        error = reference.relative_error(out[: case.n, :2], expected)
        if not error <= allowed:
            print(f"WRONG {case}: relative error {error:.3g}, allowed {allowed:.3g}", flush=True)
            del times[case]
    out = torch.empty_like(inputs[0].tensors["q"])
    for sample in range(SAMPLES + 2):
        for index, case in enumerate(times):
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(1_000_000)  # half a millisecond: the host gets ahead, so that no gap is timed
            start.record()
            flash.launch(inputs[(sample + index) % len(inputs)], plans[case], out)
            stop.record()
            stop.synchronize()
            if sample >= 2:
                times[case].append(start.elapsed_time(stop) / 1e3)
    return {case: statistics.median(samples) for case, samples in times.items()}


def main() -> None:
    """Compile, check, time, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=90.0, help="seconds after which no further problem is started")
    parser.add_argument("--d", type=int, nargs="*", default=[128, 64, 256])
    options = parser.parse_args()
    begin = time.monotonic()
    points = [(d, mask, n) for d in options.d for mask in MASKS for n in LENGTHS]
    kernels = [Case(d, mask, 4096, candidate) for d in options.d for mask in MASKS for candidate in CANDIDATES[d]]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 12), get_context("spawn")) as pool:
        failures = dict(zip(kernels, pool.map(run, kernels), strict=True))
    print(f"compiled {len(kernels)} kernels in {time.monotonic() - begin:.0f} s", flush=True)
    rates: dict[tuple[int, str, Candidate], dict[int, float]] = {}
    for d, mask, n in points:
        if time.monotonic() - begin > options.budget:
            print(f"out of time before d {d} {mask} n {n}", flush=True)
            break
        cases = [Case(d, mask, n, c) for c in CANDIDATES[d] if failures[Case(d, mask, 4096, c)] is None]
        for case, seconds in time_cases(cases).items():
            heads = case.problem().q_heads
            rates.setdefault((d, mask, case.candidate), {})[n] = 4 * case.problem().pairs * heads * d / seconds
        torch.cuda.empty_cache()
    for case, reason in failures.items():
        if reason:
            print(f"d {case.d} {case.mask} {tuple(case.candidate)}: {reason}")
    if "OUT" in os.environ:
        rows = [{"d": d, "mask": m, **c._asdict(), "flop_per_s": r} for (d, m, c), r in rates.items()]
        result = {"device": torch.cuda.get_device_name(0), "tokens": TOKENS, "width": WIDTH, "results": rows}
        Path(os.environ["OUT"], "kernels.json").write_text(json.dumps(result, indent=1))
    print(f"{time.monotonic() - begin:.0f} s; TFLOP/s (useful), bf16, {TOKENS} tokens, heads x d = {WIDTH}; n = {LENGTHS}")
    for (d, mask, c), by_length in rates.items():
        shown = "  ".join(f"{by_length[n] / 1e12:6.1f}" if n in by_length else "     -" for n in LENGTHS)
        print(f"d{d:<4}{mask:<7}{c.q_tile:>4}x{c.kv_tile:<4}w{c.warps} s{c.stages} c{c.ctas_per_sm}  {shown}")


if __name__ == "__main__":
    main()
