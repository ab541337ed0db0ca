"""flash-linear-attention's linear attention, chunked or recurrent, without normaliser and scale as ours."""

import torch
from fla.ops.linear_attn import chunk_linear_attn, fused_recurrent_linear_attn

from roofline.kernels import linear
from roofline.kernels.protocol import Inputs
from roofline.peers.inputs import batched
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem

__all__ = ["launch", "make_inputs", "reference", "supports", "token_major"]

make_inputs, reference = linear.make_inputs, linear.reference


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why it cannot run ``problem``, or ``None``."""
    kv, form = problem.kv, plan.form if plan is not None else None
    if device.type != "cuda":
        return "needs an NVIDIA GPU"
    if not isinstance(kv, GroupedKV) or kv.heads != problem.q_heads:
        return "no grouped query heads"
    if len(problem.lengths) != 1:
        return "no batch of unequal sequences in the layout used here"
    if problem.dtype.name not in ("bf16", "fp16"):
        return f"no {problem.dtype.name}"
    if form not in ("chunked", "recurrent"):
        return "no parallel form"
    if form == "chunked" and problem.mask.is_full:
        return "its chunked form is causal only"
    return None


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [batch, tokens, heads, width]; the interface allocates it, ``out`` cannot be used."""
    q, k, v = batched(inputs)
    state = inputs.tensors.get("state")
    run = fused_recurrent_linear_attn if plan.form == "recurrent" else chunk_linear_attn
    result: torch.Tensor = run(
        q, k, v, scale=1.0, initial_state=state, output_final_state=plan.form == "recurrent", normalize=False
    )[0]
    return result


def token_major(out: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return O [q_tokens, q_heads, width]."""
    return out.flatten(0, 1)
