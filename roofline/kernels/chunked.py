"""Chunked attention (Rabe and Staats, arXiv:2112.05682): naive attention over blocks of queries and keys, merged in fp32.

A block is ``q_chunk`` x ``kv_chunk`` pairs of all heads and of a run of equal sequences. It takes three launches; S and P hold
one block. Blocks that the mask hides are skipped. The launches are those that ``variants.chunked`` counts.
"""

import torch
import triton
import triton.language as tl

from roofline.cost import ceil_div
from roofline.kernels import reference as references
from roofline.kernels.inputs import dense_inputs
from roofline.kernels.naive import weigh
from roofline.kernels.protocol import Inputs
from roofline.kernels.scores import MAX_COLUMNS, is_aligned, launch_scores, row_access, softmax_kernel
from roofline.kernels.support import MAX_INDEX, PRECISION, prefill_support
from roofline.kernels.tiles import load_fp32_rows, store_tile, window_of
from roofline.plan import DEFAULT_CHUNK, Plan
from roofline.problem import LatentKV, Lengths, Problem


@triton.jit
def merge_kernel(
    p, v, o, maxima, sums, carried_o, carried_maxima, carried_sums,
    q_tiles, q_heads, kv_heads, q_len, kv_len, q_first, k_first, rows, columns, chunk_rows,
    DV: tl.constexpr, DV_TILE: tl.constexpr, Q_TILE: tl.constexpr, KV_TILE: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr, ALIGNED: tl.constexpr, CACHE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Merge P V of a block with what the key blocks before it gave, one q tile a CTA. Grid: [sequences * q_heads * q_tiles].

    ``FIRST``: nothing is carried yet; ``LAST``: write O instead of the carry, which is [sequences, q_heads, chunk_rows, DV].
    """
    index = tl.program_id(0)
    tile, head = index % q_tiles, index // q_tiles
    sequence, row = (head // q_heads).to(tl.int64), tile * Q_TILE
    acc = weigh(
        p, v, sequence * (tl.cast(rows, tl.int64) * columns), head % q_heads, q_heads, sequence * kv_len + k_first, kv_heads,
        rows, columns, row, DV, DV_TILE, Q_TILE, KV_TILE, ALIGNED, CACHE, PRECISION,
    )  # fmt: skip
    in_block = row + tl.arange(0, Q_TILE)
    statistic = head.to(tl.int64) * rows + in_block
    peak = tl.load(maxima + statistic, in_block < rows, 0.0)
    total = tl.load(sums + statistic, in_block < rows, 1.0)
    carry = head.to(tl.int64) * chunk_rows + in_block
    columns_v = tl.arange(0, DV_TILE)
    carry_tile = carry[:, None] * DV + columns_v[None, :]
    inside = (in_block < rows)[:, None] & (columns_v < DV)[None, :]
    if not FIRST:
        old_peak = tl.load(carried_maxima + carry, in_block < rows, 0.0)
        old_total = tl.load(carried_sums + carry, in_block < rows, 0.0)
        old_acc = load_fp32_rows(
            carried_o + (head.to(tl.int64) * chunk_rows + row) * DV, rows - row, Q_TILE, DV, DV_TILE
        )  # fmt: skip
        higher = tl.maximum(peak, old_peak)
        origin = tl.where(higher == float("-inf"), 0.0, higher)  # a row that has seen no key yet
        kept, added = tl.exp(old_peak - origin), tl.exp(peak - origin)
        acc = old_acc * kept[:, None] + acc * added[:, None]
        total = old_total * kept + total * added
        peak = higher
    if LAST:
        share = 1.0 / tl.where(peak > float("-inf"), total, 1.0)  # a row without keys gives 0
        result = acc * share[:, None]
        store_tile(
            o, result.to(o.dtype.element_ty), 0, head % q_heads, sequence * q_len + q_first, row, rows, q_heads,
            Q_TILE, DV, DV_TILE, DV, False,
        )  # fmt: skip
    else:
        tl.store(carried_maxima + carry, peak, in_block < rows)
        tl.store(carried_sums + carry, total, in_block < rows)
        tl.store(carried_o + carry_tile, acc, inside)


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why ``problem`` cannot run (in tiles of ``plan``), or ``None``."""
    if isinstance(problem.kv, LatentKV):
        return "a latent KV cache runs as mla only"
    kv_chunk = DEFAULT_CHUNK[1] if plan is None or plan.kv_chunk is None else plan.kv_chunk
    if min(kv_chunk, max(lengths.kv_len for lengths in problem.lengths)) > MAX_COLUMNS:
        return f"the softmax holds a row of a block in one CTA, at most {MAX_COLUMNS} keys"
    if problem.q_tokens * problem.q_heads > MAX_INDEX:
        return "more than 2^31 rows"
    return prefill_support(problem, device, plan)


make_inputs = dense_inputs


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return softmax(Q K^T / sqrt(d_qk), mask) V, [q_tokens, q_heads, d_v]."""
    problem, (q, k, v) = inputs.problem, (inputs.tensors[name] for name in "qkv")
    out = q.new_empty((*q.shape[:2], v.shape[-1])) if out is None else out
    q_start = kv_start = 0
    for lengths in problem.lengths:
        q_end, kv_end = q_start + lengths.q_len * lengths.count, kv_start + lengths.kv_len * lengths.count
        queries, keys = slice(q_start, q_end), slice(kv_start, kv_end)
        _run(problem, plan, lengths, q[queries], k[keys], v[keys], out[queries])
        q_start, kv_start = q_end, kv_end
    return out


def _run(
    problem: Problem, plan: Plan, lengths: Lengths, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor
) -> None:
    """Compute ``out`` of equal sequences, block by block."""
    q_len, kv_len, count = lengths
    q_chunk, kv_chunk = plan.q_chunk or DEFAULT_CHUNK[0], plan.kv_chunk or DEFAULT_CHUNK[1]
    spans = [
        problem.mask.span(q_len, kv_len, kv_chunk, first, min(first + q_chunk, q_len) - 1) for first in range(0, q_len, q_chunk)
    ]
    chunk_rows, most = min(q_chunk, q_len), max(span.last - span.first for span in spans)
    if most == 0:
        out.zero_()
        return
    heads = count * problem.q_heads
    # A run's widest block is its first, unless that is its last.
    elements = max(
        min(q_chunk, q_len - chunk * q_chunk) * min(kv_chunk, kv_len - span.first * kv_chunk)
        for chunk, span in enumerate(spans)
        if span.last > span.first
    )
    s, p = (q.new_empty(heads * elements) for _ in range(2))
    maxima, sums = (q.new_empty(heads * chunk_rows, dtype=torch.float32) for _ in range(2))
    carry = [maxima] * 3
    if most > 1:
        carry = [q.new_empty(heads * chunk_rows * width, dtype=torch.float32) for width in (v.shape[-1], 1, 1)]
    window = window_of(problem.mask, max(q_len, kv_len))
    for chunk, span in enumerate(spans):
        q_first = chunk * q_chunk
        rows = min(q_chunk, q_len - q_first)
        if span.first == span.last:  # rows before the first key
            out.unflatten(0, (count, q_len))[:, q_first : q_first + rows].zero_()
        for block in range(span.first, span.last):
            k_first = block * kv_chunk
            columns = min(kv_chunk, kv_len - k_first)
            aligned = is_aligned(columns, q.element_size())
            launch_scores(
                problem, plan, q, k, s, q.shape[-1] ** -0.5, work=None, sequences=count, q_len=q_len, kv_len=kv_len,
                q_first=q_first, k_first=k_first, rows=rows, columns=columns, aligned=aligned,
            )  # fmt: skip
            access = row_access(problem, columns, q.element_size(), aligned, False)
            softmax_kernel[(heads * rows,)](
                s, p, maxima, sums, q, rows, problem.q_heads, q_len, kv_len, q_first, k_first, rows, columns, window,
                **access.constants, STATISTICS=True, num_warps=access.warps,
            )  # fmt: skip
            q_tiles = ceil_div(rows, plan.q_tile)
            merge_kernel[(heads * q_tiles,)](
                p, v, out, maxima, sums, *carry, q_tiles, problem.q_heads, k.shape[1],
                q_len, kv_len, q_first, k_first, rows, columns, chunk_rows,
                DV=v.shape[-1], DV_TILE=plan.v_head_dim_tile, Q_TILE=plan.q_tile, KV_TILE=plan.kv_tile,
                FIRST=block == span.first, LAST=block == span.last - 1, ALIGNED=aligned, CACHE=access.constants["CACHE"],
                PRECISION=PRECISION[problem.dtype.name], num_warps=plan.warps, num_stages=plan.stages,
            )  # fmt: skip


def reference(inputs: Inputs) -> torch.Tensor:
    """Return O in float64."""
    q, k, v = (inputs.tensors[name] for name in "qkv")
    return references.attention(q, k, v, inputs.problem)
