"""What both Hopper kernels of absorbed MLA share, in Gluon: boxes of 64 columns that TMA moves, and splits of the latents."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

KEYS = gl.constexpr(64)  # of a tile
BOX = gl.constexpr(64)  # columns that lie together in shared memory: 128 bytes, as wide as the swizzle
GROUP_REGISTERS, LOADER_REGISTERS = (gl.constexpr(i) for i in (240, 24))  # of a thread


def describe_boxes(tensor: torch.Tensor, batch: int, rows: int, box_rows: int) -> TensorDescriptor:
    """Describe [tokens, .., width] as [batch, rows, width]: rows beyond a sequence are neither read nor written."""
    width = tensor.shape[-1]
    layout = gl.NVMMASharedLayout(128, 16, 3)
    return TensorDescriptor(tensor, [batch, rows, width], [rows * width, width, 1], [1, box_rows, BOX.value], layout)


@gluon.jit
def copy_box(source, sequence, row, column, barrier, target):
    """Load one box."""
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 3)
    box = target._reinterpret(target.dtype, [1, target.shape[0], BOX], layout)
    tma.async_copy_global_to_shared(source, [sequence, row, column], barrier, box)


@gluon.jit
def share_of_split(split, splits, end):
    """Return ``first, end`` of a split of the tiles before ``end``; a split without a tile has its first one past the end."""
    per_split = gl.cdiv(end, splits)
    first = split * per_split
    return first, gl.minimum(first + per_split, end)


@gluon.jit
def as_finite(peak):
    """Return a running maximum that can be subtracted: 0 where no key was seen, as -inf - -inf is NaN."""
    return gl.where(peak == float("-inf"), 0.0, peak)
