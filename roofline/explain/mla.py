"""Multi-head latent attention, expanded or absorbed, with its projections where the problem counts them."""

from dataclasses import replace

from roofline.cost import ceil_div, sectors
from roofline.explain.counts import FLOPS, keys_seen, query_tokens, row
from roofline.explain.flash import attention
from roofline.explain.formula import Factor, Formula, larger, product
from roofline.explain.launches import Figures, Formulas, LaunchFormulas, cached, read, scales, write
from roofline.explain.split_kv import loaded_rows, packed_attention
from roofline.plan import Plan, padded_width
from roofline.problem import GroupedKV, LatentKV, Problem
from roofline.variants.split_kv import count_packed


def formulas(problem: Problem, plan: Plan) -> Formulas:
    """The form that ``plan`` says."""
    kv = problem.kv
    assert isinstance(kv, LatentKV)
    return _absorbed(problem, plan, kv) if plan.form == "absorbed" else _expanded(problem, plan, kv)


def _expanded(problem: Problem, plan: Plan, kv: LatentKV) -> Formulas:
    expanded = GroupedKV(problem.q_heads, kv.head_dim + kv.rope_dim, kv.v_head_dim)
    materialised = replace(problem, kv=expanded, kv_dtype=problem.dtype)
    quantities, launch = attention("mla-expanded", materialised, plan, expanded)
    if not problem.mla_projections:
        return Formulas(quantities, (launch,))
    keys, heads = keys_seen(problem), Factor("query heads", problem.q_heads)
    rows = (keys.factor, heads)
    k_row, v_row = problem.row_bytes(kv.head_dim + kv.rope_dim), problem.row_bytes(kv.v_head_dim)
    up_k = _projection(
        problem, plan, "W_UK", keys.factor, ("latent", kv.latent_dim), ("d", kv.head_dim),
        {"latent_KV": _cache(problem, kv, keys.factor, kv.cached_dim)}, {"K": write(rows, k_row)},
    )  # fmt: skip
    up_v = _projection(
        problem, plan, "W_UV", keys.factor, ("latent", kv.latent_dim), ("dv", kv.v_head_dim),
        {"latent_KV": _cache(problem, kv, keys.factor, kv.latent_dim)}, {"V": write(rows, v_row)},
    )  # fmt: skip
    workspace = product(*rows, ("B of K", k_row)) + product(*rows, ("B of V", v_row))
    return Formulas((*quantities, keys), (up_k, up_v, launch), workspace)


def _absorbed(problem: Problem, plan: Plan, kv: LatentKV) -> Formulas:
    packed, seen, loaded = count_packed(problem, plan), keys_seen(problem), loaded_rows(problem, plan)
    reads = cached(
        problem, "latent_KV", kv.cached_dim, (seen.factor,), (loaded.factor,), (Factor("CTAs", packed.ctas),)
    )  # one tile is both K and V
    attended = packed_attention("mla-absorbed", problem, plan, packed, reads, kv.cached_dim, kv.latent_dim)
    widths = (
        row("Q", kv.cached_dim, "latent + RoPE", problem.dtype.bits),
        row("the cache", kv.cached_dim, "latent + RoPE", problem.kv_dtype.bits),
        row("O", kv.latent_dim, "latent", problem.dtype.bits),
    )
    quantities = (*attended.quantities, seen, loaded, *widths)
    if not problem.mla_projections:
        return Formulas(quantities, attended.launches, attended.workspace)
    queries = query_tokens(problem)
    rows = (queries.factor, Factor("query heads", problem.q_heads))
    q_reads = next(quantity for quantity in attended.quantities if quantity.symbol == "Q rows loaded")
    requested = (q_reads.factor,)
    latent = problem.row_bytes(kv.latent_dim)
    up = _projection(
        problem, plan, "W_UK", queries.factor, ("d", kv.head_dim), ("latent", kv.latent_dim),
        {"Q_nope": read(rows, problem.row_bytes(kv.head_dim))}, {"Q_latent": write(rows, latent)},
    )  # fmt: skip
    down = _projection(
        problem, plan, "W_UV", queries.factor, ("latent", kv.latent_dim), ("dv", kv.v_head_dim),
        {"O_latent": read(rows, latent)}, {"O": write(rows, problem.row_bytes(kv.v_head_dim))},
    )  # fmt: skip

    def rename(launch: LaunchFormulas) -> LaunchFormulas:
        tensors = dict(launch.tensors)
        if tensors.pop("Q", None):
            rope = read(rows, problem.row_bytes(kv.rope_dim), requested)
            tensors = {"Q_latent": read(rows, latent, requested), "Q_rope": rope, **tensors}
        if "O" in tensors:
            tensors["O_latent"] = tensors.pop("O")
        return launch._replace(tensors=tensors)

    workspace = attended.workspace + product(("buffers", 2), *rows, ("B of Q_latent, O_latent", latent))
    return Formulas(quantities, (up, *map(rename, attended.launches), down), workspace)


def _projection(
    problem: Problem,
    plan: Plan,
    name: str,
    rows: Factor,
    inner: tuple[str, int],
    outer: tuple[str, int],
    source: dict[str, Figures],
    result: dict[str, Figures],
) -> LaunchFormulas:
    """A product per head, [rows, inner] x [inner, outer]; the weights move once per row tile on the SM side."""
    heads, weight_row = Factor("query heads", problem.q_heads), problem.row_bytes(outer[1])
    row_tiles = Factor("row tiles", ceil_div(rows.value, plan.q_tile))
    padded = (f"padded {inner[0]}", padded_width(inner[1])), (f"padded {outer[0]}", padded_width(outer[1]))
    weights = (heads, Factor(*inner))
    work: Figures = {
        "flops": product(FLOPS, rows, heads, inner, outer),
        "flops_executed": product(FLOPS, row_tiles, ("rows", plan.q_tile), heads, *padded),
    }
    moved = read(weights, weight_row, (row_tiles._replace(value=max(row_tiles.value, 1)), *weights))
    return LaunchFormulas(name, work, {**source, name: moved, **result})


def _cache(problem: Problem, kv: LatentKV, rows: Factor, width: int) -> Figures:
    """The latent cache as a projection reads it: once, on the SM side once per head. RoPE keys go to K only."""

    def once(read_width: int) -> Formula:
        scale, per_tensor = problem.scale_row_bytes(read_width), problem.scale_tensor_bytes
        size = product(rows, ("B and scales" if scale else "B", problem.kv_row_bytes(read_width) + scale))
        return size + scales((), 0, per_tensor) if per_tensor else size

    scale, least = problem.scale_row_bytes(width), once(width)
    name = "B in sectors and scales" if scale else "B in sectors"
    row_size = sectors(problem.kv_row_bytes(width)) + scale
    requested = product(("query heads", problem.q_heads), rows, (name, row_size))
    return {"read_bytes_min": least, "sm_read_bytes": larger(requested, least), "tensor_bytes": once(kv.cached_dim)}
