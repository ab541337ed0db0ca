"""Texts of the command line become a request: one table for all commands."""

from dataclasses import fields
from typing import Any

import pytest

from roofline import options
from roofline.configurations import Request
from roofline.errors import InputError
from roofline.profiles import load

H100, V100 = load("h100-sxm5-80gb"), load("v100-sxm2-16gb")


def given(**texts: Any) -> dict[str, Any]:
    empty = {option.parameter: False if option.kind == "flag" else None for option in options.PROBLEM_OPTIONS}
    assert set(texts) <= set(empty)
    return empty | texts


def request(**texts: Any) -> Request:
    return options.request(given(**texts), H100)[0]


def test_every_problem_option_of_the_contract_is_there() -> None:
    names = {option.name for option in options.PROBLEM_OPTIONS}
    assert names >= {
        "--n", "--q-len", "--kv-len", "--kv-lens", "--d", "--dv", "--heads", "--kv-heads", "--batch", "--causal", "--window",
        "--dtype", "--kv-dtype", "--page-size", "--max-len", "--shared-prefix", "--latent-dim", "--rope-dim",
        "--mla-projections", "--splits", "--tile", "--chunk", "--naive-passes", "--layers", "--variants", "--phase", "--decode",
    }  # fmt: skip
    assert len(names) == len(options.PROBLEM_OPTIONS)


def test_every_option_but_decode_sets_a_field_of_the_request() -> None:
    known = {field.name for field in fields(Request)}
    assert {option.field for option in options.PROBLEM_OPTIONS} - {"decode"} == known


def test_nothing_given_is_the_default_request() -> None:
    assert request() == Request()


def test_sizes_pairs_lists_and_flags() -> None:
    made = request(n="2k", d="64", causal=True, tile="64x128", chunk="1Kx4k", variants="flash, naive", layers="3")
    assert (made.n, made.d, made.causal, made.layers) == (2048, 64, True, 3)
    assert (made.tile, made.chunk, made.variants) == ((64, 128), (1024, 4096), ("flash", "naive"))
    assert request(kv_lens="512,2k").kv_lens == (512, 2048)


def test_decode_is_one_query_token() -> None:
    made = request(decode=True, n="4k")
    assert (made.q_len, made.phase) == (1, "decode")
    assert request(decode=True, q_len="1", phase="decode") == request(decode=True)
    assert request(phase="both").phase is None


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"n": ""}, "--n: "), ({"n": "two"}, "--n: "), ({"n": "-1"}, "--n: "), ({"n": "1.5"}, "--n: "), ({"n": "1e3"}, "--n: "),
        ({"n": "0x10"}, "--n: "), ({"n": "٣"}, "--n: "), ({"n": "9" * 400}, "--n: "), ({"n": "1k:4k:x2"}, "--n: "),
        ({"kv_lens": "1,,2"}, "--kv-lens: "), ({"kv_lens": ""}, "--kv-lens: "), ({"tile": "64"}, "--tile: "),
        ({"tile": "64x64x64"}, "--tile: "), ({"tile": "x"}, "--tile: "), ({"chunk": "axb"}, "--chunk: "),
        ({"phase": "training"}, "--phase: "), ({"decode": True, "q_len": "2"}, "--decode "),
        ({"decode": True, "phase": "both"}, "--decode "), ({"variants": ""}, "--variants: "),
    ],
)  # fmt: skip
def test_a_text_that_is_none_names_its_option(texts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        request(**texts)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_lists_and_ranges_are_axes_in_the_order_of_the_options() -> None:
    base, axes, notes = options.request_axes(given(d="64,128", n="1k:4k:x2", heads="16", kv_lens=None), H100)
    assert list(axes) == ["n", "d"]
    assert axes == {"n": (1024, 2048, 4096), "d": (64, 128)}
    assert (base.n, base.d, base.heads, notes) == (1024, 64, 16, [])


def test_kv_lens_are_a_batch_and_no_axis() -> None:
    base, axes, _ = options.request_axes(given(kv_lens="512,1k"), H100)
    assert (base.kv_lens, axes) == ((512, 1024), {})


def test_a_device_without_bf16_gets_fp16_and_says_so() -> None:
    made, notes = options.request(given(), V100)
    assert made.dtype == "fp16"
    assert notes == ["V100 SXM2 16GB has no bf16: fp16 is used"]
    assert options.request(given(dtype="fp32"), V100)[1] == []
    assert options.request(given(), H100)[1] == []


def test_conventions_are_checked() -> None:
    assert options.conventions("half", "measured") == ("half", "measured")
    with pytest.raises(InputError, match=r"^--flop-convention: expected exact, full or half, got 'x'"):
        options.conventions("x", "datasheet")
    with pytest.raises(InputError, match=r"^--roof: expected datasheet or measured, got 'x'"):
        options.conventions("exact", "x")
