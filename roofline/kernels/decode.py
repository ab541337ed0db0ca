"""The kernel of split-KV and paged decode: flash attention over the packed query heads of one KV head and a run of kv tiles.

K and V are read once per KV head and row tile, straight to shared memory (16-byte asynchronous copies that bypass L1). Rows
beyond a sequence are not fetched. A cache in fewer bits is widened to the compute dtype in registers: int8 scales (one a token)
multiply the scores and the weights, fp8 scales (one a tensor) the softmax scale and the output.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from roofline.kernels import combine, packed
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import PRECISION as PRECISIONS
from roofline.plan import Plan
from roofline.problem import GroupedKV

LOG2_E = 1.4426950408889634
SCALES_NONE, SCALES_TENSOR, SCALES_TOKEN = 0, 1, 2
SCALES = {"fp8": SCALES_TENSOR, "int8": SCALES_TOKEN}
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
        decode[(work.ctas * problem.kv_heads,)](
            *arguments(inputs, plan, out, partial, lse, work), **constants(inputs, plan, work)
        )
    if partial is not None and lse is not None:
        combine.launch(problem, plan, partial, lse, out)
    return out


def arguments(
    inputs: Inputs, plan: Plan, out: torch.Tensor, partial: torch.Tensor | None, lse: torch.Tensor | None, work: packed.Work
) -> tuple[Any, ...]:
    """Return the run-time arguments of ``decode``."""
    problem, tensors = inputs.problem, inputs.tensors
    paged = "table" in tensors
    assert isinstance(problem.kv, GroupedKV)
    return (
        tensors["q"],
        tensors["k_pages" if paged else "k"],
        tensors["v_pages" if paged else "v"],
        tensors.get("k_scale"),
        tensors.get("v_scale"),
        tensors.get("table"),
        tensors.get("kv_lengths"),
        out,
        partial,
        lse,
        work.entries,
        work.q_len,
        work.kv_len,
        work.q_tiles,
        plan.splits,
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
        "SCALES": SCALES.get(problem.kv_dtype.name, SCALES_NONE),
        "SPLIT": plan.splits > 1,
        "EQUAL": work.entries is None,
        "FIELDS": packed.FIELDS,
        "SPREAD": packed.must_spread(plan, work.tile_rows),
        "PRECISION": PRECISIONS[problem.dtype.name],
        "num_warps": plan.warps,
        "num_stages": plan.stages,
    }


@triton.jit
def decode(
    q, k, v, k_scale, v_scale, table, kv_lengths, out, partial, lse, entries,
    q_len, kv_len, q_tiles, splits, kv_tokens, table_stride, lse_stride, window, softmax_scale,
    Q_TILE: tl.constexpr, ROWS: tl.constexpr, KV_TILE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, D_TILE: tl.constexpr,
    DV_TILE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, MASK: tl.constexpr, PAGE: tl.constexpr,
    SCALES: tl.constexpr, SPLIT: tl.constexpr, EQUAL: tl.constexpr, FIELDS: tl.constexpr, SPREAD: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One CTA: ``ROWS`` rows of one KV head of one sequence over one split; O, or partial O and log-sum-exp in base 2."""
    kv_head = tl.program_id(0) % KV_HEADS
    slot = tl.program_id(0) // KV_HEADS  # KV heads are neighbours in memory and in the grid
    q_start, q_len, kv_start, kv_len, first_row, split, sequence = packed.locate(
        slot, entries, q_len, kv_len, q_tiles, splits, Q_TILE, FIELDS, EQUAL
    )
    if PAGE != 0:
        kv_len = tl.load(kv_lengths + sequence)
        table += sequence.to(tl.int64) * table_stride
    first, end = packed.kv_span(q_len, kv_len, first_row, window, Q_TILE, KV_TILE, GROUP, MASK)
    if SPLIT:
        per_split = tl.cdiv(end - first, splits)
        first += split * per_split
        end = tl.minimum(first + per_split, end)
        if first >= end:
            return

    rows = first_row + tl.arange(0, ROWS)
    dims = tl.arange(0, D_TILE)
    v_dims = tl.arange(0, DV_TILE)
    lanes = tl.arange(0, KV_TILE)
    inside_rows = rows < q_len * GROUP
    queries = rows // GROUP
    out_rows = (q_start + queries) * (KV_HEADS * GROUP) + kv_head * GROUP + rows % GROUP  # (token, head) as in Q and O
    # Beside 8-bit keys in a tile of the same shape a thread gets 32 bytes of Q and asks for them in halves: L1 joins them.
    CACHE: tl.constexpr = ".cg" if SCALES == 0 else ""
    q_mask = inside_rows[:, None] & (dims < D)[None, :]
    queries_tile = tl.load(q + out_rows[:, None] * D + dims[None, :], mask=q_mask, other=0.0, cache_modifier=CACHE)
    scale = softmax_scale
    if SCALES == 1:
        queries_tile, sizes = packed.half_range(queries_tile)
        scale = (sizes * (softmax_scale * tl.load(k_scale)))[:, None]

    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DV_TILE], tl.float32)
    if PAGE == 0:
        k += ((kv_start + first * KV_TILE) * KV_HEADS + kv_head) * D
        v += ((kv_start + first * KV_TILE) * KV_HEADS + kv_head) * DV
    else:
        k += kv_head * D
        v += kv_head * DV
        # The pages of a tile are looked up one tile ahead: a lookup inside the loop would take a stage of the pipeline.
        pages = tl.load(table + (first * KV_TILE + lanes) // PAGE, mask=first * KV_TILE + lanes < kv_len, other=0)
    for tile in range(first, end):
        keys = tile * KV_TILE + lanes
        inside = keys < kv_len
        if PAGE == 0:
            k_rows = k + lanes[:, None] * (KV_HEADS * D)
            v_rows = v + lanes[:, None] * (KV_HEADS * DV)
            k += KV_TILE * KV_HEADS * D
            v += KV_TILE * KV_HEADS * DV
            scale_rows = kv_head.to(tl.int64) * kv_tokens + kv_start + keys
        else:
            tokens = pages.to(tl.int64) * PAGE + keys % PAGE
            k_rows = k + tokens[:, None] * (KV_HEADS * D)
            v_rows = v + tokens[:, None] * (KV_HEADS * DV)
            scale_rows = (pages.to(tl.int64) * KV_HEADS + kv_head) * PAGE + keys % PAGE
            pages = tl.load(table + (keys + KV_TILE) // PAGE, mask=(keys + KV_TILE < kv_len) & (tile + 1 < end), other=0)
        k_mask = inside[:, None] & (dims < D)[None, :]
        v_mask = inside[:, None] & (v_dims < DV)[None, :]
        k_tile = tl.load(k_rows + dims[None, :], mask=k_mask, other=0.0, cache_modifier=".cg")
        v_tile = tl.load(v_rows + v_dims[None, :], mask=v_mask, other=0.0, cache_modifier=".cg")
        k_tile = tl.trans(k_tile.to(queries_tile.dtype))
        scores = packed.scaled_product(queries_tile, k_tile, scale, kv_len > 0, SPREAD, PRECISION)
        if SCALES == 2:
            scores *= tl.load(k_scale + scale_rows, mask=inside, other=0.0)[None, :]
        seen = packed.visible(keys, queries, q_len, kv_len, window, MASK)
        weights, rescale, peak, total = packed.online_softmax(scores, seen, peak, total)
        if SCALES == 2:
            weights *= tl.load(v_scale + scale_rows, mask=inside, other=0.0)[None, :]
        acc = acc * rescale[:, None]
        acc = tl.dot(weights.to(queries_tile.dtype), v_tile.to(queries_tile.dtype), acc, input_precision=PRECISION)

    normaliser = tl.where(total > 0.0, total, 1.0)  # a row without keys gives 0
    acc = acc / normaliser[:, None]
    if SCALES == 1:
        acc *= tl.load(v_scale)
    store_mask = inside_rows[:, None] & (v_dims < DV)[None, :]
    if SPLIT:
        part_rows = out_rows * splits + split
        tl.store(partial + part_rows[:, None] * DV + v_dims[None, :], acc, mask=store_mask)
        tl.store(lse + out_rows * lse_stride + split, peak + tl.log2(normaliser), mask=inside_rows)
    else:
        tl.store(out + out_rows[:, None] * DV + v_dims[None, :], acc.to(out.dtype.element_ty), mask=store_mask)
