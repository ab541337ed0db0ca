"""torch FlexAttention (arXiv:2412.05496), compiled for each problem with its mask as a block mask."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from roofline.kernels.protocol import Inputs
from roofline.peers.inputs import PeerInputs, batched, dense_support, make_dense, masks_nothing
from roofline.peers.inputs import dense_reference as reference
from roofline.peers.sdpa import token_major
from roofline.plan import Plan
from roofline.problem import Problem

__all__ = ["backend", "launch", "make_inputs", "reference", "supports", "token_major"]

MOST_PAIRS = 2**31  # the mask is evaluated on every pair once to make its blocks


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why FlexAttention cannot run ``problem``, or ``None``."""
    if reason := dense_support(problem, device, ("bf16", "fp16", "fp32")):
        return reason
    q_len, kv_len, _ = problem.lengths[0]
    if not masks_nothing(problem) and q_len * kv_len > MOST_PAIRS:
        return "a mask of this size takes too much memory to make"
    return None


def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return dense inputs, and a freshly compiled function with the block mask of ``problem``."""
    torch.compiler.reset()  # torch falls back to eager code, silently, after some recompilations of one function
    mask = None
    if not masks_nothing(problem):
        q_len, kv_len, _ = problem.lengths[0]
        mask = create_block_mask(_visible(problem), None, None, q_len, kv_len, device=str(device))
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return PeerInputs(problem, make_dense(problem, seed, device).tensors, (compiled, mask))


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [batch, heads, tokens, width]; the interface allocates it, ``out`` cannot be used."""
    assert isinstance(inputs, PeerInputs)
    compiled, mask = inputs.state
    q, k, v = (tensor.transpose(1, 2) for tensor in batched(inputs))
    result: torch.Tensor = compiled(q, k, v, block_mask=mask, enable_gqa=inputs.problem.group > 1)
    return result


def backend(inputs: Inputs, plan: Plan) -> str:
    """Say how it ran: ``fullgraph`` lets nothing fall back to eager code."""
    return "torch.compile, fullgraph"


def _visible(problem: Problem) -> Callable[..., Any]:
    q_len, kv_len, _ = problem.lengths[0]
    offset, window = kv_len - q_len, problem.mask.window

    def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return key <= query + offset

    def windowed(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return (key <= query + offset) & (key > query + offset - window)

    return causal if window is None else windowed
