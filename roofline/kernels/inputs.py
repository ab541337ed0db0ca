"""Random inputs of a problem: standard normal values from a seeded generator, made on the device in the compute dtype."""

import torch

from roofline.kernels.protocol import Inputs
from roofline.problem import GroupedKV, LatentKV, Problem

TORCH_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def materialised(problem: Problem) -> GroupedKV:
    """K and V as a prefill kernel reads them: a latent cache is expanded to one K and V a query head, RoPE part appended."""
    kv = problem.kv
    if isinstance(kv, LatentKV):
        return GroupedKV(problem.q_heads, kv.head_dim + kv.rope_dim, kv.v_head_dim)
    return kv


def normal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor of independent standard normal values on the device of ``generator``."""
    return torch.empty(shape, dtype=dtype, device=generator.device).normal_(generator=generator)


def dense_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
    """Return ``q`` [q_tokens, q_heads, d_qk], ``k`` [kv_tokens, kv_heads, d_qk] and ``v`` [kv_tokens, kv_heads, d_v]."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype, kv = TORCH_DTYPES[problem.dtype.name], materialised(problem)
    return Inputs(
        problem,
        {
            "q": normal((problem.q_tokens, problem.q_heads, kv.head_dim), dtype, generator),
            "k": normal((problem.kv_tokens, kv.heads, kv.head_dim), dtype, generator),
            "v": normal((problem.kv_tokens, kv.heads, kv.v_head_dim), dtype, generator),
        },
    )
