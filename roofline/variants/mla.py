"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, sections 2.1 and appendix C).

Expanded (prefill): K (d + RoPE) and V are materialised per head, then flash attention. Absorbed (decode): the up-projections
are folded into the query and the output, so all heads attend to one latent tile that is both K and V: d_qk = latent + RoPE,
d_v = latent. The projections W_UK and W_UV are launches of their own, counted only if ``problem.mla_projections``.
"""

from dataclasses import replace

from roofline.cost import Cost, Launch, Sharing, Traffic, ceil_div, sectors
from roofline.plan import Plan, padded_width
from roofline.problem import GroupedKV, LatentKV, Problem
from roofline.variants.cached import cached_tensor, window_edge_rows
from roofline.variants.flash import attention
from roofline.variants.split_kv import count_packed, packed_attention


def cost(problem: Problem, plan: Plan) -> Cost:
    """Count MLA of ``problem`` in the form that ``plan`` says."""
    kv = problem.kv
    assert isinstance(kv, LatentKV)
    return _absorbed(problem, plan, kv) if plan.form == "absorbed" else _expanded(problem, plan, kv)


def projections(problem: Problem, plan: Plan) -> Cost:
    """Count the up-projections alone, as they run beside the attention of ``plan``."""
    kv = problem.kv
    assert isinstance(kv, LatentKV)
    heads, elements = problem.q_heads, problem.row_bytes
    if plan.form == "absorbed":
        rows = problem.q_tokens
        return Cost(
            (
                _projection(
                    problem, plan, "W_UK", rows, kv.head_dim, kv.latent_dim,
                    _read("Q_nope", "input", problem, rows * heads, kv.head_dim),
                    _write("Q_latent", "intermediate", problem, rows * heads, kv.latent_dim),
                ),
                _projection(
                    problem, plan, "W_UV", rows, kv.latent_dim, kv.v_head_dim,
                    _read("O_latent", "intermediate", problem, rows * heads, kv.latent_dim),
                    _write("O", "output", problem, rows * heads, kv.v_head_dim),
                ),
            ),
            workspace_bytes=2 * rows * heads * elements(kv.latent_dim),
        )  # fmt: skip
    rows = problem.visible_keys
    return Cost(
        (
            _projection(
                problem, plan, "W_UK", rows, kv.latent_dim, kv.head_dim,
                _cache(problem, kv, rows, kv.cached_dim),
                # The RoPE key is one for all heads and copied to each.
                _write("K", "intermediate", problem, rows * heads, kv.head_dim + kv.rope_dim),
            ),
            _projection(
                problem, plan, "W_UV", rows, kv.latent_dim, kv.v_head_dim,
                _cache(problem, kv, rows, kv.latent_dim),
                _write("V", "intermediate", problem, rows * heads, kv.v_head_dim),
            ),
        ),
        workspace_bytes=rows * heads * (elements(kv.head_dim + kv.rope_dim) + elements(kv.v_head_dim)),
    )  # fmt: skip


def _expanded(problem: Problem, plan: Plan, kv: LatentKV) -> Cost:
    expanded = GroupedKV(problem.q_heads, kv.head_dim + kv.rope_dim, kv.v_head_dim)
    # K and V are materialised in the compute dtype, whatever the cache holds.
    materialised = replace(problem, kv=expanded, kv_dtype=problem.dtype)
    launch = attention("mla-expanded", materialised, plan, expanded, exponentials=True)
    if not problem.mla_projections:
        return Cost((launch,))
    projected = projections(problem, plan)
    traffic = tuple(t._replace(role="intermediate") if t.tensor in ("K", "V") else t for t in launch.traffic)
    return Cost((*projected.launches, launch._replace(traffic=traffic)), projected.workspace_bytes)


def _absorbed(problem: Problem, plan: Plan, kv: LatentKV) -> Cost:
    packed = count_packed(problem, plan)
    share = Sharing(problem.batch, max(ceil_div(packed.ctas, problem.batch), 1))
    edge = window_edge_rows(problem, plan.kv_tile)
    # One tile of the cache serves as K and as V, so it is read once.
    reads = cached_tensor(problem, "latent_KV", kv.cached_dim, problem.visible_keys, packed.kv_rows, packed.ctas, share, edge)
    attended = packed_attention("mla-absorbed", problem, plan, packed, reads, kv.cached_dim, kv.latent_dim)
    if not problem.mla_projections:
        return attended
    up, down = projections(problem, plan).launches
    rows = problem.q_tokens * problem.q_heads

    def rename(traffic: Traffic) -> tuple[Traffic, ...]:
        if traffic.tensor == "Q":
            latent, rope = problem.row_bytes(kv.latent_dim), problem.row_bytes(kv.rope_dim)
            return (
                Traffic("Q_latent", "intermediate", rows * latent, 0, packed.q_reads * sectors(latent)),
                Traffic("Q_rope", "input", rows * rope, 0, packed.q_reads * sectors(rope)),
            )
        if traffic.tensor == "O":
            return (traffic._replace(tensor="O_latent", role="intermediate"),)
        return (traffic,)

    middle = tuple(launch._replace(traffic=tuple(r for t in launch.traffic for r in rename(t))) for launch in attended.launches)
    workspace = attended.workspace_bytes + 2 * rows * problem.row_bytes(kv.latent_dim)
    return Cost((up, *middle, down), workspace)


def _projection(
    problem: Problem, plan: Plan, name: str, rows: int, inner: int, outer: int, source: Traffic, result: Traffic
) -> Launch:
    """One product per head, [rows, inner] x [inner, outer]; the weights move once per ``q_tile`` rows on the SM side."""
    heads, weight_row = problem.q_heads, problem.row_bytes(outer)
    row_tiles = ceil_div(rows, plan.q_tile)
    weights = heads * inner * weight_row
    return Launch(
        name,
        ctas=row_tiles * heads,
        flops=2 * rows * heads * inner * outer,
        flops_executed=2 * row_tiles * plan.q_tile * heads * padded_width(inner) * padded_width(outer),
        traffic=(
            source,
            Traffic(name, "input", weights, 0, max(row_tiles, 1) * heads * inner * sectors(weight_row)),
            result,
        ),
    )


def _cache(problem: Problem, kv: LatentKV, rows: int, width: int) -> Traffic:
    row = problem.kv_row_bytes(width)
    size = rows * (problem.kv_row_bytes(kv.cached_dim) + problem.scale_row_bytes(kv.cached_dim)) + problem.scale_tensor_bytes
    distinct = rows * (row + problem.scale_row_bytes(width)) + problem.scale_tensor_bytes
    requested = problem.q_heads * rows * (sectors(row) + problem.scale_row_bytes(width))
    return Traffic("latent_KV", "input", distinct, 0, max(requested, distinct), tensor_bytes=size)


def _read(tensor: str, role: str, problem: Problem, rows: int, width: int) -> Traffic:
    row = problem.row_bytes(width)
    return Traffic(tensor, "input" if role == "input" else "intermediate", rows * row, 0, rows * sectors(row))


def _write(tensor: str, role: str, problem: Problem, rows: int, width: int) -> Traffic:
    row = problem.row_bytes(width)
    return Traffic(tensor, "output" if role == "output" else "intermediate", 0, rows * row, 0, rows * sectors(row))
