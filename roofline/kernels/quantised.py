"""K and V in fewer bits: fp8 (e4m3) with one fp32 scale a tensor, int8 with one fp32 scale per token and KV head.

Scales are stored apart from the values and contiguous in tokens, so that a tile reads whole sectors of them:
``k_scale`` and ``v_scale`` [kv_heads, kv_tokens] for int8, [1] for fp8.
"""

import torch

from roofline.dtypes import DType
from roofline.kernels.inputs import TORCH_DTYPES
from roofline.kernels.protocol import Inputs
from roofline.problem import Problem

E4M3_MAX = 448.0
INT8_MAX = 127.0
STORED = ("fp8", "int8")


def quantise(values: torch.Tensor, kv_dtype: DType) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``values`` [tokens, heads, width] in ``kv_dtype``, and the scales that multiply them back."""
    wide = values.float()
    if kv_dtype.name == "fp8":
        scale = wide.abs().amax().clamp(min=1e-12).reshape(1) / E4M3_MAX if wide.numel() else wide.new_ones(1)
        return (wide / scale).to(torch.float8_e4m3fn), scale
    scales = wide.abs().amax(-1).clamp(min=1e-12) / INT8_MAX  # [tokens, heads]
    return (wide / scales[..., None]).round().to(torch.int8), scales.T.contiguous()


def quantise_cache(inputs: Inputs) -> Inputs:
    """Return ``inputs`` with ``k`` and ``v`` stored in the problem's KV dtype, and their scales beside them."""
    problem, tensors = inputs.problem, dict(inputs.tensors)
    if problem.kv_dtype.name not in STORED:
        return inputs
    for name in "kv":
        tensors[name], tensors[f"{name}_scale"] = quantise(tensors[name], problem.kv_dtype)
    return Inputs(problem, tensors)


def widen(values: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
    """Return what stored ``values`` [tokens, heads, width] stand for: themselves, or times their scales in float64."""
    if scales is None:
        return values
    return values.double() * (scales.double() if scales.dim() == 1 else scales.double().T[..., None])


def support(problem: Problem, device: torch.device) -> str | None:
    """Return why a cache in the problem's KV dtype cannot be read on ``device``, or ``None``."""
    stored, computed = problem.kv_dtype.name, problem.dtype.name
    if stored not in STORED:
        same = TORCH_DTYPES.get(stored) == TORCH_DTYPES[computed]
        return None if same else f"no kernel reads a KV cache in {stored} under {computed}"
    if stored == "fp8" and device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        return "fp8 needs compute capability 8.9 or later"
    return None
