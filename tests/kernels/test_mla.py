"""Absorbed MLA against the float64 reference: one latent tile as K and V, with and without a RoPE part."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from roofline.dtypes import DTYPES
from roofline.kernels import mla
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Plan, choose
from roofline.problem import LatentKV, Lengths, Problem, ragged, uniform
from roofline.profiles import load

PLAN = Plan("roofline/mla", 32, 16, 48, 32, form="absorbed", splits=3, packed=True)
LATENT = LatentKV(32, 16, 12, 12)


def _problem(lengths: tuple[Lengths, ...], mask: Mask = FULL, heads: int = 3, latent: LatentKV = LATENT) -> Problem:
    return Problem(heads, latent, lengths, mask, DTYPES["fp16"], DTYPES["fp16"])


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(True, 19)], ids=["full", "causal", "window"])
@pytest.mark.parametrize("lengths", [ragged([(1, 37), (1, 0), (3, 50), (8, 5)]), uniform(2, 2, 49)], ids=["ragged", "equal"])
def test_masks_and_lengths(agrees: Callable, lengths: tuple[Lengths, ...], mask: Mask) -> None:
    agrees(mla, _problem(lengths, mask), PLAN, mla.dense)


@pytest.mark.kernels
@pytest.mark.parametrize("heads", [1, 40])
@pytest.mark.parametrize("splits", [1, 2])
def test_row_tiles(agrees: Callable, heads: int, splits: int) -> None:
    agrees(mla, _problem(uniform(1, 1, 35), heads=heads), replace(PLAN, splits=splits), mla.dense)


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL], ids=["full", "causal"])
def test_expanded_is_flash_attention_of_every_head(agrees: Callable, mask: Mask) -> None:
    pytest.importorskip("roofline.kernels.flash")
    plan = Plan("roofline/mla", 16, 16, 16 + 16, 16, form="expanded")
    agrees(mla, _problem(uniform(2, 20, 35), mask), plan)


def test_the_hopper_kernel_is_refused_elsewhere() -> None:
    problem = Problem(128, LatentKV(512, 64, 128, 128), uniform(2, 1, 64), FULL, DTYPES["fp16"], DTYPES["fp16"])
    plan = choose("mla", "roofline/mla", problem, load("h200-sxm-141gb"))
    assert mla.supports(problem, torch.device("cpu"), plan) == "its plan is for compute capability 9.0"
    assert mla.supports(problem, torch.device("cpu"), replace(plan, kv_tile=32, warps=8, kernel=None)) is None


@pytest.mark.kernels
def test_without_rope(agrees: Callable) -> None:
    agrees(mla, _problem(uniform(2, 1, 20), latent=LatentKV(24, 0, 12, 12)), replace(PLAN, head_dim_tile=32), mla.dense)
