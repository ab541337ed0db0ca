"""From which length on attention costs more FLOPs than the MLP.

Of one decoded token: 2 (d_qk + d_v) n FLOPs a query head and layer against 2 per MLP weight. For GPT-2 (an MLP of 16 h^2, heads
x d = h) that is 16 h^2 = 4 n h, so n = 4 h. A prefill reaches it at about twice that length, since its tokens see half of the
others on average; a window or a chunk may keep attention below for ever.
"""

from collections.abc import Callable

from roofline.dtypes import DTYPES
from roofline.models.attention import Phase, attention_problem, useful_flops
from roofline.models.mixers import Attention
from roofline.models.spec import ModelSpec

MLP_PARTS = frozenset({"mlp", "experts", "shared expert"})
LONGEST = 2**32


def mlp_flops_per_token(spec: ModelSpec) -> int:
    """FLOPs of the MLPs, or of the experts that one token uses, in all layers."""
    per_layer = (
        (run.repeats, weight.per_token)
        for run in spec.distinct_layers
        for weight in run.layer.weights(spec.hidden_size)
        if weight.part in MLP_PARTS
    )
    return sum(2 * repeats * values for repeats, values in per_layer)


def attention_flops(spec: ModelSpec, phase: Phase, n: int) -> int:
    """Useful FLOPs of attention over keys in all layers: a prefill of ``n`` tokens, or the ``n``-th token alone."""
    dtype = DTYPES["bf16"]
    return sum(
        layers * useful_flops(attention_problem(mixer, phase, n, 1, dtype, dtype), phase)
        for mixer, layers in spec.mixers
        if isinstance(mixer, Attention)
    )


def crossover(spec: ModelSpec, phase: Phase) -> int | None:
    """Smallest n at which attention has at least the FLOPs of the MLP; ``None`` where there is none up to 2^32 tokens."""
    mlp = mlp_flops_per_token(spec)
    chunks = [mixer.chunk for mixer, _ in spec.mixers if isinstance(mixer, Attention) and mixer.chunk is not None]
    if not mlp or len(set(chunks)) > 1:
        return None

    def reached(n: int) -> bool:
        return attention_flops(spec, phase, n) >= mlp * (n if phase == "prefill" else 1)

    # Attention grows with n inside a chunk and falls back where the next one starts, so look at the ends of chunks first.
    period = chunks[0] if chunks else 1
    last = _first(lambda count: reached(count * period), LONGEST // period)
    if last is None:
        return None
    start = (last - 1) * period
    inside = _first(lambda step: reached(start + step), period)
    return None if inside is None else start + inside


def _first(holds: Callable[[int], bool], most: int) -> int | None:
    """Smallest value from 1 to ``most`` for which ``holds``, given that it then holds for all larger ones."""
    if most < 1 or not holds(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
