"""Asks for more memory than there is."""

import torch

from roofline.kernels.protocol import Inputs
from roofline.measure.worker.faults.inputs import make_inputs, reference, supports
from roofline.plan import Plan

__all__ = ["launch", "make_inputs", "reference", "supports"]


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Allocate a workspace twice as large as the device."""
    device = inputs.tensors["q"].device
    return torch.empty(2 * torch.cuda.get_device_properties(device).total_memory, dtype=torch.uint8, device=device)
