"""Never ends: the supervisor has to kill it."""

import torch
import triton
import triton.language as tl

from roofline.kernels.protocol import Inputs
from roofline.measure.worker.faults.inputs import make_inputs, reference, supports
from roofline.plan import Plan

__all__ = ["launch", "make_inputs", "reference", "supports"]


@triton.jit
def _spin(flag):
    # Atomic: an ordinary load could be moved out of the loop, and the loop away.
    while tl.atomic_add(flag, 0) == 0:
        pass


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Wait for a flag that nobody sets."""
    _spin[(1,)](torch.zeros(1, dtype=torch.int32, device=inputs.tensors["q"].device))
    return inputs.tensors["q"].clone() if out is None else out
