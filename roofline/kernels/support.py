"""What the prefill kernels can run: dtypes, devices and tile shapes, each refusal as one line for the user."""

import torch
import triton

from roofline.kernels.inputs import TORCH_DTYPES, materialised
from roofline.plan import Plan, next_power_of_two
from roofline.problem import Problem

PRECISION = {"fp32": "ieee", "tf32": "tf32", "bf16": "ieee", "fp16": "ieee"}  # of tl.dot; 16-bit products are exact in fp32
LOG2_E = 1.4426950408889634
OLDEST_CAPABILITY, HOPPER = (8, 0), (9, 0)
MIN_DOT_TILE = 16
WIDEST_HEAD = 256
MAX_INDEX = 2**31 - 1  # tokens and CTAs are counted in 32 bits


def device_support(problem: Problem, device: torch.device) -> str | None:
    """Return why kernels cannot run on ``device`` in the problem's compute dtype, or ``None``."""
    if problem.dtype.name not in TORCH_DTYPES:
        return f"no kernel computes in {problem.dtype.name}"
    if device.type == "cuda":
        if torch.cuda.get_device_capability(device) < OLDEST_CAPABILITY:
            return "needs an NVIDIA GPU of compute capability 8.0 or later"
        return None
    if not triton.knobs.runtime.interpret:
        return "needs an NVIDIA GPU (or TRITON_INTERPRET=1)"
    return "Triton's interpreter computes bf16 wrongly" if problem.dtype.name == "bf16" else None


def prefill_support(problem: Problem, device: torch.device, plan: Plan | None) -> str | None:
    """Return why attention over K and V in the compute dtype cannot run, or ``None``; a latent cache is expanded to them."""
    kv = materialised(problem)
    if reason := device_support(problem, device):
        return reason
    if kv is problem.kv and TORCH_DTYPES.get(problem.kv_dtype.name) != TORCH_DTYPES[problem.dtype.name]:
        return f"K and V in {problem.kv_dtype.name} under {problem.dtype.name} are decode only"
    if max(kv.head_dim, kv.v_head_dim) > WIDEST_HEAD:
        return f"heads wider than {WIDEST_HEAD}"
    if max(problem.q_tokens, problem.kv_tokens) > MAX_INDEX:
        return "more than 2^31 tokens"
    if plan is not None:
        for size in (plan.q_tile, plan.kv_tile):
            if size < MIN_DOT_TILE or size != next_power_of_two(size):
                return f"tile {plan.q_tile}x{plan.kv_tile}: Triton needs powers of two, at least {MIN_DOT_TILE}"
    return None
