"""The default comparison, how options pin its axes, and options that contradict each other."""

from typing import Any

import pytest

from roofline.configurations import DEFAULT_COMPARISON, VARIANT_NAMES, Configuration, Request, configurations
from roofline.errors import InputError
from roofline.masks import Mask
from roofline.problem import GroupedKV, LatentKV, Lengths
from roofline.variants import VARIANTS

PREFILL = [
    "mha/naive", "mha/chunked", "mha/flash", "gqa/flash", "mqa/flash", "swa/flash", "mla/expanded", "linear/chunked",
]  # fmt: skip
DECODE = [
    "mha/naive", "mha/flash", "mha/split-kv", "gqa/split-kv", "mqa/split-kv", "gqa/paged", "swa/split-kv", "mla/absorbed",
    "linear/recurrent",
]  # fmt: skip


def made(phase: str | None = None, **options: Any) -> list[Configuration]:
    return [each for each in configurations(Request(**options)) if phase in (None, each.phase)]


def named(phase: str | None = None, **options: Any) -> list[str]:
    return [each.name for each in made(phase, **options)]


def test_every_variant_has_a_cost_and_a_place_in_the_comparison() -> None:
    assert set(VARIANT_NAMES) == set(VARIANTS)
    assert {entry.variant for entries in DEFAULT_COMPARISON.values() for entry in entries} == set(VARIANTS)


def test_the_default_comparison() -> None:
    assert named("prefill") == PREFILL
    assert named("decode") == DECODE
    problems = {(each.name, each.phase): each.problem for each in made()}
    assert all(problem.q_heads == 32 and problem.batch == 1 and problem.page_size == 16 for problem in problems.values())
    assert all(problem.dtype.name == "bf16" == problem.kv_dtype.name for problem in problems.values())
    assert problems["mha/flash", "prefill"].kv == GroupedKV(32, 128, 128)
    assert problems["gqa/flash", "prefill"].kv == problems["swa/flash", "prefill"].kv == GroupedKV(8, 128, 128)
    assert problems["mqa/flash", "prefill"].kv == GroupedKV(1, 128, 128)
    assert problems["mla/absorbed", "decode"].kv == LatentKV(512, 64, 128, 128)
    assert problems["swa/flash", "prefill"].mask == Mask(True, 1024)
    assert problems["mha/flash", "prefill"].mask == Mask()
    assert problems["mha/flash", "prefill"].lengths == (Lengths(2048, 2048, 1),)
    assert problems["gqa/paged", "decode"].lengths == (Lengths(1, 2048, 1),)


def test_an_option_changes_the_base_problem_of_all() -> None:
    for each in made(n=512, d=64, dv=32, heads=16, batch=3, dtype="fp16", kv_dtype="fp8", page_size=32, layers=4, causal=True):
        problem = each.problem
        assert (problem.q_heads, problem.batch, problem.page_size, problem.layers) == (16, 3, 32, 4)
        assert (problem.kv.head_dim, problem.kv.v_head_dim) == (64, 32)
        assert (problem.dtype.name, problem.kv_dtype.name) == ("fp16", "fp8")
        assert problem.mask.causal
        assert problem.lengths[0].kv_len == 512


def test_kv_heads_pin_their_axis_and_equal_configurations_are_shown_once() -> None:
    assert named("prefill", kv_heads=4) == [
        "gqa/naive", "gqa/chunked", "gqa/flash", "swa/flash", "mla/expanded", "linear/chunked",
    ]  # fmt: skip
    assert named("decode", kv_heads=1)[:3] == ["mqa/naive", "mqa/flash", "mqa/split-kv"]
    assert named("decode", heads=1, kv_heads=1)[:3] == ["mha/naive", "mha/flash", "mha/split-kv"]


def test_a_window_pins_its_axis() -> None:
    windowed = made(window=512)
    assert all(each.problem.mask == Mask(True, 512) for each in windowed if each.variant != "linear")
    assert [each.problem.mask for each in windowed if each.variant == "linear"] == [Mask(), Mask()]
    names = named("prefill", window=512)
    assert names.count("swa/flash") == 1  # what gqa/flash and swa/flash have become
    assert len(names) == len(set(names)) == len(PREFILL) - 1


def test_no_two_configurations_share_name_and_phase() -> None:
    for options in ({}, {"window": 64}, {"kv_heads": 8}, {"heads": 1}, {"heads": 8}, {"kv_heads": 2, "window": 64}):
        listed = [(each.name, each.phase) for each in made(**options)]
        assert len(listed) == len(set(listed))


def test_heads_that_8_does_not_divide_have_a_common_divisor_as_gqa() -> None:
    (gqa,) = [each for each in made(heads=12) if each.name == "gqa/flash"]
    assert gqa.problem.kv_heads == 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"variants": ("paged",)}, [("gqa/paged", "decode")]),
        ({"variants": ("mla",)}, [("mla/expanded", "prefill"), ("mla/absorbed", "decode")]),
        ({"variants": ("mla/absorbed",), "phase": "prefill"}, [("mla/absorbed", "prefill")]),
        ({"variants": ("linear/parallel",), "phase": "prefill"}, [("linear/parallel", "prefill")]),
        ({"variants": ("paged",), "phase": "prefill"}, [("gqa/paged", "prefill")]),
        ({"variants": ("chunked",), "phase": "decode"}, [("gqa/chunked", "decode")]),
        ({"variants": ("naive", "chunked"), "phase": "prefill"}, [("mha/naive", "prefill"), ("mha/chunked", "prefill")]),
    ],
)
def test_variants_pin_their_axis(options: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert [(each.name, each.phase) for each in configurations(Request(**options))] == expected


def test_phases() -> None:
    assert {each.phase for each in made(phase=None)} == {"prefill", "decode"}
    assert {each.phase for each in configurations(Request(phase="decode"))} == {"decode"}
    assert {each.phase for each in made(q_len=8)} == {"decode"}  # speculative decoding
    assert {each.phase for each in made(q_len=9)} == {"prefill"}
    assert {each.phase for each in configurations(Request(q_len=4, phase="prefill"))} == {"prefill"}


def test_lengths() -> None:
    assert made(n=4096, q_len=4)[0].problem.lengths == (Lengths(4, 4096, 1),)
    assert made(kv_len=4096, batch=2)[0].problem.lengths == (Lengths(4096, 4096, 2),)
    assert made(kv_len=4096, q_len=100)[0].problem.lengths == (Lengths(100, 4096, 1),)


def test_kv_lens_define_the_batch() -> None:
    prefill = made("prefill", kv_lens=(512, 2048, 2048, 8192))[0].problem
    assert prefill.lengths == (Lengths(512, 512, 1), Lengths(2048, 2048, 2), Lengths(8192, 8192, 1))
    assert prefill.batch == 4
    decode = made("decode", kv_lens=(512, 0, 2048))[0].problem
    assert decode.lengths == (Lengths(1, 512, 1), Lengths(1, 0, 1), Lengths(1, 2048, 1))
    assert made(kv_lens=(512, 100), q_len=16)[0].problem.lengths == (Lengths(16, 512, 1), Lengths(16, 100, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 512, "kv_len": 513}, "--n 512 and --kv-len 513 contradict"),
        ({"n": 512, "kv_lens": (1, 2)}, "--kv-lens and --n contradict"),
        ({"kv_len": 512, "kv_lens": (1, 2)}, "--kv-lens and --kv-len contradict"),
        ({"batch": 3, "kv_lens": (1, 2)}, "--batch 3 contradicts the 2 lengths"),
        ({"kv_lens": (0, 0)}, "--kv-lens: expected at least one sequence with keys"),
        ({"n": 0}, "--n 0"),
        ({"n": 2**40 + 1}, "--n 1099511627777"),
        ({"kv_lens": (1, 2**40 + 1)}, "--kv-lens 1099511627777"),
        ({"batch": 0}, "--batch 0"),
        ({"batch": 2**40}, "--batch"),
        ({"heads": 0}, "--heads 0"),
        ({"kv_heads": 0}, "--kv-heads 0"),
        ({"kv_heads": 5}, "--kv-heads 5 does not divide the 32 query heads"),
        ({"window": 0}, "--window 0"),
        ({"d": 0}, "--d 0"),
        ({"dv": 2**30}, "--dv"),
        ({"latent_dim": 0, "variants": ("flash",)}, "--latent-dim 0"),
        ({"page_size": 0}, "--page-size 0"),
        ({"layers": 0}, "--layers 0"),
        ({"max_len": 100}, "--max-len 100 is shorter than a sequence of 2048"),
        ({"shared_prefix": 4096}, "--shared-prefix 4096 is longer than a sequence of 2048"),
        ({"dtype": "fp4"}, "--dtype: unknown dtype 'fp4'"),
        ({"kv_dtype": "fp4"}, "--kv-dtype: unknown dtype 'fp4'"),
        ({"kv_dtype": "fp32"}, "--kv-dtype fp32 is wider than --dtype bf16"),
        ({"dtype": "int8"}, "--dtype: unknown dtype 'int8'"),
        ({"variants": ("flashy",)}, "--variants: unknown variant 'flashy'"),
        ({"variants": ("mla/recurrent",)}, "--variants: unknown form 'mla/recurrent'; expected mla/expanded, mla/absorbed"),
        ({"splits": 0}, "--splits 0"),
        ({"tile": (0, 64)}, "--tile 0x64"),
        ({"chunk": (64, 0)}, "--chunk 64x0"),
        ({"naive_passes": 4}, "--naive-passes 4: expected 3 or 6"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        configurations(Request(**options))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
