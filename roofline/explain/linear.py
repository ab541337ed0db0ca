"""Linear attention: a d x dv state in fp32 per KV head, or the quadratic form as flash attention."""

from roofline.cost import ceil_div
from roofline.explain.counts import FLOPS, per_run, query_tokens
from roofline.explain.flash import attention, row_widths
from roofline.explain.formula import Factor, Formula, Quantity, product
from roofline.explain.launches import Figures, Formulas, LaunchFormulas, cached, read, write
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem
from roofline.variants.linear import STATE_BYTES, column_blocks, new_tokens, state_chunks

STATE_WIDTH = Factor("B", STATE_BYTES)


def formulas(problem: Problem, plan: Plan) -> Formulas:
    """The form that ``plan`` says."""
    kv = problem.kv
    assert isinstance(kv, GroupedKV)
    if plan.form == "parallel":
        quantities, launch = attention("linear-parallel", problem, plan, kv)
        state, output = _useful(problem, kv)
        work = {"flops": state + output, "flops_executed": launch.work["flops_executed"]}
        return Formulas((*quantities, state_tokens(problem)), (launch._replace(work=work),))
    return _recurrent(problem, plan, kv) if plan.form == "recurrent" else _chunked(problem, plan, kv)


def state_tokens(problem: Problem) -> Quantity:
    """Tokens that enter the state."""
    full = problem.mask.is_full
    meaning = "tokens that enter the state" + ("" if full else "; the earlier ones are in it already")
    tokens = per_run(problem, lambda run: product(("tokens", run.kv_len if full else new_tokens(run))))
    return Quantity("state tokens", meaning, tokens)


def state(kv: GroupedKV) -> tuple[Factor, ...]:
    """Size of one state."""
    return Factor("d", kv.head_dim), Factor("dv", kv.v_head_dim), STATE_WIDTH


def _states(problem: Problem, kv: GroupedKV) -> Formula:
    return product(("sequences", problem.batch), ("KV heads", kv.heads), *state(kv))


def _useful(problem: Problem, kv: GroupedKV) -> tuple[Formula, Formula]:
    """K^T V of each KV head, Q times the state of each query head."""
    sizes = (Factor("d", kv.head_dim), Factor("dv", kv.v_head_dim))
    tokens, queries = state_tokens(problem), query_tokens(problem)
    heads = Factor("query heads", problem.q_heads)
    return product(FLOPS, tokens.factor, ("KV heads", kv.heads), *sizes), product(FLOPS, queries.factor, heads, *sizes)


def _read_states(size: Formula) -> Figures:
    return {"read_bytes_min": size, "sm_read_bytes": size}


def _chunked(problem: Problem, plan: Plan, kv: GroupedKV) -> Formulas:
    d, dv, chunk, causal = kv.head_dim, kv.v_head_dim, plan.kv_tile, problem.mask.causal
    heads, kv_heads = Factor("query heads", problem.q_heads), Factor("KV heads", kv.heads)

    def chunks_of_keys(run: Lengths) -> Formula:
        return product((f"chunks of {chunk}", state_chunks(problem, run, chunk)))

    queries, tokens = query_tokens(problem), state_tokens(problem)
    chunks_meaning = f"chunks of {chunk} queries with a key" if causal else f"keys / {chunk}, rounded up"
    kv_chunks = Quantity("kv chunks", chunks_meaning, per_run(problem, chunks_of_keys))
    q_chunks = Quantity(
        "q chunks",
        f"queries / {chunk}, rounded up",
        per_run(problem, lambda run: product((f"chunks of {chunk}", ceil_div(run.q_len, chunk)))),
    )
    rows, q_rows, width = (tokens.factor, kv_heads), (queries.factor, heads), Factor("tokens a chunk", chunk)
    padded = Factor("padded d", plan.head_dim_tile), Factor("padded dv", plan.v_head_dim_tile)
    ctas = (Factor("sequences", problem.batch), kv_heads)
    kv_reads = {**cached(problem, "K", d, rows, rows, ctas), **cached(problem, "V", dv, rows, rows, ctas)}
    # Causal: the state before each chunk; else the one state that all queries see.
    stored = (kv_chunks.factor if causal else Factor("sequences", problem.batch), kv_heads, *state(kv))
    used = stored if causal else (q_chunks.factor, kv_heads, *state(kv))
    pasts = sum(run.count for run in problem.lengths if causal and run.kv_len > run.q_len)
    past = _read_states(product(("sequences with a past", pasts), kv_heads, *state(kv)))
    useful_state, useful_output = _useful(problem, kv)
    states = LaunchFormulas(
        "states",
        {"flops": useful_state, "flops_executed": product(FLOPS, kv_chunks.factor, kv_heads, width, *padded)},
        {
            **kv_reads,
            **({"state": past} if pasts else {}),
            "states": {"write_bytes_min": product(*stored), "sm_write_bytes": product(*stored)},
        },
    )
    executed = product(FLOPS, q_chunks.factor, heads, width, *padded)
    if causal:  # inside a chunk: (Q K^T, masked) V
        both = ("padded (d + dv)", plan.head_dim_tile + plan.v_head_dim_tile)
        executed += product(FLOPS, q_chunks.factor, heads, width, ("keys", chunk), both)
    output = LaunchFormulas(
        "output",
        {"flops": useful_output, "flops_executed": executed},
        {
            "Q": read(q_rows, problem.row_bytes(d)),
            **(kv_reads if causal else {}),
            "states": {"read_bytes_min": product(*stored), "sm_read_bytes": product(*used)},
            "O": write(q_rows, problem.row_bytes(dv)),
        },
    )
    quantities = (queries, tokens, kv_chunks, q_chunks, *row_widths(problem, d, dv))
    return Formulas(quantities, (states, output), product(*stored))


def _recurrent(problem: Problem, plan: Plan, kv: GroupedKV) -> Formulas:
    d, dv, queries = kv.head_dim, kv.v_head_dim, query_tokens(problem)
    kv_heads, heads = Factor("KV heads", kv.heads), Factor("query heads", problem.q_heads)
    added = per_run(problem, lambda run: product(("tokens", new_tokens(run))))
    tokens = Quantity("new tokens", "tokens that are added to the state: queries whose keys exist", added)
    blocks = Factor("CTAs of a state", column_blocks(plan, kv))
    rows, q_rows = (tokens.factor, kv_heads), (queries.factor, heads)
    ctas = (Factor("sequences", problem.batch), kv_heads, blocks)
    sizes = (Factor("d", d), Factor("dv", dv))
    flops = product(FLOPS, *rows, *sizes) + product(FLOPS, *q_rows, *sizes)  # the state of KV heads, the output of query heads
    launch = LaunchFormulas(
        "linear-recurrent",
        {"flops": flops, "flops_executed": flops},
        {
            "Q": read(q_rows, problem.row_bytes(d), (*q_rows, blocks)),
            **cached(problem, "K", d, rows, (*rows, blocks), ctas),
            **cached(problem, "V", dv, rows, rows, ctas),
            "state": _read_states(_states(problem, kv)),
            "state_out": {"write_bytes_min": _states(problem, kv), "sm_write_bytes": _states(problem, kv)},
            "O": write(q_rows, problem.row_bytes(dv)),
        },
    )
    return Formulas((queries, tokens, *row_widths(problem, d, dv)), (launch,))
