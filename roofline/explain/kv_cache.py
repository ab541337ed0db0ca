"""What the KV cache holds and what is allocated for it, in formulas."""

from roofline.analysis import kv_bytes_per_token, shared_tokens
from roofline.explain.counts import per_run
from roofline.explain.formula import Factor, Formula, Quantity, minus, product
from roofline.explain.linear import state
from roofline.problem import GroupedKV, LatentKV, Lengths, Problem


def cache_quantities(variant: str, problem: Problem) -> tuple[Quantity, Quantity]:
    """``kv_cache_bytes`` and ``kv_cache_bytes_allocated``."""
    layers = Factor("layers", problem.layers)
    if variant == "linear" and isinstance(problem.kv, GroupedKV):
        size = product(("sequences", problem.batch), ("KV heads", problem.kv.heads), *state(problem.kv), layers)
        return (
            Quantity("kv_cache_bytes", "the states: d × dv in fp32 per KV head, whatever the length", size),
            Quantity("kv_cache_bytes_allocated", "the states", size),
        )
    mask, page = problem.mask, problem.page_size
    shared = minus(product(("tokens in shared pages", shared_tokens(problem)))) if variant == "paged" else Formula(())

    def held(run: Lengths) -> Formula:
        name = "tokens" if mask.window is None else "tokens of the window"
        return product((name, mask.cached_keys(run.kv_len)))

    def allocated(run: Lengths) -> Formula:
        if variant == "paged":
            # A window's first page is kept whole.
            first = (run.kv_len - mask.cached_keys(run.kv_len)) // page
            return product(("pages", -(-run.kv_len // page) - first), ("tokens a page", page))
        if problem.max_len is None:
            return held(run)
        return product(("tokens reserved", mask.cached_keys(problem.max_len)))

    per_token = Factor(f"B a token ({_per_token(problem)})", kv_bytes_per_token(problem))

    def size_of(tokens: Formula) -> Formula:
        tensors = 1 if isinstance(problem.kv, LatentKV) else 2
        formula = tokens.times(per_token, layers)
        if problem.scale_tensor_bytes:
            formula += product(("scales of whole tensors", tensors), ("B", problem.scale_tensor_bytes), layers)
        return formula

    how = f"in whole pages of {page} tokens" if variant == "paged" else "contiguous, --max-len tokens a sequence where given"
    return (
        Quantity("kv_cache_bytes", "K and V of the tokens held", size_of(per_run(problem, held) + shared)),
        Quantity("kv_cache_bytes_allocated", how, size_of(per_run(problem, allocated) + shared)),
    )


def _per_token(problem: Problem) -> str:
    """How the bytes of a token come about, as text."""
    kv = problem.kv
    if isinstance(kv, LatentKV):
        widths = [kv.cached_dim]
        heads = ""
    else:
        widths = [kv.head_dim, kv.v_head_dim]
        heads = f"{kv.heads:,} KV heads × "
    sizes = [f"{problem.kv_row_bytes(width):,}" for width in widths]
    scales = [f"{problem.scale_row_bytes(width)} of scales" for width in widths if problem.scale_row_bytes(width)]
    parts = " + ".join(sizes + scales)
    return f"{heads}({parts})" if heads else parts
