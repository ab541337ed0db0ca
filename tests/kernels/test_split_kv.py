"""Split-KV decode against the float64 reference: every mask, head layout and length mix, in the interpreter or on a GPU."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from roofline.dtypes import DTYPES
from roofline.kernels import decode, packed, split_kv
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem, ragged, uniform
from roofline.variants.split_kv import count_packed

PLAN = Plan("roofline/split_kv", 32, 16, 16, 16, splits=3, packed=True)
RAGGED = ragged([(1, 37), (1, 0), (3, 70), (8, 5), (1, 16)])


def _problem(
    lengths: tuple[Lengths, ...],
    mask: Mask = FULL,
    heads: tuple[int, int] = (4, 2),
    d: int = 16,
    dv: int = 16,
    dtype: str = "fp16",
) -> Problem:
    return Problem(heads[0], GroupedKV(heads[1], d, dv), lengths, mask, DTYPES[dtype], DTYPES[dtype])


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(True, 19)], ids=["full", "causal", "window"])
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("fused", [False, True], ids=["two launches", "fused"])
@pytest.mark.parametrize("lengths", [RAGGED, uniform(2, 1, 49), uniform(2, 5, 33)], ids=["ragged", "decode", "speculative"])
def test_masks_and_lengths(agrees: Callable, lengths: tuple[Lengths, ...], fused: bool, splits: int, mask: Mask) -> None:
    agrees(split_kv, _problem(lengths, mask), replace(PLAN, splits=splits, fused=fused))


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(True, 100)], ids=["full", "causal", "window"])
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("lengths", [uniform(2, 1, 300), uniform(1, 2, 200)], ids=["decode", "two"])
def test_keys_as_rows_of_the_products(agrees: Callable, lengths: tuple[Lengths, ...], splits: int, mask: Mask) -> None:
    heads = (24, 1) if lengths[0].q_len == 1 else (26, 2)
    problem = _problem(lengths, mask, heads, d=16, dv=64)
    plan = replace(PLAN, kv_tile=64, v_head_dim_tile=64, splits=splits)
    assert plan.tile_rows(lengths[0].q_len * problem.group) == decode.SWAPPED_ROWS
    agrees(split_kv, problem, plan)


@pytest.mark.kernels
def test_whole_rows_of_partials() -> None:
    equal = _problem(uniform(2, 1, 49))
    assert packed.whole_splits(equal, PLAN) == 2  # 4 tiles in 3 splits are 2 a split
    assert packed.whole_splits(equal, replace(PLAN, splits=4)) == 4
    assert packed.whole_splits(_problem(RAGGED), PLAN) == 0
    many = _problem(uniform(1, 40, 49), CAUSAL)  # the first row tile sees less than the last
    assert packed.whole_splits(many, replace(PLAN, splits=4)) == 0


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(True, 19)], ids=["full", "causal", "window"])
@pytest.mark.parametrize("splits", [1, 3])
def test_ragged_launch_has_the_ctas_that_are_counted(splits: int, mask: Mask) -> None:
    problem, plan = _problem(RAGGED, mask), replace(PLAN, splits=splits, q_tile=16)
    launched = sum(work.ctas for work in packed.work(problem, plan, torch.device("cpu")))
    assert launched == count_packed(problem, plan).ctas


@pytest.mark.kernels
@pytest.mark.parametrize("heads", [(2, 2), (8, 1), (6, 2)], ids=["mha", "mqa", "group of 3"])
@pytest.mark.parametrize("q_len", [1, 7])
def test_head_layouts(agrees: Callable, heads: tuple[int, int], q_len: int) -> None:
    agrees(split_kv, _problem(uniform(2, q_len, 35), CAUSAL, heads), PLAN)
