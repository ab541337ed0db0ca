"""Multi-head latent attention, counted by hand, with the sizes of DeepSeek-V2 where they matter."""

from dataclasses import replace

import pytest

from roofline.dtypes import DTYPES
from roofline.masks import CAUSAL, Mask
from roofline.plan import Choices, Plan, choose
from roofline.problem import LatentKV, Problem, uniform
from roofline.profiles import load
from roofline.variants.mla import cost, projections

V2 = LatentKV(latent_dim=512, rope_dim=64, head_dim=128, v_head_dim=128)


def problem(q_len: int, kv_len: int, heads: int = 16, batch: int = 1, **more: object) -> Problem:
    return Problem(heads, V2, uniform(batch, q_len, kv_len), **more)  # type: ignore[arg-type]


def expanded(q_tile: int = 128) -> Plan:
    return Plan("test", q_tile, 128, 128 + 64, 128, form="expanded")


def absorbed(splits: int = 1) -> Plan:
    return Plan("test", 64, 64, 576, 512, form="absorbed", splits=splits, packed=True)


def test_expanded_is_flash_over_keys_of_192_and_values_of_128() -> None:
    counted = cost(problem(1024, 1024), expanded())
    # Q and K 192 wide, V and O 128 wide, 16 heads of 1024 rows in bf16
    assert counted.hbm_bytes_min == 16 * 1024 * 2 * (192 + 192 + 128 + 128)
    assert counted.sm_bytes == 16 * 1024 * 2 * (192 + 8 * 192 + 8 * 128 + 128)  # 8 q tiles
    assert counted.flops == counted.flops_executed == 2 * 16 * 1024**2 * (192 + 128)
    assert cost(problem(1024, 1024, mask=CAUSAL), expanded()).flops == 2 * 16 * (1024 * 1025 // 2) * (192 + 128)


def test_absorbed_reads_576_values_a_token_once_for_all_heads() -> None:
    counted = cost(problem(1, 4096, heads=128), absorbed())
    q, cache, o = 128 * 576 * 2, 4096 * 576 * 2, 128 * 512 * 2
    assert counted.hbm_bytes_min == counted.hbm_bytes_cold == q + cache + o
    assert counted.sm_bytes == q + 2 * cache + o  # 128 packed rows are 2 tiles of 64
    assert counted.flops == counted.flops_executed == 2 * 128 * 4096 * (576 + 512)


def test_absorbed_pads_16_heads_to_nothing_and_576_to_nothing() -> None:
    h100 = load("h100-sxm5-80gb")
    plan = choose("mla", "test", problem(1, 4096), h100, Choices(form="absorbed"))
    assert (plan.head_dim_tile, plan.v_head_dim_tile) == (576, 512)
    assert cost(problem(1, 4096), plan).flops_executed == 2 * 16 * 4096 * (576 + 512)


def test_many_heads_on_hopper_by_hand() -> None:
    case = replace(problem(1, 4000), q_heads=100)
    plan = choose("mla", "test", case, load("h200-sxm-141gb"), Choices(form="absorbed", splits=1))
    counted = cost(case, plan)
    assert counted.flops_executed == 2 * 128 * 4032 * (576 + 512)  # two tiles of 64 rows, 63 of 64 keys
    q, cache, o = 100 * 576 * 2, 4000 * 576 * 2, 100 * 512 * 2
    assert counted.sm_bytes == q + 2 * cache + o  # no row past the end is asked for
    assert counted.hbm_bytes_min == q + cache + o
    assert [launch.ctas for launch in counted.launches] == [2]


@pytest.mark.parametrize(("heads", "rows"), [(10, 16), (16, 16), (20, 32)])
def test_few_heads_on_hopper_by_hand(heads: int, rows: int) -> None:
    case = replace(problem(1, 4000), q_heads=heads)
    plan = choose("mla", "test", case, load("h200-sxm-141gb"), Choices(form="absorbed", splits=1))
    counted = cost(case, plan)
    assert counted.flops_executed == 2 * rows * 4032 * (576 + 512)  # 63 tiles of 64 keys
    q, cache, o = heads * 576 * 2, 4000 * 576 * 2, heads * 512 * 2
    assert counted.sm_bytes == counted.hbm_bytes_min == q + cache + o
    assert [launch.ctas for launch in counted.launches] == [1]


def test_absorbed_with_splits() -> None:
    counted = cost(problem(1, 4096), absorbed(8))
    partial, sums = 16 * 8 * 512 * 4, 16 * 8 * 4
    assert counted.hbm_bytes_cold == counted.hbm_bytes_min + 2 * (partial + sums)
    written = partial + 8 * sums + 16 * 512 * 2  # each sum into a sector of its own
    assert counted.sm_bytes == 8 * 16 * 576 * 2 + 4096 * 576 * 2 + partial + sums + written
    assert counted.workspace_bytes == partial + sums


@pytest.mark.parametrize(("kv_dtype", "token", "tensor"), [("fp8", 576, 4), ("int8", 576 + 4, 0), ("int4", 288 + 18 * 2, 0)])
def test_the_cache_is_stored_in_the_kv_dtype_rope_included(kv_dtype: str, token: int, tensor: int) -> None:
    counted = cost(problem(1, 4096, kv_dtype=DTYPES[kv_dtype]), absorbed())
    assert counted.hbm_bytes_min == 16 * 576 * 2 + 4096 * token + tensor + 16 * 512 * 2


def test_expanded_keys_are_in_the_compute_precision() -> None:
    fp8 = cost(problem(1024, 1024, kv_dtype=DTYPES["fp8"]), expanded())
    assert fp8 == cost(problem(1024, 1024), expanded())


def test_projections_are_left_out_unless_asked_for() -> None:
    assert [launch.name for launch in cost(problem(1024, 1024), expanded()).launches] == ["mla-expanded"]
    with_projections = cost(problem(1024, 1024, mla_projections=True), expanded())
    assert [launch.name for launch in with_projections.launches] == ["W_UK", "W_UV", "mla-expanded"]
    decode = cost(problem(1, 4096, mla_projections=True), absorbed())
    assert [launch.name for launch in decode.launches] == ["W_UK", "mla-absorbed", "W_UV"]


def test_expanded_projections_turn_the_latent_into_keys_and_values() -> None:
    counted = projections(problem(1024, 1024), expanded())
    weights = 16 * 512 * 128 * 2
    keys, values = 16 * 1024 * 192 * 2, 16 * 1024 * 128 * 2
    assert counted.flops == 2 * (2 * 1024 * 16 * 512 * 128)
    # W_UK reads latent and RoPE key (576), W_UV the latent (512)
    assert counted.hbm_bytes_cold == 1024 * 576 * 2 + weights + keys + 1024 * 512 * 2 + weights + values
    # 16 heads x 8 row tiles: a head reads all latents, and its weights once a row tile
    assert counted.sm_bytes == 16 * 1024 * (576 + 512) * 2 + 2 * 8 * weights + keys + values
    assert counted.workspace_bytes == keys + values


def test_expanded_with_projections_has_the_latent_as_its_input() -> None:
    counted = cost(problem(1024, 1024, mla_projections=True), expanded())
    q, o, weights = 16 * 1024 * 192 * 2, 16 * 1024 * 128 * 2, 16 * 512 * 128 * 2
    assert counted.hbm_bytes_min == q + 1024 * 576 * 2 + 2 * weights + o  # the latent once although two launches read it
    plain = cost(problem(1024, 1024), expanded())
    added = projections(problem(1024, 1024), expanded())
    assert counted.flops == plain.flops + added.flops
    assert counted.hbm_bytes_cold == plain.hbm_bytes_cold + added.hbm_bytes_cold


def test_absorbed_projections_move_queries_and_outputs() -> None:
    counted = cost(problem(1, 4096, mla_projections=True), absorbed())
    weights = 16 * 128 * 512 * 2
    # in: Q without RoPE (128 a head), its RoPE part (64), cache, weights; out: O (128 a head)
    assert counted.hbm_bytes_min == 16 * 128 * 2 + 16 * 64 * 2 + 4096 * 576 * 2 + 2 * weights + 16 * 128 * 2
    latent = 16 * 512 * 2  # Q_latent and O_latent, each written and read
    assert counted.hbm_bytes_cold == counted.hbm_bytes_min + 4 * latent
    assert counted.flops == 2 * 16 * 4096 * (576 + 512) + 2 * (2 * 16 * 128 * 512)
    assert counted.workspace_bytes == 2 * latent


def test_weights_move_once_so_they_are_not_linear_in_the_batch() -> None:
    one, many = (projections(problem(1, 4096, batch=batch), absorbed()) for batch in (1, 64))
    weights = 2 * 16 * 128 * 512 * 2
    assert many.flops == 64 * one.flops
    assert many.hbm_bytes_cold - weights == 64 * (one.hbm_bytes_cold - weights)


def test_a_latent_cache_without_rope() -> None:
    plain = replace(problem(1, 4096), kv=LatentKV(512, 0, 128, 128), mla_projections=True)
    plan = choose("mla", "test", plain, load("h100-sxm5-80gb"), Choices(form="absorbed", splits=1))
    assert (plan.head_dim_tile, plan.v_head_dim_tile) == (512, 512)
    assert cost(replace(plain, mla_projections=False), plan).hbm_bytes_min == 16 * 512 * 2 * 2 + 4096 * 512 * 2


def test_projections_leave_out_what_no_query_sees() -> None:
    # One token with a window of 100 over 4096: 100 latents are read and turned into keys and values.
    windowed = problem(1, 4096, mask=Mask(True, 100), mla_projections=True)
    counted = cost(windowed, expanded(16))
    weights = 16 * 512 * 128 * 2
    assert counted.hbm_bytes_min == 16 * 192 * 2 + 100 * 576 * 2 + 2 * weights + 16 * 128 * 2
