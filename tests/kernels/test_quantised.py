"""Caches in fp8 and int8: the kernels against a float64 reference over the values that the cache stands for."""

from collections.abc import Callable

import pytest
import torch

from roofline.dtypes import DTYPES
from roofline.kernels import mla, paged, quantised, split_kv
from roofline.masks import CAUSAL
from roofline.plan import Plan
from roofline.problem import GroupedKV, LatentKV, Problem, ragged

PLAN = Plan("roofline/split_kv", 32, 16, 16, 16, splits=2, packed=True, fused=True)
LENGTHS = ragged([(1, 37), (1, 0), (3, 40)])


@pytest.mark.kernels
@pytest.mark.parametrize("kv_dtype", quantised.STORED)
@pytest.mark.parametrize("kernel", [split_kv, paged], ids=["split_kv", "paged"])
def test_grouped_cache(agrees: Callable, kernel: object, kv_dtype: str) -> None:
    problem = Problem(4, GroupedKV(2, 16, 16), LENGTHS, CAUSAL, DTYPES["fp16"], DTYPES[kv_dtype], page_size=8)
    agrees(kernel, problem, PLAN, lambda inputs: _halved(kernel.dense(inputs)))


@pytest.mark.kernels
@pytest.mark.parametrize("kv_dtype", quantised.STORED)
def test_latent_cache(agrees: Callable, kv_dtype: str) -> None:
    problem = Problem(4, LatentKV(32, 16, 12, 12), LENGTHS, CAUSAL, DTYPES["fp16"], DTYPES[kv_dtype])
    plan = Plan("roofline/mla", 32, 16, 48, 32, form="absorbed", splits=2, packed=True, fused=True)
    agrees(mla, problem, plan, lambda inputs: _halved(mla.dense(inputs)))


def _halved(tensors: tuple) -> tuple:
    """Plain attention in fp16 sees the cache rounded to fp16."""
    return tuple(tensor.half() if isinstance(tensor, torch.Tensor) else tensor for tensor in tensors)


@pytest.mark.parametrize(("kv_dtype", "most"), [("fp8", 0.04), ("int8", 0.01)])
@pytest.mark.kernels
def test_rounding(seed: int, kv_dtype: str, most: float) -> None:
    values = torch.randn(50, 2, 16, generator=torch.Generator().manual_seed(seed))
    stored, scales = quantised.quantise(values, DTYPES[kv_dtype])
    error = (quantised.widen(stored, scales) - values).norm() / values.norm()
    assert 0 < error < most


@pytest.mark.kernels
def test_other_caches_are_refused(device: torch.device) -> None:
    problem = Problem(4, GroupedKV(2, 16, 16), LENGTHS, CAUSAL, DTYPES["fp16"], DTYPES["int4"])
    assert "int4" in (split_kv.supports(problem, device) or "")
