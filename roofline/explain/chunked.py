"""Chunked attention: naive attention over blocks of queries and keys, with what is carried from block to block."""

from collections.abc import Callable

from roofline.cost import ceil_div, sectors
from roofline.explain.counts import FLOPS, keys_seen, pairs, query_tokens, row_sectors
from roofline.explain.flash import row_widths
from roofline.explain.formula import Factor, Formula, Quantity, larger, minus, product, total
from roofline.explain.launches import Figures, Formulas, LaunchFormulas, cached, most, read, scales, write
from roofline.plan import DEFAULT_CHUNK, Plan
from roofline.problem import GroupedKV, Lengths, Problem
from roofline.variants.chunked import STATISTIC_BYTES, Blocks, blocks_of, rows_with_keys

STATISTICS = Factor("B of maximum and sum", STATISTIC_BYTES)


def formulas(problem: Problem, plan: Plan) -> Formulas:
    """Scores, softmax and values of every block."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    heads, kv_heads, d, dv = Factor("query heads", problem.q_heads), Factor("KV heads", kv.heads), kv.head_dim, kv.v_head_dim
    q_chunk, kv_chunk = plan.q_chunk or DEFAULT_CHUNK[0], plan.kv_chunk or DEFAULT_CHUNK[1]
    runs = [(run, blocks_of(problem, run, q_chunk, kv_chunk)) for run in problem.lengths]

    def over_blocks(symbol: str, meaning: str, factors: Callable[[Blocks], tuple[tuple[str, int], ...]]) -> Quantity:
        terms = [
            product(("sequences", run.count), ("blocks", block.count), *factors(block))
            for run, blocks in runs
            for block in _joined(blocks)
        ]
        return Quantity(symbol, meaning, total(terms))

    def grid(block: Blocks) -> tuple[int, int]:
        return ceil_div(block.rows, plan.q_tile), ceil_div(block.columns, plan.kv_tile)

    def score_row(block: Blocks) -> int:
        return problem.row_bytes(block.columns)

    queries, seen, seen_pairs = query_tokens(problem), keys_seen(problem), pairs(problem)
    rows_run = over_blocks("block rows", "rows of the blocks that a head runs", lambda b: (("queries", b.rows),))
    keys_run = over_blocks("block keys", "keys of the blocks that a head runs", lambda b: (("keys", b.columns),))
    q_tiles = over_blocks("q tiles", "q tiles of those blocks", lambda b: (("q tiles", grid(b)[0]),))
    score_tiles = over_blocks(
        "tiles", "output tiles of S of those blocks", lambda b: (("q tiles", grid(b)[0]), ("kv tiles", grid(b)[1]))
    )
    q_reads = over_blocks(
        "Q rows loaded", "each output tile of S reads its rows of Q", lambda b: (("queries", b.rows), ("kv tiles", grid(b)[1]))
    )
    kv_reads = over_blocks(
        "rows loaded", "rows of K (of V): once per block and q tile", lambda b: (("keys", b.columns), ("q tiles", grid(b)[0]))
    )
    elements = over_blocks("pairs of S", "elements of S in those blocks", lambda b: (("queries", b.rows), ("keys", b.columns)))
    score_bytes = over_blocks(
        "B of S", "bytes of S of a head, all blocks", lambda b: (("queries", b.rows), ("B a row of S", score_row(b)))
    )
    score_sectors = over_blocks(
        "B of S in sectors",
        "the same, each row in whole 32-byte sectors",
        lambda b: (("queries", b.rows), ("B a row of S", sectors(score_row(b)))),
    )
    with_keys = [(run, rows_with_keys(problem, run, q_chunk) if blocks else 0) for run, blocks in runs]
    first = sum(run.count * rows for run, rows in with_keys)
    blank = product(("rows in chunks without a block, once", problem.q_tokens - first))
    carried = Quantity(
        "carried rows",
        "rows whose fp32 output, maximum and sum are read and written again: in every block after their first",
        product(rows_run.factor) + minus(product(("rows in their first block", first))),
    )
    cut = score_sectors.formula.value != score_bytes.formula.value
    requested = score_sectors if cut else score_bytes
    executed = (score_tiles.factor, Factor("queries", plan.q_tile), Factor("keys", plan.kv_tile), heads)
    q_rows, seen_rows = (queries.factor, heads), (seen.factor, kv_heads)
    distinct = most((keys_run.factor, kv_heads), seen_rows)
    loaded = most((kv_reads.factor, heads), distinct)

    def cache(tensor: str, width: int, ctas: Quantity) -> dict[str, Figures]:
        tensors = cached(problem, tensor, width, distinct, loaded, (ctas.factor, heads))
        once = {
            tensor: product(*seen_rows, ("B", problem.kv_row_bytes(width))),
            f"{tensor}_scale": scales(seen_rows, problem.scale_row_bytes(width), problem.scale_tensor_bytes),
        }
        return {name: {**figures, "tensor_bytes": once[name]} for name, figures in tensors.items()}

    def moved(direction: str) -> Figures:
        return {
            f"{direction}_bytes_min": product(score_bytes.factor, heads),
            f"sm_{direction}_bytes": product(requested.factor, heads),
        }

    def statistics(direction: str) -> Figures:
        size = product(rows_run.factor, heads, STATISTICS)
        stored = product(rows_run.factor, heads, ("values", 2), row_sectors(STATISTIC_BYTES // 2))
        return {f"{direction}_bytes_min": size, f"sm_{direction}_bytes": stored if direction == "write" else size}

    def matmul(width_name: str, width: int, padded: int) -> Figures:
        return {
            "flops": product(FLOPS, seen_pairs.factor, heads, (width_name, width)),
            "flops_executed": product(FLOPS, *executed, (f"padded {width_name}", padded)),
        }

    q_row = problem.row_bytes(d)
    requested_q = Quantity("Q rows requested", "Q rows loaded, and those that no block loads", product(q_reads.factor) + blank)
    distinct_q = Quantity("Q rows", "block rows, and those that no block has", product(rows_run.factor) + blank)
    q_read = read((distinct_q.factor, heads), q_row, (requested_q.factor, heads))
    carry = product(carried.factor, heads, ("B of output, maximum and sum", 4 * dv + STATISTIC_BYTES))
    launches = (
        LaunchFormulas(
            "scores",
            matmul("d", d, plan.head_dim_tile),
            {
                "Q": {**q_read, "tensor_bytes": product(*q_rows, ("B", q_row))},
                **cache("K", d, score_tiles),
                "S": moved("write"),
            },
        ),
        LaunchFormulas(
            "softmax",
            {"exp_ops": product(seen_pairs.factor, heads), "vector_ops": product(("operations", 4), elements.factor, heads)},
            {"S": moved("read"), "P": moved("write"), "block_statistics": statistics("write")},
        ),
        LaunchFormulas(
            "values",
            matmul("dv", dv, plan.v_head_dim_tile),
            {
                "P": moved("read"),
                "block_statistics": statistics("read"),
                **cache("V", dv, q_tiles),
                "carry": {name: carry for name in ("read_bytes_min", "write_bytes_min", "sm_read_bytes", "sm_write_bytes")},
                "O": write(q_rows, problem.row_bytes(dv)),
            },
        ),
    )
    used = (queries, seen_pairs, seen, rows_run, keys_run, q_tiles, score_tiles, q_reads, kv_reads, elements, score_bytes)
    quantities = (*used, *((score_sectors,) if cut else ()), carried, distinct_q, requested_q, *row_widths(problem, d, dv))
    workspaces = [_workspace(problem, run, blocks, q_chunk, dv, heads) for run, blocks in runs]
    return Formulas(quantities, launches, larger(*workspaces))


def _joined(blocks: list[Blocks]) -> list[Blocks]:
    """Blocks of one size together."""
    counts: dict[tuple[int, int], int] = {}
    for rows, columns, count in blocks:
        counts[rows, columns] = counts.get((rows, columns), 0) + count
    return [Blocks(rows, columns, count) for (rows, columns), count in counts.items()]


def _workspace(problem: Problem, run: Lengths, blocks: list[Blocks], q_chunk: int, dv: int, heads: Factor) -> Formula:
    """S and P of the largest block, and the state of one chunk's rows."""
    sequences = Factor("sequences", run.count)
    largest = max(blocks, key=lambda block: block.rows * problem.row_bytes(block.columns), default=None)
    rows = Factor("queries of a chunk", min(q_chunk, run.q_len) if blocks else 0)
    formula = product(rows, heads, sequences, STATISTICS)
    if largest is not None:
        row_size = problem.row_bytes(largest.columns)
        formula = (
            product(("buffers", 2), ("queries of a block", largest.rows), ("B a row", row_size), heads, sequences) + formula
        )
    if blocks and sum(block.rows * block.count for block in blocks) > rows_with_keys(problem, run, q_chunk):
        formula += product(rows, heads, sequences, ("B carried", 4 * dv + STATISTIC_BYTES))
    return formula
