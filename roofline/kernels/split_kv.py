"""Split-KV decode over a contiguous cache (Flash-Decoding, Dao et al. 2023; Hong et al., arXiv:2311.01282).

Inputs: ``q`` [q_tokens, q_heads, d], ``k`` [kv_tokens, kv_heads, d], ``v`` [kv_tokens, kv_heads, dv]; for a cache in fp8 or
int8 also ``k_scale`` and ``v_scale`` (see ``quantised``); ``counters``, zeros (see ``decode``). Any query length; made for the
few tokens of decode.
"""

import torch

from roofline.kernels import decode, packed, quantised
from roofline.kernels import reference as references
from roofline.kernels.inputs import dense_inputs
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import device_support
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem

MOST_WIDTH = 256
MOST_KEYS = 2**30  # key positions are 32-bit inside the kernel


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why the kernel cannot run ``problem`` on ``device`` (with ``plan``), or ``None``."""
    kv = problem.kv
    if not isinstance(kv, GroupedKV):
        return "a latent KV cache runs as mla only"
    if reason := device_support(problem, device) or quantised.support(problem, device):
        return reason
    if max(kv.head_dim, kv.v_head_dim) > MOST_WIDTH:
        return f"heads wider than {MOST_WIDTH}"
    if max(lengths.kv_len for lengths in problem.lengths) > MOST_KEYS:
        return f"more than {MOST_KEYS} keys in a sequence"
    return packed.unsupported_tiles(plan) if plan else None


def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return random inputs of ``problem``; a cache in fewer bits is rounded from them."""
    return decode.with_counters(quantised.quantise_cache(dense_inputs(problem, seed, device)))


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [q_tokens, q_heads, dv]: one launch, and a combine if the keys are split."""
    return decode.launch(inputs, plan, out)


def reference(inputs: Inputs) -> torch.Tensor:
    """Return O in float64 from the values that the cache stands for."""
    return references.attention(*dense(inputs), inputs.problem)


def dense(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return packed q, k and v; a cache with scales is multiplied out in float64."""
    q, k, v = (inputs.tensors[name] for name in "qkv")
    return q, quantised.widen(k, inputs.tensors.get("k_scale")), quantised.widen(v, inputs.tensors.get("v_scale"))
