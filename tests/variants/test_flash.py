"""Flash attention, counted by hand: one launch, K and V once per query head and q tile on the SM side."""

from dataclasses import replace

import pytest

from roofline.masks import CAUSAL, Mask
from roofline.plan import Plan
from roofline.variants.flash import cost
from tests.counting import grouped


def plan(q_tile: int = 128, kv_tile: int = 128, d: int = 128) -> Plan:
    return Plan("test", q_tile, kv_tile, d, d)


def hopper_plan(q_tile: int, kv_tile: int, d: int) -> Plan:
    return replace(plan(q_tile, kv_tile, d), kernel="hopper")


def test_one_head() -> None:
    counted = cost(grouped(1, 1, 64, [(2048, 2048)], dtype="fp32"), plan(64, 64, 64))
    tensor = 2048 * 64 * 4  # Q, K, V or O: 524,288 B
    assert counted.hbm_bytes_min == counted.hbm_bytes_cold == 4 * tensor == 2_097_152
    # Q 1 read + O 1 write + K 32 reads + V 32 reads, one for each of the 2048 / 64 q tiles
    assert counted.sm_bytes == (1 + 1 + 32 + 32) * tensor == 34_603_008
    assert counted.flops == counted.flops_executed == 4 * 2048 * 2048 * 64
    assert counted.exp_ops == 2048 * 2048
    assert counted.vector_ops == 4 * 2048 * 2048
    assert counted.workspace_bytes == 0
    assert counted.launches[0].ctas == 32


def test_what_counters_of_an_h200_read_for_a_batch() -> None:
    full = cost(grouped(8, 8, 128, [(4096, 4096)] * 2), plan())
    assert full.flops_executed == 4 * 2 * 8 * 4096**2 * 128 == 137_438_953_472
    reads = sum(t.sm_read_bytes for t in full.launches[0].traffic)
    # Q once (2 x 8 x 4096 x 128 x 2 B = 16.8 MB), K and V once for each of 32 q tiles
    assert reads == (1 + 32 + 32) * 16_777_216 == 1_090_519_040
    causal = cost(grouped(8, 8, 128, [(4096, 4096)] * 2, CAUSAL), plan())
    # q tile t runs t + 1 of 32 kv tiles: 528 of 1024
    assert causal.flops_executed == 137_438_953_472 * 528 // 1024 == 70_866_960_384
    assert sum(t.sm_read_bytes for t in causal.launches[0].traffic) == 16_777_216 + 2 * 16_777_216 * 528 // 32 == 570_425_344


def test_kv_bytes_follow_kv_heads_and_flops_query_heads() -> None:
    mha, gqa = (cost(grouped(32, kv_heads, 128, [(2048, 2048)]), plan()) for kv_heads in (32, 8))
    head = 2048 * 128 * 2
    assert mha.hbm_bytes_min == (32 + 32 + 32 + 32) * head  # Q, K, V, O
    assert gqa.hbm_bytes_min == (32 + 8 + 8 + 32) * head
    assert gqa.flops == mha.flops == 4 * 32 * 2048**2 * 128
    assert gqa.sm_bytes == mha.sm_bytes  # each query head streams K and V of its own


def test_output_is_n_by_d_not_n_by_n() -> None:
    counted = cost(grouped(1, 1, 128, [(32768, 32768)]), plan())
    output = counted.launches[0].traffic[-1]
    assert (output.tensor, output.write_bytes_min) == ("O", 32768 * 128 * 2)


def test_odd_sizes_run_whole_tiles_but_read_inside_the_tensor() -> None:
    # 100 queries, 130 keys, d 72: 144 B a row are 5 sectors (160 B); tiles of 64 give 2 q tiles and 3 kv tiles.
    counted = cost(grouped(3, 1, 72, [(100, 130)]), Plan("test", 64, 64, 128, 128))
    assert counted.hbm_bytes_min == (3 * 100 + 130 + 130 + 3 * 100) * 144  # Q, K, V, O
    assert counted.sm_bytes == (3 * 100 + 2 * 3 * 2 * 130 + 3 * 100) * 160  # Q, (K, V) x 3 heads x 2 q tiles, O
    assert counted.flops == 2 * 3 * 100 * 130 * (72 + 72)
    assert counted.flops_executed == 2 * 3 * (2 * 64) * (3 * 64) * (128 + 128)


def test_causal_rows_at_the_end_of_a_longer_cache() -> None:
    # 128 queries at the end of 1024 keys, tiles of 64: the first q tile sees keys up to 959 (15 tiles), the second all 16.
    counted = cost(grouped(1, 1, 64, [(128, 1024)], CAUSAL), plan(64, 64, 64))
    assert counted.flops == 4 * 64 * sum(range(897, 1025))  # query i sees 897 + i keys
    assert counted.flops_executed == 4 * 64 * 31 * 64 * 64
    assert counted.sm_bytes == 128 * (128 + 2 * 31 * 64 + 128)  # rows of 128 B: Q, K and V of 31 tiles, O
    assert counted.hbm_bytes_min == 128 * (128 + 2 * 1024 + 128)


def test_more_queries_than_keys_leave_rows_without_work() -> None:
    # 256 queries over 64 keys: the first 192 see nothing, which is 3 of 4 q tiles.
    counted = cost(grouped(1, 1, 64, [(256, 64)], CAUSAL), plan(64, 64, 64))
    assert counted.flops == 4 * 64 * (64 * 65 // 2)
    assert counted.flops_executed == 4 * 64 * 64 * 64
    assert counted.hbm_bytes_min == 128 * (256 + 64 + 64 + 256)  # their Q is an input and their O is written, as zeros
    assert counted.sm_bytes == 128 * (256 + 64 + 64 + 256)


def test_a_window_reads_the_tiles_of_its_band() -> None:
    # n 256, window 64, tiles of 64: q tile 0 runs 1 tile; q tiles 1-3 run the one before theirs and their own: 1 + 3 x 2.
    counted = cost(grouped(1, 1, 64, [(256, 256)], Mask(True, 64)), plan(64, 64, 64))
    assert counted.flops == 4 * 64 * (64 * 65 // 2 + 192 * 64)
    assert counted.flops_executed == 4 * 64 * 7 * 64 * 64
    assert counted.sm_bytes == 128 * (256 + 2 * 7 * 64 + 256)
    assert counted.hbm_bytes_min == 128 * 4 * 256  # every key is seen by some query


def test_a_window_over_a_cache_reads_what_some_query_sees() -> None:
    # 4 queries at the end of 1000 keys, window 100: keys 897 - 999 are seen, 103 of them; SMs read tiles 896-959 and 960-999.
    counted = cost(grouped(2, 1, 64, [(4, 1000)], Mask(True, 100)), Plan("test", 16, 64, 64, 64))
    assert counted.hbm_bytes_min == 128 * (2 * 4 + 103 + 103 + 2 * 4)
    assert counted.sm_bytes == 128 * (2 * 4 + 2 * 2 * (64 + 40) + 2 * 4)


def test_a_ragged_batch_is_the_sum_of_its_sequences() -> None:
    lengths = [(512, 512), (2048, 2048), (100, 300)]
    together = cost(grouped(4, 2, 64, lengths, CAUSAL), plan(64, 64, 64))
    apart = [cost(grouped(4, 2, 64, [pair], CAUSAL), plan(64, 64, 64)) for pair in lengths]
    for name in ("flops", "flops_executed", "exp_ops", "hbm_bytes_min", "hbm_bytes_cold", "sm_bytes"):
        assert getattr(together, name) == sum(getattr(each, name) for each in apart)


def test_fp8_keys_have_one_scale_a_tensor() -> None:
    counted = cost(grouped(2, 2, 64, [(128, 128)], kv_dtype="fp8"), plan(64, 64, 64))
    # Q and O 2 x 128 rows of 128 B; K and V 2 x 128 rows of 64 B and 4 B of scale each
    assert counted.hbm_bytes_min == 2 * 2 * 128 * 128 + 2 * (2 * 128 * 64 + 4)
    # 2 heads x 2 q tiles read K and V, and in each of these 4 CTAs a sector for each scale
    assert counted.sm_bytes == 2 * 2 * 128 * 128 + 2 * (4 * 128 * 64 + 4 * 32)


def test_int8_keys_have_a_scale_a_token_and_head() -> None:
    counted = cost(grouped(2, 2, 64, [(128, 128)], kv_dtype="int8"), plan(64, 64, 64))
    assert counted.hbm_bytes_min == 2 * 2 * 128 * 128 + 2 * (2 * 128 * (64 + 4))
    assert counted.sm_bytes == 2 * 2 * 128 * 128 + 2 * (4 * 128 * (64 + 4))


def test_int4_keys_have_a_scale_for_32_elements() -> None:
    counted = cost(grouped(1, 1, 80, [(128, 128)], kv_dtype="int4"), Plan("test", 64, 64, 128, 128))
    # rows of 80 x 4 bit = 40 B (2 sectors, 64 B) and ceil(80 / 32) = 3 scales of 2 B
    assert counted.hbm_bytes_min == 2 * 128 * 160 + 2 * 128 * (40 + 6)
    assert counted.sm_bytes == 2 * 128 * 160 + 2 * 2 * 128 * (64 + 6)


def test_warp_groups_run_the_kv_tiles_of_their_own_rows_and_share_what_is_loaded() -> None:
    # 384 causal queries in q tiles of 192, groups of 64, kv tiles of 128: groups run 1, 1, 2, 2, 3, 3 tiles, q tiles load 2, 3.
    counted = cost(grouped(1, 1, 64, [(384, 384)], CAUSAL), hopper_plan(192, 128, 64))
    assert counted.flops_executed == 4 * 64 * (1 + 1 + 2 + 2 + 3 + 3) * 64 * 128
    assert counted.vector_ops == 4 * (1 + 1 + 2 + 2 + 3 + 3) * 64 * 128
    assert counted.sm_bytes == 128 * (384 + 2 * (2 + 3) * 128 + 384)
    assert counted.launches[0].ctas == 2


def test_a_warp_group_past_the_end_runs_one_kv_tile() -> None:
    # 256 queries over 512 keys in q tiles of 192: four groups run 4 kv tiles each, two have no query.
    counted = cost(grouped(2, 1, 64, [(256, 512)]), hopper_plan(192, 128, 64))
    assert counted.flops_executed == 2 * 4 * 64 * (4 * 4 + 2) * 64 * 128
    assert counted.sm_bytes == 2 * 128 * (256 + 2 * 2 * 512 + 256)


@pytest.mark.parametrize("mask", [Mask(), CAUSAL, Mask(True, 70), Mask(True, 300)])
@pytest.mark.parametrize(("q_len", "kv_len"), [(9, 9), (129, 257), (500, 500), (640, 900), (1000, 1000)])
@pytest.mark.parametrize(("q_tile", "kv_tile"), [(128, 64), (128, 128), (192, 128)])
def test_tiles_of_warp_groups_one_by_one(mask: Mask, q_len: int, kv_len: int, q_tile: int, kv_tile: int) -> None:
    counted = cost(grouped(1, 1, 64, [(q_len, kv_len)], mask), hopper_plan(q_tile, kv_tile, 64))

    def sees(query: int, key: int) -> bool:
        last = kv_len - 1 if mask.is_full else kv_len - q_len + query
        return last - (mask.window or kv_len) < key <= last

    tiles = 0
    for first in range(0, -(-q_len // q_tile) * q_tile, 64):
        rows = range(first, min(first + 64, q_len))
        seen = {key // kv_tile for row in (rows[:1], rows[-1:]) for query in row for key in range(kv_len) if sees(query, key)}
        tiles += max(seen) - min(seen) + 1 if seen else 1  # what lies between the first query's keys and the last one's
    assert counted.flops_executed == 4 * 64 * tiles * 64 * kv_tile
