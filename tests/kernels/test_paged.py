"""Paged decode against the float64 reference: any page size, scattered and shared pages, unequal lengths."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from roofline.dtypes import DTYPES
from roofline.kernels import paged
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem, ragged, uniform

PLAN = Plan("roofline/paged", 32, 16, 16, 16, splits=2, packed=True)
RAGGED = ragged([(1, 37), (1, 0), (3, 70), (8, 5), (1, 32)])


def _problem(lengths: tuple[Lengths, ...], mask: Mask = FULL, page_size: int = 16, shared_prefix: int = 0) -> Problem:
    dtype = DTYPES["fp16"]
    return Problem(4, GroupedKV(2, 16, 16), lengths, mask, dtype, dtype, page_size=page_size, shared_prefix=shared_prefix)


@pytest.mark.kernels
@pytest.mark.parametrize("page_size", [1, 5, 16, 48, 128])
def test_page_sizes(agrees: Callable, page_size: int) -> None:
    agrees(paged, _problem(RAGGED, CAUSAL, page_size), PLAN, paged.dense)


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(True, 19)], ids=["full", "causal", "window"])
@pytest.mark.parametrize("splits", [1, 3])
def test_masks(agrees: Callable, mask: Mask, splits: int) -> None:
    agrees(paged, _problem(uniform(3, 2, 45), mask, 4), replace(PLAN, splits=splits), paged.dense)


@pytest.mark.kernels
def test_shared_prefix(agrees: Callable) -> None:
    agrees(paged, _problem(ragged([(1, 40), (2, 33), (1, 35)]), shared_prefix=30, page_size=8), PLAN, paged.dense)


@pytest.mark.kernels
def test_slots_beyond_a_sequence_are_not_read(device: torch.device, seed: int) -> None:
    inputs = paged.make_inputs(_problem(uniform(2, 1, 21)), seed, device)
    expected = paged.launch(inputs, PLAN)
    for sequence in range(2):
        last_page = int(inputs.tensors["table"][sequence, 1])
        for name in "kv":
            inputs.tensors[f"{name}_pages"][last_page, 5:] = torch.nan
    assert torch.equal(paged.launch(inputs, PLAN), expected)


@pytest.mark.kernels
def test_page_table_has_each_page_once_but_for_the_shared(seed: int) -> None:
    table, pages = paged.page_table([40, 17, 16, 0], page_size=8, shared_pages=2, seed=seed)
    assert table.shape == (4, 8)
    assert pages == 2 + 3 + 1
    assert table[0, :2].tolist() == table[1, :2].tolist() == table[2, :2].tolist()
    used = [*table[0, :5].tolist(), int(table[1, 2])]
    assert sorted(used) == list(range(6))
