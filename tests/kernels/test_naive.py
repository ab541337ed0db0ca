"""Naive attention, in three and six passes, against float64."""

from collections.abc import Callable

import pytest

from roofline.kernels import naive
from roofline.plan import Choices, choose
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
