"""Naive attention: S and P go through memory, whole rectangles even under a mask."""

from roofline.cost import ceil_div, sectors
from roofline.explain.counts import FLOPS, key_tokens, pairs, per_run, query_tokens, row_tiles
from roofline.explain.flash import row_widths
from roofline.explain.formula import Factor, Formula, Quantity, product
from roofline.explain.launches import Figures, Formulas, LaunchFormulas, cached, read, write
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem


def formulas(problem: Problem, plan: Plan) -> Formulas:
    """Scores, softmax and values; with six passes also the launch that scales S."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    heads, d, dv = Factor("query heads", problem.q_heads), kv.head_dim, kv.v_head_dim

    def grid(run: Lengths) -> tuple[int, int]:
        return ceil_div(run.q_len, plan.q_tile), ceil_div(run.kv_len, plan.kv_tile)

    def whole(run: Lengths) -> Formula:
        rows, columns = grid(run)
        return product(("q tiles", rows), ("queries", plan.q_tile), ("kv tiles", columns), ("keys", plan.kv_tile))

    def score_row(run: Lengths) -> int:
        return problem.row_bytes(run.kv_len)

    queries, keys, seen_pairs = query_tokens(problem), key_tokens(problem), pairs(problem)
    tiled = Quantity("pairs in tiles", "pairs of the output tiles of S of a head, masked ones too", per_run(problem, whole))
    rectangle = Quantity(
        "pairs of S",
        "elements of S of a query head: the whole rectangle",
        per_run(problem, lambda run: product(("queries", run.q_len), ("keys", run.kv_len))),
    )
    score_bytes = Quantity(
        "B of S",
        f"bytes of S of a query head in {problem.dtype.name}",
        per_run(problem, lambda run: product(("queries", run.q_len), ("B a row of S", score_row(run)))),
    )
    score_sectors = Quantity(
        "B of S in sectors",
        "the same, each row in whole 32-byte sectors",
        per_run(problem, lambda run: product(("queries", run.q_len), ("B a row of S", sectors(score_row(run))))),
    )
    q_reads = Quantity(
        "Q rows loaded",
        f"each output tile of S ({plan.q_tile} × {plan.kv_tile}) reads its rows of Q",
        per_run(problem, lambda run: product(("queries", run.q_len), ("kv tiles", max(grid(run)[1], 1)))),
    )
    kv_reads = Quantity(
        "rows loaded",
        "rows of K (of V) read for a query head: once per q tile",
        per_run(problem, lambda run: product(("keys", run.kv_len), ("q tiles", grid(run)[0]))),
    )
    cut = score_sectors.formula.value != score_bytes.formula.value
    requested = score_sectors if cut else score_bytes
    q_tiles = row_tiles(problem, plan.q_tile)
    score_tiles = Quantity(
        "tiles",
        "output tiles of S of a query head",
        per_run(problem, lambda run: product(("q tiles", grid(run)[0]), ("kv tiles", grid(run)[1]))),
    )
    stored, loaded, ctas = (keys.factor, Factor("KV heads", kv.heads)), (kv_reads.factor, heads), (q_tiles.factor, heads)
    q_rows, elements = (queries.factor, heads), (rectangle.factor, heads)

    def moved(direction: str) -> Figures:
        return {
            f"{direction}_bytes_min": product(score_bytes.factor, heads),
            f"sm_{direction}_bytes": product(requested.factor, heads),
        }

    def matmul(width_name: str, width: int, padded: int) -> Figures:
        return {
            "flops": product(FLOPS, seen_pairs.factor, heads, (width_name, width)),
            "flops_executed": product(FLOPS, tiled.factor, heads, (f"padded {width_name}", padded)),
        }

    scores = LaunchFormulas(
        "scores",
        matmul("d", d, plan.head_dim_tile),
        {
            "Q": read(q_rows, problem.row_bytes(d), (q_reads.factor, heads)),
            **cached(problem, "K", d, stored, loaded, (score_tiles.factor, heads)),
            "S": moved("write"),
        },
    )
    scaled = plan.passes == 6
    scale = LaunchFormulas("scale", {"vector_ops": product(*elements)}, {"S": moved("read"), "S_scaled": moved("write")})
    softmax = LaunchFormulas(
        "softmax",
        {"exp_ops": product(seen_pairs.factor, heads), "vector_ops": product(("operations", 3 if scaled else 4), *elements)},
        {"S_scaled" if scaled else "S": moved("read"), "P": moved("write")},
    )
    values = LaunchFormulas(
        "values",
        matmul("dv", dv, plan.v_head_dim_tile),
        {"P": moved("read"), **cached(problem, "V", dv, stored, loaded, ctas), "O": write(q_rows, problem.row_bytes(dv))},
    )
    quantities = (
        queries,
        keys,
        seen_pairs,
        q_tiles,
        score_tiles,
        tiled,
        rectangle,
        score_bytes,
        *((score_sectors,) if cut else ()),
    )
    return Formulas(
        (*quantities, q_reads, kv_reads, *row_widths(problem, d, dv)),
        (scores, *((scale,) if scaled else ()), softmax, values),
        product(("buffers", 2), score_bytes.factor, heads),
    )
