"""Naive attention: S = Q K^T and P = softmax(S) go through memory (the standard attention of arXiv:2205.14135, algorithm 0).

Three launches (scores, softmax, values) move S and P four times; six passes, the eager form, scale and mask S in a launch of
its own. The whole rectangle is computed even under a mask, so executed FLOPs are those of the full matrix and every key
counts as seen.
"""

from roofline.cost import Cost, Launch, Sharing, Traffic, ceil_div, sectors
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem
from roofline.variants.cached import cached_tensor


def cost(problem: Problem, plan: Plan) -> Cost:
    """Count naive attention of ``problem``: 3 or 6 passes over S and P as ``plan.passes`` says."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    heads, d, dv = problem.q_heads, kv.head_dim, kv.v_head_dim
    q_rows, pairs = problem.q_tokens * heads, problem.pairs * heads
    score_tiles = q_tiles = padded_pairs = elements = score_bytes = score_sectors = q_reads = kv_reads = 0
    for q_len, kv_len, count in problem.lengths:
        rows, columns = ceil_div(q_len, plan.q_tile), ceil_div(kv_len, plan.kv_tile)
        q_tiles += count * rows * heads
        score_tiles += count * rows * columns * heads
        padded_pairs += count * rows * plan.q_tile * columns * plan.kv_tile * heads
        elements += count * q_len * kv_len * heads
        score_bytes += count * q_len * problem.row_bytes(kv_len) * heads
        score_sectors += count * q_len * sectors(problem.row_bytes(kv_len)) * heads
        q_reads += count * q_len * max(columns, 1) * heads  # each output tile reads its rows of Q (without keys: once) ...
        kv_reads += count * kv_len * rows * heads  # ... and its rows of K
    q_row, o_row = problem.row_bytes(d), problem.row_bytes(dv)
    q_read = Traffic("Q", "input", q_rows * q_row, 0, q_reads * sectors(q_row))
    o_write = Traffic("O", "output", 0, q_rows * o_row, 0, q_rows * sectors(o_row))
    score_sharing = Sharing(problem.batch * kv.heads, max(ceil_div(score_tiles, problem.batch * kv.heads), 1))
    value_sharing = Sharing(problem.batch * kv.heads, max(ceil_div(q_tiles, problem.batch * kv.heads), 1))
    keys = cached_tensor(problem, "K", d, problem.kv_tokens * kv.heads, kv_reads, score_tiles, score_sharing)
    values = cached_tensor(problem, "V", dv, problem.kv_tokens * kv.heads, kv_reads, q_tiles, value_sharing)

    def read(tensor: str) -> Traffic:
        return Traffic(tensor, "intermediate", score_bytes, 0, score_sectors)

    def write(tensor: str) -> Traffic:
        return Traffic(tensor, "intermediate", 0, score_bytes, 0, score_sectors)

    scores = Launch(
        "scores",
        ctas=score_tiles,
        flops=2 * pairs * d,  # Q K^T
        flops_executed=2 * padded_pairs * plan.head_dim_tile,
        traffic=(q_read, *keys, write("S")),
    )
    scale = Launch("scale", ctas=q_rows, vector_ops=elements, traffic=(read("S"), write("S_scaled")))
    source, scale_ops = ("S_scaled", 1) if plan.passes == 6 else ("S", 0)
    softmax = Launch(
        "softmax",
        ctas=q_rows,
        exp_ops=pairs,
        vector_ops=(4 - scale_ops) * elements,
        traffic=(read(source), write("P")),
    )
    weighted = Launch(
        "values",
        ctas=q_tiles,
        flops=2 * pairs * dv,  # P V
        flops_executed=2 * padded_pairs * plan.v_head_dim_tile,
        traffic=(read("P"), *values, o_write),
    )
    middle = (scale, softmax) if plan.passes == 6 else (softmax,)
    # Two buffers of the size of S: with six passes P takes the place of S once S_scaled is written.
    return Cost((scores, *middle, weighted), workspace_bytes=2 * score_bytes)
