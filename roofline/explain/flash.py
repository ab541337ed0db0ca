"""Flash attention and every other launch that tiles materialised K and V."""

from dataclasses import replace

from roofline.explain.counts import FLOPS, keys_seen, pairs, query_tokens, row, row_tiles, rows_loaded, tiles
from roofline.explain.formula import Factor, Quantity, product
from roofline.explain.launches import Figures, Formulas, LaunchFormulas, cached, read, write
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem
from roofline.variants.flash import groups_past_end


def formulas(problem: Problem, plan: Plan) -> Formulas:
    """One launch; S and P stay on the chip, so there is no workspace."""
    assert isinstance(problem.kv, GroupedKV)
    quantities, launch = attention("flash", problem, plan, problem.kv)
    return Formulas(quantities, (launch,))


def attention(name: str, problem: Problem, plan: Plan, kv: GroupedKV) -> tuple[tuple[Quantity, ...], LaunchFormulas]:
    """Quantities and formulas of ``flash.attention``."""
    heads, d, dv = Factor("query heads", problem.q_heads), kv.head_dim, kv.v_head_dim
    queries, seen, seen_pairs = query_tokens(problem), keys_seen(problem), pairs(problem)
    q_tiles, run = row_tiles(problem, plan.q_tile), _tiles_run(problem, plan)
    loaded = rows_loaded(problem, plan.q_tile, plan.kv_tile)
    executed = (run.factor, Factor("queries", plan.group_rows), Factor("keys", plan.kv_tile), heads)
    stored, requested = (seen.factor, Factor("KV heads", kv.heads)), (loaded.factor, heads)
    ctas, q_rows = (q_tiles.factor, heads), (queries.factor, heads)
    work: Figures = {
        "flops": product(FLOPS, seen_pairs.factor, heads, ("(d + dv)", d + dv)),
        "flops_executed": product(FLOPS, *executed, ("padded (d + dv)", plan.head_dim_tile + plan.v_head_dim_tile)),
        "exp_ops": product(seen_pairs.factor, heads),
        "vector_ops": product(("operations", 4), *executed),
    }
    tensors = {
        "Q": read(q_rows, problem.row_bytes(d)),
        **cached(problem, "K", d, stored, requested, ctas),
        **cached(problem, "V", dv, stored, requested, ctas),
        "O": write(q_rows, problem.row_bytes(dv)),
    }
    return (queries, seen_pairs, seen, q_tiles, run, loaded, *row_widths(problem, d, dv)), LaunchFormulas(name, work, tensors)


def _tiles_run(problem: Problem, plan: Plan) -> Quantity:
    """Tiles that one head runs; where warp groups skip kv tiles that their own rows do not see, those of the groups."""
    seen = tiles(problem, plan.group_rows, plan.kv_tile)
    past_end = sum(lengths.count * groups_past_end(lengths.q_len, plan) for lengths in problem.lengths)
    if not past_end:
        return seen
    formula = seen.formula + product((f"groups of {plan.group_rows} rows past the end", past_end))
    return replace(seen, meaning=f"{seen.meaning}, and one of each group of the last q tile that has no query", formula=formula)


def row_widths(problem: Problem, d: int, dv: int) -> tuple[Quantity, ...]:
    """Bytes of the rows of Q, K, V and O, those that are equal together."""
    bits, kv_bits = problem.dtype.bits, problem.kv_dtype.bits
    sizes = {"Q": (d, "d", bits), "K": (d, "d", kv_bits), "V": (dv, "dv", kv_bits), "O": (dv, "dv", bits)}
    names: dict[tuple[int, int], list[str]] = {}
    for tensor, (width, _, element_bits) in sizes.items():
        names.setdefault((width, element_bits), []).append(tensor)
    return tuple(row(", ".join(tensors), *sizes[tensors[0]]) for tensors in names.values())
