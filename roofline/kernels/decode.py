"""The kernel of split-KV and paged decode: flash attention over the packed query heads of one KV head and a run of kv tiles.

K and V are read once per KV head and row tile, straight to shared memory (16-byte asynchronous copies that bypass L1). Rows
beyond a sequence are not fetched. A cache in fewer bits is widened in registers (``widen``): int8 scales (one a token) multiply
the scores and the weights, fp8 scales (one a tensor) the softmax scale and the output. On Hopper up to 32 rows are the columns
of products whose rows are keys. Splits are combined by a launch that
starts beside this one and waits for it, or in a fused plan by the last CTA of each row tile; a counter a row tile, 0 between
launches, tells which that is. Launches over the same ``Inputs`` must not overlap.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from roofline.cost import ceil_div
from roofline.kernels import combine, packed, widen
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import HOPPER, LOG2_E
from roofline.kernels.support import PRECISION as PRECISIONS
from roofline.plan import MMA_ROWS, Plan, next_power_of_two
from roofline.problem import GroupedKV, Problem
from roofline.variants.split_kv import split_tiles

SCALES_NONE, SCALES_TENSOR, SCALES_TOKEN = 0, 1, 2
SCALES = {"fp8": SCALES_TENSOR, "int8": SCALES_TOKEN}
MOST_COMBINED = 1024  # partial values a warp: 32 registers a thread
SWAPPED_ROWS = 32
SM_REGISTERS, MOST_REGISTERS = 2**16, 255  # of an SM, of a thread
CONTIGUOUS = 0  # the page size of a cache without pages


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None) -> torch.Tensor:
    """Run decode over contiguous ``k`` and ``v``, or over the pages of ``table``; combine the splits if there are several."""
    problem, tensors = inputs.problem, inputs.tensors
    assert isinstance(problem.kv, GroupedKV)
    q = tensors["q"]
    if out is None:
        out = torch.empty((problem.q_tokens, problem.q_heads, problem.kv.v_head_dim), dtype=q.dtype, device=q.device)
    partial = lse = None
    if plan.splits > 1:
        partial, lse = combine.workspace(problem, plan, problem.kv.v_head_dim, q.device)
    for work in packed.work(problem, plan, q.device):
        decode[grid(problem, plan, work)](*arguments(inputs, plan, out, partial, lse, work), **constants(inputs, plan, work))
    if partial is not None and lse is not None and not plan.fused:
        combine.launch(problem, plan, partial, lse, out)
    return out


def grid(problem: Problem, plan: Plan, work: packed.Work) -> tuple[int, int, int]:
    """Return CTAs of a launch: (row tiles and KV heads, splits, sequences), or those of the list and KV heads."""
    if work.entries is not None:
        return work.ctas * problem.kv_heads, 1, 1
    return work.q_tiles * problem.kv_heads, plan.splits, problem.batch


def with_counters(inputs: Inputs) -> Inputs:
    """Return ``inputs`` with a counter for each row tile: how many of its splits are done; 0 before and after a launch."""
    problem = inputs.problem
    counters = torch.zeros(problem.q_tokens * problem.q_heads, dtype=torch.int32, device=inputs.tensors["q"].device)
    return Inputs(problem, {**inputs.tensors, "counters": counters})


def arguments(
    inputs: Inputs, plan: Plan, out: torch.Tensor, partial: torch.Tensor | None, lse: torch.Tensor | None, work: packed.Work
) -> tuple[Any, ...]:
    """Return the run-time arguments of ``decode``."""
    problem, tensors = inputs.problem, inputs.tensors
    paged = "table" in tensors
    assert isinstance(problem.kv, GroupedKV)
    k, v = (tensors[f"{name}_pages" if paged else name] for name in "kv")
    if in_pairs(inputs, work):
        k, v = k.view(torch.int16), v.view(torch.int16)
    return (
        tensors["q"],
        k,
        v,
        tensors.get("k_scale"),
        tensors.get("v_scale"),
        tensors.get("table"),
        tensors.get("kv_lengths"),
        out,
        partial,
        lse,
        tensors["counters"] if plan.fused and plan.splits > 1 else None,
        work.entries,
        work.q_len,
        work.kv_len,
        work.q_tiles,
        plan.splits,
        split_tiles(problem, plan) or ceil_div(ceil_div(work.kv_len, plan.kv_tile), plan.splits),
        problem.kv_tokens,
        tensors["table"].shape[1] if paged else 0,
        lse.shape[1] if lse is not None else 0,
        problem.mask.window or 0,
        problem.kv.head_dim**-0.5 * LOG2_E,
    )


def constants(inputs: Inputs, plan: Plan, work: packed.Work) -> dict[str, Any]:
    """Return the compile-time arguments of ``decode`` and its launch options."""
    problem = inputs.problem
    assert isinstance(problem.kv, GroupedKV)
    scales = SCALES.get(problem.kv_dtype.name, SCALES_NONE)
    swaps = is_swapped(inputs, plan, work)
    # Late, Q is an operand in registers: too many beside a warp group's rows, or beside what 8 bits take to widen.
    is_late = work.tile_rows < packed.WARPGROUP_ROWS and problem.dtype.bits == problem.kv_dtype.bits == 16 and not swaps
    return {
        "Q_TILE": plan.q_tile,
        "ROWS": work.tile_rows,
        "KV_TILE": plan.kv_tile,
        "D": problem.kv.head_dim,
        "DV": problem.kv.v_head_dim,
        "D_TILE": plan.head_dim_tile,
        "DV_TILE": plan.v_head_dim_tile,
        "KV_HEADS": problem.kv.heads,
        "GROUP": problem.group,
        "MASK": packed.mask_code(problem),
        "PAGE": problem.page_size if "table" in inputs.tensors else CONTIGUOUS,
        "SCALES": scales,
        "PAIRS": in_pairs(inputs, work),
        "SWAPPED": swaps,
        "LATE": is_late,
        "APPROXIMATE": not triton.knobs.runtime.interpret,
        "DEPENDENT": plan.splits > 1 and not plan.fused and combine.overlaps(),
        "SPLIT": plan.splits > 1,
        "FUSED": plan.fused,
        "COMBINED_ROWS": combined_rows(problem, work) if plan.fused else 1,
        "COMBINED_SPLITS": combined_splits(problem, plan, work) if plan.fused else 1,
        "EQUAL": work.entries is None,
        "ALONE": work.entries is None and work.q_tiles == 1,
        "DEFERRED": work.entries is None and work.tile_rows <= MMA_ROWS and problem.dtype.bits == 16,
        "DEALT": work.entries is None and problem.mask.is_full,
        "FIELDS": packed.FIELDS,
        "SPREAD": packed.must_spread(plan, work.tile_rows),
        "PRECISION": PRECISIONS[problem.dtype.name],
        "num_warps": plan.warps,
        "num_stages": plan.stages,
        "maxnreg": most_registers(problem, plan),
    }


def most_registers(problem: Problem, plan: Plan) -> int | None:
    """Return the bound on registers of a thread: all of them, where the CTAs that the plan puts on an SM then fit.

    Left alone, the compiler saves registers for one CTA more: it loads fragments later or spills, and three CTAs of an unequal
    batch share an SM, which end later than pairs do.
    """
    threads = plan.ctas_per_sm * plan.warps * 32
    return MOST_REGISTERS if problem.dtype.bits == 16 and threads * MOST_REGISTERS <= SM_REGISTERS else None


def in_pairs(inputs: Inputs, work: packed.Work) -> bool:
    """Whether the cache is read as pairs of 8-bit elements (see ``widen``)."""
    problem = inputs.problem
    assert isinstance(problem.kv, GroupedKV)
    return (
        problem.kv_dtype.bits == 8
        and problem.dtype.bits == 16
        and work.tile_rows < packed.WARPGROUP_ROWS
        and problem.kv.head_dim % 2 == problem.kv.v_head_dim % 2 == 0
        and not triton.knobs.runtime.interpret
    )


def is_swapped(inputs: Inputs, plan: Plan, work: packed.Work) -> bool:
    """Whether keys are the rows of the products and queries their columns.

    A product of a warp group has 64 rows, and 8 columns or more. It takes K and V from shared memory as they lie there, where
    ``mma.sync`` would take them, and the accumulator of 32 queries, through registers.
    """
    problem = inputs.problem
    return (
        problem.kv_dtype == problem.dtype
        and problem.dtype.bits == 16
        and work.tile_rows == SWAPPED_ROWS
        and plan.warps % 4 == 0
        and plan.kv_tile >= MMA_ROWS * plan.warps
        and plan.v_head_dim_tile >= packed.WARPGROUP_ROWS
        and (triton.knobs.runtime.interpret or on_hopper())
    )


def on_hopper() -> bool:
    """Whether the kernel is launched, or compiled, for the one architecture with products of warp groups."""
    target = triton.runtime.driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch == 10 * HOPPER[0] + HOPPER[1])


def combined_rows(problem: Problem, work: packed.Work) -> int:
    """Rows of a tile that hold queries, as a power of two."""
    return min(next_power_of_two(max(lengths.q_len for lengths in problem.lengths) * problem.group), work.tile_rows)


def combined_splits(problem: Problem, plan: Plan, work: packed.Work) -> int:
    """Splits that the last CTA of a row tile combines at once."""
    at_once = MOST_COMBINED * plan.warps // (combined_rows(problem, work) * plan.v_head_dim_tile)
    return max(min(next_power_of_two(plan.splits), at_once), 1)


@triton.jit
def decode(
    q, k, v, k_scale, v_scale, table, kv_lengths, out, partial, lse, counters, entries,
    q_len, kv_len, q_tiles, splits, split_tiles, kv_tokens, table_stride, lse_stride, window, softmax_scale,
    Q_TILE: tl.constexpr, ROWS: tl.constexpr, KV_TILE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, D_TILE: tl.constexpr,
    DV_TILE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, MASK: tl.constexpr, PAGE: tl.constexpr,
    SCALES: tl.constexpr, PAIRS: tl.constexpr, SWAPPED: tl.constexpr, LATE: tl.constexpr, DEPENDENT: tl.constexpr,
    SPLIT: tl.constexpr, FUSED: tl.constexpr, COMBINED_ROWS: tl.constexpr, COMBINED_SPLITS: tl.constexpr, EQUAL: tl.constexpr,
    ALONE: tl.constexpr, DEALT: tl.constexpr, DEFERRED: tl.constexpr, APPROXIMATE: tl.constexpr, FIELDS: tl.constexpr,
    SPREAD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One CTA: ``ROWS`` rows of one KV head of one sequence over one split; O, or partial O and log-sum-exp in base 2."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()  # the combine may take its place, and waits there for all of this launch
    kv_head = tl.program_id(0) if ALONE else tl.program_id(0) % KV_HEADS  # neighbours in memory and in the grid
    slot = tl.program_id(0) // KV_HEADS
    if EQUAL:
        sequence = tl.program_id(2)
        split = tl.program_id(1)
        first_row = 0 if ALONE else slot * Q_TILE
        row_tile = sequence if ALONE else sequence * q_tiles + slot
        q_start = sequence.to(tl.int64) * q_len
        kv_start = sequence.to(tl.int64) * kv_len
    else:
        q_start, q_len, kv_start, kv_len, first_row, split, sequence = packed.locate(
            slot, entries, q_len, kv_len, q_tiles, splits, Q_TILE, FIELDS, EQUAL
        )
        row_tile = tl.load(entries + slot.to(tl.int64) * FIELDS + 7).to(tl.int32)
    length = kv_len
    if PAGE != 0:
        # What the mask goes by. The host's number says which tiles and pages to ask for, so that nothing waits for this one.
        length = tl.load(kv_lengths + sequence)
        table += sequence.to(tl.int64) * table_stride
    first, end = packed.kv_span(q_len, kv_len, first_row, window, Q_TILE, KV_TILE, GROUP, MASK)
    if SPLIT:
        if FUSED:
            used = tl.maximum(tl.cdiv(end - first, split_tiles), 1)  # a row tile without keys has a split that writes zeros
        elif not DEALT:
            split_tiles = tl.cdiv(end - first, splits)
        first += split * split_tiles
        end = tl.minimum(first + split_tiles, end)
        if FUSED:
            if split >= used:
                return
        elif first >= end:
            return

    PACK: tl.constexpr = 2 if PAIRS else 1  # stored elements in one that is loaded
    OTHER: tl.constexpr = 0 if PAIRS else 0.0
    WIDTH: tl.constexpr = D // PACK
    V_WIDTH: tl.constexpr = DV // PACK
    rows = first_row + tl.arange(0, ROWS)
    dims = tl.arange(0, D_TILE // PACK)
    v_dims = tl.arange(0, DV_TILE // PACK)
    lanes = tl.arange(0, KV_TILE)
    inside_rows = rows < q_len * GROUP
    queries = rows // GROUP
    out_rows = (q_start + queries) * (KV_HEADS * GROUP) + kv_head * GROUP + rows % GROUP  # (token, head) as in Q and O
    COMPUTED: tl.constexpr = tl.float16 if SCALES == 1 else q.dtype.element_ty  # of the weights and V
    # Q is waited for once the first tiles of K and V are on their way.
    loaded = load_queries(q, out_rows, inside_rows, D, D_TILE, SCALES, PAIRS)
    even_queries, odd_queries, scale = prepare_queries(loaded, q.dtype.element_ty, k_scale, softmax_scale, SCALES, PAIRS)
    if LATE:
        even_queries = tl.zeros([ROWS, D_TILE], q.dtype.element_ty)

    peak = tl.full([ROWS], float("-inf"), tl.float32)
    if SWAPPED:
        total = tl.zeros([KV_TILE, ROWS], tl.float32)  # summed over keys at the end: a sum over keys is one over warps
        acc = tl.zeros([DV_TILE, ROWS], tl.float32)
    else:
        total = tl.zeros([ROWS, KV_TILE], tl.float32) if DEFERRED else tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, DV_TILE // PACK], tl.float32)
    odd_acc = tl.zeros([ROWS, DV_TILE // PACK], tl.float32)
    if PAGE == 0:
        k += ((kv_start + first * KV_TILE) * KV_HEADS + kv_head) * WIDTH
        v += ((kv_start + first * KV_TILE) * KV_HEADS + kv_head) * V_WIDTH
    else:
        k += kv_head * WIDTH
        v += kv_head * V_WIDTH
        # The pages of a tile are looked up one tile ahead: a lookup inside the loop would take a stage of the pipeline.
        pages = tl.load(table + (first * KV_TILE + lanes) // PAGE, mask=first * KV_TILE + lanes < kv_len, other=0)
    for tile in range(first, end):
        if LATE:  # noqa: SIM102 -- known at compile time
            if tile == first:
                even_queries = loaded
        keys = tile * KV_TILE + lanes
        inside = keys < kv_len
        if PAGE == 0:
            k_rows = k + lanes[:, None] * (KV_HEADS * WIDTH)
            v_rows = v + lanes[:, None] * (KV_HEADS * V_WIDTH)
            k += KV_TILE * KV_HEADS * WIDTH
            v += KV_TILE * KV_HEADS * V_WIDTH
            scale_rows = kv_head.to(tl.int64) * kv_tokens + kv_start + keys
        else:
            tokens = pages.to(tl.int64) * PAGE + keys % PAGE
            k_rows = k + tokens[:, None] * (KV_HEADS * WIDTH)
            v_rows = v + tokens[:, None] * (KV_HEADS * V_WIDTH)
            scale_rows = (pages.to(tl.int64) * KV_HEADS + kv_head) * PAGE + keys % PAGE
            pages = tl.load(table + (keys + KV_TILE) // PAGE, mask=(keys + KV_TILE < kv_len) & (tile + 1 < end), other=0)
        k_mask = inside[:, None] & (dims < WIDTH)[None, :]
        v_mask = inside[:, None] & (v_dims < V_WIDTH)[None, :]
        k_tile = tl.load(k_rows + dims[None, :], mask=k_mask, other=OTHER, cache_modifier=".cg")
        v_tile = tl.load(v_rows + v_dims[None, :], mask=v_mask, other=OTHER, cache_modifier=".cg")
        seen = packed.visible(keys, queries, q_len, length, window, MASK)
        if SWAPPED:
            peak, total, acc = swapped_step(k_tile, v_tile, even_queries, scale, tl.trans(seen), peak, total, acc)
        else:
            if PAIRS:
                even_keys, odd_keys = widen.pairs(k_tile, SCALES == 1, tl.float16)
                scores = tl.dot(even_queries, tl.trans(even_keys))
                scores = tl.dot(odd_queries, tl.trans(odd_keys), scores) * scale
            else:
                k_tile = tl.trans(k_tile.to(even_queries.dtype))
                scores = packed.scaled_product(even_queries, k_tile, scale, kv_len > 0, SPREAD, PRECISION)
            if SCALES == 2:
                scores *= tl.load(k_scale + scale_rows, mask=inside, other=0.0)[None, :]
            weights, rescale, peak = packed.tile_softmax(scores, seen, peak)
            total = total * rescale[:, None] + weights if DEFERRED else total * rescale + tl.sum(weights, 1)
            if SCALES == 2:
                weights *= tl.load(v_scale + scale_rows, mask=inside, other=0.0)[None, :]
            acc = acc * rescale[:, None]
            if PAIRS:
                even_values, odd_values = widen.pairs(v_tile, SCALES == 1, COMPUTED)
                odd_acc = odd_acc * rescale[:, None]
                acc = tl.dot(weights.to(COMPUTED), even_values, acc)
                odd_acc = tl.dot(weights.to(COMPUTED), odd_values, odd_acc)
            else:
                acc = tl.dot(weights.to(COMPUTED), v_tile.to(COMPUTED), acc, input_precision=PRECISION)

    if SWAPPED:
        total = tl.sum(total, 0)
        acc = tl.trans(acc)
    elif DEFERRED:
        total = tl.sum(total, 1)
    if PAIRS:
        acc = tl.interleave(acc, odd_acc)
    normaliser = tl.where(total > 0.0, total, 1.0)  # a row without keys gives 0
    acc = acc * (1.0 / normaliser)[:, None]
    if SCALES == 1:
        acc *= tl.load(v_scale)
    out_dims = tl.arange(0, DV_TILE)
    store_mask = inside_rows[:, None] & (out_dims < DV)[None, :]
    if SPLIT:  # noqa: SIM102 -- known at compile time
        if (not FUSED) or used > 1:
            part_rows = out_rows * splits + split
            tl.store(partial + part_rows[:, None] * DV + out_dims[None, :], acc, mask=store_mask)
            tl.store(lse + out_rows * lse_stride + split, peak + log2(normaliser, APPROXIMATE), mask=inside_rows)
            if FUSED:
                counter = counters + row_tile * KV_HEADS + kv_head
                tl.debug_barrier()  # what all threads stored comes before the one addition
                if tl.atomic_add(counter, 1, sem="acq_rel") == used - 1:
                    combine.combine_tile(
                        partial, lse, out, q_start, first_row, q_len, kv_head, used, splits, lse_stride, KV_HEADS, GROUP, DV,
                        DV_TILE, COMBINED_ROWS, COMBINED_SPLITS,
                    )  # fmt: skip
                    tl.store(counter, 0)  # as the next launch expects it
            return
    tl.store(out + out_rows[:, None] * DV + out_dims[None, :], acc.to(out.dtype.element_ty), mask=store_mask)


@triton.jit
def swapped_step(keys, values, queries, scale, seen, peak, total, acc):
    """Return (peak, total, acc) after one more tile, from scores [keys, rows]; ``acc`` is [values, rows].

    ``total`` [keys, rows] is summed at the end, since a sum over keys is one over warps.
    """
    scores = tl.where(seen, tl.dot(keys, tl.trans(queries)) * scale, float("-inf"))
    raised = tl.maximum(peak, tl.max(scores, 0))
    finite = tl.where(raised == float("-inf"), 0.0, raised)  # -inf - -inf is NaN
    weights = tl.exp2(scores - finite[None, :])
    rescale = tl.exp2(peak - finite)[None, :]
    acc = tl.dot(tl.trans(values), weights.to(values.dtype), acc * rescale)
    return raised, total * rescale + weights, acc


@triton.jit
def log2(value, APPROXIMATE: tl.constexpr):
    """Return log2 of numbers from 1 up, to 22 bits in one instruction where ``tl.log2`` takes fifty."""
    if APPROXIMATE:
        return tl.inline_asm_elementwise("lg2.approx.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return tl.log2(value)


@triton.jit
def load_queries(q, q_rows, inside_rows, D: tl.constexpr, D_TILE: tl.constexpr, SCALES: tl.constexpr, PAIRS: tl.constexpr):
    """Return the rows of Q; if the cache is in pairs, two neighbours as one word of 32 bits."""
    if PAIRS:
        dims = tl.arange(0, D_TILE // 2)
        words = q.to(tl.pointer_type(tl.uint32)) + q_rows[:, None] * (D // 2) + dims[None, :]
        return tl.load(words, mask=inside_rows[:, None] & (dims < D // 2)[None, :], other=0, cache_modifier=".cg")
    else:
        # Beside 8-bit keys in a tile of the same shape a thread gets 32 bytes of Q and asks for them in halves: L1 joins them.
        CACHE: tl.constexpr = ".cg" if SCALES == 0 else ""
        dims = tl.arange(0, D_TILE)
        mask = inside_rows[:, None] & (dims < D)[None, :]
        return tl.load(q + q_rows[:, None] * D + dims[None, :], mask=mask, other=0.0, cache_modifier=CACHE)


@triton.jit
def prepare_queries(loaded, ELEMENT: tl.constexpr, k_scale, softmax_scale, SCALES: tl.constexpr, PAIRS: tl.constexpr):
    """Return Q as an operand (its even and its odd columns, if the cache is in pairs), and what scales the scores."""
    if PAIRS:
        even = (loaded & 0xFFFF).to(tl.uint16).to(ELEMENT, bitcast=True).to(tl.float32)
        odd = (loaded >> 16).to(tl.uint16).to(ELEMENT, bitcast=True).to(tl.float32)
        sizes = tl.max(tl.maximum(tl.abs(even), tl.abs(odd)), 1)
        sizes = tl.where(sizes > 0.0, sizes, 1.0)
        even = (even / sizes[:, None]).to(tl.float16)
        odd = (odd / sizes[:, None]).to(tl.float16)
        scale = sizes * softmax_scale
    elif SCALES == 1:
        even, sizes = packed.half_range(loaded)
        odd = even
        scale = sizes * softmax_scale
    else:
        even = loaded
        odd = even
        scale = softmax_scale
    if SCALES == 1:
        scale *= tl.load(k_scale)
    if SCALES == 1 or PAIRS:
        scale = scale[:, None]
    return even, odd, scale
