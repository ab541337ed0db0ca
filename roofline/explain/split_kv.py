"""Split-KV decode, and the packed launch that paged attention and absorbed MLA share with it."""

from collections.abc import Callable

from roofline.cost import sectors
from roofline.explain.counts import (
    FLOPS,
    keys_seen,
    pairs,
    per_run,
    query_tokens,
    row_bytes,
    row_sectors,
    rows_loaded,
    tiles,
    tiles_of_run,
)
from roofline.explain.flash import row_widths
from roofline.explain.formula import Factor, Formula, Quantity, larger, product
from roofline.explain.launches import Figures, Formulas, LaunchFormulas, cached, read, write
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem
from roofline.variants.split_kv import (
    COUNTER_BYTES,
    PARTIAL_BYTES,
    PackedRows,
    count_packed,
    partials_left,
    split_tiles,
    working_splits,
    workspace_row_bytes,
)


def formulas(problem: Problem, plan: Plan) -> Formulas:
    """Attention over a contiguous cache and, with more than one split, the launch that combines the partials."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    packed, seen, loaded = count_packed(problem, plan), keys_seen(problem), loaded_rows(problem, plan)
    kv_heads = Factor("KV heads", kv.heads)
    reads = grouped_reads(problem, kv, (seen.factor, kv_heads), (loaded.factor, kv_heads), packed)
    explained = packed_attention("split-kv", problem, plan, packed, reads, kv.head_dim, kv.v_head_dim)
    quantities = (*explained.quantities, seen, loaded, *row_widths(problem, kv.head_dim, kv.v_head_dim))
    return Formulas(quantities, explained.launches, explained.workspace)


def grouped_reads(
    problem: Problem, kv: GroupedKV, stored: tuple[Factor, ...], loaded: tuple[Factor, ...], packed: PackedRows
) -> dict[str, Figures]:
    """Reads of K and V, once per KV head and row tile."""
    ctas = (Factor("CTAs of a KV head", packed.ctas), Factor("KV heads", kv.heads))
    return {
        **cached(problem, "K", kv.head_dim, stored, loaded, ctas),
        **cached(problem, "V", kv.v_head_dim, stored, loaded, ctas),
    }


def loaded_rows(problem: Problem, plan: Plan) -> Quantity:
    """Rows of K that the packed tiles of one KV head load."""
    return rows_loaded(problem, plan.q_tile, plan.kv_tile, problem.group)


def packed_attention(
    name: str, problem: Problem, plan: Plan, packed: PackedRows, reads: dict[str, Figures], d_qk: int, d_v: int
) -> Formulas:
    """Formulas of ``split_kv.packed_attention``."""
    heads, kv_heads, group = Factor("query heads", problem.q_heads), Factor("KV heads", problem.kv_heads), problem.group
    queries, seen_pairs = query_tokens(problem), pairs(problem)
    run = tiles(problem, plan.q_tile, plan.kv_tile, group)

    def whole(lengths: Lengths) -> Formula:
        rows = plan.tile_rows(lengths.q_len * group)
        tiles_run = tiles_of_run(problem.mask, lengths, plan.q_tile, plan.kv_tile, group)
        return tiles_run.times(Factor("rows", rows), Factor("keys", plan.kv_tile))

    tiled = Quantity(
        "pairs in tiles",
        f"pairs of the tiles of a KV head: {group} query head{'s' * (group > 1)} a tile, rows padded to the tile launched",
        per_run(problem, whole),
    )
    split_rows, q_reads = _split_rows(problem, plan, packed), _q_reads(problem, plan, packed)
    q_rows, partial_rows = (queries.factor, heads), (split_rows.factor, kv_heads)
    executed = (tiled.factor, kv_heads)
    output = write(q_rows, problem.row_bytes(d_v))
    left: dict[str, Figures] = {
        "partial_O": write(partial_rows, d_v * PARTIAL_BYTES),
        "partial_LSE": {
            "write_bytes_min": product(*partial_rows, row_bytes(PARTIAL_BYTES)),
            "sm_write_bytes": product(*partial_rows, row_sectors(PARTIAL_BYTES)),
        },
    }
    work: Figures = {
        "flops": product(FLOPS, seen_pairs.factor, heads, ("(d_qk + d_v)", d_qk + d_v)),
        "flops_executed": product(FLOPS, *executed, ("padded (d_qk + d_v)", plan.head_dim_tile + plan.v_head_dim_tile)),
        "exp_ops": product(seen_pairs.factor, heads),
        "vector_ops": product(("operations", 4), *executed),
    }
    q_read = read(q_rows, problem.row_bytes(d_qk), (q_reads.factor, kv_heads))
    quantities = (queries, seen_pairs, run, tiled, split_rows, q_reads)
    if plan.splits == 1:
        return Formulas(quantities, (LaunchFormulas(name, work, {"Q": q_read, **reads, "O": output}),))
    lse_sectors = Quantity(
        "B of LSE in sectors",
        "what a combine reads of the log-sum-exps of a KV head: 4 B a split, each row in whole 32-byte sectors",
        _lse_sectors(problem, plan, packed),
    )
    lse_read = product(*partial_rows, row_bytes(PARTIAL_BYTES))
    lse_requested = larger(product(lse_sectors.factor, kv_heads), lse_read)
    combined: dict[str, Figures] = {
        "partial_O": read(partial_rows, d_v * PARTIAL_BYTES),
        "partial_LSE": {"read_bytes_min": lse_read, "sm_read_bytes": lse_requested},
    }
    partials = product(*q_rows, ("splits", plan.splits), ("d_v", d_v), ("B", PARTIAL_BYTES))
    workspace = partials + product(*q_rows, ("B a row of LSE in sectors", workspace_row_bytes(plan.splits, 0)))
    if plan.fused:
        both = {tensor: {**left[tensor], **combined[tensor]} for tensor in left}
        counters = _counters(packed, kv_heads)
        fused = LaunchFormulas(name, work, {"Q": q_read, **reads, **both, "counters": counters, "O": output})
        return Formulas((*quantities, lse_sectors), (fused,), workspace)
    attention = LaunchFormulas(name, work, {"Q": q_read, **reads, **left})
    combine = LaunchFormulas("combine", {}, {**combined, "O": output})
    return Formulas((*quantities, lse_sectors), (attention, combine), workspace)


def _counters(packed: PackedRows, kv_heads: Factor) -> Figures:
    """Each CTA adds to the counter of its row tile, and the last one sets it back."""
    counters = product(("row tiles with splits to combine", packed.counters), kv_heads, ("B", COUNTER_BYTES))
    added = product(("CTAs that count", packed.counted), kv_heads, row_sectors(COUNTER_BYTES))
    reset = product(("row tiles with splits to combine", packed.counters), kv_heads, row_sectors(COUNTER_BYTES))
    return {
        "read_bytes_min": counters,
        "write_bytes_min": counters,
        "sm_read_bytes": added,
        "sm_write_bytes": added + reset,
    }


def _is_single_tile(problem: Problem, plan: Plan) -> bool:
    return all(lengths.q_len * problem.group <= plan.q_tile for lengths in problem.lengths)


def _splits(problem: Problem, plan: Plan, lengths: Lengths) -> int:
    counted = problem.mask.tile_count(lengths.q_len, lengths.kv_len, plan.q_tile, plan.kv_tile, problem.group)
    return working_splits(counted.tiles, plan.splits, split_tiles(problem, plan))


def _split_rows(problem: Problem, plan: Plan, packed: PackedRows) -> Quantity:
    meaning = "rows (query × head) of a KV head, once per split that leaves a partial of them"

    def partials(splits: int) -> int:
        return partials_left(splits, plan)

    return Quantity("split rows", meaning, _rows_by_split(problem, plan, partials, packed.split_rows))


def _q_reads(problem: Problem, plan: Plan, packed: PackedRows) -> Quantity:
    meaning = "rows of Q as the CTAs of a KV head read them: once per split, at least once"
    return Quantity("Q rows loaded", meaning, _rows_by_split(problem, plan, lambda splits: max(splits, 1), packed.q_reads))


def _rows_by_split(problem: Problem, plan: Plan, times: Callable[[int], int], counted: int) -> Formula:
    """Rows times the splits that work on them; a product a sequence where its rows are one tile."""
    if not _is_single_tile(problem, plan):
        return product(("rows, summed over row tiles and their splits", counted))

    def rows(lengths: Lengths) -> Formula:
        heads, splits = ("query heads of the KV head", problem.group), times(_splits(problem, plan, lengths))
        return product(("queries", lengths.q_len), heads, ("splits with work", splits))

    return per_run(problem, rows)


def _lse_sectors(problem: Problem, plan: Plan, packed: PackedRows) -> Formula:
    if not _is_single_tile(problem, plan):
        return product(("B, summed over row tiles", packed.lse_sectors))

    def size(lengths: Lengths) -> Formula:
        row_size = sectors(PARTIAL_BYTES * partials_left(_splits(problem, plan, lengths), plan))
        return product(("queries", lengths.q_len), ("query heads of the KV head", problem.group), ("B a row", row_size))

    return per_run(problem, size)
