"""What holds for every variant, phase, mask, dtype, batch and device, whatever the numbers."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roofline.analysis import Conventions, Result, analyze, kv_cache_bytes, kv_cache_bytes_allocated
from roofline.configurations import FORMS, VARIANT_NAMES, Configuration
from roofline.cost import Cost, Launch, Traffic
from roofline.dtypes import DTYPES
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Choices, Plan, choose
from roofline.problem import GroupedKV, LatentKV, Lengths, Problem, uniform
from roofline.profiles import Profile, load, names
from roofline.variants import VARIANTS

H100, H200 = load("h100-sxm5-80gb"), load("h200-sxm-141gb")
PROFILES = [load(name) for name in names()]
FORMED = [(variant, form) for variant in VARIANT_NAMES for form in FORMS.get(variant, (None,))]

size = st.one_of(st.integers(1, 9), st.sampled_from([16, 100, 128, 1000, 4096, 131072]))
masks = st.one_of(st.just(FULL), st.just(CAUSAL), size.map(lambda window: Mask(True, window)))
lengths = st.lists(st.builds(Lengths, size, st.one_of(st.just(0), size), st.integers(1, 3)), min_size=1, max_size=3)
kv_dtypes = st.sampled_from(["bf16", "fp8", "int8", "int4"])


@st.composite
def problems(draw: st.DrawFn, variant: str) -> Problem:
    kv_heads = draw(st.sampled_from([1, 2, 8]))
    d, dv = draw(st.sampled_from([16, 72, 128])), draw(st.sampled_from([32, 128]))
    latent = LatentKV(draw(st.sampled_from([64, 512])), draw(st.sampled_from([0, 64])), d, dv)
    mask = draw(masks)
    if variant == "linear" and mask.window is not None:
        mask = CAUSAL
    dtype = draw(st.sampled_from(["fp32", "tf32", "bf16", "fp16"]))
    return Problem(
        kv_heads * draw(st.sampled_from([1, 4, 5])),
        latent if variant == "mla" else GroupedKV(kv_heads, d, dv),
        tuple(draw(lengths)),
        mask,
        DTYPES[dtype],
        DTYPES[draw(st.sampled_from([dtype, draw(kv_dtypes)]))],
        page_size=draw(st.sampled_from([1, 16, 24, 256])),
        mla_projections=draw(st.booleans()),
    )


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    variant, form = draw(st.sampled_from(FORMED))
    choices = Choices(
        splits=draw(st.sampled_from([None, 1, 3, 16])),
        passes=draw(st.sampled_from([3, 6])),
        form=form,
        chunk=draw(st.sampled_from([None, (8, 32)])),
        tile=draw(st.sampled_from([None, (64, 32)])),
        decode=draw(st.sampled_from([None, True, False])),
    )
    problem = draw(problems(variant))
    if choices.chunk is not None:  # keep the number of small chunks in reason
        assume(max(each.q_len for each in problem.lengths) <= 4096)
    return Configuration("test", variant, "prefill", problem, choices)


def speed_of_light_s(result: Result, profile: Profile) -> float:
    """Useful FLOPs and minimum bytes over the printed peaks: nothing runs faster."""
    problem = result.configuration.problem
    peak = profile.datasheet.get(f"{problem.dtype.name}_flop_per_s")
    bandwidth = profile.datasheet.get("hbm_bytes_per_s")
    matmul_s = min(result.cost.flops, result.cost.flops_executed) / peak.value if peak else 0.0
    return max(matmul_s, result.cost.hbm_bytes_min / bandwidth.value if bandwidth else 0.0)


@settings(max_examples=400, deadline=None)
@given(configuration=configurations(), profile=st.sampled_from(PROFILES))
def test_bytes_are_ordered_and_no_time_beats_light(configuration: Configuration, profile: Profile) -> None:
    result = analyze(configuration, profile)
    cost, prediction = result.cost, result.prediction
    assert 0 < cost.hbm_bytes_min <= prediction.hbm.hbm_bytes <= cost.sm_bytes
    for launch, entries in zip(cost.launches, prediction.hbm.launches, strict=True):
        for traffic, entry in zip(launch.traffic, entries, strict=True):
            assert 0 <= entry.read_bytes <= traffic.sm_read_bytes
            assert 0 <= entry.write_bytes <= traffic.sm_write_bytes
            assert traffic.read_bytes_min <= traffic.sm_read_bytes
            assert traffic.write_bytes_min <= traffic.sm_write_bytes
    assert prediction.time_s >= speed_of_light_s(result, profile) * (1 - 1e-9)
    assert all(isinstance(value, int) for value in (cost.flops, cost.hbm_bytes_min, prediction.hbm.hbm_bytes, cost.sm_bytes))
    if configuration.variant != "linear":
        assert cost.flops <= cost.flops_executed
    if profile.l2_bytes is None:
        assert prediction.hbm.hbm_bytes == cost.hbm_bytes_cold
        assert "L2" in prediction.hbm.reasons[0]


@settings(max_examples=60, deadline=None)
@given(configuration=configurations(), convention=st.sampled_from(["exact", "full", "half"]))
def test_the_flop_convention_changes_what_is_reported_and_no_time(configuration: Configuration, convention: str) -> None:
    exact = analyze(configuration, H100)
    result = analyze(configuration, H100, Conventions(convention))  # type: ignore[arg-type]
    assert result.prediction.time_s == exact.prediction.time_s
    assert result.cost == exact.cost
    if convention == "full":
        assert result.flops >= exact.flops


@settings(max_examples=60, deadline=None)
@given(problem=problems("flash"))
def test_flash_moves_no_more_cold_bytes_than_naive(problem: Problem) -> None:
    flash, naive = (VARIANTS[name](problem, choose(name, "test", problem, H100)) for name in ("flash", "naive"))
    assert flash.hbm_bytes_cold <= naive.hbm_bytes_cold
    assert flash.hbm_bytes_min <= naive.hbm_bytes_min
    assert flash.workspace_bytes == 0


@settings(max_examples=40, deadline=None)
@given(data=st.data(), variant=st.sampled_from(["naive", "chunked", "flash", "linear"]))
def test_as_many_kv_heads_as_query_heads_is_mha(data: st.DataObject, variant: str) -> None:
    """A group of query heads moves the K and V of one head; with groups of one, each head pays for its own."""
    problem = data.draw(problems(variant))
    assert isinstance(problem.kv, GroupedKV)
    mha = replace(problem, kv=problem.kv._replace(heads=problem.q_heads))
    plan = choose(variant, "test", problem, H100)
    one_head = replace(problem, q_heads=1, kv=problem.kv._replace(heads=1))
    together, alone = VARIANTS[variant](mha, plan), VARIANTS[variant](one_head, plan)
    assert together.flops == problem.q_heads * alone.flops
    tensor = 2 * problem.scale_tensor_bytes * (problem.q_heads - 1)  # an fp8 scale belongs to the tensor of all heads
    assert together.hbm_bytes_min == problem.q_heads * alone.hbm_bytes_min - tensor
    grouped = VARIANTS[variant](problem, plan)
    if variant != "linear":
        assert grouped.flops == together.flops
    assert grouped.hbm_bytes_min <= together.hbm_bytes_min


@settings(max_examples=60, deadline=None)
@given(data=st.data(), formed=st.sampled_from([f for f in FORMED if f[0] != "linear"]), more=st.sampled_from([0, 1, 10**6]))
def test_a_window_as_long_as_the_keys_is_causal(data: st.DataObject, formed: tuple[str, str | None], more: int) -> None:
    variant, form = formed
    causal = replace(data.draw(problems(variant)), mask=CAUSAL)
    longest = max(each.kv_len for each in causal.lengths)
    windowed = replace(causal, mask=Mask(True, max(longest, 1) + more))
    plan = choose(variant, "test", causal, H100, Choices(form=form))
    assert VARIANTS[variant](windowed, plan) == VARIANTS[variant](causal, plan)
    assert kv_cache_bytes(variant, windowed) == kv_cache_bytes(variant, causal)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), variant=st.sampled_from(["split-kv", "paged"]))
def test_one_split_is_unsplit_plus_nothing(data: st.DataObject, variant: str) -> None:
    problem = data.draw(problems(variant))
    plan = choose(variant, "test", problem, H100, Choices(splits=1))
    one, many = VARIANTS[variant](problem, plan), VARIANTS[variant](problem, replace(plan, splits=5))
    assert len(one.launches) == 1
    assert one.workspace_bytes == 0
    assert all(traffic.role != "intermediate" for traffic in one.launches[0].traffic)
    assert one.hbm_bytes_min == one.hbm_bytes_cold == many.hbm_bytes_min
    assert one.flops == many.flops
    assert one.flops_executed == many.flops_executed
    # With a query head a KV head, and one tile for all its rows, it is flash decode.
    flash_plan = replace(plan, packed=False)
    assert isinstance(problem.kv, GroupedKV)
    mha = replace(problem, kv=problem.kv._replace(heads=problem.q_heads))
    flash, unsplit = VARIANTS["flash"](mha, flash_plan), VARIANTS["split-kv"](mha, flash_plan)
    assert (flash.hbm_bytes_min, flash.sm_bytes) == (unsplit.hbm_bytes_min, unsplit.sm_bytes)
    assert (flash.flops, flash.flops_executed) == (unsplit.flops, unsplit.flops_executed)


@settings(max_examples=60, deadline=None)
@given(problem=problems("paged"))
def test_pages_of_one_token_waste_nothing(problem: Problem) -> None:
    one = replace(problem, page_size=1)
    assert kv_cache_bytes_allocated("paged", one) == kv_cache_bytes("paged", one)
    wasted = kv_cache_bytes_allocated("paged", problem) - kv_cache_bytes("paged", problem)
    token = kv_cache_bytes("paged", replace(problem, lengths=uniform(2, 1, 1))) - kv_cache_bytes(
        "paged", replace(problem, lengths=uniform(1, 1, 1))
    )
    ends = 1 if problem.mask.window is None else 2  # a window can cut the first page too
    assert 0 <= wasted <= problem.batch * ends * (problem.page_size - 1) * token


@settings(max_examples=150, deadline=None)
@given(data=st.data(), formed=st.sampled_from(FORMED), times=st.integers(2, 50))
def test_work_is_linear_in_the_batch_at_a_fixed_plan(data: st.DataObject, formed: tuple[str, str | None], times: int) -> None:
    """At a fixed plan, but for what a batch shares: fp8 scales of whole tensors and the weights of MLA's projections."""
    variant, form = formed
    one = replace(data.draw(problems(variant)), mla_projections=False)
    many = replace(one, lengths=tuple(each._replace(count=each.count * times) for each in one.lengths))
    plan = choose(variant, "test", one, H100, Choices(form=form))
    alone, together = VARIANTS[variant](one, plan), VARIANTS[variant](many, plan)
    for name in ("flops", "flops_executed", "exp_ops", "vector_ops"):
        assert getattr(together, name) == times * getattr(alone, name)
    if one.scale_tensor_bytes == 0 or one.kv_tokens:  # a scale of no keys at all is read once
        assert together.sm_bytes == times * alone.sm_bytes
    if one.scale_tensor_bytes == 0:
        assert together.hbm_bytes_min == times * alone.hbm_bytes_min
        assert together.hbm_bytes_cold == times * alone.hbm_bytes_cold


@settings(max_examples=100, deadline=None)
@given(data=st.data(), formed=st.sampled_from(FORMED))
def test_a_batch_is_the_sum_of_its_sequences(data: st.DataObject, formed: tuple[str, str | None]) -> None:
    variant, form = formed
    batch = replace(data.draw(problems(variant)), mla_projections=False, page_size=16)
    assume(batch.scale_tensor_bytes == 0)
    # The splits of a fused plan go by the longest sequence of the batch.
    plan = replace(choose(variant, "test", batch, H100, Choices(form=form)), fused=False)
    runs = [VARIANTS[variant](replace(batch, lengths=(run,)), plan) for run in batch.lengths]
    whole = VARIANTS[variant](batch, plan)
    for name in ("flops", "flops_executed", "exp_ops", "vector_ops", "hbm_bytes_min", "hbm_bytes_cold", "sm_bytes"):
        assert getattr(whole, name) == sum(getattr(run, name) for run in runs), name


@settings(max_examples=60, deadline=None)
@given(problem=problems("split-kv"), profile=st.sampled_from(PROFILES))
def test_chosen_splits_never_stay_empty(problem: Problem, profile: Profile) -> None:
    plan = choose("split-kv", "test", problem, profile)
    assert plan.splits >= 1
    tiles = [problem.mask.tile_count(*run[:2], plan.q_tile, plan.kv_tile, problem.group).tiles for run in problem.lengths]
    assert plan.splits <= max(*tiles, 1)
    if profile.sm_count is None:
        assert plan.splits == 1


def _launch(name: str, *traffic: Traffic, flops: int = 0) -> Launch:
    return Launch(name, 1, traffic, flops=flops, flops_executed=2 * flops, exp_ops=3, vector_ops=4)


ONE = Cost((_launch("one", Traffic("Q", "input", 10, 0, 32), Traffic("T", "intermediate", 0, 7, 0, 32), flops=5),), 100)
TWO = Cost((_launch("two", Traffic("T", "intermediate", 7, 0, 32), Traffic("O", "output", 0, 9, 0, 32), flops=6),), 60)


def test_costs_add_up() -> None:
    both = ONE + TWO
    assert [launch.name for launch in both.launches] == ["one", "two"]
    assert (both.flops, both.flops_executed, both.exp_ops, both.vector_ops) == (11, 22, 6, 8)
    assert both.hbm_bytes_min == 10 + 9  # without the intermediate
    assert both.hbm_bytes_cold == 10 + 7 + 7 + 9
    assert both.sm_bytes == 4 * 32
    assert both.workspace_bytes == 100  # reused, not added


def test_adding_costs_is_associative_and_nothing_is_neutral() -> None:
    nothing = Cost(())
    assert ONE + nothing == nothing + ONE == ONE
    assert (ONE + TWO) + ONE == ONE + (TWO + ONE)


def test_a_tensor_that_two_launches_read_counts_once_in_the_minimum() -> None:
    twice = ONE + ONE
    assert twice.hbm_bytes_min == ONE.hbm_bytes_min == 10
    assert twice.hbm_bytes_cold == 2 * ONE.hbm_bytes_cold


def test_costs_are_values() -> None:
    with pytest.raises(AttributeError):
        ONE.workspace_bytes = 0  # type: ignore[misc]
    assert hash(ONE) == hash(Cost(ONE.launches, 100))
    assert isinstance(choose("flash", "test", Problem(1, GroupedKV(1, 64, 64), uniform(1, 8, 8)), H200), Plan)
