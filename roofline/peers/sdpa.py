"""torch's scaled_dot_product_attention with one backend forced, and confirmed by the operator that it dispatched to.

Layout: [batch, heads, tokens, width] as a view of token-major memory, which the flash and cuDNN backends take without a copy.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.kernels.protocol import Inputs
from roofline.peers.inputs import PeerInputs, batched, dense_support, make_dense, masks_nothing
from roofline.plan import Plan
from roofline.problem import Problem

FUSED_OPERATORS = {
    SDPBackend.FLASH_ATTENTION: ("_scaled_dot_product_flash_attention",),
    SDPBackend.CUDNN_ATTENTION: ("_scaled_dot_product_cudnn_attention",),
    # a lower-right causal bias calls the efficient kernel by its inner operator
    SDPBackend.EFFICIENT_ATTENTION: ("_scaled_dot_product_efficient_attention", "_efficient_attention_forward"),
    SDPBackend.MATH: (),
}


class _Operators(TorchDispatchMode):
    """Writes down the operators that run under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True)
class Forced:
    """The functions of a kernel module for one backend."""

    which: SDPBackend
    dtypes: tuple[str, ...] = ("bf16", "fp16")
    grouped: bool = True  # takes fewer KV heads than query heads
    widest: int = 256
    lower_right: bool = True  # takes a causal mask over unequal lengths without materialising it

    def supports(self, problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
        """Return why the backend cannot run ``problem``, or ``None``."""
        if reason := dense_support(problem, device, self.dtypes):
            return reason
        q_len, kv_len, _ = problem.lengths[0]
        if problem.mask.window is not None:
            return "no sliding window"
        if not masks_nothing(problem) and q_len != kv_len and (not self.lower_right or q_len > kv_len):
            return "no bottom-right causal mask over unequal lengths"
        if problem.group > 1 and not self.grouped:
            return "no grouped query heads"
        if max(problem.kv.head_dim, problem.kv.v_head_dim) > self.widest:
            return f"no heads wider than {self.widest}"
        return None

    def launch(self, inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return O [batch, heads, tokens, width]; the interface allocates it, ``out`` cannot be used."""
        assert isinstance(inputs, PeerInputs)
        q, k, v = (tensor.transpose(1, 2) for tensor in batched(inputs))
        problem, bias = inputs.problem, inputs.state
        causal = not masks_nothing(problem)
        with sdpa_kernel(self.which):
            return scaled_dot_product_attention(
                q, k, v, attn_mask=bias, is_causal=causal and bias is None, enable_gqa=problem.group > 1
            )

    def backend(self, inputs: Inputs, plan: Plan) -> str:
        """Run once and return the operator that ran; raise ``RuntimeError`` if it is that of another backend."""
        with _Operators() as operators:
            self.launch(inputs, plan)
        fused = [name for name in operators.names if any(op in name for ops in FUSED_OPERATORS.values() for op in ops)]
        wanted = FUSED_OPERATORS[self.which]
        if (fused or wanted) and not any(op in name for name in fused for op in wanted):
            raise RuntimeError(f"asked SDPA for {self.which.name}, it ran {', '.join(fused) or 'no fused operator'}")
        return f"operator {fused[0]}" if fused else "composed of matmul and softmax, no fused operator"


def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return dense inputs, with the bias of a causal mask over unequal lengths: torch's ``is_causal`` is top-left there."""
    q_len, kv_len, _ = problem.lengths[0]
    bias = None if masks_nothing(problem) or q_len == kv_len else causal_lower_right(q_len, kv_len)
    return PeerInputs(problem, make_dense(problem, seed, device).tensors, bias)


def token_major(out: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return O [q_tokens, q_heads, width]."""
    return out.transpose(1, 2).flatten(0, 1)
