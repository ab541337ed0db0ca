"""Closed forms of masks against loops over single (query, key) pairs."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.masks import CAUSAL, FULL, Mask, Span, TileCount, floor_sum
from tests import counting

masks = st.one_of(st.just(FULL), st.just(CAUSAL), st.integers(1, 14).map(lambda window: Mask(True, window)))
lengths = st.tuples(st.integers(1, 13), st.integers(0, 13))


@settings(max_examples=300, deadline=None)
@given(mask=masks, lengths=lengths)
def test_pairs_and_visible_keys_equal_a_loop(mask: Mask, lengths: tuple[int, int]) -> None:
    q_len, kv_len = lengths
    assert mask.pairs(q_len, kv_len) == counting.pairs(mask, q_len, kv_len)
    assert mask.visible_keys(q_len, kv_len) == len(counting.seen_keys(mask, q_len, kv_len, range(q_len)))


@settings(max_examples=500, deadline=None)
@given(mask=masks, lengths=lengths, q_tile=st.integers(1, 9), kv_tile=st.integers(1, 9), group=st.integers(1, 4))
def test_tiles_equal_a_loop(mask: Mask, lengths: tuple[int, int], q_tile: int, kv_tile: int, group: int) -> None:
    q_len, kv_len = lengths
    run = [counting.tiles_run(mask, q_len, kv_len, queries, kv_tile) for _, queries in counting.row_tiles(q_len, group, q_tile)]
    expected = TileCount(len(run), sum(map(len, run)), sum(len(keys) for tiles in run for keys in tiles))
    assert mask.tile_count(q_len, kv_len, q_tile, kv_tile, group) == expected


@settings(max_examples=200, deadline=None)
@given(mask=masks, lengths=lengths, first=st.integers(0, 12), count=st.integers(1, 5), kv_tile=st.integers(1, 9))
def test_span_holds_the_tiles_with_a_pair(mask: Mask, lengths: tuple[int, int], first: int, count: int, kv_tile: int) -> None:
    q_len, kv_len = lengths
    first = min(first, q_len - 1)
    last = min(first + count - 1, q_len - 1)
    run = counting.tiles_run(mask, q_len, kv_len, range(first, last + 1), kv_tile)
    span = mask.span(q_len, kv_len, kv_tile, first, last)
    assert [keys.start // kv_tile for keys in run] == list(range(*span))


def test_a_causal_square_is_half_and_the_diagonal() -> None:
    assert CAUSAL.pairs(2048, 2048) == 2048 * 2049 // 2 == 2_098_176


def test_a_window_is_a_triangle_and_then_a_band() -> None:
    # Queries 0-3 see 1, 2, 3, 4 keys; queries 4-9 see 4 each.
    assert Mask(True, 4).pairs(10, 10) == 1 + 2 + 3 + 4 + 6 * 4


def test_causal_is_aligned_bottom_right() -> None:
    # 2 queries over 5 keys: the first sees keys 0-3, the last all 5. Top-left alignment would give 1 + 2.
    assert CAUSAL.pairs(2, 5) == 4 + 5
    # 5 queries over 2 keys: the first 3 see nothing.
    assert CAUSAL.pairs(5, 2) == 0 + 0 + 0 + 1 + 2


def test_a_decode_token_sees_its_window_only() -> None:
    window = Mask(True, 1024)
    assert window.pairs(1, 8192) == window.visible_keys(1, 8192) == window.cached_keys(8192) == 1024
    assert window.cached_keys(1000) == 1000
    assert CAUSAL.cached_keys(8192) == 8192


def test_a_window_reads_one_key_more_per_query() -> None:
    assert Mask(True, 4).visible_keys(3, 10) == 6  # queries at 7, 8, 9 see 4-7, 5-8, 6-9


@pytest.mark.parametrize("window", [8, 9, 1000])
@pytest.mark.parametrize(("q_len", "kv_len"), [(8, 8), (3, 8), (8, 3)])
def test_a_window_as_long_as_the_keys_is_causal(window: int, q_len: int, kv_len: int) -> None:
    wide = Mask(True, window)
    assert wide.pairs(q_len, kv_len) == CAUSAL.pairs(q_len, kv_len)
    assert wide.visible_keys(q_len, kv_len) == CAUSAL.visible_keys(q_len, kv_len)
    assert wide.tile_count(q_len, kv_len, 2, 3, 2) == CAUSAL.tile_count(q_len, kv_len, 2, 3, 2)


def test_tiles_of_a_causal_square_down_to_the_diagonal() -> None:
    # 32 q tiles of 128 rows over 4096 keys: tile t runs t + 1 kv tiles, 1 + 2 + ... + 32 = 528.
    assert CAUSAL.tile_count(4096, 4096, 128, 128) == TileCount(32, 528, 528 * 128)


def test_no_keys_no_tiles() -> None:
    assert FULL.tile_count(4, 0, 2, 2) == TileCount(2, 0, 0)
    assert CAUSAL.span(4, 0, 2, 0, 3) == Span(0, 0)
    assert FULL.pairs(4, 0) == CAUSAL.visible_keys(4, 0) == 0


def test_huge_sizes_are_exact_and_fast() -> None:
    n = 2**40 - 1
    start = time.perf_counter()
    assert CAUSAL.pairs(n, n) == n * (n + 1) // 2
    assert Mask(True, 1000).pairs(n, n) == 1000 * 1001 // 2 + (n - 1000) * 1000
    counted = CAUSAL.tile_count(n, n, 128, 128)
    tiles = 2**33
    assert counted.q_tiles == tiles
    assert counted.tiles == tiles * (tiles + 1) // 2
    assert counted.kv_rows == counted.tiles * 128 - 1  # only the last q tile meets the last, partial kv tile
    assert Mask(True, 1000).tile_count(n, n, 96, 112, 7).q_tiles == -(-n * 7 // 96)
    assert time.perf_counter() - start < 0.5  # a loop over the tiles would take hours


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 30), st.integers(1, 20), st.integers(0, 40), st.integers(0, 60))
def test_floor_sum_equals_a_loop(count: int, divisor: int, step: int, start: int) -> None:
    assert floor_sum(count, divisor, step, start) == sum((step * i + start) // divisor for i in range(count))


@pytest.mark.parametrize(("window", "forgets"), [(None, False), (1, True), (99, True), (100, False), (101, False)])
def test_a_window_forgets_keys_only_where_it_is_shorter(window: int | None, forgets: bool) -> None:
    assert Mask(True, window).forgets(100) is forgets
