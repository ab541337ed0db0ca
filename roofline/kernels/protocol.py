"""What every kernel module offers. Typing only: nothing here imports torch at run time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from roofline.plan import Plan
from roofline.problem import Problem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Inputs:
    """The tensors of one problem, by name, in the kernel's native layout.

    Token-major and packed over the batch: ``q`` [q_tokens, q_heads, d_qk], ``k`` [kv_tokens, kv_heads, d_qk], ``v``
    [kv_tokens, kv_heads, d_v]; a kernel documents what else it takes (page tables, scales, latent caches, states).
    """

    problem: Problem
    tensors: Mapping[str, "torch.Tensor"]


class Kernel(Protocol):
    """The functions of a kernel module."""

    def supports(self, problem: Problem, device: "torch.device", plan: Plan | None = None) -> str | None:
        """Return ``None`` if the kernel can run ``problem`` (with ``plan``) on ``device``, else the reason in one line."""

    def make_inputs(self, problem: Problem, seed: int, device: "torch.device") -> Inputs:
        """Return random inputs of ``problem`` on ``device``, the same for the same seed."""

    def launch(self, inputs: Inputs, plan: Plan, out: "torch.Tensor | None" = None) -> "torch.Tensor":
        """Run the kernel with ``plan`` on the current stream and return O [q_tokens, q_heads, d_v] (``out`` if given)."""

    def reference(self, inputs: Inputs) -> "torch.Tensor":
        """Return O in float64, computed by an independent and simple formula."""
