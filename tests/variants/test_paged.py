"""Paged decode, counted by hand: split-KV, and a page table and a length for each sequence."""

from dataclasses import replace

import pytest

from roofline.masks import Mask
from roofline.plan import Plan
from roofline.problem import Problem
from roofline.variants import split_kv
from roofline.variants.paged import cost
from tests.counting import grouped


def plan(splits: int = 1, kv_tile: int = 64) -> Plan:
    return Plan("test", 64, kv_tile, 64, 64, splits=splits, packed=True)


def extra(problem: Problem, splits: int = 1) -> tuple[int, int]:
    """Bytes beyond those of split-KV over a contiguous cache: minimum and SM side."""
    paged, contiguous = cost(problem, plan(splits)), split_kv.cost(problem, plan(splits))
    assert paged.flops == contiguous.flops
    assert paged.workspace_bytes == contiguous.workspace_bytes
    return paged.hbm_bytes_min - contiguous.hbm_bytes_min, paged.sm_bytes - contiguous.sm_bytes


def test_the_table_and_the_lengths() -> None:
    # 2 sequences of 2048 tokens in pages of 8: 256 entries of 4 B each, and a length of 4 B.
    # SM side: each of 4 KV heads reads the table once, and each CTA a length (a sector).
    assert extra(grouped(8, 4, 64, [(1, 2048)] * 2, page_size=8)) == (2 * (256 * 4 + 4), 4 * 2 * (256 * 4 + 32))


def test_splits_share_the_table_out_and_each_read_a_length() -> None:
    least, requested = extra(grouped(8, 4, 64, [(1, 2048)] * 2, page_size=8), splits=4)
    assert (least, requested) == (2 * (256 * 4 + 4), 4 * 2 * (256 * 4 + 4 * 32))


def test_a_split_reads_whole_sectors_of_the_table() -> None:
    # Pages of 16 and tiles of 64: 4 entries a tile. 32 tiles in 32 splits read a sector each, in 1 split 128 entries.
    problem = grouped(1, 1, 64, [(1, 2048)], page_size=16)
    assert extra(problem) == (128 * 4 + 4, 128 * 4 + 32)
    assert extra(problem, splits=32) == (128 * 4 + 4, 32 * 32 + 32 * 32)


def test_the_last_split_reads_the_entries_of_its_own_tiles() -> None:
    # 10 tiles of 64 in 3 splits of 4, 4 and 2, a page a token: 256, 256 and 128 entries of 4 B.
    assert extra(grouped(1, 1, 64, [(1, 640)], page_size=1), splits=3) == (640 * 4 + 4, (256 + 256 + 128) * 4 + 3 * 32)


def test_the_last_page_counts_as_an_entry_but_only_its_tokens_are_read() -> None:
    # 1000 tokens in pages of 16: 63 entries, the last page holds 8 tokens.
    problem = grouped(4, 1, 64, [(1, 1000)], page_size=16)
    assert extra(problem) == (63 * 4 + 4, 64 * 4 + 32)  # 16 tiles of 4 entries
    assert cost(problem, plan()).hbm_bytes_min == (4 + 2 * 1000 + 4) * 128 + 63 * 4 + 4


def test_a_window_reads_the_entries_of_the_pages_it_sees() -> None:
    # The last 100 of 1000 tokens, 900 - 999, lie in pages 56 (896 - 911) to 62: 7 entries.
    problem = grouped(4, 1, 64, [(1, 1000)], Mask(True, 100), page_size=16)
    assert extra(problem) == (7 * 4 + 4, 32 + 32)  # 8 entries of 2 tiles


def test_pages_of_a_shared_prefix_are_distinct_once() -> None:
    # 4 sequences of 1024 tokens share 512, which are 32 whole pages: 3 x 512 rows of K and of V are not distinct.
    alone = grouped(8, 2, 64, [(1, 1024)] * 4, page_size=16)
    shared = replace(alone, shared_prefix=512)
    saved = 3 * 512 * 2 * 2 * 128  # rows x KV heads x (K, V) x 128 B
    assert cost(alone, plan()).hbm_bytes_min - cost(shared, plan()).hbm_bytes_min == saved
    assert cost(alone, plan()).sm_bytes == cost(shared, plan()).sm_bytes  # every sequence still requests them


@pytest.mark.parametrize(("prefix", "page", "whole"), [(511, 16, 496), (15, 16, 0), (100, 1, 100)])
def test_only_whole_pages_are_shared(prefix: int, page: int, whole: int) -> None:
    alone = grouped(1, 1, 64, [(1, 1024)] * 2, page_size=page)
    shared = replace(alone, shared_prefix=prefix)
    assert cost(alone, plan()).hbm_bytes_min - cost(shared, plan()).hbm_bytes_min == whole * 2 * 128


def test_a_shared_prefix_outside_the_window_saves_nothing() -> None:
    alone = grouped(1, 1, 64, [(1, 1024)] * 2, Mask(True, 256), page_size=16)
    assert cost(replace(alone, shared_prefix=512), plan()).hbm_bytes_min == cost(alone, plan()).hbm_bytes_min


def test_the_shared_part_of_unequal_windows_is_that_of_the_widest_view() -> None:
    # Window 600 over 1024 and 700 tokens: keys 424 - 1023 and 100 - 699 are seen, 88 and 412 of the 512 shared: 412 distinct.
    alone = grouped(1, 1, 64, [(1, 1024), (1, 700)], Mask(True, 600), page_size=16)
    shared = replace(alone, shared_prefix=512)
    assert cost(alone, plan()).hbm_bytes_min - cost(shared, plan()).hbm_bytes_min == 88 * 2 * 128


def test_a_sequence_without_tokens_has_a_length_only() -> None:
    problem = grouped(2, 1, 64, [(1, 0), (1, 64)], page_size=16)
    assert cost(problem, plan()).hbm_bytes_min == (2 * 2 + 2 * 64 + 2 * 2) * 128 + 4 * 4 + 2 * 4
