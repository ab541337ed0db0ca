"""Decode kernels on a GPU beside a read-only probe over the same bytes and beside other people's kernels, in one run.

Run: python benchmarks/decode.py [--cases NAME ...] [--skip NAME ...] [--peers NAME ...] [--plans] [--launches N] [-o FILE]

All contenders of a group are timed in turns, the same way: replays of a CUDA graph whose launches rotate over inputs of several
times the L2, so that each finds none of its own there. A contender is compared with a float64 reference before it is timed.
Rows go to FILE as they are made, one JSON object a line; the tables and each bar as pass or FAIL come last. ``--plans`` adds a
grid of other plans; ``--launches`` ends with N random launches under a watchdog. FlashInfer takes minutes to compile what it
has not run before, so it is a peer only where it is named.
"""

import argparse
import faulthandler
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import torch
from triton import AsyncCompileMode
from triton.runtime.jit import JITFunction

from roofline import profiles
from roofline.cost import ceil_div
from roofline.dtypes import DTYPES
from roofline.kernels import load, probes
from roofline.kernels import reference as references
from roofline.kernels.protocol import Inputs
from roofline.masks import CAUSAL, FULL, Mask
from roofline.peers import PEERS
from roofline.plan import Plan, choose
from roofline.problem import GroupedKV, LatentKV, Problem, ragged, uniform
from roofline.variants import VARIANTS

CUDA = torch.device("cuda")
PROFILE = profiles.load("h200-sxm-141gb")
REPLAYS = 9
LEAST_GRAPH_S = 2e-3  # launches of one graph together
ROTATED_L2S = 4
WATCHDOG_S = 60
MOST_ERROR = 0.02  # relative, against float64
PROBES = ((8192, 2, 8), (8192, 4, 8), (8192, 2, 16), (8192, 4, 4), (2048, 8, 4), (2048, 16, 4))  # words, CTAs an SM, warps
PEER_NAMES = ("torch/flash", "torch/cudnn", "torch/efficient", "fa3/fwd", "flashmla/decode")
# kv_tile, warps, stages, CTAs per SM
GRID = ((64, 4, 3, 2), (64, 4, 4, 2), (64, 8, 3, 2), (128, 4, 2, 2), (128, 8, 3, 1), (128, 4, 3, 2), (32, 4, 4, 4))
MIB = 2**20


@dataclass(frozen=True)
class Member:
    """One of our kernels in a group."""

    label: str
    variant: str
    problem: Problem


@dataclass(frozen=True)
class Group:
    """What is timed in turns; the first member is the one that the others and the peers are compared with."""

    name: str
    members: tuple[Member, ...]


@dataclass
class Contender:
    """Something to time: launches over rotated inputs, and how it was checked."""

    label: str
    launches: list[Callable[[], object]]
    num_bytes: int
    row: dict[str, Any]
    graph: torch.cuda.CUDAGraph | None = None
    each: int = 1


def grouped(batch: int, kv_heads: int, group: int, kv_len: int) -> Problem:
    """One token a sequence, d 128."""
    return Problem(kv_heads * group, GroupedKV(kv_heads, 128, 128), uniform(batch, 1, kv_len))


def latent(batch: int, kv_len: int, heads: int) -> Group:
    """Absorbed MLA of one token, 512 + 64."""
    problem = Problem(heads, LatentKV(512, 64, 128, 128), uniform(batch, 1, kv_len))
    return Group(f"mla {batch}x{kv_len} {heads} heads", (Member("mla", "mla", problem),))


def plain(batch: int, kv_heads: int, group: int, kv_len: int) -> Group:
    """The contiguous cache in bf16, its shape as the name."""
    problem = grouped(batch, kv_heads, group, kv_len)
    return Group(f"{batch}x{kv_heads}x{group}x{kv_len}", (Member("split-kv", "split-kv", problem),))


def with_pages_and_8_bits(batch: int, kv_heads: int, group: int, kv_len: int, pages: tuple[int, ...]) -> Group:
    """The contiguous cache in bf16, fp8 and int8, and in pages."""
    problem = grouped(batch, kv_heads, group, kv_len)
    return Group(
        f"{batch}x{kv_heads}x{group}x{kv_len}",
        (
            Member("split-kv", "split-kv", problem),
            *(Member(f"paged {page}", "paged", replace(problem, page_size=page)) for page in pages),
            *(Member(name, "split-kv", replace(problem, kv_dtype=DTYPES[name])) for name in ("fp8", "int8")),
            *(Member(f"paged 16 {name}", "paged", replace(problem, kv_dtype=DTYPES[name])) for name in ("fp8",)),
        ),
    )


UNEQUAL = (65536, 512, 8192, 1024, 32768, 2048, 4096, 16384, 512, 12000, 777, 24000, 3000, 1500, 6000, 40000)
LONG = (32, 8, 4, 8192)
GROUPS = (
    with_pages_and_8_bits(*LONG, (16, 64, 256, 1)),
    with_pages_and_8_bits(1, 8, 4, 131072, (16,)),
    plain(64, 32, 1, 2048),
    Group(
        "unequal 512-65536 8x4",
        tuple(
            Member(variant, variant, replace(grouped(1, 8, 4, 1), lengths=ragged([(1, kv_len) for kv_len in UNEQUAL])))
            for variant in ("split-kv", "paged")
        ),
    ),
    plain(8, 8, 8, 8192),
    plain(16, 8, 4, 2048),
    plain(128, 1, 32, 4096),
    plain(40, 8, 4, 2048),
    plain(16, 32, 1, 8192),
    plain(1, 8, 4, 8192),
    plain(1, 8, 4, 4096),
    plain(1, 8, 4, 2048),
    plain(1, 8, 4, 1024),
    Group("linear 128x8x4", (Member("linear", "linear", replace(grouped(128, 8, 4, 4096), mask=CAUSAL)),)),
    latent(128, 4096, 128),
    latent(64, 8192, 128),
    latent(128, 4096, 16),
    latent(32, 8192, 64),
)


def cache_bytes(problem: Problem) -> int:
    """Bytes of the cache in bf16."""
    return problem.kv_tokens * problem.kv_heads * 4 * 128


def plans(member: Member) -> Iterator[Plan]:
    """Those of the grid, with splits that fill the SMs."""
    chosen = choose(member.variant, f"roofline/{member.variant}", member.problem, PROFILE)
    longest = max(lengths.kv_len for lengths in member.problem.lengths)
    for kv_tile, warps, stages, ctas_per_sm in GRID:
        tiles = ceil_div(longest, kv_tile)
        slots = (PROFILE.sm_count or 1) * ctas_per_sm // (member.problem.batch * member.problem.kv_heads)
        splits = ceil_div(tiles, ceil_div(tiles, max(slots, 1)))
        yield replace(chosen, kv_tile=kv_tile, warps=warps, stages=stages, ctas_per_sm=ctas_per_sm, splits=splits)


def rotated(make: Callable[[int, torch.device], Inputs], first: Inputs | None = None) -> list[Inputs]:
    """Enough inputs that a launch finds none of its own in L2: ``first``, or those of seed 0, and those of the next seeds."""
    first = first or make(0, CUDA)
    l2_bytes = torch.cuda.get_device_properties(CUDA).L2_cache_size
    size = sum(tensor.numel() * tensor.element_size() for tensor in first.tensors.values())
    return [first, *(make(seed, CUDA) for seed in range(1, ceil_div(ROTATED_L2S * l2_bytes, size)))]


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


def capture(contender: Contender) -> None:
    """Capture a graph of all launches, repeated until it is long enough to time."""
    contender.launches[0]()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    contender.launches[-1]()
    end.record()
    end.synchronize()
    repeats = max(int(LEAST_GRAPH_S * 1e3 / max(start.elapsed_time(end), 1e-3)) // len(contender.launches), 1)
    contender.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(contender.graph):
        for _ in range(repeats):
            for launch in contender.launches:
                launch()
    contender.graph.replay()
    contender.each = repeats * len(contender.launches)


def time_in_turns(contenders: list[Contender]) -> None:
    """Replay the graphs in turns and set each row's ``time_s``, the median time of a launch."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times: dict[str, list[float]] = {}
    for _ in range(REPLAYS):
        for contender in contenders:
            if contender.graph is None:
                continue
            start.record()
            contender.graph.replay()
            end.record()
            end.synchronize()
            times.setdefault(contender.label, []).append(start.elapsed_time(end) * 1e-3 / contender.each)
    for contender in contenders:
        if samples := times.get(contender.label):
            contender.row["time_s"] = statistics.median(samples)


def error_of(kernel: Any, inputs: Inputs, out: torch.Tensor) -> float:
    """Relative error of the first sequence against float64."""
    problem, sequence = inputs.problem, inputs.problem.lengths[0]
    one = replace(problem, lengths=uniform(1, sequence.q_len, sequence.kv_len))
    tensors = {}
    for name, tensor in inputs.tensors.items():
        if name in ("q", "table", "kv_lengths", "state", "state_out"):
            tensors[name] = tensor[:1]
        elif name in ("k", "v", "cache"):
            tensors[name] = tensor[: sequence.kv_len]
        elif tensor.dim() == 2 and name.endswith("_scale"):
            tensors[name] = tensor[:, : sequence.kv_len]
        else:
            tensors[name] = tensor
    if "table" in tensors:  # only the pages of this sequence are multiplied out
        pages = tensors["table"][0, : ceil_div(sequence.kv_len, one.page_size)].long()
        by_page = [name for name, tensor in tensors.items() if name.endswith(("_pages", "_scale")) and tensor.dim() > 1]
        tensors |= {name: tensors[name][pages] for name in by_page}
        tensors["table"] = torch.arange(len(pages), dtype=torch.int32, device=CUDA)[None]
    return references.relative_error(out[:1], kernel.reference(Inputs(one, tensors)))


def ours(member: Member, inputs: list[Inputs], plan: Plan, label: str) -> Contender:
    """Our kernel with ``plan``, checked."""
    kernel = load(member.variant)
    cost = VARIANTS[member.variant](member.problem, plan)
    row: dict[str, Any] = {"contender": label, "kind": "ours", "plan": asdict(plan)}
    out = kernel.launch(inputs[0], plan)
    launches: list[Callable[[], object]] = [partial(kernel.launch, i, plan, out) for i in inputs]
    contender = Contender(label, launches, cost.hbm_bytes_min, row)
    row["bytes"] = cost.hbm_bytes_min
    out.fill_(torch.nan)
    if member.variant != "linear":
        row["error"] = error_of(kernel, inputs[0], kernel.launch(inputs[0], plan, out))
        if not row["error"] < MOST_ERROR:
            row["failed"] = f"wrong: relative error {row['error']:.3g}"
            return contender
    capture(contender)
    return contender


def peers(member: Member, names: tuple[str, ...]) -> Iterator[Contender]:
    """The peers that stand beside ``member``, checked."""
    for name in names:
        peer = PEERS[name]
        beside = (*peer.decode, "split-kv") if name == "flashinfer/paged" else peer.decode
        if member.variant not in beside:
            continue
        row: dict[str, Any] = {"contender": name, "kind": "peer"}
        try:
            module = import_module(peer.module)
            if reason := module.supports(member.problem, CUDA):
                row["failed"] = reason
                continue
            plan = choose(member.variant, name, member.problem, PROFILE)
            inputs = rotated(partial(module.make_inputs, member.problem))
            out = module.launch(inputs[0], plan)
            out = module.token_major(out, inputs[0]) if hasattr(module, "token_major") else out
            row["error"] = error_of(module, inputs[0], out)
            launches: list[Callable[[], object]] = [partial(module.launch, i, plan) for i in inputs]
            contender = Contender(name, launches, 0, row)
            capture(contender)
        except Exception as error:  # a peer that is not there or fails is a row
            row["failed"] = f"{type(error).__name__}: {error}"[:200]
            contender = Contender(name, [], 0, row)
        yield contender


def probe(num_bytes: int, name: str) -> Iterator[Contender]:
    """The read probe over ``num_bytes``, over a few grids."""
    sm_count = torch.cuda.get_device_properties(CUDA).multi_processor_count
    l2_words = torch.cuda.get_device_properties(CUDA).L2_cache_size // probes.WORD_BYTES
    block = 8192
    words = max(num_bytes // probes.WORD_BYTES // block, 1) * block
    copies = ceil_div(ROTATED_L2S * l2_words, words)
    sources = [torch.randint(0, 2**30, (words,), dtype=torch.int32, device=CUDA) for _ in range(copies)]
    for block, ctas_per_sm, warps in PROBES:
        ran = [probes.read(source, sm_count * ctas_per_sm, block, warps) for source in sources]
        label = f"read {name} {block} words x{ctas_per_sm} w{warps}"
        row = {"contender": label, "kind": "probe", "bytes": ran[0].amount}
        contender = Contender(label, [p.run for p in ran], ran[0].amount, row)
        capture(contender)
        yield contender


@dataclass(frozen=True)
class Prepared:
    """A member with its first inputs and the plans to try, the chosen one first."""

    member: Member
    inputs: Inputs
    tried: list[Plan]


def prepare(groups: list[Group], with_plans: bool) -> dict[str, list[Prepared]]:
    """Make inputs of all members of ``groups`` and compile all that they launch, in parallel."""
    prepared: dict[str, list[Prepared]] = {}
    launches: list[Callable[[], object]] = [probes.empty(CUDA).run]
    words = torch.zeros(8192, dtype=torch.int32, device=CUDA)
    launches += [probes.read(words, 1, block, warps).run for block, _, warps in PROBES]
    for group in groups:
        for member in group.members:
            kernel = load(member.variant)
            chosen = choose(member.variant, f"roofline/{member.variant}", member.problem, PROFILE)
            tried = [chosen, *(plan for plan in plans(member) if with_plans and plan != chosen)]
            inputs = kernel.make_inputs(member.problem, 0, CUDA)
            prepared.setdefault(group.name, []).append(Prepared(member, inputs, tried))
            launches += [partial(kernel.launch, inputs, plan) for plan in tried]
    compile_all(launches)
    return prepared


def measure(group: Group, ready: list[Prepared], peer_names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Time all contenders of ``group`` in turns."""
    contenders: list[Contender] = []
    for index, (member, first, tried) in enumerate((r.member, r.inputs, r.tried) for r in ready):
        inputs = rotated(partial(load(member.variant).make_inputs, member.problem), first)
        for plan in tried:
            is_chosen = plan is tried[0]
            label = member.label if is_chosen else f"{member.label} {described(plan)}"
            try:
                contender = ours(member, inputs, plan, label)
            except Exception as error:  # a plan that does not fit is a row
                row = {"contender": label, "kind": "ours", "failed": f"{type(error).__name__}: {error}"[:200]}
                contender = Contender(label, [], 0, row)
            contender.row["member"] = member.label
            contender.row["chosen"] = is_chosen
            contenders.append(contender)
        if index == 0:
            contenders += peers(member, peer_names)
    sizes: dict[int, list[Contender]] = {}
    for contender in contenders:
        if contender.num_bytes:
            size = contender.num_bytes // MIB  # equal to about a per cent, so one probe for bf16 and one for 8 bits
            near = next((known for known in sizes if abs(known - size) * 50 <= size), None)
            sizes.setdefault(size if near is None else near, []).append(contender)
    for size, members in sizes.items():
        own = list(probe(members[0].num_bytes, f"{size} MiB"))
        for contender in members:
            contender.row["probes"] = [p.label for p in own]
        contenders += own
    empty = probes.empty(CUDA)
    contenders.append(Contender("empty", [empty.run] * 16, 0, {"contender": "empty", "kind": "floor"}))
    capture(contenders[-1])
    time_in_turns(contenders)
    rows = [contender.row for contender in contenders]
    rate = {row["contender"]: row["bytes"] / row["time_s"] for row in rows if row["kind"] == "probe"}
    for row in rows:
        row["group"] = group.name
        if "time_s" in row and "probes" in row:
            row["ceiling"] = max(rate[name] for name in row.pop("probes"))
            row["share"] = row["bytes"] / row["time_s"] / row["ceiling"]
    return rows


def described(plan: Plan) -> str:
    """The choices of a plan that a table shows."""
    fused = "f" if plan.fused else ""
    return f"{plan.q_tile}x{plan.kv_tile} w{plan.warps} s{plan.stages} c{plan.ctas_per_sm} /{plan.splits}{fused}"


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    start = f"{row['contender']:<34.34} {described(Plan(**row['plan'])) if 'plan' in row else '':<22}"
    if "time_s" not in row:
        return f"{start} {row.get('failed', 'not timed')}"[:130]
    rate = f"{row['bytes'] / row['time_s'] / 1e12:6.3f}" if row.get("bytes") else " " * 6
    share = f"{row['share']:7.1%}" if "share" in row else " " * 7
    error = f"{row['error']:.1e}" if row.get("error") is not None else ""
    return f"{start} {row['time_s'] * 1e6:8.2f} {rate} {share} {error}"


def random_launches(count: int, out_seed: int) -> None:
    """Launch ``count`` random problems, each checked against float64 once in a while; the watchdog ends a hang."""
    generator = random.Random(out_seed)
    started, wrong = time.monotonic(), 0
    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
    problems = [random_problem(generator) for _ in range(max(count // 60, 1))]
    ready = []
    for variant, problem in problems:
        kernel = load(variant)
        if kernel.supports(problem, CUDA) is None:
            plan = choose(variant, f"roofline/{variant}", problem, PROFILE)
            ready.append((kernel, kernel.make_inputs(problem, generator.randrange(2**31), CUDA), plan))
    compile_all([partial(kernel.launch, inputs, plan) for kernel, inputs, plan in ready])
    outputs: dict[int, torch.Tensor] = {}
    for index in range(count):
        faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
        chosen = index % len(ready) if index < len(ready) else generator.randrange(len(ready))
        kernel, inputs, plan = ready[chosen]
        out = kernel.launch(inputs, plan)
        torch.cuda.synchronize()
        if chosen not in outputs:
            error = references.relative_error(out, kernel.reference(inputs))
            is_wrong = not error < MOST_ERROR
            outputs[chosen] = out
        else:
            # The order in which splits are combined is fixed, so the same launch gives the same bits.
            error, is_wrong = 0.0, not torch.equal(out, outputs[chosen])
        if is_wrong:
            wrong += 1
            print(f"wrong: relative error {error:.3g}, {inputs.problem}, {described(plan)}")
    faulthandler.cancel_dump_traceback_later()
    passed = "FAIL" if wrong else "pass"
    seconds = time.monotonic() - started
    print(f"{passed}  {count} random launches of {len(outputs)} problems: {wrong} wrong, none hung, {seconds:.0f} s")


def random_problem(generator: random.Random) -> tuple[str, Problem]:
    """A small problem of split-kv or paged."""
    kv_heads, group = generator.choice((1, 2, 8)), generator.choice((1, 3, 4, 8, 16))
    lengths = [
        (generator.choice((1, 1, 1, 2, 5)), generator.choice((0, 1, 17, 300, 2000, 9000)))
        for _ in range(generator.choice((1, 2, 5)))
    ] + [(1, 4000)]
    problem = Problem(
        kv_heads * group,
        GroupedKV(kv_heads, *generator.choice(((128, 128), (64, 64), (80, 80)))),
        ragged(lengths),
        generator.choice((FULL, CAUSAL, Mask(True, 500))),
        DTYPES[generator.choice(("bf16", "fp16"))],
        page_size=generator.choice((1, 16, 64)),
    )
    kv_dtype = generator.choice((problem.dtype, problem.dtype, DTYPES["fp8"], DTYPES["int8"]))
    return generator.choice(("split-kv", "paged")), replace(problem, kv_dtype=kv_dtype)


def bars(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Each bar as pass or FAIL."""

    def said(name: str, value: float, bar: float, at_most: bool = False) -> str:
        passed = value <= bar if at_most else value >= bar
        return f"{'pass' if passed else 'FAIL'}  {name:<58} {value:8.3f}  {'<=' if at_most else '>='} {bar}"

    by_group: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "time_s" in row and row.get("chosen", True):
            by_group.setdefault(row["group"], []).append(row)
    ratios = []
    for group in (group for group in GROUPS if group.name in by_group):
        named = {row["contender"]: row for row in by_group[group.name]}
        first = named.get(group.members[0].label)
        if first is None or group.members[0].variant == "mla":
            continue
        size, name = cache_bytes(group.members[0].problem), group.name
        if group.members[0].variant == "split-kv":
            if size >= 64 * 1e6:
                yield said(f"{name}: share of the read probe", first["share"], 0.95 if size >= 512 * 1e6 else 0.90)
            else:
                reading = first["bytes"] / first["ceiling"]
                launches = 1 if first["plan"]["fused"] or first["plan"]["splits"] == 1 else 2
                floor = named["empty"]["time_s"] * launches
                yield said(
                    f"{name}: time over {launches} floor + probe", first["time_s"] / (floor + reading), 1.3, at_most=True
                )
        for label, row in named.items():
            if label.startswith("paged") and "fp8" not in label:
                yield said(
                    f"{name}: {label} against contiguous", first["time_s"] / row["time_s"], 0.85 if label == "paged 1" else 0.97
                )
            if label == "fp8" and size >= 512 * 1e6:
                yield said(f"{name}: time of {label} over bf16", row["time_s"] / first["time_s"], 0.58, at_most=True)
        beside = [row for row in named.values() if row["kind"] == "peer"]
        if beside:
            fastest = min(beside, key=lambda row: row["time_s"])
            ratios.append(fastest["time_s"] / first["time_s"])
            yield said(f"{name}: against {fastest['contender']}", ratios[-1], 0.97)
    if ratios:
        yield said("geometric mean against the fastest peer", math.exp(statistics.fmean(map(math.log, ratios))), 1.03)


def append(row: dict[str, Any], file: TextIO | None) -> None:
    """Write a row and flush it."""
    if file:
        file.write(json.dumps(row) + "\n")
        file.flush()


def main() -> None:
    """Measure what the options name and print tables and bars."""
    parser = argparse.ArgumentParser(description="Decode kernels beside a read probe and peers")
    parser.add_argument("--cases", nargs="*", default=[], help="groups whose name contains one of these")
    parser.add_argument("--skip", nargs="*", default=[], help="but not those whose name contains one of these")
    parser.add_argument("--peers", nargs="*", default=list(PEER_NAMES), help="peers by name; none for no peers")
    parser.add_argument("--plans", action="store_true", help="also a grid of other plans")
    parser.add_argument("--launches", type=int, default=0, help="random launches to end with")
    parser.add_argument("--seed", type=int, default=0, help="of the random launches")
    parser.add_argument("-o", "--output", type=Path, help="file for the rows")
    options = parser.parse_args()
    started = time.monotonic()
    file = options.output.open("a") if options.output else None
    rows = []
    faulthandler.dump_traceback_later(4 * WATCHDOG_S, exit=True)
    groups = [
        group
        for group in GROUPS
        if (not options.cases or any(case in group.name for case in options.cases))
        and not any(case in group.name for case in options.skip)
    ]
    prepared = prepare(groups, options.plans)
    for group in groups:
        faulthandler.dump_traceback_later(4 * WATCHDOG_S, exit=True)
        measured = measure(group, prepared.pop(group.name), tuple(options.peers))
        torch.cuda.empty_cache()
        for row in measured:
            append(row, file)
        rows += measured
        print(f"\n{group.name:<34} {'plan':<22} {'us':>8} {'TB/s':>6} {'of read':>7} error")
        fastest = {
            row["contender"]
            for row in sorted((r for r in measured if r["kind"] == "probe"), key=lambda r: -r["bytes"] / r["time_s"])[:1]
        }
        for row in measured:
            if row["kind"] != "probe" or row["contender"] in fastest:
                print(line(row), flush=True)
    faulthandler.cancel_dump_traceback_later()
    print()
    for bar in bars(rows):
        print(bar, flush=True)
    if options.launches:
        random_launches(options.launches, options.seed)
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
