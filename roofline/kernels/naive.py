"""Naive attention: S = Q K^T and P = softmax(S) pass through memory, in three launches; eager, scale and mask are a fourth.

The whole rectangle is computed whatever the mask; masks hide pairs in the softmax (or the scale launch). The launches are those
that ``variants.naive`` counts.
"""

import torch
import triton
import triton.language as tl

from roofline.cost import ceil_div
from roofline.kernels import reference as references
from roofline.kernels.inputs import dense_inputs
from roofline.kernels.protocol import Inputs
from roofline.kernels.scores import (
    MAX_COLUMNS,
    is_aligned,
    launch_scores,
    matrix_tile,
    row_access,
    scale_kernel,
    softmax_kernel,
)
from roofline.kernels.support import MAX_INDEX, PRECISION, prefill_support
from roofline.kernels.tiles import load_tile, locate, store_tile, window_of, work_items
from roofline.plan import Plan
from roofline.problem import LatentKV, Problem


@triton.jit
def values_kernel(
    p, v, o, work, q_tiles, q_heads, kv_heads, q_len, kv_len,
    DV: tl.constexpr, DV_TILE: tl.constexpr, Q_TILE: tl.constexpr, KV_TILE: tl.constexpr,
    RAGGED: tl.constexpr, ALIGNED: tl.constexpr, CACHE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O = P V, one q tile a CTA. Grid: [(sequences *) q_heads * q_tiles]; ragged: ``q_tiles`` rows of ``work``."""
    index = tl.program_id(0)
    item, head = index % q_tiles, index // q_tiles
    batch, head = head // q_heads, head % q_heads
    pairs = tl.cast(q_len, tl.int64) * kv_len
    q_start, q_len, kv_start, kv_len, tile, p_start = locate(work, item, batch, item, q_len, kv_len, pairs, RAGGED)
    row = tile * Q_TILE
    acc = weigh(
        p, v, p_start, head, q_heads, kv_start, kv_heads, q_len, kv_len, row,
        DV, DV_TILE, Q_TILE, KV_TILE, ALIGNED, CACHE, PRECISION,
    )  # fmt: skip
    store_tile(
        o, acc.to(o.dtype.element_ty), 0, head, q_start, row, q_len, q_heads, Q_TILE, DV, DV_TILE, DV, False
    )  # fmt: skip


@triton.jit
def weigh(
    p, v, p_start, head, q_heads, kv_start, kv_heads, rows, columns, row,
    DV: tl.constexpr, DV_TILE: tl.constexpr, Q_TILE: tl.constexpr, KV_TILE: tl.constexpr,
    ALIGNED: tl.constexpr, CACHE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return rows ``row`` .. of P V in fp32 [Q_TILE, DV_TILE], over the ``columns`` keys from token ``kv_start``."""
    acc = tl.zeros([Q_TILE, DV_TILE], tl.float32)
    kv_head = head // (q_heads // kv_heads)
    if ALIGNED:
        columns = tl.multiple_of(columns, 8)
        p_start = tl.multiple_of(p_start, 8)
    for column in tl.range(0, columns, KV_TILE):
        source, inside = matrix_tile(p, p_start, head, q_heads, rows, columns, row, column, Q_TILE, KV_TILE)
        weights = tl.load(source, inside, 0.0, cache_modifier=CACHE)
        values = load_tile(v, 0, kv_head, kv_start, column, columns, kv_heads, KV_TILE, DV, DV_TILE, DV, True, False)
        acc = tl.dot(weights, values, acc, input_precision=PRECISION)
    return acc


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why ``problem`` cannot run (in tiles of ``plan``), or ``None``."""
    if isinstance(problem.kv, LatentKV):
        return "a latent KV cache runs as mla only"
    if max(lengths.kv_len for lengths in problem.lengths) > MAX_COLUMNS:
        return f"the softmax holds a row in one CTA, at most {MAX_COLUMNS} keys"
    if problem.q_tokens * problem.q_heads > MAX_INDEX:
        return "more than 2^31 rows"
    return prefill_support(problem, device, plan)


make_inputs = dense_inputs


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return softmax(Q K^T / sqrt(d_qk), mask) V, [q_tokens, q_heads, d_v]."""
    problem, (q, k, v) = inputs.problem, (inputs.tensors[name] for name in "qkv")
    out = q.new_empty((*q.shape[:2], v.shape[-1])) if out is None else out
    elements = sum(lengths.count * lengths.q_len * lengths.kv_len for lengths in problem.lengths) * problem.q_heads
    if elements == 0:
        return out.zero_()
    first, second = q.new_empty(elements), q.new_empty(elements)
    six, scale = plan.passes == 6, q.shape[-1] ** -0.5
    is_ragged = len(problem.lengths) > 1
    aligned = all(is_aligned(lengths.kv_len, q.element_size()) for lengths in problem.lengths)
    q_len, kv_len = (max(lengths[axis] for lengths in problem.lengths) for axis in (0, 1))
    tiles = work_items(problem.lengths, plan.q_tile, False, q.device) if is_ragged else None
    rows = work_items(problem.lengths, 1, False, q.device) if is_ragged else None
    sequences = 1 if is_ragged else problem.batch
    launch_scores(
        problem, plan, q, k, first, 1.0 if six else scale, work=tiles, sequences=sequences, q_len=q_len, kv_len=kv_len,
        q_first=0, k_first=0, rows=q_len, columns=kv_len, aligned=aligned,
    )  # fmt: skip
    access = row_access(problem, kv_len, q.element_size(), aligned, is_ragged)
    window, grid = window_of(problem.mask, max(q_len, kv_len)), (problem.q_tokens * problem.q_heads,)
    sizes = (q if rows is None else rows, problem.q_tokens, problem.q_heads, q_len, kv_len)
    s, p = first, second
    constants = access.constants
    if six:
        scale_kernel[grid](first, second, *sizes, window, scale, **constants, num_warps=access.warps)
        s, p, constants = second, first, {**constants, "CAUSAL": False, "WINDOW": False}
    softmax_kernel[grid](
        s, p, q, q, *sizes, 0, 0, q_len, kv_len, window, **constants, STATISTICS=False, num_warps=access.warps
    )  # fmt: skip
    q_tiles = tiles.shape[0] if tiles is not None else ceil_div(q_len, plan.q_tile)
    values_kernel[(sequences * problem.q_heads * q_tiles,)](
        p, v, out, q if tiles is None else tiles, q_tiles, problem.q_heads, k.shape[1], q_len, kv_len,
        DV=v.shape[-1], DV_TILE=plan.v_head_dim_tile, Q_TILE=plan.q_tile, KV_TILE=plan.kv_tile,
        RAGGED=is_ragged, ALIGNED=aligned, CACHE=access.constants["CACHE"], PRECISION=PRECISION[problem.dtype.name],
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip
    return out


def reference(inputs: Inputs) -> torch.Tensor:
    """Return O in float64."""
    q, k, v = (inputs.tensors[name] for name in "qkv")
    return references.attention(q, k, v, inputs.problem)
