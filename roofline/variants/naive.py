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
        each_head, score_row = count * heads, problem.row_bytes(kv_len)
        q_tiles += each_head * rows
        score_tiles += each_head * rows * columns
        padded_pairs += each_head * rows * plan.q_tile * columns * plan.kv_tile
        elements += each_head * q_len * kv_len
        score_bytes += each_head * q_len * score_row
        score_sectors += each_head * q_len * sectors(score_row)
        q_reads += each_head * q_len * (columns or 1)  # each output tile reads its rows of Q (without keys: once) ...
        kv_reads += each_head * kv_len * rows  # ... and its rows of K
    streams = problem.batch * kv.heads
    q_row, o_row = problem.row_bytes(d), problem.row_bytes(dv)
    q_read = Traffic("Q", "input", q_rows * q_row, 0, q_reads * sectors(q_row))
    o_write = Traffic("O", "output", 0, q_rows * o_row, 0, q_rows * sectors(o_row))
    score_sharing = Sharing(streams, ceil_div(score_tiles, streams) or 1)
    value_sharing = Sharing(streams, ceil_div(q_tiles, streams) or 1)
    kv_rows = problem.kv_tokens * kv.heads
    keys = cached_tensor(problem, "K", d, kv_rows, kv_reads, score_tiles, score_sharing)
    values = cached_tensor(problem, "V", dv, kv_rows, kv_reads, q_tiles, value_sharing)

    def read(tensor: str, buffer: str | None = None) -> Traffic:
        return Traffic(tensor, "intermediate", score_bytes, 0, score_sectors, buffer=buffer)

    def write(tensor: str, buffer: str | None = None) -> Traffic:
        return Traffic(tensor, "intermediate", 0, score_bytes, 0, score_sectors, buffer=buffer)

    scores = Launch(
        "scores",
        ctas=score_tiles,
        flops=2 * pairs * d,  # Q K^T
        flops_executed=2 * padded_pairs * plan.head_dim_tile,
        traffic=(q_read, *keys, write("S")),
    )
    scale = Launch("scale", ctas=q_rows, vector_ops=elements, traffic=(read("S"), write("S_scaled")))
    source, scale_ops = ("S_scaled", 1) if plan.passes == 6 else ("S", 0)
    place = "S" if plan.passes == 6 else None  # two buffers of the size of S: P takes its place once S_scaled is written
    softmax = Launch(
        "softmax",
        ctas=q_rows,
        exp_ops=pairs,
        vector_ops=(4 - scale_ops) * elements,
        traffic=(read(source), write("P", place)),
    )
    weighted = Launch(
        "values",
        ctas=q_tiles,
        flops=2 * pairs * dv,  # P V
        flops_executed=2 * padded_pairs * plan.v_head_dim_tile,
        traffic=(read("P", place), *values, o_write),
    )
    middle = (scale, softmax) if plan.passes == 6 else (softmax,)
    return Cost((scores, *middle, weighted), workspace_bytes=2 * score_bytes)
