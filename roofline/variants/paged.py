"""Paged decode (vLLM, arXiv:2309.06180): split-KV over a cache in pages, found through a page table.

Beside split-KV's traffic: an int32 table entry for each page that holds a visible key, read once per KV head by the splits
that own its tiles, and an int32 length a sequence, read by every CTA. Pages of a shared prefix are one copy for all
sequences, so their distinct bytes count once; SMs still read them for each sequence.
"""

from typing import NamedTuple

from roofline.cost import Cost, Sharing, Traffic, ceil_div, sectors
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem
from roofline.variants.cached import cached_tensor, window_edge_rows
from roofline.variants.split_kv import count_packed, packed_attention, split_tiles

INDEX_BYTES = 4


def cost(problem: Problem, plan: Plan) -> Cost:
    """Count paged decode of ``problem`` with pages of ``problem.page_size`` tokens."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    entries = table_sectors = 0

    def count_table(lengths: Lengths, tiles: int) -> None:
        nonlocal entries, table_sectors
        entries += lengths.count * visible_pages(problem, lengths)
        reads = table_reads(problem, plan, lengths, tiles)
        table_sectors += lengths.count * reads.row_tiles * (reads.splits * reads.split_bytes + reads.last_bytes)

    packed = count_packed(problem, plan, count_table)
    distinct = (problem.visible_keys - shared_keys(problem)) * kv.heads
    ctas = packed.ctas * kv.heads
    share = Sharing(problem.batch * kv.heads, max(ceil_div(packed.ctas, problem.batch), 1))
    shared_edge = shared_keys(problem, plan.kv_tile) - shared_keys(problem)
    edge = (window_edge_rows(problem, plan.kv_tile) - shared_edge) * kv.heads
    table, lengths_read = entries * INDEX_BYTES, problem.batch * INDEX_BYTES
    reads = (
        *cached_tensor(problem, "K", kv.head_dim, distinct, packed.kv_rows * kv.heads, ctas, share, edge),
        *cached_tensor(problem, "V", kv.v_head_dim, distinct, packed.kv_rows * kv.heads, ctas, share, edge),
        Traffic("page_table", "input", table, 0, max(table_sectors * kv.heads, table)),
        Traffic("kv_lengths", "input", lengths_read, 0, ctas * sectors(INDEX_BYTES)),
    )
    return packed_attention("paged", problem, plan, packed, reads, kv.head_dim, kv.v_head_dim)


class TableReads(NamedTuple):
    """How a KV head reads the table of a sequence: each row tile by ``splits`` with a full share, and a last one."""

    row_tiles: int
    splits: int
    split_bytes: int
    last_bytes: int


def table_reads(problem: Problem, plan: Plan, lengths: Lengths, tiles: int) -> TableReads:
    """A split looks up its pages tile by tile, and a sector stays in L1 until its eight entries are used."""

    def requested(share: int) -> int:
        return sectors(ceil_div(share * plan.kv_tile, problem.page_size) * INDEX_BYTES)

    row_tiles = ceil_div(lengths.q_len * problem.group, plan.q_tile)
    tiles_a_row = ceil_div(tiles, row_tiles)
    share = split_tiles(problem, plan) or max(ceil_div(tiles_a_row, plan.splits), 1)
    splits, rest = divmod(tiles_a_row, share)
    return TableReads(row_tiles, splits, requested(share), requested(rest))


def visible_pages(problem: Problem, lengths: Lengths) -> int:
    """Pages of one sequence that hold a key some query sees."""
    first = problem.mask.first_key(lengths.q_len, lengths.kv_len)
    return ceil_div(lengths.kv_len, problem.page_size) - first // problem.page_size


def shared_keys(problem: Problem, kv_tile: int = 1) -> int:
    """Visible keys that are stored once although several sequences see them: whole pages of the shared prefix.

    ``kv_tile``: and those before them in the first tile.
    """
    prefix = problem.shared_prefix // problem.page_size * problem.page_size
    seen, longest = 0, 0
    for q_len, kv_len, count in problem.lengths:
        first = problem.mask.first_key(q_len, kv_len) // kv_tile * kv_tile
        keys = max(prefix - first, 0)
        seen, longest = seen + count * keys, max(longest, keys)
    return seen - longest
