"""The launches of attention that keeps S and P in memory: scores, scale, softmax. Naive attention runs them over whole
sequences, chunked attention over blocks of them.

S and P are [heads, rows, columns] a sequence, unpadded, in the compute dtype. A block is the ``rows`` queries from ``q_first``
and the ``columns`` keys from ``k_first`` of every sequence of a uniform batch.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from roofline.cost import SECTOR_BYTES, ceil_div
from roofline.kernels.support import PRECISION
from roofline.kernels.tiles import DESCRIPTOR_ALIGNMENT, load_tile, locate, visible
from roofline.plan import Plan, next_power_of_two
from roofline.problem import Problem

MAX_COLUMNS = 2**17  # of a row that one CTA of the softmax holds in registers
ELEMENTS_PER_THREAD = 32


@triton.jit
def scores_kernel(
    q, k, s, work, q_tiles, kv_tiles, q_heads, kv_heads, q_len, kv_len, q_first, k_first, rows, columns, scale,
    D: tl.constexpr, D_TILE: tl.constexpr, Q_TILE: tl.constexpr, KV_TILE: tl.constexpr,
    RAGGED: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """S = Q K^T scale, one output tile a CTA. Grid: [(sequences *) q_heads * q_tiles * kv_tiles], the kv tiles fastest.

    Ragged: ``q_tiles`` rows of ``work`` over whole sequences, and as many kv tiles as the longest needs; the rest returns.
    """
    index = tl.program_id(0)
    kv_tile, index = index % kv_tiles, index // kv_tiles
    item, head = index % q_tiles, index // q_tiles
    batch, head = head // q_heads, head % q_heads
    q_start, q_len, kv_start, kv_len, tile, s_start = locate(work, item, batch, item, q_len, kv_len, rows * columns, RAGGED)
    if RAGGED:
        rows, columns = q_len, kv_len
    row, column = tile * Q_TILE, kv_tile * KV_TILE
    if column < columns:
        q_start, kv_start = q_start + q_first, kv_start + k_first
        queries = load_tile(q, 0, head, q_start, row, rows, q_heads, Q_TILE, D, D_TILE, D, True, False)
        kv_head = head // (q_heads // kv_heads)
        keys = load_tile(k, 0, kv_head, kv_start, column, columns, kv_heads, KV_TILE, D, D_TILE, D, True, False)
        scores = tl.dot(queries, keys.T, input_precision=PRECISION) * scale
        if ALIGNED:
            columns = tl.multiple_of(columns, 8)
        target, inside = matrix_tile(s, s_start, head, q_heads, rows, columns, row, column, Q_TILE, KV_TILE)
        tl.store(target, scores.to(s.dtype.element_ty), inside)


@triton.jit
def matrix_tile(
    matrix, start, head, heads, rows, columns, row, column, Q_TILE: tl.constexpr, KV_TILE: tl.constexpr
):  # fmt: skip
    """Return pointers to a tile of S or P, and which lie inside; ``start``: pairs of a head in earlier sequences."""
    tile_rows, tile_columns = tl.arange(0, Q_TILE), tl.arange(0, KV_TILE)
    # In 64 bits up to the tile's first row: rows * columns of one head alone may pass 2^31.
    first = start * heads + head * (tl.cast(rows, tl.int64) * columns) + tl.cast(row, tl.int64) * columns + column
    pointers = matrix + first + (tile_rows.to(tl.int64) * columns)[:, None] + tile_columns[None, :]
    return pointers, (row + tile_rows < rows)[:, None] & (column + tile_columns < columns)[None, :]


@triton.jit
def scale_kernel(
    s, scaled, work, items, q_heads, q_len, kv_len, window, scale,
    COLUMNS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, RAGGED: tl.constexpr, ALIGNED: tl.constexpr,
    CACHE: tl.constexpr,
):  # fmt: skip
    """Scale S and set masked pairs to -inf, one row a CTA, as eager attention does in a launch of its own."""
    query, q_len, kv_len, start = _row(work, items, q_heads, q_len, kv_len, q_len, kv_len, RAGGED, ALIGNED)
    columns = tl.arange(0, COLUMNS)
    values = tl.load(s + start + columns, columns < kv_len, 0.0, cache_modifier=CACHE).to(tl.float32)
    seen = visible(query + tl.arange(0, 1), 0, columns, q_len, kv_len, window, CAUSAL, WINDOW).reshape([COLUMNS])
    values = tl.where(seen, values * scale, float("-inf"))
    tl.store(scaled + start + columns, values.to(scaled.dtype.element_ty), columns < kv_len)


@triton.jit
def softmax_kernel(
    s, p, maxima, sums, work, items, q_heads, q_len, kv_len, q_first, k_first, rows, row_columns, window,
    COLUMNS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, RAGGED: tl.constexpr, ALIGNED: tl.constexpr,
    CACHE: tl.constexpr, STATISTICS: tl.constexpr,
):  # fmt: skip
    """P = softmax(S) under the mask, one row a CTA.

    With ``STATISTICS`` P is not divided by its sum: the row's maximum and sum go to ``maxima`` and ``sums`` (fp32) instead.
    """
    query, q_len, kv_len, start = _row(work, items, q_heads, q_len, kv_len, rows, row_columns, RAGGED, ALIGNED)
    if RAGGED:
        row_columns = kv_len
    columns = tl.arange(0, COLUMNS)
    inside = columns < row_columns
    scores = tl.load(s + start + columns, inside, float("-inf"), cache_modifier=CACHE).to(tl.float32)
    if CAUSAL:
        seen = visible(q_first + query + tl.arange(0, 1), k_first, columns, q_len, kv_len, window, CAUSAL, WINDOW)
        scores = tl.where(seen.reshape([COLUMNS]), scores, float("-inf"))
    peak = tl.max(scores, 0)
    weights = tl.exp(scores - tl.where(peak == float("-inf"), 0.0, peak))
    total = tl.sum(weights, 0)
    if STATISTICS:
        tl.store(maxima + tl.program_id(0), peak)
        tl.store(sums + tl.program_id(0), total)
    else:
        weights = weights / tl.where(total > 0, total, 1.0)  # a row without keys gives 0
    tl.store(p + start + columns, weights.to(p.dtype.element_ty), inside)


@triton.jit
def _row(work, items, q_heads, q_len, kv_len, rows, columns, RAGGED: tl.constexpr, ALIGNED: tl.constexpr):
    """Return query, q_len, kv_len and the offset of its row of S. Grid, uniform: the rows of S; ragged: [q_heads * items]."""
    index = tl.program_id(0)
    query = index % rows
    start = index.to(tl.int64) * columns
    if RAGGED:
        head, item = index // items, index % items
        _, q_len, _, kv_len, query, s_start = locate(work, item, 0, item, q_len, kv_len, 0, RAGGED)
        start = s_start * q_heads + (head * tl.cast(q_len, tl.int64) + query) * kv_len
    if ALIGNED:
        start = tl.multiple_of(start, 8)
    return query, q_len, kv_len, start


class Rows(NamedTuple):
    """How the rows of S are read and written: compile-time constants of the kernels above, and warps for a row."""

    constants: dict[str, object]
    warps: int


def row_access(problem: Problem, columns: int, itemsize: int, aligned: bool, is_ragged: bool) -> Rows:
    """Return how rows of at most ``columns`` elements are read; ``aligned``: every row starts at 16 bytes."""
    width = max(next_power_of_two(max(columns, 1)), 16)
    whole_sectors = not is_ragged and columns * itemsize % SECTOR_BYTES == 0
    constants: dict[str, object] = {
        "COLUMNS": width, "CAUSAL": not problem.mask.is_full, "WINDOW": problem.mask.window is not None,
        "RAGGED": is_ragged, "ALIGNED": aligned, "CACHE": ".cg" if whole_sectors else "",
    }  # fmt: skip
    return Rows(constants, min(max(width // (32 * ELEMENTS_PER_THREAD), 4), 32))


def is_aligned(columns: int, itemsize: int) -> bool:
    """Whether rows of ``columns`` elements start at multiples of 16 bytes (and of 8 elements, as the kernels state it)."""
    return columns % 8 == 0 and columns * itemsize % DESCRIPTOR_ALIGNMENT == 0


def launch_scores(
    problem: Problem, plan: Plan, q: torch.Tensor, k: torch.Tensor, s: torch.Tensor, scale: float, *,
    work: torch.Tensor | None, sequences: int, q_len: int, kv_len: int, q_first: int, k_first: int, rows: int, columns: int,
    aligned: bool,
) -> None:  # fmt: skip
    """Launch ``scores_kernel`` over a block of uniform sequences, or with ``work`` over a ragged batch (sizes: the longest)."""
    kv_tiles = ceil_div(columns, plan.kv_tile)
    q_tiles = ceil_div(rows, plan.q_tile) if work is None else work.shape[0]
    scores_kernel[(sequences * problem.q_heads * q_tiles * kv_tiles,)](
        q, k, s, q if work is None else work, q_tiles, kv_tiles, problem.q_heads, k.shape[1],
        q_len, kv_len, q_first, k_first, rows, columns, scale,
        D=q.shape[-1], D_TILE=plan.head_dim_tile, Q_TILE=plan.q_tile, KV_TILE=plan.kv_tile,
        RAGGED=work is not None, ALIGNED=aligned, PRECISION=PRECISION[problem.dtype.name],
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip
