"""Tiles are read whole: keys before the first that a window shows cost HBM bytes that nobody needs."""

from dataclasses import replace

import pytest

from roofline.cache import WHOLE_TILES, hbm_traffic
from roofline.dtypes import DTYPES
from roofline.masks import Mask
from roofline.plan import Choices, choose
from roofline.problem import GroupedKV, Problem, ragged
from roofline.profiles import load
from roofline.variants import VARIANTS
from roofline.variants.cached import window_edge_rows

H200 = load("h200-sxm-141gb")


def problem(*lengths: tuple[int, int], window: int = 1024) -> Problem:
    return Problem(32, GroupedKV(8, 128, 128), ragged(list(lengths)), Mask(True, window), DTYPES["bf16"], DTYPES["bf16"])


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        (((1, 8192),), 0),  # keys 7168 to 8191: 7168 is 112 tiles of 64
        (((4, 8192),), 61),  # the first query sees from 7165 on, and 7104 is 111 tiles
        (((1, 8191), (1, 8191)), 126),  # from 7167 on, 63 keys into a tile, twice
        (((1, 1000),), 0),  # the window is longer than the cache
        (((8192, 8192),), 0),  # the first query sees key 0
    ],
)
def test_keys_before_the_window_in_its_first_tile(lengths: tuple[tuple[int, int], ...], rows: int) -> None:
    assert window_edge_rows(problem(*lengths), 64) == rows


def test_keys_of_a_shared_prefix_are_read_once() -> None:
    """8 sequences of 8191 keys, of which 8000 are shared pages: keys 7167 to 8190 are seen, and read from 7104 on."""
    asked = replace(problem(*[(1, 8191)] * 8), shared_prefix=8000)
    cost = VARIANTS["paged"](asked, replace(choose("paged", "roofline/paged", asked, H200, Choices(splits=1)), kv_tile=64))
    keys = next(traffic for traffic in cost.launches[0].traffic if traffic.tensor == "K")
    assert keys.distinct_read_bytes == (8 * (8191 - 8000) + 8000 - 7104) * 8 * 256


@pytest.mark.parametrize("variant", ["split-kv", "paged"])
def test_they_are_the_reason_given(variant: str) -> None:
    asked = problem((1, 8191), window=64)
    cost = VARIANTS[variant](asked, choose(variant, f"roofline/{variant}", asked, H200, Choices(splits=1)))
    assert hbm_traffic(cost, H200).reasons == (WHOLE_TILES,)


@pytest.mark.parametrize("variant", ["flash", "split-kv", "paged"])
def test_they_are_predicted_and_not_in_the_minimum(variant: str) -> None:
    asked = problem((4, 8192))
    plan = choose(variant, f"roofline/{variant}", asked, H200, Choices(splits=1))
    cost = VARIANTS[variant](asked, plan)
    edge = window_edge_rows(asked, plan.kv_tile)
    assert edge == 7165 % plan.kv_tile
    moved = hbm_traffic(cost, H200).launches[0]
    keys = next(index for index, traffic in enumerate(cost.launches[0].traffic) if traffic.tensor == "K")
    assert cost.launches[0].traffic[keys].read_bytes_min == (1024 + 3) * 8 * 256
    assert moved[keys].read_bytes == (1024 + 3 + edge) * 8 * 256
