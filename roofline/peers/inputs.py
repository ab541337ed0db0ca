"""What peers share: the same random values as our kernels get, and views of them in a peer's layout."""

from dataclasses import dataclass
from typing import Any

import torch

from roofline.kernels import reference as references
from roofline.kernels.inputs import dense_inputs
from roofline.kernels.protocol import Inputs
from roofline.problem import GroupedKV, Problem


@dataclass(frozen=True, slots=True)
class PeerInputs(Inputs):
    """Inputs with what a peer prepares once for them: a plan, a mask, a workspace; shared by copies of the tensors."""

    state: Any = None


def make_dense(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return the packed ``q``, ``k`` and ``v`` that our flash kernel gets for the same seed."""
    return dense_inputs(problem, seed, device)


def dense_reference(inputs: Inputs) -> torch.Tensor:
    """Return O in float64."""
    q, k, v = (inputs.tensors[name] for name in "qkv")
    return references.attention(q, k, v, inputs.problem)


def batched(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return views [batch, tokens, heads, width] of the packed tensors of a batch of equal sequences."""
    q, k, v = (by_sequence(inputs.tensors[name], inputs.problem) for name in "qkv")
    return q, k, v


def by_sequence(tensor: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Return a view [batch, tokens, ...] of packed tokens."""
    return tensor.view(problem.batch, -1, *tensor.shape[1:])


def dense_support(problem: Problem, device: torch.device, dtypes: tuple[str, ...]) -> str | None:
    """Return why a peer of dense attention over equal sequences cannot run ``problem``, or ``None``."""
    if device.type != "cuda":
        return "needs an NVIDIA GPU"
    if not isinstance(problem.kv, GroupedKV):
        return "no latent KV cache"
    if len(problem.lengths) != 1:
        return "no batch of unequal sequences"
    if problem.dtype.name not in dtypes:
        return f"no {problem.dtype.name}"
    if problem.kv_dtype.name != problem.dtype.name:
        return f"no {problem.kv_dtype.name} cache under {problem.dtype.name}"
    return None


def masks_nothing(problem: Problem) -> bool:
    """Whether the mask leaves every pair: a causal mask does over one query."""
    return problem.mask.is_full or (problem.mask.window is None and problem.lengths[0].q_len == 1)
