"""Sets of inputs and outputs that calls take in turn, so that none finds its own data in L2."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from roofline.cost import ceil_div
from roofline.kernels.protocol import Inputs, Kernel
from roofline.plan import Plan

ROTATED_L2 = 4  # bytes rotated over, in sizes of the L2; less than 2 would not be cold
COLD_L2 = 2
STREAMS_ITSELF = 8  # L2 sizes from which one set alone pushes its own start out
MOST_SETS = 256
MEMORY_PART = 0.4  # of what is free, for the sets of one case


@dataclass(frozen=True, slots=True)
class Rotation:
    """One case with its sets. ``l2`` says whether the bytes rotated over are enough to be cold."""

    module: Kernel
    plan: Plan
    inputs: Sequence[Inputs]
    outputs: Sequence[torch.Tensor]
    l2: Literal["cold", "warm"]

    @property
    def turn(self) -> int:
        """Calls after which the first set comes again."""
        return len(self.inputs)

    def call(self, index: int) -> torch.Tensor:
        """Launch call number ``index`` on its set."""
        place = index % len(self.inputs)
        return self.module.launch(self.inputs[place], self.plan, self.outputs[place])


def rotate(
    module: Kernel,
    plan: Plan,
    inputs: Inputs,
    output: torch.Tensor,
    touched_bytes: int,
    l2_bytes: int,
    wanted: str = "cold",
) -> Rotation:
    """Copy ``inputs`` and ``output`` as often as it takes; one call touches ``touched_bytes``.

    The copies hold the same values: only addresses matter to a cache.
    """
    sets = set_count(touched_bytes, l2_bytes) if wanted == "cold" else 1
    each = sum(tensor.numel() * tensor.element_size() for tensor in (*inputs.tensors.values(), output))
    free = torch.cuda.mem_get_info()[0]
    sets = max(min(sets, int(free * MEMORY_PART) // max(each, 1)), 1)
    cold = touched_bytes * sets >= COLD_L2 * l2_bytes and (sets > 1 or touched_bytes >= STREAMS_ITSELF * l2_bytes)
    copies = [inputs]
    for _ in range(sets - 1):
        copies.append(replace(inputs, tensors={name: tensor.clone() for name, tensor in inputs.tensors.items()}))
    return Rotation(module, plan, copies, [output, *(output.clone() for _ in range(sets - 1))], "cold" if cold else "warm")


def set_count(touched_bytes: int, l2_bytes: int) -> int:
    """Return how many sets rotate over ``ROTATED_L2`` times the L2."""
    if touched_bytes >= STREAMS_ITSELF * l2_bytes:
        return 1
    return min(max(ceil_div(ROTATED_L2 * l2_bytes, max(touched_bytes, 1)), 2), MOST_SETS)
