"""Chunked attention (Rabe and Staats, arXiv:2112.05682): naive attention over blocks of queries and keys.

Each block of ``q_chunk`` x ``kv_chunk`` pairs, all heads and equal sequences at once, takes three launches: scores (S of the
block to memory), softmax (P against the block's own row maximum, and that maximum and sum), values (P V, merged with the
fp32 output, maximum and sum carried from the key blocks before). Fully masked blocks are skipped. The point is the workspace:
one block of S and P instead of the whole matrices.
"""

from typing import NamedTuple

from roofline.cost import Cost, Launch, Traffic, ceil_div, sectors
from roofline.plan import DEFAULT_CHUNK, Plan
from roofline.problem import GroupedKV, Lengths, Problem
from roofline.variants.cached import cached_tensor

STATISTIC_BYTES = 8  # row maximum and row sum in fp32


class Blocks(NamedTuple):
    """``count`` equal blocks of ``rows`` queries by ``columns`` keys."""

    rows: int
    columns: int
    count: int  # type: ignore[assignment]  # shadows tuple.count


def cost(problem: Problem, plan: Plan) -> Cost:
    """Count chunked attention of ``problem``, one run of equal sequences after the other."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    q_chunk, kv_chunk = plan.q_chunk or DEFAULT_CHUNK[0], plan.kv_chunk or DEFAULT_CHUNK[1]
    heads, d, dv = problem.q_heads, kv.head_dim, kv.v_head_dim
    launches = score_tiles = q_tiles = rows_run = blank_rows = keys_run = q_reads = kv_reads = 0
    pairs_executed = elements = score_bytes = score_sectors = carried_rows = workspace = 0
    for lengths in problem.lengths:
        blocks = blocks_of(problem, lengths, q_chunk, kv_chunk)
        launches += sum(block.count for block in blocks)
        for rows, columns, blocks_of_size in blocks:
            count = blocks_of_size * lengths.count
            row_tiles, column_tiles = ceil_div(rows, plan.q_tile), ceil_div(columns, plan.kv_tile)
            score_tiles += count * row_tiles * column_tiles
            q_tiles += count * row_tiles
            rows_run += count * rows
            keys_run += count * columns
            q_reads += count * rows * column_tiles
            kv_reads += count * columns * row_tiles
            pairs_executed += count * row_tiles * plan.q_tile * column_tiles * plan.kv_tile
            elements += count * rows * columns
            score_bytes += count * rows * problem.row_bytes(columns) * heads
            score_sectors += count * rows * sectors(problem.row_bytes(columns)) * heads
        # A q chunk with b blocks reads and writes what it carries b - 1 times, and writes O once.
        run_rows = sum(block.rows * block.count for block in blocks)
        with_keys = rows_with_keys(problem, lengths, q_chunk) if blocks else 0
        carried = (run_rows - with_keys) * lengths.count
        carried_rows += carried
        blank_rows += (lengths.q_len - with_keys) * lengths.count
        block_bytes = max((block.rows * problem.row_bytes(block.columns) for block in blocks), default=0)
        row_state = STATISTIC_BYTES + (4 * dv + STATISTIC_BYTES if carried else 0)
        chunk_rows = min(q_chunk, lengths.q_len) if blocks else 0
        workspace = max(workspace, (2 * block_bytes + row_state * chunk_rows) * heads * lengths.count)
    pairs, visible = problem.pairs * heads, problem.visible_keys * kv.heads
    q_row, o_row, q_rows = problem.row_bytes(d), problem.row_bytes(dv), problem.q_tokens * heads
    statistics = STATISTIC_BYTES * rows_run * heads
    stored = 2 * sectors(STATISTIC_BYTES // 2) * rows_run * heads  # each row's CTA stores two single values
    carry = carried_rows * heads * (4 * dv + STATISTIC_BYTES)
    grid = max(launches, 1)

    def cached(tensor: str, width: int, ctas: int) -> tuple[Traffic, ...]:
        # Each block reads the rows of its key chunk; over all blocks only the rows that some query sees are distinct.
        distinct = max(keys_run * kv.heads, visible)
        once = visible * problem.kv_row_bytes(width)
        rows, *scales = cached_tensor(problem, tensor, width, distinct, max(kv_reads * heads, distinct), ctas, None)
        once_scales = visible * problem.scale_row_bytes(width) + problem.scale_tensor_bytes
        return rows._replace(tensor_bytes=once), *(scale._replace(tensor_bytes=once_scales) for scale in scales)

    # Rows of Q in chunks that run no block are an input still, and count once.
    q_read = Traffic(
        "Q",
        "input",
        read_bytes_min=(rows_run + blank_rows) * heads * q_row,
        sm_read_bytes=(q_reads + blank_rows) * heads * sectors(q_row),
        tensor_bytes=q_rows * q_row,
    )
    scores = Launch(
        "scores",
        ctas=ceil_div(score_tiles * heads, grid),
        count=launches,
        flops=2 * pairs * d,  # Q K^T
        flops_executed=2 * pairs_executed * heads * plan.head_dim_tile,
        traffic=(
            q_read,
            *cached("K", d, score_tiles * heads),
            Traffic("S", "intermediate", write_bytes_min=score_bytes, sm_write_bytes=score_sectors),
        ),
    )
    softmax = Launch(
        "softmax",
        ctas=ceil_div(rows_run * heads, grid),
        count=launches,
        exp_ops=pairs,
        vector_ops=4 * elements * heads,
        traffic=(
            Traffic("S", "intermediate", read_bytes_min=score_bytes, sm_read_bytes=score_sectors),
            Traffic("P", "intermediate", write_bytes_min=score_bytes, sm_write_bytes=score_sectors),
            Traffic("block_statistics", "intermediate", write_bytes_min=statistics, sm_write_bytes=stored),
        ),
    )
    values = Launch(
        "values",
        ctas=ceil_div(q_tiles * heads, grid),
        count=launches,
        flops=2 * pairs * dv,  # P V
        flops_executed=2 * pairs_executed * heads * plan.v_head_dim_tile,
        traffic=(
            Traffic("P", "intermediate", read_bytes_min=score_bytes, sm_read_bytes=score_sectors),
            Traffic("block_statistics", "intermediate", read_bytes_min=statistics, sm_read_bytes=statistics),
            *cached("V", dv, q_tiles * heads),
            Traffic("carry", "intermediate", carry, carry, carry, carry),
            Traffic("O", "output", write_bytes_min=q_rows * o_row, sm_write_bytes=q_rows * sectors(o_row)),
        ),
    )
    return Cost((scores, softmax, values), workspace)


def blocks_of(problem: Problem, lengths: Lengths, q_chunk: int, kv_chunk: int) -> list[Blocks]:
    """The blocks one head runs, by size: whole ones, and those cut by the end of the queries or of the keys."""
    q_len, kv_len, _ = lengths
    counted = problem.mask.tile_count(q_len, kv_len, q_chunk, kv_chunk)
    if counted.tiles == 0:
        return []
    rows, columns = (q_len - 1) % q_chunk + 1, (kv_len - 1) % kv_chunk + 1  # of the last chunk
    span = problem.mask.span(q_len, kv_len, kv_chunk, (counted.q_tiles - 1) * q_chunk, q_len - 1)
    kv_chunks = ceil_div(kv_len, kv_chunk)
    cut = (counted.tiles * kv_chunk - counted.kv_rows) // (kv_chunk - columns) if columns < kv_chunk else 0
    last, last_cut = span.last - span.first, int(columns < kv_chunk and span.last == kv_chunks)
    kinds = (
        Blocks(q_chunk, kv_chunk, counted.tiles - cut - (last - last_cut)),
        Blocks(q_chunk, columns, cut - last_cut),
        Blocks(rows, kv_chunk, last - last_cut),
        Blocks(rows, columns, last_cut),
    )
    return [kind for kind in kinds if kind.count]


def rows_with_keys(problem: Problem, lengths: Lengths, q_chunk: int) -> int:
    """Query rows in chunks that run at least one block; under a mask the chunks before key 0 run none."""
    if problem.mask.is_full:
        return lengths.q_len
    return lengths.q_len - max(lengths.q_len - lengths.kv_len, 0) // q_chunk * q_chunk
