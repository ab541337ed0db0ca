"""Split-KV decode (flash decoding): the query heads of a KV head share a tile, and parts of the keys run as CTAs of their own.

K and V are read once per KV head and row tile. With more than one split each writes an fp32 partial of O and its log-sum-exp.
A row tile's kv tiles are dealt out ``ceil(tiles / splits)`` a split, and a combine launch reads the partials. In a fused plan
each split has as many tiles as one of the longest row tile, and the last CTA of a row tile, which a counter tells, combines its
splits; a row tile that is one split writes O at once. The splits that are left without a tile move nothing, the workspace is
allocated for all. Source: "Flash-Decoding for long-context inference" (2023).
"""

from collections.abc import Callable
from typing import NamedTuple

from roofline.cost import Cost, Launch, Sharing, Traffic, ceil_div, sectors
from roofline.plan import Plan, filled_splits
from roofline.problem import GroupedKV, Lengths, Problem
from roofline.variants.cached import cached_tensor, window_edge_rows

PARTIAL_BYTES = 4  # partial outputs and log-sum-exps are fp32
COUNTER_BYTES = 4


class PackedRows(NamedTuple):
    """Counts of a packed launch, over the batch and one KV head.

    ``ctas``: row tiles times their splits with work (at least one); ``tiles``: q x kv tiles; ``executed_pairs``: pairs of those
    tiles run whole; ``kv_rows``: rows of K that they load; ``split_rows``: query rows times the splits that leave a partial of
    them; ``q_reads``: query rows as CTAs read them, once where no split works on them; ``lse_sectors``: bytes that a combine
    reads of the log-sum-exps of all rows, in sectors; ``counted``: CTAs of row tiles whose last one combines; ``counters``:
    those row tiles.
    """

    ctas: int
    tiles: int
    executed_pairs: int
    kv_rows: int
    split_rows: int
    q_reads: int
    lse_sectors: int
    counted: int
    counters: int


def cost(problem: Problem, plan: Plan) -> Cost:
    """Count split-KV decode of ``problem`` over a contiguous cache."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    packed = count_packed(problem, plan)
    visible = problem.visible_keys * kv.heads
    ctas = packed.ctas * kv.heads
    share = Sharing(problem.batch * kv.heads, max(ceil_div(packed.ctas, problem.batch), 1))
    edge = window_edge_rows(problem, plan.kv_tile) * kv.heads
    reads = (
        *cached_tensor(problem, "K", kv.head_dim, visible, packed.kv_rows * kv.heads, ctas, share, edge),
        *cached_tensor(problem, "V", kv.v_head_dim, visible, packed.kv_rows * kv.heads, ctas, share, edge),
    )
    return packed_attention("split-kv", problem, plan, packed, reads, kv.head_dim, kv.v_head_dim)


def packed_attention(
    name: str, problem: Problem, plan: Plan, packed: PackedRows, reads: tuple[Traffic, ...], d_qk: int, d_v: int
) -> Cost:
    """Return the attention launch over ``reads`` and, with more than one split and unless it is fused, the combine launch."""
    kv_heads = problem.kv_heads
    q_rows, pairs = problem.q_tokens * problem.q_heads, problem.pairs * problem.q_heads
    q_row, o_row = problem.row_bytes(d_qk), problem.row_bytes(d_v)
    executed_pairs = packed.executed_pairs * kv_heads
    split_rows = packed.split_rows * kv_heads
    output = Traffic("O", "output", 0, q_rows * o_row, 0, q_rows * sectors(o_row))
    partial, lse = split_rows * d_v * PARTIAL_BYTES, split_rows * PARTIAL_BYTES
    partial_sectors = split_rows * sectors(d_v * PARTIAL_BYTES)
    left = (
        Traffic("partial_O", "intermediate", 0, partial, 0, partial_sectors, at_end=True),
        # A value a row, in rows that are sectors apart.
        Traffic("partial_LSE", "intermediate", 0, lse, 0, split_rows * sectors(PARTIAL_BYTES), at_end=True),
    )
    combined = (
        Traffic("partial_O", "intermediate", partial, 0, partial_sectors, 0),
        Traffic("partial_LSE", "intermediate", lse, 0, max(packed.lse_sectors * kv_heads, lse), 0),
    )
    if plan.splits == 1:
        written: tuple[Traffic, ...] = (output,)
    elif plan.fused:
        counted, counters = packed.counted * kv_heads, packed.counters * kv_heads
        counter = Traffic(
            "counters",
            "intermediate",
            counters * COUNTER_BYTES,
            counters * COUNTER_BYTES,
            counted * sectors(COUNTER_BYTES),
            (counted + counters) * sectors(COUNTER_BYTES),  # the last CTA sets it back
        )
        both = (
            w._replace(read_bytes_min=r.read_bytes_min, sm_read_bytes=r.sm_read_bytes)
            for w, r in zip(left, combined, strict=True)
        )
        written = (*both, counter, output)
    else:
        written = left
    attention = Launch(
        name,
        ctas=packed.ctas * kv_heads,
        ctas_per_sm=plan.ctas_per_sm,
        flops=2 * pairs * (d_qk + d_v),  # Q K^T and P V over the unmasked pairs
        flops_executed=2 * executed_pairs * (plan.head_dim_tile + plan.v_head_dim_tile),
        exp_ops=pairs,
        vector_ops=4 * executed_pairs,
        # Every split of a row tile reads its rows of Q.
        traffic=(Traffic("Q", "input", q_rows * q_row, 0, packed.q_reads * kv_heads * sectors(q_row)), *reads, *written),
    )
    workspace_bytes = q_rows * workspace_row_bytes(plan.splits, d_v)
    if plan.splits == 1:
        return Cost((attention,))
    if plan.fused:
        return Cost((attention,), workspace_bytes)
    return Cost((attention, Launch("combine", ctas=q_rows, traffic=(*combined, output))), workspace_bytes)


def count_packed(problem: Problem, plan: Plan, per_sequence: Callable[[Lengths, int], None] | None = None) -> PackedRows:
    """Count tiles, rows and splits of a packed launch; ``per_sequence`` is told each run and the tiles of one sequence."""
    ctas = tiles = executed = kv_rows = split_rows = q_reads = lse_sectors = counted_ctas = counters = 0
    share = split_tiles(problem, plan)
    for lengths in problem.lengths:
        q_len, kv_len, count = lengths
        counted = problem.mask.tile_count(q_len, kv_len, plan.q_tile, plan.kv_tile, problem.group)
        rows = q_len * problem.group
        tiles += count * counted.tiles
        executed += count * counted.tiles * plan.tile_rows(rows) * plan.kv_tile
        kv_rows += count * counted.kv_rows
        if per_sequence is not None:
            per_sequence(lengths, counted.tiles)
        for tiles_of_row, rows_of_tile, row_tiles in _row_tiles(problem, plan, lengths):
            splits = working_splits(tiles_of_row, plan.splits, share)
            ctas += count * row_tiles * max(splits, 1)
            q_reads += count * row_tiles * rows_of_tile * max(splits, 1)
            partials = partials_left(splits, plan)
            split_rows += count * row_tiles * rows_of_tile * partials
            lse_sectors += count * row_tiles * rows_of_tile * sectors(PARTIAL_BYTES * partials)
            if plan.fused and partials:
                counted_ctas += count * row_tiles * partials
                counters += count * row_tiles
    return PackedRows(ctas, tiles, executed, kv_rows, split_rows, q_reads, lse_sectors, counted_ctas, counters)


def partials_left(splits: int, plan: Plan) -> int:
    """Partials that the working ``splits`` of a row tile leave: in a fused plan none where there is nothing to combine."""
    return 0 if plan.fused and splits == 1 else splits


def workspace_row_bytes(splits: int, d_v: int) -> int:
    """Bytes that one row of O needs of the workspace: a partial a split, and the log-sum-exps, which start on a sector."""
    return splits * d_v * PARTIAL_BYTES + sectors(splits * PARTIAL_BYTES)


def split_tiles(problem: Problem, plan: Plan) -> int | None:
    """Return the kv tiles of a split in a fused plan: those of the longest row tile, dealt out evenly over ``plan.splits``.

    ``None`` in other plans, where every row tile has its own tiles dealt out.
    """
    if not plan.fused:
        return None
    longest = 1
    for q_len, kv_len, _ in problem.lengths:
        if problem.mask.window is None:
            longest = max(longest, ceil_div(kv_len, plan.kv_tile))  # of the last row tile, which sees every key
            continue
        rows = q_len * problem.group
        for first in range(0, rows, plan.q_tile):
            last = min(first + plan.q_tile, rows) - 1
            span = problem.mask.span(q_len, kv_len, plan.kv_tile, first // problem.group, last // problem.group)
            longest = max(longest, span.last - span.first)
    return ceil_div(longest, plan.splits)


def working_splits(tiles: int, splits: int, share: int | None = None) -> int:
    """Splits that get a tile when ``tiles`` are dealt out ``share`` a split, or ``ceil(tiles / splits)``."""
    if not tiles:
        return 0
    return ceil_div(tiles, share) if share else filled_splits(tiles, splits)


def _row_tiles(problem: Problem, plan: Plan, lengths: Lengths) -> list[tuple[int, int, int]]:
    """Row tiles of one sequence and KV head as (kv tiles, rows, how many such row tiles)."""
    q_len, kv_len, _ = lengths
    rows = q_len * problem.group
    row_tiles, last_rows = ceil_div(rows, plan.q_tile), (rows - 1) % plan.q_tile + 1
    counted = problem.mask.tile_count(q_len, kv_len, plan.q_tile, plan.kv_tile, problem.group)
    if problem.mask.is_full or row_tiles == 1:
        tiles = counted.tiles // row_tiles
        return [(tiles, plan.q_tile, row_tiles - 1), (tiles, last_rows, 1)]
    if plan.splits == 1:
        # Without splits only the sums matter: every row tile that sees a key has one.
        last = problem.mask.span(q_len, kv_len, plan.kv_tile, (row_tiles - 1) * plan.q_tile // problem.group, q_len - 1)
        return [(1, plan.q_tile, row_tiles - 1), (last.last - last.first, last_rows, 1)]
    kinds = []
    for tile in range(row_tiles):
        first, end = tile * plan.q_tile, min((tile + 1) * plan.q_tile, rows)
        span = problem.mask.span(q_len, kv_len, plan.kv_tile, first // problem.group, (end - 1) // problem.group)
        kinds.append((span.last - span.first, end - first, 1))
    return kinds
