"""Chunked attention against float64: one block, blocks cut by both ends, blocks that the mask skips."""

from collections.abc import Callable

import pytest

from roofline.kernels import chunked
from roofline.plan import Choices, choose
from tests.kernels.shapes import LARGE, MASKS, PROFILE, SMALL, grouped

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("chunk", [(128, 128), (33, 24)], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", SMALL)
def test_edges(agrees: Callable[..., None], lengths: str, mask: str, chunk: tuple[int, int]) -> None:
    problem = grouped(SMALL[lengths], mask, heads=(2, 1))
    agrees(chunked, problem, choose("chunked", "roofline/chunked", problem, PROFILE, Choices(tile=(32, 16), chunk=chunk)))


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16"])
def test_dtypes(agrees: Callable[..., None], dtype: str) -> None:
    problem = grouped(SMALL["odd"], "causal", dtype, (1, 1), 17, 13)
    agrees(chunked, problem, choose("chunked", "roofline/chunked", problem, PROFILE, Choices(tile=(16, 16), chunk=(16, 20))))


@pytest.mark.gpu
@pytest.mark.parametrize("chunk", [(1024, 4096), (500, 333), (256, 512)], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", LARGE)
@pytest.mark.parametrize(("dtype", "d"), [("bf16", 128), ("fp16", 96), ("tf32", 64)])
def test_large(agrees: Callable[..., None], lengths: str, mask: str, dtype: str, d: int, chunk: tuple[int, int]) -> None:
    problem = grouped(LARGE[lengths], mask, dtype, (4, 2), d)
    agrees(chunked, problem, choose("chunked", "roofline/chunked", problem, PROFILE, Choices(chunk=chunk)))
