"""Chunked attention, counted by hand: naive attention of one block at a time, with a small scratch memory."""

from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Plan
from roofline.variants.chunked import cost
from tests.counting import grouped


def plan(q_chunk: int = 1024, kv_chunk: int = 4096, tile: int = 128) -> Plan:
    return Plan("test", tile, tile, 64, 64, q_chunk=q_chunk, kv_chunk=kv_chunk)


def test_two_by_two_blocks_of_one_head() -> None:
    # 256 x 256 in blocks of 128 x 128, d 64: 4 blocks, each q chunk carries O, maximum and sum from its first to its second.
    counted = cost(grouped(1, 1, 64, [(256, 256)]), plan(128, 128))
    rows, matrix, statistics = 128 * 64 * 2, 128 * 128 * 2, 128 * 8
    carry = 128 * (64 * 4 + 8)
    assert [launch.count for launch in counted.launches] == [4, 4, 4]
    assert [launch.ctas for launch in counted.launches] == [1, 128, 1]
    # Each block reads its Q, K and V; S, P and the block's statistics are written and read; 2 carries written and read; O once.
    cold = 4 * 3 * rows + 4 * (4 * matrix + 2 * statistics) + 2 * 2 * carry + 2 * rows
    assert counted.hbm_bytes_cold == cold
    assert counted.sm_bytes == cold + 4 * 128 * (2 * 32 - 8)  # the two statistics of a row are stored in a sector each
    assert counted.hbm_bytes_min == 4 * 256 * 64 * 2  # Q, K, V, O
    assert counted.workspace_bytes == 2 * matrix + statistics + carry  # S and P, statistics, what is carried
    assert counted.flops == counted.flops_executed == 4 * 256 * 256 * 64


def test_the_chunk_of_s_is_64_times_smaller_than_s() -> None:
    counted = cost(grouped(1, 1, 128, [(16384, 16384)]), Plan("test", 128, 128, 128, 128, q_chunk=1024, kv_chunk=4096))
    matrix = 16384 * 16384 * 2
    scores = counted.launches[0].traffic[-1]
    assert (scores.tensor, counted.launches[0].count) == ("S", 64)
    assert scores.write_bytes_min == matrix  # over all 64 blocks
    assert counted.workspace_bytes == 2 * (matrix // 64) + 1024 * (128 * 4 + 8 + 8)
    assert 2 * matrix / counted.workspace_bytes > 59  # naive keeps S and P


def test_masked_blocks_are_skipped_and_cut_blocks_run_whole() -> None:
    # 4 x 4 blocks of 64: causal runs 1 + 2 + 3 + 4 = 10; window 64 runs 1 + 2 + 2 + 2 = 7.
    for mask, blocks in ((FULL, 16), (CAUSAL, 10), (Mask(True, 64), 7)):
        counted = cost(grouped(2, 1, 64, [(256, 256)], mask), plan(64, 64, 64))
        assert counted.launches[0].count == blocks
        assert counted.flops_executed == 4 * 2 * blocks * 64 * 64 * 64
        assert counted.hbm_bytes_min == (2 * 2 + 2) * 256 * 128  # Q and O of 2 heads, K and V of 1
        (carry,) = [t for t in counted.launches[2].traffic if t.tensor == "carry"]
        assert carry.read_bytes_min == 2 * (blocks - 4) * 64 * (64 * 4 + 8)


def test_one_block_carries_nothing() -> None:
    counted = cost(grouped(1, 1, 64, [(256, 256)]), plan())
    assert counted.workspace_bytes == 2 * 256 * 256 * 2 + 256 * 8
    assert counted.hbm_bytes_cold == 4 * 256 * 128 + 4 * 256 * 256 * 2 + 2 * 256 * 8


def test_more_queries_than_keys_carry_nothing_under_a_full_mask() -> None:
    # 4 query chunks of 1024 over one key block of 1024: no chunk has a second block.
    counted = cost(grouped(1, 1, 16, [(4096, 1024)]), plan())
    (carry,) = [t for t in counted.launches[2].traffic if t.tensor == "carry"]
    assert (carry.read_bytes_min, carry.write_bytes_min) == (0, 0)
    assert counted.workspace_bytes == 2 * 1024 * 1024 * 2 + 1024 * 8


def test_query_chunks_before_the_first_key_run_no_block() -> None:
    # 256 queries over 64 keys, chunks of 64: only the last query chunk sees keys. Every row of Q counts once, and O is written.
    counted = cost(grouped(1, 1, 64, [(256, 64)], CAUSAL), plan(64, 64, 64))
    assert counted.launches[0].count == 1
    assert counted.hbm_bytes_min == (256 + 64 + 64 + 256) * 128
    assert counted.hbm_bytes_cold == counted.hbm_bytes_min + 4 * 64 * 64 * 2 + 2 * 64 * 8


def test_a_run_without_keys_needs_no_workspace() -> None:
    counted = cost(grouped(1, 1, 64, [(256, 0)]), plan())
    assert (counted.launches[0].count, counted.workspace_bytes) == (0, 0)


def test_a_query_chunk_reads_its_rows_of_q_once_a_block_and_column_of_tiles() -> None:
    # 300 x 500 in chunks of 200 x 300 and tiles of 128: blocks 200x300, 200x200, 100x300, 100x200.
    counted = cost(grouped(1, 1, 64, [(300, 500)]), plan(200, 300))
    reads = {t.tensor: t for launch in counted.launches for t in launch.traffic if t.role == "input"}
    assert reads["Q"].read_bytes_min == 2 * 300 * 128  # each of 2 kv chunks
    assert reads["K"].read_bytes_min == reads["V"].read_bytes_min == 2 * 500 * 128  # each of 2 q chunks
    # Columns of tiles: ceil(300 / 128) = 3 and ceil(200 / 128) = 2. Rows of tiles: 2 and 1.
    assert reads["Q"].sm_read_bytes == 128 * (200 * 3 + 200 * 2 + 100 * 3 + 100 * 2)
    assert reads["K"].sm_read_bytes == reads["V"].sm_read_bytes == 128 * (300 * 2 + 200 * 2 + 300 + 200)
    assert counted.launches[0].flops_executed == 2 * 128 * 128 * (6 + 4 + 3 + 2) * 64
