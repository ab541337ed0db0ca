"""Naive attention, counted by hand: S and P pass through memory four times, or six in the eager form."""

import pytest

from roofline.masks import CAUSAL, FULL
from roofline.plan import Plan
from roofline.variants.naive import cost
from tests.counting import grouped


def plan(passes: int = 3, q_tile: int = 128, kv_tile: int = 128) -> Plan:
    return Plan("test", q_tile, kv_tile, 64, 64, passes=passes)


def test_three_launches_of_one_head() -> None:
    counted = cost(grouped(1, 1, 64, [(2048, 2048)], dtype="fp32"), plan())
    matrix, tensor = 2048 * 2048 * 4, 2048 * 64 * 4
    assert matrix == 16_777_216
    assert [launch.name for launch in counted.launches] == ["scores", "softmax", "values"]
    # S written and read, P written and read; Q, K, V read, O written
    assert counted.hbm_bytes_cold == 4 * matrix + 4 * tensor == 69_206_016
    assert counted.hbm_bytes_min == 4 * tensor
    # 16 x 16 output tiles: Q read by 16 columns, K by 16 rows; V by each of 16 q tiles
    assert counted.sm_bytes == 4 * matrix + (16 + 16 + 16 + 1) * tensor
    assert counted.workspace_bytes == 2 * matrix
    assert [launch.ctas for launch in counted.launches] == [256, 2048, 16]


def test_six_passes_scale_in_a_launch_of_their_own() -> None:
    counted = cost(grouped(1, 1, 128, [(512, 512)]), Plan("test", 128, 128, 128, 128, passes=6))
    matrix, tensor = 512 * 512 * 2, 512 * 128 * 2
    assert [launch.name for launch in counted.launches] == ["scores", "scale", "softmax", "values"]
    assert counted.hbm_bytes_cold == 6 * matrix + 4 * tensor
    assert counted.vector_ops == 4 * 512 * 512
    assert counted.workspace_bytes == 2 * matrix


@pytest.mark.parametrize("passes", [3, 6])
def test_a_mask_saves_nothing_but_useful_flops(passes: int) -> None:
    full, causal = (cost(grouped(4, 4, 64, [(256, 256)], mask), plan(passes)) for mask in (FULL, CAUSAL))
    assert causal.flops == 4 * 64 * 4 * (256 * 257 // 2)
    assert causal.flops_executed == full.flops_executed == 4 * 64 * 4 * 256 * 256
    assert causal.exp_ops == 4 * 256 * 257 // 2
    for name in ("hbm_bytes_min", "hbm_bytes_cold", "sm_bytes", "vector_ops", "workspace_bytes"):
        assert getattr(causal, name) == getattr(full, name)


def test_kv_heads_share_keys_not_scores() -> None:
    counted = cost(grouped(8, 2, 64, [(128, 128)]), plan())
    matrix, head = 128 * 128 * 2, 128 * 64 * 2
    assert counted.hbm_bytes_min == (8 + 2 + 2 + 8) * head
    assert counted.hbm_bytes_cold == 4 * 8 * matrix + (8 + 2 + 2 + 8) * head
    assert counted.sm_bytes == 4 * 8 * matrix + (8 + 8 + 8 + 8) * head  # each query head reads K and V once, in its one tile


def test_decode_with_an_odd_number_of_keys() -> None:
    # 1 query, 1000 keys, bf16: a row of S is 2000 B = 63 sectors (2016 B); tiles 16 x 128 give 8 output tiles and 1 q tile.
    counted = cost(grouped(2, 2, 64, [(1, 1000)]), plan(q_tile=16))
    row = 128
    assert counted.hbm_bytes_min == 2 * (1 + 1000 + 1000 + 1) * row
    assert counted.hbm_bytes_cold == 2 * (1 + 1000 + 1000 + 1) * row + 4 * 2 * 2000
    assert counted.sm_bytes == 2 * (8 + 1000 + 1000 + 1) * row + 4 * 2 * 2016
    assert counted.flops_executed == 2 * 2 * (16 * 8 * 128) * (64 + 64)


def test_an_fp8_scale_is_read_by_every_cta() -> None:
    counted = cost(grouped(1, 1, 64, [(256, 256)], kv_dtype="fp8"), plan())
    scales = {t.tensor: t for launch in counted.launches for t in launch.traffic if t.tensor.endswith("_scale")}
    assert (scales["K_scale"].read_bytes_min, scales["V_scale"].read_bytes_min) == (4, 4)
    # 2 x 2 output tiles read the scale of K, 2 q tiles that of V, a sector each
    assert (scales["K_scale"].sm_read_bytes, scales["V_scale"].sm_read_bytes) == (4 * 32, 2 * 32)


def test_a_ragged_batch_is_the_sum_of_its_sequences() -> None:
    lengths = [(512, 512), (1, 2048), (100, 300)]
    together = cost(grouped(4, 2, 64, lengths), plan())
    apart = [cost(grouped(4, 2, 64, [pair]), plan()) for pair in lengths]
    for name in ("flops", "flops_executed", "hbm_bytes_min", "hbm_bytes_cold", "sm_bytes", "workspace_bytes"):
        assert getattr(together, name) == sum(getattr(each, name) for each in apart)
