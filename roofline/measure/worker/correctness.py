"""Correct before fast: an output is compared with a float64 reference before a clock is read.

The tolerance is not tuned by hand: it is twice the error that plain attention in the problem's own dtype makes on the same
inputs. Where there is no plain form (linear attention), it is a few roundings of the dtype.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from roofline.kernels import reference as references
from roofline.kernels.protocol import Inputs, Kernel

ROUNDINGS_WITHOUT_PLAIN = 8.0  # of the output's dtype: sums of products whose operands were rounded before


@dataclass(frozen=True, slots=True)
class Check:
    """How far an output is from the reference: ``||out - ref|| / ||ref||``."""

    error: float
    tolerance: float
    problem: str | None  # what is wrong, in words


def check(module: Kernel, variant: str, inputs: Inputs, out: torch.Tensor) -> Check:
    """Compare ``out`` [q_tokens, q_heads, d_v], which was full of NaN before the call, with the reference of ``module``."""
    reference = module.reference(inputs)
    limit = tolerance(module, variant, inputs, reference)
    if out.shape != reference.shape:
        return Check(float("inf"), limit, f"output of shape {tuple(out.shape)}, expected {tuple(reference.shape)}")
    broken = int(out.numel() - torch.isfinite(out).sum().item())
    if broken:
        return Check(float("inf"), limit, f"{broken} of {out.numel()} elements are not finite or were not written")
    error = references.relative_error(out, reference)
    return Check(error, limit, None if error <= limit else f"relative error {error:.3g}, allowed {limit:.3g}")


def tolerance(module: Kernel, variant: str, inputs: Inputs, reference: torch.Tensor) -> float:
    """Return the relative error allowed to ``module`` on ``inputs``."""
    unit = references.UNIT_ROUNDOFF[inputs.problem.dtype.name]
    plain_tensors = all(name in inputs.tensors for name in "qkv") and not any("scale" in name for name in inputs.tensors)
    dense: Callable[[Inputs], Any] | None = getattr(module, "dense", None)
    if variant == "linear" or not (plain_tensors or dense):
        return ROUNDINGS_WITHOUT_PLAIN * unit
    if plain_tensors or dense is None:
        q, k, v, scale = (*(inputs.tensors[name] for name in "qkv"), None)
    else:  # pages, scales, a latent cache: the module knows what they stand for, and perhaps a softmax scale of its own
        q, k, v, scale = (*dense(inputs), None)[:4]
    plain = references.plain(q, k.to(q.dtype), v.to(q.dtype), inputs.problem, scale)
    return references.tolerance(plain, reference, inputs.problem)


def token_major(module: Kernel, out: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return ``out`` as [q_tokens, q_heads, d_v]: a peer that returns another layout says how to read it."""
    convert: Callable[[torch.Tensor, Inputs], torch.Tensor] | None = getattr(module, "token_major", None)
    return out if convert is None else convert(out, inputs)
