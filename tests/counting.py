"""A second, slow count of every variant, straight from the definitions: loops over queries, keys, tiles and CTAs.

It shares no code with ``roofline/masks.py`` or ``roofline/variants``: the closed forms there have to agree with these loops on
small problems. A count is a dictionary from (launch, tensor) to ``Bytes``, and the work of each launch.
"""

from collections.abc import Iterator
from typing import NamedTuple

from roofline.dtypes import DTYPES
from roofline.masks import Mask
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem

MASKS = (Mask(), Mask(causal=True), Mask(causal=True, window=1), Mask(causal=True, window=3), Mask(causal=True, window=40))


class Bytes(NamedTuple):
    """Distinct bytes read and written, and those that SMs request and write."""

    read: int = 0
    write: int = 0
    sm_read: int = 0
    sm_write: int = 0


def grouped(
    q_heads: int,
    kv_heads: int,
    d: int,
    lengths: list[tuple[int, int]],
    mask: Mask = Mask(),  # noqa: B008
    *,
    dv: int | None = None,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    **more: int,
) -> Problem:
    """A problem of a batch of ``(q_len, kv_len)``, each sequence a run of its own so that nothing is folded."""
    return Problem(
        q_heads,
        GroupedKV(kv_heads, d, d if dv is None else dv),
        tuple(Lengths(q_len, kv_len, 1) for q_len, kv_len in lengths),
        mask,
        DTYPES[dtype],
        DTYPES[kv_dtype or dtype],
        **more,
    )


def sees(mask: Mask, q_len: int, kv_len: int, query: int, key: int) -> bool:
    """Bottom-right alignment: query i sees keys up to kv_len - q_len + i, of those the last ``window``."""
    if not mask.causal and mask.window is None:
        return True
    newest = kv_len - q_len + query
    return key <= newest and (mask.window is None or key > newest - mask.window)


def seen_keys(mask: Mask, q_len: int, kv_len: int, queries: range) -> list[int]:
    """Keys that at least one of ``queries`` sees."""
    return [key for key in range(kv_len) if any(sees(mask, q_len, kv_len, query, key) for query in queries)]


def pairs(mask: Mask, q_len: int, kv_len: int) -> int:
    return sum(sees(mask, q_len, kv_len, query, key) for query in range(q_len) for key in range(kv_len))


def blocks(length: int, size: int) -> list[range]:
    return [range(start, min(start + size, length)) for start in range(0, length, size)]


def row_tiles(q_len: int, group: int, q_tile: int) -> Iterator[tuple[int, range]]:
    """Row tiles of one packed group as (rows, the queries in them): row = query * group + head."""
    for rows in blocks(q_len * group, q_tile):
        yield len(rows), range(rows[0] // group, rows[-1] // group + 1)


def tiles_run(mask: Mask, q_len: int, kv_len: int, queries: range, kv_tile: int) -> list[range]:
    """The kv tiles with at least one unmasked pair."""
    return [
        keys
        for keys in blocks(kv_len, kv_tile)
        if any(sees(mask, q_len, kv_len, query, key) for query in queries for key in keys)
    ]


def deal(tiles: list[range], splits: int, share: int | None = None) -> list[list[range]]:
    """Deal the tiles of one row tile out, ``share`` or ceil(tiles / splits) a split; splits without tiles are left out."""
    share = share or max(-(-len(tiles) // splits), 1)
    return [tiles[start : start + share] for start in range(0, len(tiles), share)]


def sector(num_bytes: int) -> int:
    return (num_bytes + 31) // 32 * 32


def flash(problem: Problem, plan: Plan) -> tuple[dict[str, Bytes], dict[str, int]]:
    """One CTA a query head and q tile; each streams the rows of K and V of its own tiles."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    bytes_of = {"Q": [0, 0], "K": [0, 0], "V": [0, 0], "O": [0, 0]}
    executed = useful = exponentials = ctas = 0
    q_row, o_row = kv.head_dim * problem.dtype.bits // 8, kv.v_head_dim * problem.dtype.bits // 8
    k_row, v_row = kv.head_dim * problem.kv_dtype.bits // 8, kv.v_head_dim * problem.kv_dtype.bits // 8
    for q_len, kv_len, count in problem.lengths:
        assert count == 1
        visible = len(seen_keys(problem.mask, q_len, kv_len, range(q_len)))
        bytes_of["K"][0] += kv.heads * visible * k_row
        bytes_of["V"][0] += kv.heads * visible * v_row
        for _head in range(problem.q_heads):
            useful += 2 * pairs(problem.mask, q_len, kv_len) * (kv.head_dim + kv.v_head_dim)
            exponentials += pairs(problem.mask, q_len, kv_len)
            for rows, queries in row_tiles(q_len, 1, plan.q_tile):
                ctas += 1
                for tensor, row in (("Q", q_row), ("O", o_row)):
                    bytes_of[tensor][0] += rows * row
                    bytes_of[tensor][1] += rows * sector(row)
                for keys in tiles_run(problem.mask, q_len, kv_len, queries, plan.kv_tile):
                    bytes_of["K"][1] += len(keys) * sector(k_row)
                    bytes_of["V"][1] += len(keys) * sector(v_row)
                    executed += plan.q_tile * plan.kv_tile
    traffic = {name: Bytes(read=least, sm_read=sm) for name, (least, sm) in bytes_of.items() if name != "O"}
    traffic["O"] = Bytes(write=bytes_of["O"][0], sm_write=bytes_of["O"][1])
    work = {
        "ctas": ctas,
        "flops": useful,
        "flops_executed": 2 * executed * (plan.head_dim_tile + plan.v_head_dim_tile),
        "exp_ops": exponentials,
        "vector_ops": 4 * executed,
    }
    return traffic, work


def split_kv(problem: Problem, plan: Plan) -> tuple[dict[str, Bytes], dict[str, int]]:
    """One CTA a kv head, packed row tile and split with work; partials and log-sum-exp in fp32 where there are splits.

    Fused, the longest row tile is dealt out ceil(tiles / splits) a split, and all others as many a split.
    """
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    group = problem.q_heads // kv.heads
    q_row, o_row = kv.head_dim * problem.dtype.bits // 8, kv.v_head_dim * problem.dtype.bits // 8
    k_row, v_row = kv.head_dim * problem.kv_dtype.bits // 8, kv.v_head_dim * problem.kv_dtype.bits // 8
    sums = dict.fromkeys(("K", "K_sm", "V", "V_sm", "Q_sm", "partial", "partial_sm", "lse", "lse_sm", "counted", "counters"), 0)
    executed = useful = exponentials = ctas = rows_in_all = 0
    longest = max(
        (
            len(tiles_run(problem.mask, q_len, kv_len, queries, plan.kv_tile))
            for q_len, kv_len, _count in problem.lengths
            for _rows, queries in row_tiles(q_len, group, plan.q_tile)
        ),
        default=0,
    )
    share = max(-(-longest // plan.splits), 1) if plan.fused else None
    for q_len, kv_len, _count in problem.lengths:
        visible = len(seen_keys(problem.mask, q_len, kv_len, range(q_len)))
        useful += problem.q_heads * 2 * pairs(problem.mask, q_len, kv_len) * (kv.head_dim + kv.v_head_dim)
        exponentials += problem.q_heads * pairs(problem.mask, q_len, kv_len)
        rows_in_all += q_len * problem.q_heads
        padded_rows = min(plan.q_tile, plan.tile_rows(q_len * group))
        for _kv_head in range(kv.heads):
            sums["K"] += visible * k_row
            sums["V"] += visible * v_row
            for rows, queries in row_tiles(q_len, group, plan.q_tile):
                splits = deal(tiles_run(problem.mask, q_len, kv_len, queries, plan.kv_tile), plan.splits, share)
                ctas += max(len(splits), 1)  # a row tile that sees nothing still writes zeros
                sums["Q_sm"] += max(len(splits), 1) * rows * sector(q_row)
                alone = plan.fused and len(splits) == 1  # writes O itself
                if plan.fused and len(splits) > 1:
                    sums["counted"] += len(splits)
                    sums["counters"] += 1
                for tiles in splits:
                    sums["partial"] += 0 if alone else rows * kv.v_head_dim * 4
                    sums["partial_sm"] += 0 if alone else rows * sector(kv.v_head_dim * 4)
                    sums["lse"] += 0 if alone else rows * 4
                    for keys in tiles:
                        sums["K_sm"] += len(keys) * sector(k_row)
                        sums["V_sm"] += len(keys) * sector(v_row)
                        executed += padded_rows * plan.kv_tile
                sums["lse_sm"] += 0 if alone else rows * sector(4 * len(splits))
    traffic = {
        "Q": Bytes(read=rows_in_all * q_row, sm_read=sums["Q_sm"]),
        "K": Bytes(read=sums["K"], sm_read=sums["K_sm"]),
        "V": Bytes(read=sums["V"], sm_read=sums["V_sm"]),
        "O": Bytes(write=rows_in_all * o_row, sm_write=rows_in_all * sector(o_row)),
    }
    if plan.splits > 1:
        traffic["partial_O"] = Bytes(sums["partial"], sums["partial"], sums["partial_sm"], sums["partial_sm"])
        traffic["partial_LSE"] = Bytes(sums["lse"], sums["lse"], sums["lse_sm"], sums["lse"] // 4 * 32)
        if plan.fused:
            # each CTA adds, and the last one of a row tile sets its counter back
            counters, counted = sums["counters"], sums["counted"]
            traffic["counters"] = Bytes(4 * counters, 4 * counters, 32 * counted, 32 * (counted + counters))
    work = {
        "ctas": ctas,
        "flops": useful,
        "flops_executed": 2 * executed * (plan.head_dim_tile + plan.v_head_dim_tile),
        "exp_ops": exponentials,
        "vector_ops": 4 * executed,
        # a partial a split, and the log-sum-exps of a row from a sector on
        "workspace": rows_in_all * (plan.splits * kv.v_head_dim * 4 + sector(plan.splits * 4)) if plan.splits > 1 else 0,
    }
    return traffic, work


def naive(problem: Problem, plan: Plan) -> tuple[dict[str, Bytes], dict[str, int]]:
    """The whole rectangle of every head: scores one CTA an output tile, softmax a CTA a row, values one a q tile."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    q_row, o_row = kv.head_dim * problem.dtype.bits // 8, kv.v_head_dim * problem.dtype.bits // 8
    k_row, v_row = kv.head_dim * problem.kv_dtype.bits // 8, kv.v_head_dim * problem.kv_dtype.bits // 8
    sums = dict.fromkeys(("Q", "Q_sm", "K", "K_sm", "V", "V_sm", "S", "S_sm", "O", "O_sm"), 0)
    executed = useful = score_ctas = value_ctas = 0
    for q_len, kv_len, _count in problem.lengths:
        sums["K"] += kv.heads * kv_len * k_row
        sums["V"] += kv.heads * kv_len * v_row
        for _head in range(problem.q_heads):
            useful += 2 * pairs(problem.mask, q_len, kv_len) * (kv.head_dim + kv.v_head_dim)
            s_row = kv_len * problem.dtype.bits // 8
            sums["S"] += q_len * s_row
            sums["S_sm"] += q_len * sector(s_row)
            sums["Q"] += q_len * q_row
            sums["O"] += q_len * o_row
            sums["O_sm"] += q_len * sector(o_row)
            if kv_len == 0:  # an input that no tile uses counts once
                sums["Q_sm"] += q_len * sector(q_row)
            for queries in blocks(q_len, plan.q_tile):
                value_ctas += 1
                sums["V_sm"] += kv_len * sector(v_row)
                for keys in blocks(kv_len, plan.kv_tile):
                    score_ctas += 1
                    executed += plan.q_tile * plan.kv_tile
                    sums["Q_sm"] += len(queries) * sector(q_row)
                    sums["K_sm"] += len(keys) * sector(k_row)
    matrix = Bytes(sums["S"], sums["S"], sums["S_sm"], sums["S_sm"])
    traffic = {
        "Q": Bytes(read=sums["Q"], sm_read=sums["Q_sm"]),
        "K": Bytes(read=sums["K"], sm_read=sums["K_sm"]),
        "V": Bytes(read=sums["V"], sm_read=sums["V_sm"]),
        "S": matrix,
        "P": matrix,
        "O": Bytes(write=sums["O"], sm_write=sums["O_sm"]),
    }
    if plan.passes == 6:
        traffic["S_scaled"] = matrix
    work = {
        "score_ctas": score_ctas,
        "value_ctas": value_ctas,
        "flops": useful,
        "flops_executed": 2 * executed * (plan.head_dim_tile + plan.v_head_dim_tile),
        "workspace": 2 * sums["S"],
    }
    return traffic, work


def chunked(problem: Problem, plan: Plan) -> tuple[dict[str, Bytes], dict[str, int]]:
    """Naive attention of each block with an unmasked pair; O, maximum and sum carried between the blocks of a q chunk."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    assert plan.q_chunk is not None
    assert plan.kv_chunk is not None
    heads = problem.q_heads
    q_row, o_row = kv.head_dim * problem.dtype.bits // 8, kv.v_head_dim * problem.dtype.bits // 8
    k_row, v_row = kv.head_dim * problem.kv_dtype.bits // 8, kv.v_head_dim * problem.kv_dtype.bits // 8
    sums = dict.fromkeys(("Q", "Q_sm", "K", "K_sm", "V", "V_sm", "S", "S_sm", "stats", "carry", "O", "O_sm"), 0)
    executed = useful = launches = workspace = 0
    for q_len, kv_len, _count in problem.lengths:
        useful += heads * 2 * pairs(problem.mask, q_len, kv_len) * (kv.head_dim + kv.v_head_dim)
        sums["O"] += heads * q_len * o_row
        sums["O_sm"] += heads * q_len * sector(o_row)
        largest, carries = 0, False
        for queries in blocks(q_len, plan.q_chunk):
            run = tiles_run(problem.mask, q_len, kv_len, queries, plan.kv_chunk)
            carries |= len(run) > 1
            if not run:  # an input that no block uses counts once
                sums["Q"] += heads * len(queries) * q_row
                sums["Q_sm"] += heads * len(queries) * sector(q_row)
            sums["carry"] += heads * max(len(run) - 1, 0) * len(queries) * (4 * kv.v_head_dim + 8)
            for keys in run:
                launches += 1
                s_row = len(keys) * problem.dtype.bits // 8
                largest = max(largest, len(queries) * s_row)
                sums["S"] += heads * len(queries) * s_row
                sums["S_sm"] += heads * len(queries) * sector(s_row)
                sums["stats"] += heads * len(queries) * 8
                sums["Q"] += heads * len(queries) * q_row
                sums["K"] += kv.heads * len(keys) * k_row
                sums["V"] += kv.heads * len(keys) * v_row
                for part in blocks(len(queries), plan.q_tile):
                    sums["V_sm"] += heads * len(keys) * sector(v_row)
                    for columns in blocks(len(keys), plan.kv_tile):
                        executed += heads * plan.q_tile * plan.kv_tile
                        sums["Q_sm"] += heads * len(part) * sector(q_row)
                        sums["K_sm"] += heads * len(columns) * sector(k_row)
        state = 8 + (4 * kv.v_head_dim + 8 if carries else 0)
        rows_held = min(plan.q_chunk, q_len) if largest else 0
        workspace = max(workspace, heads * (2 * largest + state * rows_held))
    matrix = Bytes(sums["S"], sums["S"], sums["S_sm"], sums["S_sm"])
    traffic = {
        "Q": Bytes(read=sums["Q"], sm_read=sums["Q_sm"]),
        "K": Bytes(read=sums["K"], sm_read=sums["K_sm"]),
        "V": Bytes(read=sums["V"], sm_read=sums["V_sm"]),
        "S": matrix,
        "P": matrix,
        "block_statistics": Bytes(*[sums["stats"]] * 3, sums["stats"] // 8 * 2 * 32),
        "carry": Bytes(*[sums["carry"]] * 4),
        "O": Bytes(write=sums["O"], sm_write=sums["O_sm"]),
    }
    work = {
        "launches": launches,
        "flops": useful,
        "flops_executed": 2 * executed * (plan.head_dim_tile + plan.v_head_dim_tile),
        "workspace": workspace,
    }
    return traffic, work
