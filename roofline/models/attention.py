"""The attention problems of a model: what each kind of attention layer computes, in the words of ``roofline.problem``."""

from typing import Literal, NamedTuple

from roofline.dtypes import DType
from roofline.masks import Mask
from roofline.models.mixers import Attention
from roofline.models.spec import ModelSpec
from roofline.problem import LatentKV, Lengths, Problem, uniform

Phase = Literal["prefill", "decode"]


class AttentionProblem(NamedTuple):
    """One kind of attention: its name, how many layers have it, the problem of one layer, and the variant that fits it."""

    kind: str
    layers: int
    problem: Problem
    variant: str


def attention_problems(
    spec: ModelSpec, phase: Phase, n: int, batch: int, dtype: DType, kv_dtype: DType, page_size: int = 16
) -> tuple[AttentionProblem, ...]:
    """The attention of every kind of layer, of ``batch`` sequences: a prefill of ``n`` tokens, or the ``n``-th token alone."""
    found = []
    for mixer, layers in spec.mixers:
        if isinstance(mixer, Attention):
            problem = attention_problem(mixer, phase, n, batch, dtype, kv_dtype, page_size)
            found.append(AttentionProblem(mixer.kind, layers, problem, variant_of(mixer, phase)))
    return tuple(found)


def attention_problem(
    attention: Attention, phase: Phase, n: int, batch: int, dtype: DType, kv_dtype: DType, page_size: int = 16
) -> Problem:
    """One layer's problem. Chunks are block-diagonal: exactly a batch of independent causal sequences, one a chunk."""
    if attention.chunk is None:
        lengths = uniform(batch, n if phase == "prefill" else 1, n)
    elif phase == "decode":
        lengths = uniform(batch, 1, (n - 1) % attention.chunk + 1)
    else:
        whole, rest = divmod(n, attention.chunk)
        runs = (Lengths(attention.chunk, attention.chunk, batch * whole), Lengths(rest, rest, batch))
        lengths = tuple(run for run in runs if run.count and run.q_len)
    mask = Mask(causal=True, window=attention.window)
    return Problem(attention.q_heads, attention.kv, lengths, mask, dtype, kv_dtype, page_size)


def variant_of(attention: Attention, phase: Phase) -> str:
    """The variant of ``roofline.variants`` that an engine would run: one that moves few bytes in this phase."""
    if isinstance(attention.kv, LatentKV):
        return "mla"
    return "flash" if phase == "prefill" else "split-kv"


def useful_flops(problem: Problem, phase: Phase) -> int:
    """Useful FLOPs 2 P (d_qk + d_v) a query head; a latent cache is expanded in prefill and absorbed in decode."""
    kv = problem.kv
    if not isinstance(kv, LatentKV):
        width = kv.head_dim + kv.v_head_dim
    elif phase == "prefill":
        width = kv.head_dim + kv.rope_dim + kv.v_head_dim
    else:
        width = 2 * kv.latent_dim + kv.rope_dim
    return 2 * problem.pairs * problem.q_heads * width


def kv_row_bytes(problem: Problem) -> int:
    """Bytes of one token in the cache of one layer, the scales of its rows included (design.md, section 4)."""
    kv = problem.kv
    if isinstance(kv, LatentKV):
        return problem.kv_row_bytes(kv.cached_dim) + problem.scale_row_bytes(kv.cached_dim)
    widths = (kv.head_dim, kv.v_head_dim)
    return kv.heads * sum(problem.kv_row_bytes(width) + problem.scale_row_bytes(width) for width in widths)


def scale_tensor_bytes(problem: Problem) -> int:
    """Bytes of the scales that belong to whole tensors: one for K and one for V, or one for the latent."""
    return problem.scale_tensor_bytes * (1 if isinstance(problem.kv, LatentKV) else 2)
