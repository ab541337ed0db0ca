"""Linear attention without a normaliser (Katharopoulos et al., arXiv:2006.16236): O = (Q K^T, masked) V, in O(n d^2).

The state K^T V is d x dv in fp32 per KV head. Useful FLOPs are 2 n d dv for each KV head (its state) and each query head (its
output), in every form. Chunked (prefill): a launch stores the state before each chunk, another turns chunk and state into O.
Recurrent (decode): the state is read, updated with the new tokens and written, ``v_head_dim_tile`` columns a CTA.
Parallel: the quadratic form, as flash.
"""

from roofline.cost import Cost, Launch, Sharing, Traffic, ceil_div, sectors
from roofline.errors import InputError
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem
from roofline.variants.cached import cached_tensor
from roofline.variants.flash import attention

STATE_BYTES = 4  # the state is fp32


def cost(problem: Problem, plan: Plan) -> Cost:
    """Count linear attention of ``problem`` in the form that ``plan`` says; it has no sliding window (``InputError``)."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    if problem.mask.window is not None:
        raise InputError("linear attention has no sliding window: leave out --window or the variant linear")
    if plan.form == "parallel":
        launch = attention("linear-parallel", problem, plan, kv, exponentials=False)
        return Cost((launch._replace(flops=sum(_useful_flops(problem, kv))),))
    return _recurrent(problem, plan, kv) if plan.form == "recurrent" else _chunked(problem, plan, kv)


def state_bytes(problem: Problem, kv: GroupedKV) -> int:
    """Bytes of the states of the batch: one d x dv matrix per sequence and KV head."""
    return problem.batch * kv.heads * kv.head_dim * kv.v_head_dim * STATE_BYTES


def _state_tokens(problem: Problem) -> int:
    """Tokens that enter the state: under a causal mask the earlier ones are in it already, else all keys do."""
    if problem.mask.is_full:
        return problem.kv_tokens
    return sum(lengths.count * new_tokens(lengths) for lengths in problem.lengths)


def new_tokens(lengths: Lengths) -> int:
    """Tokens of one sequence that come with its queries; the earlier ones are in the state already."""
    return min(lengths.q_len, lengths.kv_len)


def state_chunks(problem: Problem, lengths: Lengths, chunk: int) -> int:
    """Chunks of one sequence that hold a token of the state.

    Under a causal mask they are chunks of queries, of which the first may come before any key.
    """
    q_len, kv_len, _ = lengths
    if not problem.mask.causal:
        return ceil_div(kv_len, chunk)
    tokens = new_tokens(lengths)
    return ceil_div(q_len, chunk) - (q_len - tokens) // chunk if tokens else 0


def _useful_flops(problem: Problem, kv: GroupedKV) -> tuple[int, int]:
    product = 2 * kv.head_dim * kv.v_head_dim
    return _state_tokens(problem) * kv.heads * product, problem.q_tokens * problem.q_heads * product


def _chunked(problem: Problem, plan: Plan, kv: GroupedKV) -> Cost:
    d, dv, chunk = kv.head_dim, kv.v_head_dim, plan.kv_tile
    causal = problem.mask.causal
    state_flops, output_flops = _useful_flops(problem, kv)
    kv_chunks = q_chunks = pasts = 0
    for lengths in problem.lengths:
        q_len, kv_len, count = lengths
        kv_chunks += count * state_chunks(problem, lengths, chunk)
        q_chunks += count * ceil_div(q_len, chunk)
        pasts += count if causal and kv_len > q_len else 0  # sequences that start from the state of their past
    heads, kv_rows, q_rows = problem.q_heads, _state_tokens(problem) * kv.heads, problem.q_tokens * problem.q_heads
    state = d * dv * STATE_BYTES
    stored = (kv_chunks if causal else problem.batch) * kv.heads  # states before each chunk, or the one that all queries see
    tile = plan.head_dim_tile * plan.v_head_dim_tile
    q_row, o_row = problem.row_bytes(d), problem.row_bytes(dv)
    ctas = q_chunks * kv.heads
    keys = cached_tensor(problem, "K", d, kv_rows, kv_rows, problem.batch * kv.heads, None)
    values = cached_tensor(problem, "V", dv, kv_rows, kv_rows, problem.batch * kv.heads, None)
    past = pasts * kv.heads * state
    history = (Traffic("state", "input", past, 0, past),) if past else ()
    states = Launch(
        "states",
        ctas=problem.batch * kv.heads,
        flops=state_flops,  # K^T V
        flops_executed=2 * kv_chunks * kv.heads * chunk * tile,
        traffic=(
            *keys,
            *values,
            *history,
            Traffic("states", "intermediate", 0, stored * state, 0, stored * state),
        ),
    )
    intra_pairs = q_chunks * heads * chunk * chunk if causal else 0
    state_reads = (stored if causal else ctas) * state
    output = Launch(
        "output",
        ctas=ctas,
        flops=output_flops,  # Q state, of which the part inside a chunk runs as (Q K^T, masked) V
        flops_executed=2 * q_chunks * heads * chunk * tile + 2 * intra_pairs * (plan.head_dim_tile + plan.v_head_dim_tile),
        traffic=(
            Traffic("Q", "input", q_rows * q_row, 0, q_rows * sectors(q_row)),
            *((*keys, *values) if causal else ()),
            Traffic("states", "intermediate", stored * state, 0, state_reads, 0, Sharing(problem.batch * kv.heads, 1)),
            Traffic("O", "output", 0, q_rows * o_row, 0, q_rows * sectors(o_row)),
        ),
    )
    return Cost((states, output), workspace_bytes=stored * state)


def column_blocks(plan: Plan, kv: GroupedKV) -> int:
    """CTAs that share a state in the recurrent form, each with ``v_head_dim_tile`` of its columns."""
    return ceil_div(kv.v_head_dim, plan.v_head_dim_tile)


def _recurrent(problem: Problem, plan: Plan, kv: GroupedKV) -> Cost:
    d, dv = kv.head_dim, kv.v_head_dim
    tokens = sum(lengths.count * new_tokens(lengths) for lengths in problem.lengths)
    rows, q_rows = tokens * kv.heads, problem.q_tokens * problem.q_heads
    product = 2 * d * dv
    flops = rows * product + q_rows * product  # the state of each KV head, the output of each query head
    q_row, o_row, state = problem.row_bytes(d), problem.row_bytes(dv), state_bytes(problem, kv)
    blocks = column_blocks(plan, kv)
    ctas = problem.batch * kv.heads * blocks
    launch = Launch(
        "linear-recurrent",
        ctas=ctas,
        flops=flops,
        flops_executed=flops,
        traffic=(
            Traffic("Q", "input", q_rows * q_row, 0, q_rows * blocks * sectors(q_row)),
            *cached_tensor(problem, "K", d, rows, rows * blocks, ctas, None),
            *cached_tensor(problem, "V", dv, rows, rows, ctas, None),
            Traffic("state", "input", state, 0, state),
            Traffic("state_out", "output", 0, state, 0, state),
            Traffic("O", "output", 0, q_rows * o_row, 0, q_rows * sectors(o_row)),
        ),
    )
    return Cost((launch,))
