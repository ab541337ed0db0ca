"""What the KV cache holds and what is allocated for it, in formulas."""

from roofline.analysis import shared_tokens
from roofline.explain.counts import per_run
from roofline.explain.formula import Factor, Formula, Quantity, minus, product, total
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

    def size_of(tokens: Formula) -> Formula:
        tensors = 1 if isinstance(problem.kv, LatentKV) else 2
        formula = tokens.times(per_token(problem).factor, layers)
        if problem.scale_tensor_bytes:
            formula += product(("scales of whole tensors", tensors), ("B", problem.scale_tensor_bytes), layers)
        return formula

    how = f"in whole pages of {page} tokens" if variant == "paged" else "contiguous, --max-len tokens a sequence where given"
    return (
        Quantity("kv_cache_bytes", "K and V of the tokens held", size_of(per_run(problem, held) + shared)),
        Quantity("kv_cache_bytes_allocated", how, size_of(per_run(problem, allocated) + shared)),
    )


def per_token(problem: Problem) -> Quantity:
    """What one token adds to the cache of one layer."""
    kv, heads = problem.kv, Factor("KV heads", problem.kv_heads)
    widths = {"the latent": kv.cached_dim} if isinstance(kv, LatentKV) else {"K": kv.head_dim, "V": kv.v_head_dim}
    rows = [product(heads, (f"B of {tensor}", problem.kv_row_bytes(width))) for tensor, width in widths.items()]
    scales = [
        product(heads, (f"B of scales of {tensor}", problem.scale_row_bytes(width)))
        for tensor, width in widths.items()
        if problem.scale_row_bytes(width)
    ]
    return Quantity("B a token", "what a token adds to the KV cache of one layer", total([*rows, *scales]))
