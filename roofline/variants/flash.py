"""Flash attention: one launch, S and P stay on the chip (Dao et al., arXiv:2205.14135; FlashAttention-2, arXiv:2307.08691).

One CTA computes ``q_tile`` rows of one query head and streams the K and V that those rows see. HBM minimum: Q, K, V and O
once. SM side: K and V once per query head and q tile, which the papers call HBM accesses. No log-sum-exp is written in
inference, so there is no workspace.
"""

from roofline.cost import Cost, Launch, Order, Sharing, Traffic, ceil_div, sectors
from roofline.masks import Mask
from roofline.plan import HOPPER_LIGHT_PART, Plan
from roofline.problem import GroupedKV, Problem
from roofline.variants.cached import cached_tensor, window_edge_rows


def cost(problem: Problem, plan: Plan) -> Cost:
    """Count flash attention of ``problem`` with the tiles of ``plan``."""
    assert isinstance(problem.kv, GroupedKV)
    return Cost((attention("flash", problem, plan, problem.kv, exponentials=True),))


def attention(name: str, problem: Problem, plan: Plan, kv: GroupedKV, *, exponentials: bool) -> Launch:
    """Count one tiled launch over materialised K and V: O = f(Q K^T, mask) V, f a softmax or (linear attention) nothing."""
    heads, group, d, dv = problem.q_heads, problem.q_heads // kv.heads, kv.head_dim, kv.v_head_dim
    executed_tiles = kv_rows = q_tiles = 0
    for q_len, kv_len, count in problem.lengths:
        counted = problem.mask.tile_count(q_len, kv_len, plan.q_tile, plan.kv_tile)
        q_tiles += count * counted.q_tiles
        executed_tiles += count * group_tiles(problem.mask, q_len, kv_len, plan)
        kv_rows += count * counted.kv_rows
    q_rows, pairs, visible = problem.q_tokens * heads, problem.pairs * heads, problem.visible_keys * kv.heads
    executed_pairs = executed_tiles * heads * plan.group_rows * plan.kv_tile
    per_stream = max(ceil_div(q_tiles * group, problem.batch), 1)
    order = _order(problem, plan, exponentials)
    light_share = 1 / HOPPER_LIGHT_PART if order == "light-last" else 0.0
    share = Sharing(problem.batch * kv.heads, per_stream, group, order, light_share)

    edge = window_edge_rows(problem, plan.kv_tile) * kv.heads
    keys = cached_tensor(problem, "K", d, visible, kv_rows * heads, q_tiles * heads, share, edge)
    values = cached_tensor(problem, "V", dv, visible, kv_rows * heads, q_tiles * heads, share, edge)
    q_row, o_row = problem.row_bytes(d), problem.row_bytes(dv)
    return Launch(
        name,
        ctas=q_tiles * heads,
        ctas_per_sm=plan.ctas_per_sm,
        flops=2 * pairs * (d + dv),  # Q K^T and P V over the unmasked pairs
        flops_executed=2 * executed_pairs * (plan.head_dim_tile + plan.v_head_dim_tile),
        exp_ops=pairs if exponentials else 0,
        vector_ops=4 * executed_pairs if exponentials else 0,
        traffic=(
            Traffic("Q", "input", q_rows * q_row, 0, q_rows * sectors(q_row)),
            *keys,
            *values,
            Traffic("O", "output", 0, q_rows * o_row, 0, q_rows * sectors(o_row)),
        ),
    )


def group_tiles(mask: Mask, q_len: int, kv_len: int, plan: Plan) -> int:
    """Tiles of ``plan.group_rows`` queries that one head runs: those with an unmasked pair, one for a group past the end."""
    seen = mask.tile_count(q_len, kv_len, plan.group_rows, plan.kv_tile)
    return seen.tiles + groups_past_end(q_len, plan)


def groups_past_end(q_len: int, plan: Plan) -> int:
    """Groups of the last q tile of a sequence that have no queries."""
    return ceil_div(q_len, plan.q_tile) * (plan.q_tile // plan.group_rows) - ceil_div(q_len, plan.group_rows)


def _order(problem: Problem, plan: Plan, is_flash: bool) -> Order:
    """The order of CTAs as our kernels launch them: flash runs the heavy tiles of the heads that fit the L2 first."""
    if problem.mask.is_full:
        return "equal"
    if problem.mask.forgets(max(lengths.kv_len for lengths in problem.lengths)):
        return "windowed"
    if not is_flash or len(problem.lengths) > 1:
        return "falling"
    return "light-last" if plan.kernel == "hopper" else "together"


def box_overhang_bytes(problem: Problem, plan: Plan, kv: GroupedKV) -> int:
    """Bytes of TMA boxes beyond the tensors, which the counter of the SMs' reads has on top of ``attention``.

    TMA fills what lies past the end of a sequence or of a row with zeros. They are not fetched, but the counter adds up whole
    boxes: ``q_tile`` or ``kv_tile`` rows of the padded head size.
    """
    boxes = inside = 0
    for q_len, kv_len, count in problem.lengths:
        counted = problem.mask.tile_count(q_len, kv_len, plan.q_tile, plan.kv_tile)
        q_rows, kv_rows = counted.q_tiles * plan.q_tile, counted.tiles * plan.kv_tile
        boxes += count * problem.row_bytes(q_rows * plan.head_dim_tile)
        boxes += count * problem.row_bytes(kv_rows * (plan.head_dim_tile + plan.v_head_dim_tile))
        inside += count * (q_len * problem.row_bytes(kv.head_dim))
        inside += count * counted.kv_rows * problem.row_bytes(kv.head_dim + kv.v_head_dim)
    return (boxes - inside) * problem.q_heads
