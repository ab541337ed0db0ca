"""Naive attention, in three and six passes, against float64."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from roofline.kernels import naive, reference
from roofline.plan import Choices, choose
from roofline.problem import GroupedKV, uniform
from tests.kernels.shapes import LARGE, MASKS, PROFILE, SMALL, grouped

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("passes", [3, 6])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", SMALL)
def test_edges(agrees: Callable[..., None], lengths: str, mask: str, passes: int) -> None:
    problem = grouped(SMALL[lengths], mask, heads=(2, 1))
    agrees(naive, problem, choose("naive", "roofline/naive", problem, PROFILE, Choices(tile=(32, 16), passes=passes)))


@pytest.mark.parametrize(("d", "dv"), [(24, 40), (17, 13)])
@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16"])
def test_head_sizes(agrees: Callable[..., None], dtype: str, d: int, dv: int) -> None:
    problem = grouped(SMALL["odd"], "causal", dtype, (1, 1), d, dv)
    agrees(naive, problem, choose("naive", "roofline/naive", problem, PROFILE, Choices(tile=(32, 32))))


@pytest.mark.gpu
@pytest.mark.parametrize("passes", [3, 6])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", LARGE)
@pytest.mark.parametrize(("dtype", "d"), [("bf16", 64), ("bf16", 128), ("fp16", 96), ("tf32", 64)])
def test_large(agrees: Callable[..., None], lengths: str, mask: str, dtype: str, d: int, passes: int) -> None:
    problem = grouped(LARGE[lengths], mask, dtype, (4, 2), d)
    agrees(naive, problem, choose("naive", "roofline/naive", problem, PROFILE, Choices(passes=passes)))


@pytest.mark.gpu
def test_offsets_beyond_32_bits(seed: int, device: torch.device) -> None:
    n, heads = 16384, 9  # S of 2.4e9 elements
    problem = grouped(uniform(1, n, n), "causal", "bf16", (heads, heads), 64)
    inputs = naive.make_inputs(problem, seed, device)
    out = naive.launch(inputs, choose("naive", "roofline/naive", problem, PROFILE))[:, -1:]
    one = replace(problem, q_heads=1, kv=GroupedKV(1, 64, 64))
    q, k, v = (inputs.tensors[name][:, -1:] for name in "qkv")
    expected = reference.attention(q, k, v, one)
    allowed = reference.tolerance(reference.plain(q, k, v, one), expected, one)
    assert reference.relative_error(out, expected) <= allowed
