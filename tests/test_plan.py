"""Launch choices: tiles, padding and splits."""

from dataclasses import replace

import pytest

from roofline.dtypes import DTYPES
from roofline.errors import InputError
from roofline.masks import Mask
from roofline.plan import Choices, Plan, choose, next_power_of_two, padded_width
from roofline.problem import GroupedKV, LatentKV, Lengths, Problem, ragged, uniform
from roofline.profiles import load

H100 = load("h100-sxm5-80gb")  # 132 SMs
H200 = load("h200-sxm-141gb")
UNTUNED = replace(H100, compute_capability="0.0")  # as many SMs, but no tuned tiles
MLA = Problem(16, LatentKV(512, 64, 128, 128), uniform(1, 1, 4096))


def prefill(d: int = 128, dv: int | None = None) -> Problem:
    return Problem(32, GroupedKV(8, d, d if dv is None else dv), uniform(1, 4096, 4096))


def decode(kv_len: int = 131072, batch: int = 1, heads: int = 32, kv_heads: int = 8) -> Problem:
    return Problem(heads, GroupedKV(kv_heads, 128, 128), uniform(batch, 1, kv_len))


@pytest.mark.parametrize(
    ("width", "padded"), [(1, 16), (16, 16), (17, 32), (64, 64), (72, 128), (96, 128), (128, 128), (192, 256)]
)
def test_head_sizes_are_padded_to_a_power_of_two(width: int, padded: int) -> None:
    assert padded_width(width) == padded
    plan = choose("flash", "test", prefill(width), H100)
    assert (plan.head_dim_tile, plan.v_head_dim_tile) == (padded, padded)


def test_next_power_of_two() -> None:
    assert [next_power_of_two(value) for value in (1, 2, 3, 4, 5, 64, 65)] == [1, 2, 4, 4, 8, 64, 128]


def test_prefill_tiles_are_128_by_128_up_to_d_128_where_nothing_was_tuned() -> None:
    for d in (64, 96, 128):
        plan = choose("flash", "test", prefill(d), UNTUNED)
        assert (plan.q_tile, plan.kv_tile, plan.splits, plan.packed) == (128, 128, 1, False)
    wide = choose("flash", "test", prefill(256), UNTUNED)
    assert wide.q_tile * wide.kv_tile < 128 * 128  # it would not fit the chip


def test_a_tuned_portable_tile_on_hopper_has_the_rows_that_the_head_leaves() -> None:
    plans = [choose("flash", "test", prefill(d), H100, Choices(portable=True)) for d in (64, 128)]
    assert [(plan.kernel, plan.q_tile) for plan in plans] == [(None, 64), (None, 128)]


def test_equal_sequences_without_a_cut_tile_have_tiles_of_their_own() -> None:
    whole, cut = prefill(), replace(prefill(), lengths=uniform(1, 4000, 4000))
    ragged = replace(prefill(), lengths=(Lengths(4096, 4096, 1), Lengths(64, 64, 1)))
    causal, portable = replace(prefill(), mask=Mask(True)), Choices(portable=True)
    plans = [choose("flash", "test", problem, H100, portable) for problem in (whole, cut, causal, ragged)]
    assert [plan.warps for plan in plans] == [4, 8, 8, 8]
    a100 = load("a100-sxm4-80gb")
    assert [choose("flash", "test", problem, a100).q_tile for problem in (whole, cut, causal, ragged)] == [128, 128, 128, 64]


def test_the_hopper_kernel_runs_what_it_covers() -> None:
    causal = replace(prefill(), mask=Mask(True))
    covered = [prefill(d) for d in (64, 128, 256)] + [causal, replace(causal, mask=Mask(True, 100))]
    covered.append(replace(causal, dtype=DTYPES["fp16"], kv_dtype=DTYPES["fp16"], lengths=uniform(3, 100, 1001)))
    assert {choose("flash", "test", problem, H100).kernel for problem in covered} == {"hopper"}
    others = [
        prefill(96),
        prefill(128, 64),
        replace(prefill(), dtype=DTYPES["tf32"], kv_dtype=DTYPES["tf32"]),
        replace(prefill(), kv_dtype=DTYPES["fp8"]),
        replace(prefill(), lengths=(Lengths(4096, 4096, 1), Lengths(64, 64, 1))),
        replace(causal, lengths=uniform(1, 200, 100)),  # queries that see no key
        replace(prefill(), lengths=uniform(1, 200, 0)),
        replace(prefill(), lengths=uniform(1, 1, 4096)),
    ]
    assert {choose("flash", "test", problem, H100).kernel for problem in others} == {None}
    for choices in (Choices(tile=(128, 128)), Choices(portable=True), Choices(decode=True)):
        assert choose("flash", "test", prefill(), H100, choices).kernel is None
    for device in ("a100-sxm4-80gb", "b200-sxm-180gb"):
        assert choose("flash", "test", prefill(), load(device)).kernel is None


@pytest.mark.parametrize(("d", "tile"), [(64, (192, 64)), (128, (128, 128)), (256, (128, 64))])
def test_tiles_of_the_hopper_kernel_go_by_the_head_size(d: int, tile: tuple[int, int]) -> None:
    for n, mask in ((1024, Mask()), (16384, Mask(True))):
        plan = choose("flash", "test", replace(prefill(d), lengths=uniform(1, n, n), mask=mask), H100)
        assert (plan.q_tile, plan.kv_tile) == tile
        assert (plan.group_rows, replace(plan, kernel=None).group_rows) == (64, tile[0])


def test_eight_bit_caches_take_twice_the_keys_at_once() -> None:
    eight_bits = replace(decode(), kv_dtype=DTYPES["fp8"])
    many_rows = replace(eight_bits, q_heads=256)
    sixteen_bits = decode(8192)
    assert [choose("split-kv", "test", problem, H100).kv_tile for problem in (sixteen_bits, eight_bits, many_rows)] == [
        64,
        128,
        64,
    ]
    assert choose("paged", "test", eight_bits, H100).kv_tile == 128


def test_kv_heads_that_nearly_fill_the_sms_get_one_each() -> None:
    plans = [choose("split-kv", "test", decode(2048, batch), H100) for batch in (16, 14, 17, 8)]
    assert [(plan.ctas_per_sm, plan.splits) for plan in plans] == [(1, 1), (2, 2), (2, 1), (2, 4)]
    assert choose("paged", "test", decode(2048, 16), H100).ctas_per_sm == 2
    long = choose("split-kv", "test", decode(), H100)
    assert (long.kv_tile, long.ctas_per_sm, long.splits) == (128, 1, 16)
    one_head = choose("split-kv", "test", decode(4096, 128, heads=32, kv_heads=1), H100)
    assert (one_head.kv_tile, one_head.ctas_per_sm, one_head.splits) == (128, 1, 1)
    split = choose("split-kv", "test", decode(32768, 16, heads=32, kv_heads=1), H100)
    assert (split.kv_tile, split.ctas_per_sm, split.splits) == (128, 1, 8)
    more_rows = choose("split-kv", "test", decode(4096, 128, heads=64, kv_heads=1), H100)
    assert (more_rows.kv_tile, more_rows.ctas_per_sm, more_rows.splits) == (64, 2, 2)
    set_by_user = choose("split-kv", "test", decode(2048, 16), H100, Choices(tile=(64, 64)))
    assert set_by_user.ctas_per_sm == 2


def test_unequal_sequences_are_combined_in_the_same_launch() -> None:
    unequal = replace(decode(), lengths=(Lengths(1, 131072, 1), Lengths(1, 64, 31)))
    many_rows = replace(unequal, q_heads=256)
    assert [choose("split-kv", "test", problem, H100).fused for problem in (unequal, many_rows, decode())] == [
        True,
        False,
        False,
    ]
    assert not choose("split-kv", "test", unequal, H100, Choices(splits=1)).fused


def test_a_state_is_shared_by_ctas_of_32_columns() -> None:
    plan = choose("linear", "test", decode(), H100)
    assert (plan.form, plan.head_dim_tile, plan.v_head_dim_tile) == ("recurrent", 128, 32)


@pytest.mark.parametrize("variant", ["naive", "chunked", "flash", "split-kv", "paged", "linear"])
def test_a_tile_can_be_set(variant: str) -> None:
    plan = choose(variant, "test", prefill(), H100, Choices(tile=(64, 32)))
    assert (plan.q_tile, plan.kv_tile) == (64, 32)


def test_mla_pads_latent_and_rope_apart() -> None:
    absorbed = choose("mla", "test", MLA, H100)
    assert (absorbed.form, absorbed.head_dim_tile, absorbed.v_head_dim_tile, absorbed.packed) == ("absorbed", 576, 512, True)
    expanded = choose("mla", "test", replace(MLA, lengths=uniform(1, 64, 64)), H100)
    assert (expanded.form, expanded.head_dim_tile, expanded.v_head_dim_tile) == ("expanded", 192, 128)
    assert choose("mla", "test", MLA, H100, Choices(form="expanded")).form == "expanded"


def many_heads(batch: int, kv_len: int, heads: int = 128) -> Problem:
    return replace(MLA, q_heads=heads, lengths=uniform(batch, 1, kv_len))


@pytest.mark.parametrize(
    ("heads", "q_tile", "tile_rows"), [(1, 32, 16), (16, 32, 16), (17, 32, 32), (32, 32, 32), (33, 64, 64), (128, 64, 64)]
)
def test_a_latent_cache_has_kernels_of_its_own_on_hopper(heads: int, q_tile: int, tile_rows: int) -> None:
    plan = choose("mla", "test", many_heads(128, 4096, heads), H200)
    assert (plan.q_tile, plan.kv_tile, plan.warps, plan.splits) == (q_tile, 64, 12, 1)
    assert (plan.kernel, plan.tile_rows(heads)) == ("hopper", tile_rows)


def test_the_hopper_kernels_of_a_latent_cache_run_what_they_cover() -> None:
    others = [
        (many_heads(128, 4096), load("a100-sxm4-80gb"), Choices()),
        (many_heads(128, 4096), H200, Choices(tile=(64, 64))),
        (replace(many_heads(128, 4096), kv_dtype=DTYPES["fp8"]), H200, Choices()),
        (replace(many_heads(128, 4096), mask=Mask(True, 100)), H200, Choices()),
        (replace(many_heads(128, 4096), lengths=ragged([(1, 10), (1, 20)])), H200, Choices()),
        (replace(many_heads(128, 4096), kv=LatentKV(256, 64, 128, 128)), H200, Choices()),
        (many_heads(128, 0), H200, Choices()),
    ]
    assert {choose("mla", "test", *other).kernel for other in others} == {None}


@pytest.mark.parametrize(
    ("batch", "kv_len", "heads", "splits"),
    [
        (64, 8192, 128, 1),  # 128 CTAs on 132 SMs
        (32, 8192, 64, 4),  # 32 row tiles
        (80, 4096, 128, 2),  # 160 CTAs are two waves, 320 of half the length three
        (1, 131072, 128, 64),  # 2048 kv tiles over the 66 CTAs that each row tile may have: 32 each
        (1, 64, 128, 1),
    ],
)
def test_splits_of_a_latent_cache_fill_waves(batch: int, kv_len: int, heads: int, splits: int) -> None:
    assert choose("mla", "test", many_heads(batch, kv_len, heads), H200).splits == splits
    assert choose("mla", "test", many_heads(batch, kv_len, heads), H200, Choices(splits=7)).splits == 7


@pytest.mark.parametrize(
    ("batch", "kv_len", "splits"),
    [
        (128, 4096, 1),
        (100, 4096, 1),  # 100 SMs have nearly all of HBM's rate
        (64, 4096, 2),
        (160, 4096, 3),  # 480 CTAs: three waves and a half of 22 tiles each, not 160 of 64
        (8, 8192, 10),  # 80 CTAs of 13 tiles: more would save less than their partials cost
        (1, 65536, 79),
        (1, 64, 1),
    ],
)
def test_splits_of_few_rows_share_hbm(batch: int, kv_len: int, splits: int) -> None:
    assert choose("mla", "test", many_heads(batch, kv_len, 16), H200).splits == splits
    assert choose("mla", "test", many_heads(batch, kv_len, 16), replace(H200, sm_count=None)).splits == 1


def test_linear_is_chunked_in_prefill_and_recurrent_in_decode() -> None:
    assert choose("linear", "test", prefill(), H100).form == "chunked"
    assert choose("linear", "test", decode(), H100).form == "recurrent"


def test_decode_is_up_to_8_queries_unless_said_otherwise() -> None:
    rows = [choose("flash", "test", replace(prefill(), lengths=uniform(1, q, 4096)), H100).q_tile for q in (1, 8, 9)]
    assert rows == [16, 16, 128]
    assert choose("flash", "test", decode(), H100, Choices(decode=False)).q_tile == 128


def test_splits_fill_the_sms_once() -> None:
    # 2048 tiles of 64 for each of 8 KV heads: 132 // 8 = 16 splits of 128 tiles.
    assert choose("split-kv", "test", decode(), UNTUNED).splits == 16
    assert choose("split-kv", "test", decode(heads=1, kv_heads=1), UNTUNED).splits in range(120, 133)
    assert choose("split-kv", "test", decode(2048, batch=64), UNTUNED).splits == 1  # 512 CTAs fill the device as they are


@pytest.mark.parametrize(
    ("batch", "kv_len", "splits"),
    [
        (32, 8192, 1),  # 256 CTAs for 264 slots: one wave
        (64, 8192, 4),  # 512 CTAs are 1.9 waves, 2048 are 7.8
        (64, 4096, 2),  # no run of less than 2048 keys
        (64, 2048, 1),
        (128, 8192, 2),
        (256, 8192, 1),  # 7.8 waves as they are
    ],
)
def test_more_ctas_than_fit_at_once_are_split_into_even_waves(batch: int, kv_len: int, splits: int) -> None:
    assert choose("split-kv", "test", decode(kv_len, batch), H200).splits == splits


def test_wide_partials_are_not_made_for_even_waves() -> None:
    assert choose("split-kv", "test", decode(8192, 512, heads=64, kv_heads=1), H200).splits == 1  # 64 rows a KV head
    assert choose("mla", "test", many_heads(256, 8192, 128), UNTUNED).splits == 1


def test_splits_fill_every_slot_of_the_sms() -> None:
    plan = choose("split-kv", "test", decode(), H100)
    slots = 132 * plan.ctas_per_sm
    assert 0.9 * slots < 8 * plan.splits <= slots


def test_no_more_splits_than_tiles() -> None:
    assert choose("split-kv", "test", decode(kv_len=100), H100).splits == 2
    assert choose("split-kv", "test", decode(kv_len=1), H100).splits == 1
    windowed = replace(decode(), mask=Mask(True, 128))
    assert choose("split-kv", "test", windowed, H100).splits <= 3


def test_a_batch_of_unequal_lengths_is_split_for_its_longest() -> None:
    one_long = replace(decode(), lengths=(Lengths(1, 131072, 1), Lengths(1, 64, 31)))
    assert choose("split-kv", "test", one_long, H100).splits >= 15
    assert choose("split-kv", "test", replace(decode(), lengths=(Lengths(1, 0, 4),)), H100).splits == 1


def test_splits_can_be_set_and_need_a_known_sm_count() -> None:
    assert choose("split-kv", "test", decode(), H100, Choices(splits=5)).splits == 5
    assert choose("split-kv", "test", decode(), replace(H100, sm_count=None)).splits == 1


def test_rows_of_a_tile_as_launched() -> None:
    packed = Plan("test", 64, 64, 128, 128, packed=True)
    assert [packed.tile_rows(rows) for rows in (1, 16, 17, 64, 65)] == [16, 16, 32, 64, 64]
    assert [-(-rows // packed.q_tile) * packed.tile_rows(rows) for rows in (1, 65, 200)] == [16, 128, 256]
    assert replace(packed, packed=False).tile_rows(1) == 64


@pytest.mark.parametrize(
    ("variant", "problem", "choices", "message"),
    [
        ("flashy", prefill(), Choices(), "--variants: unknown variant 'flashy'"),
        ("flash", MLA, Choices(), "runs as mla only"),
        ("mla", prefill(), Choices(), "mla needs a latent KV cache"),
        ("mla", MLA, Choices(form="chunked"), "mla: unknown form 'chunked'"),
        ("linear", prefill(), Choices(form="absorbed"), "linear: unknown form 'absorbed'"),
    ],
)
def test_what_does_not_fit_is_refused(variant: str, problem: Problem, choices: Choices, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose(variant, "test", problem, H100, choices)


def test_a_prefill_of_absorbed_mla_has_more_rows_than_any_table() -> None:
    problem = Problem(128, LatentKV(512, 64, 128, 128), uniform(1, 10**7, 10**7), Mask(True, None))
    plan = choose("mla", "test", problem, load("h100-sxm5-80gb"), Choices(form="absorbed"))
    assert plan.q_tile == 64
