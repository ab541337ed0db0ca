"""FlashAttention-3 (arXiv:2407.08608) from the wheel fa3-fwd: its forward for prefill, its KV-cache kernel for decode."""

import fa3_fwd_interface
import torch

from roofline.kernels.protocol import Inputs
from roofline.kernels.support import HOPPER
from roofline.peers.inputs import PeerInputs, batched, dense_support, make_dense, masks_nothing
from roofline.peers.inputs import dense_reference as reference
from roofline.plan import Plan
from roofline.problem import Problem

__all__ = ["launch", "make_inputs", "reference", "supports", "token_major"]

HEAD_DIMS = (64, 128, 192, 256)


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why this build cannot run ``problem``, or ``None``: it has neither fp16 nor windows."""
    if reason := dense_support(problem, device, ("bf16",)):
        return reason
    if torch.cuda.get_device_capability(device) != HOPPER:
        return "FlashAttention-3 runs on compute capability 9.0 only"
    if problem.mask.window is not None:
        return "this build has no sliding window"
    if problem.kv.head_dim != problem.kv.v_head_dim or problem.kv.head_dim not in HEAD_DIMS:
        return f"expected equal head sizes among {', '.join(map(str, HEAD_DIMS))}"
    return None


def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return dense inputs, and the lengths of the cache as its decode kernel wants them."""
    _, kv_len, count = problem.lengths[0]
    lengths = torch.full((count,), kv_len, dtype=torch.int32, device=device)
    return PeerInputs(problem, make_dense(problem, seed, device).tensors, lengths)


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [batch, tokens, heads, width]; the interface allocates it, ``out`` cannot be used."""
    assert isinstance(inputs, PeerInputs)
    q, k, v = batched(inputs)
    causal = not masks_nothing(inputs.problem)
    if inputs.problem.is_decode:
        # num_splits=0: its own heuristic
        result = fa3_fwd_interface.flash_attn_with_kvcache(q, k, v, cache_seqlens=inputs.state, causal=causal, num_splits=0)
    else:
        result = fa3_fwd_interface.flash_attn_func(q, k, v, causal=causal)
    first: torch.Tensor = result[0] if isinstance(result, tuple) else result
    return first


def token_major(out: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return O [q_tokens, q_heads, width]."""
    return out.flatten(0, 1)
