"""Decode kernels on a GPU: bytes of the cache over time, next to a read-only probe over the same bytes.

Run: python benchmarks/decode.py [case ...]. Each case is timed with the plan that ``plan.choose`` gives and with a small grid
of others, by replays of a CUDA graph whose launches rotate over inputs of more than twice the L2. A plan is compared with a
float64 reference before it is timed. The table comes last; with OUT set, all numbers go to $OUT/decode.json.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from triton import AsyncCompileMode
from triton.runtime.jit import JITFunction

from roofline import profiles
from roofline.cost import ceil_div
from roofline.dtypes import DTYPES
from roofline.kernels import load, probes
from roofline.kernels import reference as references
from roofline.kernels.protocol import Inputs
from roofline.plan import Plan, choose
from roofline.problem import GroupedKV, LatentKV, Problem, uniform
from roofline.variants import VARIANTS

BUDGET_S = 95
REPLAYS = 5
LEAST_GRAPH_S = 2e-3  # launches of one graph together
ROTATED_L2S = 2.2
CUDA = torch.device("cuda")
# kv_tile, warps, stages, CTAs per SM
GROUPED_GRID = ((64, 4, 3, 1), (64, 4, 3, 2), (64, 4, 3, 3), (64, 4, 4, 2), (128, 4, 2, 2), (128, 8, 3, 1), (32, 4, 4, 4))
QUANTISED_GRID = ((64, 4, 3, 2), (128, 4, 3, 2), (128, 8, 3, 2), (64, 4, 4, 4))
PAGED_GRID = ((64, 4, 3, 2), (64, 4, 4, 2), (128, 8, 3, 1))
MLA_GRID = ((64, 8, 2, 1), (32, 8, 3, 1), (16, 8, 4, 1))
FEW_HEADS_GRID = ((64, 8, 2, 2), (64, 4, 2, 2), (32, 4, 4, 1), (32, 4, 3, 1))


@dataclass(frozen=True)
class Case:
    """One row of the table with the plans tried beside the chosen one."""

    name: str
    variant: str
    problem: Problem
    grid: tuple[tuple[int, int, int, int], ...]


def grouped(
    name: str, shape: tuple[int, int, int, int], variant: str = "split-kv", kv_dtype: str = "bf16", page: int = 16,
    grid: tuple[tuple[int, int, int, int], ...] = GROUPED_GRID,
) -> Case:  # fmt: skip
    """Batch, KV heads, group and kv_len of one token each, d 128."""
    batch, kv_heads, group, kv_len = shape
    kv = GroupedKV(kv_heads, 128, 128)
    problem = Problem(kv_heads * group, kv, uniform(batch, 1, kv_len), kv_dtype=DTYPES[kv_dtype], page_size=page)
    return Case(f"{name} {batch}x{kv_heads}x{group}x{kv_len}", variant, problem, grid)


def latent(batch: int, kv_len: int, heads: int) -> Case:
    """Absorbed MLA of one token, 512 + 64."""
    problem = Problem(heads, LatentKV(512, 64, 128, 128), uniform(batch, 1, kv_len))
    return Case(f"mla {batch}x{kv_len} {heads} heads", "mla", problem, MLA_GRID if heads >= 64 else FEW_HEADS_GRID)


LONG = (32, 8, 4, 8192)
CASES = (
    grouped("split-kv", LONG),
    grouped("split-kv", (1, 8, 4, 131072)),
    grouped("split-kv", (8, 8, 8, 8192)),
    grouped("split-kv", (64, 32, 1, 2048)),
    grouped("split-kv", (16, 8, 4, 2048)),
    grouped("paged 16", LONG, "paged", grid=PAGED_GRID),
    grouped("paged 64", LONG, "paged", page=64, grid=PAGED_GRID),
    grouped("paged 256", LONG, "paged", page=256, grid=PAGED_GRID),
    grouped("fp8", LONG, kv_dtype="fp8", grid=QUANTISED_GRID),
    grouped("int8", LONG, kv_dtype="int8", grid=QUANTISED_GRID),
    latent(128, 4096, 128),
    latent(64, 8192, 128),
    latent(128, 4096, 16),
    latent(32, 8192, 64),
)


def plans(case: Case, profile: profiles.Profile) -> Iterator[Plan]:
    """The chosen plan, then those of the grid that differ from it."""
    chosen = choose(case.variant, f"roofline/{case.variant}", case.problem, profile)
    yield chosen
    sequence = case.problem.lengths[0]
    row_tiles = ceil_div(sequence.q_len * case.problem.group, chosen.q_tile)
    for kv_tile, warps, stages, ctas_per_sm in case.grid:
        tiles = ceil_div(sequence.kv_len, kv_tile)
        slots = (profile.sm_count or 1) * ctas_per_sm // (sequence.count * case.problem.kv_heads * row_tiles)
        splits = ceil_div(tiles, ceil_div(tiles, max(slots, 1)))
        plan = replace(chosen, kv_tile=kv_tile, warps=warps, stages=stages, ctas_per_sm=ctas_per_sm, splits=splits)
        if replace(plan, ctas_per_sm=chosen.ctas_per_sm) != chosen:
            yield plan


def rotated_inputs(case: Case) -> list[Inputs]:
    """Enough inputs that a launch finds none of its own in L2."""
    kernel = load(case.variant)
    first = kernel.make_inputs(case.problem, 0, CUDA)
    l2_bytes = torch.cuda.get_device_properties(CUDA).L2_cache_size
    size = sum(tensor.numel() * tensor.element_size() for tensor in first.tensors.values())
    more = ceil_div(int(ROTATED_L2S * l2_bytes), size)
    return [first, *(kernel.make_inputs(case.problem, seed, CUDA) for seed in range(1, more))]


def compile_all(launches: list[Callable[[], object]]) -> None:
    """Compile what ``launches`` would run, in parallel and without running it."""
    run = JITFunction.run

    def compile_only(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return run(self, *args, grid=grid, warmup=True, **kwargs)

    JITFunction.run = compile_only
    try:
        with ThreadPoolExecutor() as pool, AsyncCompileMode(pool, ignore_errors=True):
            for launch in launches:
                launch()
    finally:
        JITFunction.run = run


def time_launches(launches: list[Callable[[], object]]) -> float:
    """Median time of one launch, in seconds: a graph runs all of them, repeated until it is long enough."""
    launches[0]()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    launches[-1]()
    end.record()
    end.synchronize()
    repeats = max(int(LEAST_GRAPH_S * 1e3 / max(start.elapsed_time(end), 1e-3)) // len(launches), 1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for launch in launches:
                launch()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / (repeats * len(launches)))
    return statistics.median(times)


def error_of(case: Case, inputs: Inputs, out: torch.Tensor) -> float:
    """Relative error of the first sequence against float64."""
    sequence = case.problem.lengths[0]
    one = replace(case.problem, lengths=uniform(1, sequence.q_len, sequence.kv_len))
    kernel = load(case.variant)
    tensors = {}
    for name, tensor in inputs.tensors.items():
        if name in ("q", "table", "kv_lengths"):
            tensors[name] = tensor[:1]
        elif name in ("k", "v", "cache"):
            tensors[name] = tensor[: sequence.kv_len]
        elif tensor.dim() == 2 and name.endswith("_scale"):
            tensors[name] = tensor[:, : sequence.kv_len]
        else:
            tensors[name] = tensor
    if case.variant == "paged":  # only the pages of this sequence are multiplied out
        pages = tensors["table"][0, : ceil_div(sequence.kv_len, one.page_size)].long()
        tensors |= {name: tensors[name][pages] for name in ("k_pages", "v_pages")}
        tensors["table"] = torch.arange(len(pages), dtype=torch.int32, device=CUDA)[None]
    return references.relative_error(out[:1], kernel.reference(Inputs(one, tensors)))


def measure(case: Case, profile: profiles.Profile, deadline: float) -> list[dict[str, Any]]:
    """Time every plan of ``case`` until the deadline."""
    kernel, inputs, candidates = load(case.variant), rotated_inputs(case), list(plans(case, profile))
    out = kernel.launch(inputs[0], candidates[0])
    compile_all([lambda plan=plan: kernel.launch(inputs[0], plan, out) for plan in candidates])
    rows = []
    for index, plan in enumerate(candidates):
        if index and time.monotonic() > deadline:
            break
        row = {"case": case.name, "chosen": index == 0, "plan": asdict(plan)}
        rows.append(row)
        try:
            out.fill_(torch.nan)
            row["error"] = error_of(case, inputs[0], kernel.launch(inputs[0], plan, out))
            if not row["error"] < 0.02:
                continue
            row["time_s"] = time_launches([lambda i=i, plan=plan: kernel.launch(i, plan, out) for i in inputs])
        except Exception as error:  # a plan that does not fit is a row of its own
            row["failed"] = f"{type(error).__name__}: {error}"[:200]
            continue
        cost = VARIANTS[case.variant](case.problem, plan)
        row["read_bytes"] = cost.hbm_bytes_min
        row["bytes_per_s"] = cost.hbm_bytes_min / row["time_s"]
        row["flop_per_s"] = cost.flops / row["time_s"]
    return rows


def best_read(num_bytes: int, sm_count: int) -> float:
    """Highest rate of the read probe over ``num_bytes``, over a few grids, in bytes per second."""
    block = 8192
    words = max(num_bytes // probes.WORD_BYTES // block, 1) * block
    l2_words = torch.cuda.get_device_properties(CUDA).L2_cache_size // probes.WORD_BYTES
    copies = ceil_div(int(ROTATED_L2S * l2_words), words)
    sources = [torch.randint(0, 2**30, (words,), dtype=torch.int32, device=CUDA) for _ in range(copies)]
    rates = []
    for ctas_per_sm, warps in ((2, 8), (4, 8), (2, 16), (4, 4)):
        probe = [probes.read(source, sm_count * ctas_per_sm, block, warps) for source in sources]
        rates.append(probe[0].amount / time_launches([p.run for p in probe]))
    return max(rates)


def line(row: dict[str, Any], ceiling: float) -> str:
    """One line of the table: the time, and the rate next to that of the read probe."""
    plan = row["plan"]
    label = f"{plan['q_tile']}x{plan['kv_tile']} w{plan['warps']} s{plan['stages']} /{plan['splits']}"
    start = f"{row['case']:<26} {label + ' *' * row['chosen']:<22}"
    if "time_s" not in row:
        return f"{start} {row.get('failed') or 'wrong: relative error ' + format(row['error'], '.3g')}"[:120]
    rate = row["bytes_per_s"]
    return f"{start} {row['time_s'] * 1e6:8.1f} {rate / 1e12:6.3f} {rate / ceiling:8.1%} {row['flop_per_s'] / 1e12:8.1f}"


def main(names: list[str]) -> None:
    """Measure the cases that contain one of ``names`` (all by default) and print the table."""
    started = time.monotonic()
    profile = profiles.load("h200-sxm-141gb")
    profile = replace(profile, sm_count=torch.cuda.get_device_properties(CUDA).multi_processor_count)
    cases = [case for case in CASES if not names or any(name in case.name for name in names)]
    rows, ceilings = [], {}
    for index, case in enumerate(cases):
        share = started + BUDGET_S * (index + 1) / len(cases)  # the cases share the budget evenly
        measured = measure(case, profile, share)
        rows += measured
        size = next((row["read_bytes"] for row in measured if "read_bytes" in row), 0)
        ceilings[case.name] = best_read(size, profile.sm_count or 1) if size else 0.0
        torch.cuda.empty_cache()
    if folder := os.environ.get("OUT"):
        Path(folder, "decode.json").write_text(json.dumps({"rows": rows, "read_bytes_per_s": ceilings}, indent=1))
    print(f"\n{'case':<26} {'plan (* as chosen)':<22} {'us':>8} {'TB/s':>6} {'of read':>8} {'TFLOP/s':>8}")
    for row in rows:
        print(line(row, ceilings[row["case"]]))
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
