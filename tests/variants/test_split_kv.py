"""Split-KV decode, counted by hand: K and V once per KV head, partials in fp32 where there are splits."""

from dataclasses import replace

import pytest

from roofline.masks import CAUSAL, Mask
from roofline.plan import Plan
from roofline.variants.split_kv import cost, split_tiles, working_splits
from tests.counting import grouped


def plan(splits: int, q_tile: int = 64, kv_tile: int = 64) -> Plan:
    return Plan("test", q_tile, kv_tile, 64, 64, splits=splits, packed=True)


def test_one_split_has_no_combine() -> None:
    # 32 query heads on 8 KV heads, one token over 2048 keys, d 64: rows of 128 B.
    counted = cost(grouped(32, 8, 64, [(1, 2048)]), plan(1))
    (launch,) = counted.launches
    assert counted.hbm_bytes_min == counted.hbm_bytes_cold == counted.sm_bytes == (32 + 8 * 2 * 2048 + 32) * 128
    assert counted.flops == 4 * 64 * 32 * 2048  # PV follows the query heads too
    # the 4 heads of a group are padded to 16 rows
    assert counted.flops_executed == 4 * 64 * 8 * 16 * 2048
    assert (launch.ctas, counted.workspace_bytes) == (8, 0)


def test_splits_write_partials_and_a_combine_reads_them() -> None:
    counted = cost(grouped(32, 8, 64, [(1, 2048)]), plan(16))
    attention, combine = counted.launches
    cache = 8 * 2 * 2048 * 128
    partials = 32 * 16 * 64 * 4  # 32 rows x 16 splits x 64 fp32
    sums = 32 * 16 * 4  # their log-sum-exps: 16 x 4 B a row are 2 sectors
    assert counted.hbm_bytes_min == 32 * 128 + cache + 32 * 128
    assert counted.hbm_bytes_cold == counted.hbm_bytes_min + 2 * partials + 2 * sums
    # Each split reads its Q, and writes each of its sums into a sector of its own.
    assert counted.sm_bytes == 16 * 32 * 128 + cache + 2 * partials + (1 + 8) * sums + 32 * 128
    assert (attention.ctas, combine.ctas) == (8 * 16, 32)
    assert counted.workspace_bytes == partials + sums


def test_empty_splits_move_nothing_but_have_scratch_memory() -> None:
    # 5 tiles on 4 splits: 2 a split, so 3 splits work and one is empty.
    counted = cost(grouped(1, 1, 64, [(1, 320)]), plan(4))
    assert working_splits(5, 4) == 3
    assert counted.launches[0].ctas == 3
    assert counted.hbm_bytes_cold == counted.hbm_bytes_min + 2 * 3 * (64 * 4 + 4)
    # Q once a split, the cache, 3 partials and sums written, read again (the sums as a sector), O
    assert counted.sm_bytes == 3 * 128 + 640 * 128 + 3 * (256 + 32) + 3 * 256 + 32 + 128
    assert counted.workspace_bytes == 4 * 64 * 4 + 32  # 4 partials, and a sector for 4 log-sum-exps


@pytest.mark.parametrize(("tiles", "splits", "working"), [(0, 4, 0), (1, 4, 1), (4, 4, 4), (5, 4, 3), (7, 4, 4), (9, 8, 5)])
def test_tiles_are_dealt_out_evenly(tiles: int, splits: int, working: int) -> None:
    assert working_splits(tiles, splits) == working


def test_a_fused_plan_splits_every_sequence_into_shares_of_the_longest() -> None:
    # 10 and 3 tiles with 5 splits: 2 tiles a split, so 5 and 2 of them work.
    problem, fused = grouped(1, 1, 64, [(1, 640), (1, 150)]), replace(plan(5), fused=True)
    assert split_tiles(problem, fused) == 2
    assert cost(problem, fused).launches[0].ctas == 5 + 2
    assert split_tiles(problem, plan(5)) is None


def test_the_last_cta_of_a_row_tile_combines_in_a_fused_plan() -> None:
    # 8 tiles in 4 splits, none, and 2 tiles in one split, which writes O itself.
    fused = replace(plan(4), fused=True)
    counted = cost(grouped(2, 1, 64, [(1, 512), (1, 0), (1, 100)]), fused)
    (launch,) = counted.launches
    assert launch.ctas == 4 + 1 + 1
    traffic = {t.tensor: t for t in launch.traffic}
    assert traffic["partial_O"].sm_write_bytes == traffic["partial_O"].sm_read_bytes == 2 * 4 * 64 * 4
    assert (traffic["partial_LSE"].write_bytes_min, traffic["partial_LSE"].sm_read_bytes) == (2 * 4 * 4, 2 * 32)
    assert (traffic["counters"].sm_read_bytes, traffic["counters"].sm_write_bytes) == (4 * 32, (4 + 1) * 32)
    assert traffic["O"].write_bytes_min == 3 * 2 * 128
    assert counted.workspace_bytes == 3 * 2 * (4 * 64 * 4 + 32)


def test_keys_in_the_last_tile_beyond_the_cache_are_not_read() -> None:
    # 1000 keys in tiles of 64: 16 tiles, the last holds 40. 3 splits of 6, 6 and 4 tiles.
    counted = cost(grouped(4, 2, 64, [(1, 1000)]), plan(3))
    assert counted.hbm_bytes_min == (4 + 2 * 2 * 1000 + 4) * 128
    assert counted.flops_executed == 4 * 64 * 2 * 16 * 1024
    reads = {t.tensor: t.sm_read_bytes for t in counted.launches[0].traffic}
    assert reads["K"] == reads["V"] == 2 * 1000 * 128
    assert reads["Q"] == 3 * 4 * 128


def test_a_window_reads_the_tiles_that_hold_it() -> None:
    # The last 100 of 1000 keys are 900 - 999: tiles 896 - 959 and 960 - 999, 104 rows.
    counted = cost(grouped(1, 1, 64, [(1, 1000)], Mask(True, 100)), plan(1))
    assert counted.hbm_bytes_min == (1 + 2 * 100 + 1) * 128
    assert counted.sm_bytes == (1 + 2 * 104 + 1) * 128
    assert counted.flops == 4 * 64 * 100


def test_packed_rows_of_speculative_decoding() -> None:
    # 8 tokens x 12 heads a group are 96 rows: 2 tiles of 64, row = token * 12 + head. The first holds tokens 0 - 5 (the last
    # in part), which see keys up to 1016 + 5; both tiles run all 16 kv tiles of 1024 keys.
    counted = cost(grouped(12, 1, 64, [(8, 1024)], CAUSAL), plan(1))
    assert counted.launches[0].ctas == 2
    assert counted.flops == 4 * 64 * 12 * sum(range(1017, 1025))
    assert counted.flops_executed == 4 * 64 * 2 * 64 * 1024
    assert counted.sm_bytes == (96 + 2 * 2 * 1024 + 96) * 128


def test_rows_are_padded_to_the_mma_minimum_and_at_most_to_the_tile() -> None:
    def executed_rows(group: int) -> int:
        return cost(grouped(group, 1, 64, [(1, 64)]), plan(1)).flops_executed // (4 * 64 * 64)

    assert [executed_rows(group) for group in (1, 4, 16, 17, 32, 64, 65)] == [16, 16, 16, 32, 32, 64, 128]


def test_a_ragged_batch_with_an_empty_sequence() -> None:
    # 512, 0 and 200 keys with 4 splits: 8 tiles in 4 splits, none, 4 tiles in 4 splits.
    counted = cost(grouped(2, 1, 64, [(1, 512), (1, 0), (1, 200)]), plan(4))
    attention, combine = counted.launches
    assert counted.hbm_bytes_min == (3 * 2 + 2 * 712 + 3 * 2) * 128
    assert attention.ctas == 4 + 1 + 4  # a sequence without keys has zeros to write
    partial = {t.tensor: t for t in attention.traffic}["partial_O"]
    assert partial.write_bytes_min == 2 * 8 * 64 * 4
    reads = {t.tensor: t for t in attention.traffic}
    assert reads["Q"].sm_read_bytes == (2 * 4 + 2 * 1 + 2 * 4) * 128
    assert combine.traffic[-1].write_bytes_min == 3 * 2 * 128
    assert counted.workspace_bytes == 3 * 2 * (4 * 64 * 4 + 32)


@pytest.mark.parametrize(
    ("kv_dtype", "row", "sm_row", "tensor", "sm_cta"),
    [
        ("bf16", 128, 128, 0, 0),
        ("fp8", 64, 64, 4, 32),  # one fp32 a tensor, read by each CTA as a sector
        ("int8", 64 + 4, 64 + 4, 0, 0),  # one fp32 a token, KV head and K or V
        ("int4", 32 + 2 * 2, 32 + 2 * 2, 0, 0),  # one fp16 for 32 elements
    ],
)
def test_a_cache_below_the_compute_precision(kv_dtype: str, row: int, sm_row: int, tensor: int, sm_cta: int) -> None:
    counted = cost(grouped(8, 2, 64, [(1, 256)], kv_dtype=kv_dtype), plan(1))
    assert counted.hbm_bytes_min == 8 * 128 + 2 * (2 * 256 * row + tensor) + 8 * 128
    assert counted.sm_bytes == 8 * 128 + 2 * (2 * 256 * sm_row + 2 * sm_cta) + 8 * 128
    assert counted.flops == 4 * 64 * 8 * 256
