"""Writes far outside of every allocation: the CUDA context is lost."""

import torch
import triton
import triton.language as tl

from roofline.kernels.protocol import Inputs
from roofline.measure.worker.faults.inputs import make_inputs, reference, supports
from roofline.plan import Plan

__all__ = ["launch", "make_inputs", "reference", "supports"]
FAR = 2**40  # elements: terabytes beyond any mapping of the allocator


@triton.jit
def _write(out, offset):
    tl.store(out + offset, 1.0)


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Write where nothing is mapped."""
    result = inputs.tensors["q"].clone() if out is None else out
    _write[(1,)](result, FAR)
    return result
