"""The JSON that other programs read: every field, its type, exact integers, and the KV cache."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from roofline.analysis import (
    SCHEMA,
    Conventions,
    analyze_all,
    document,
    kv_cache_bytes,
    kv_cache_bytes_allocated,
    problem_dict,
    to_dict,
)
from roofline.configurations import Request
from roofline.dtypes import DTYPES
from roofline.masks import Mask
from roofline.problem import GroupedKV, LatentKV, Lengths, Problem, uniform
from roofline.profiles import load

H100, H200 = load("h100-sxm5-80gb"), load("h200-sxm-141gb")

RESULT_FIELDS: dict[str, tuple[type, ...]] = {
    "configuration": (str,), "variant": (str,), "phase": (str,), "problem": (dict,), "plan": (dict,),
    "flops": (int,), "flops_executed": (int,), "exp_ops": (int,), "vector_ops": (int,),
    "hbm_bytes": (int,), "hbm_bytes_min": (int,), "hbm_bytes_cold": (int,), "sm_bytes": (int,), "l2_bytes": (int, type(None)),
    "levels": (dict,), "intensity": (float,), "ridge": (float, type(None)), "bound": (str,), "time_s": (float,),
    "attainable_flop_per_s": (float,), "sms_used": (int, type(None)), "kv_cache_bytes": (int,),
    "kv_cache_bytes_per_token": (int,), "kv_cache_bytes_allocated": (int,), "workspace_bytes": (int,), "launches": (list,),
}  # fmt: skip
LAUNCH_FIELDS = {"name": str, "flops": int, "flops_executed": int, "ctas": int, "traffic": list}
TRAFFIC_FIELDS = {
    "tensor": str, "role": str, "read_bytes_min": int, "write_bytes_min": int, "read_bytes": int, "write_bytes": int,
    "sm_read_bytes": int, "sm_write_bytes": int,
}  # fmt: skip
BOUNDS = {"hbm", "l2", "tensor", "exp", "vector", "parallelism", "launch"}


def documented(device: Any = H100, conventions: Conventions = Conventions(), **options: Any) -> dict[str, Any]:  # noqa: B008
    """A whole document, through JSON text and back."""
    results = analyze_all(Request(**options), device, conventions)
    return json.loads(json.dumps(document(results, device, conventions)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("options", [{}, {"kv_lens": (512, 0, 8192)}, {"mla_projections": True, "window": 64, "dtype": "fp32"}])
@pytest.mark.parametrize("device", [H100, H200, load("mi300x"), load("h20-96gb")], ids=lambda device: device.id)
def test_every_field_of_the_contract(device: Any, options: dict[str, Any]) -> None:
    whole = documented(device, **options)
    assert whole["schema"] == SCHEMA == "roofline.analysis/1"
    assert {"device", "conventions", "results"} <= set(whole)
    assert (whole["conventions"]["flop_convention"], whole["conventions"]["roof"]) == ("exact", "datasheet")
    for result in whole["results"]:
        for field, types in RESULT_FIELDS.items():
            assert isinstance(result[field], types), (result["configuration"], field)
        assert result["bound"] in BOUNDS
        assert result["phase"] in ("prefill", "decode")
        assert set(result["levels"]) == {"hbm", "l2", "sm"}
        for level in result["levels"].values():
            assert set(level) == {"bytes", "intensity", "ridge", "time_s"}
        for launch in result["launches"]:
            assert all(isinstance(launch[field], kind) for field, kind in LAUNCH_FIELDS.items())
            for traffic in launch["traffic"]:
                assert all(type(traffic[field]) is kind for field, kind in TRAFFIC_FIELDS.items())
                assert traffic["role"] in ("input", "output", "intermediate")


def test_totals_are_sums_of_their_launches() -> None:
    for result in documented(kv_lens=(512, 2048))["results"]:
        traffic = [t for launch in result["launches"] for t in launch["traffic"]]
        assert result["hbm_bytes"] == sum(t["read_bytes"] + t["write_bytes"] for t in traffic)
        assert result["hbm_bytes_cold"] == sum(t["read_bytes_min"] + t["write_bytes_min"] for t in traffic)
        assert result["sm_bytes"] == sum(t["sm_read_bytes"] + t["sm_write_bytes"] for t in traffic)
        for work in ("flops", "flops_executed", "exp_ops", "vector_ops"):
            assert result[work] == sum(launch[work] for launch in result["launches"])
        assert result["hbm_bytes_min"] <= result["hbm_bytes"] <= result["sm_bytes"]


def test_derived_figures_follow_from_the_others() -> None:
    for result in documented()["results"]:
        assert result["intensity"] == result["levels"]["hbm"]["intensity"] == result["flops"] / result["hbm_bytes"]
        assert result["ridge"] == result["levels"]["hbm"]["ridge"] == pytest.approx(989.4e12 / 3.35e12)
        assert result["attainable_flop_per_s"] == pytest.approx(result["flops"] / result["time_s"])
        assert result["levels"]["hbm"]["bytes"] == result["hbm_bytes"]
        assert result["levels"]["sm"]["bytes"] == result["sm_bytes"]
        assert result["time_s"] >= max(launch["time_s"] for launch in result["launches"])


def test_big_values_are_exact_integers() -> None:
    n = 10_000_000
    for result in documented(n=n, phase="prefill")["results"]:
        if result["configuration"] == "mha/flash":
            assert result["flops"] == 4 * 32 * 128 * n * n == 1_638_400_000_000_000_000  # above 2^53
            assert result["hbm_bytes_min"] == 4 * 32 * 128 * n * 2
        if result["configuration"] == "mha/naive":
            assert result["hbm_bytes_cold"] == 4 * 32 * n * n * 2 + 4 * 32 * 128 * n * 2
    odd = documented(n=n + 1, causal=True, phase="prefill", variants=("flash",))["results"][0]
    assert odd["flops"] == 4 * 32 * 128 * ((n + 1) * (n + 2) // 2)
    assert odd["flops"] > 2**53


def test_no_value_is_infinite_or_not_a_number() -> None:
    json.dumps(document(analyze_all(Request(kv_lens=(1, 0)), H100), H100, Conventions()), allow_nan=False)


def test_conventions_of_flops() -> None:
    exact, full, half = (
        documented(conventions=Conventions(c), n=100, causal=True, phase="prefill", variants=("naive",))["results"][0]
        for c in ("exact", "full", "half")  # type: ignore[arg-type]
    )
    assert [each["flops"] for each in (exact, full, half)] == [4 * 32 * 128 * pairs for pairs in (5050, 10000, 5000)]
    assert exact["time_s"] == full["time_s"] == half["time_s"]
    assert exact["flops_executed"] == full["flops_executed"] == half["flops_executed"]


@pytest.mark.parametrize("options", [{"window": 10}, {"q_len": 50, "kv_len": 100, "causal": True}])
def test_half_is_exact_where_there_is_no_plain_causal_square(options: dict[str, Any]) -> None:
    options = {"n": 100, **options} if "kv_len" not in options else options
    exact, half = (
        documented(conventions=Conventions(c), variants=("naive",), **options)["results"][0] for c in ("exact", "half")
    )  # type: ignore[arg-type]
    assert exact["flops"] == half["flops"]


def test_half_leaves_the_projections_of_mla_whole() -> None:
    options = {"n": 100, "causal": True, "phase": "prefill", "variants": ("mla",), "mla_projections": True}
    half = documented(conventions=Conventions("half"), **options)["results"][0]
    attention, projections = 2 * 32 * 100 * 100 * (192 + 128), 2 * (2 * 100 * 32 * 512 * 128)
    assert half["flops"] == attention // 2 + projections


def test_the_cost_of_projections_is_beside_where_they_are_left_out() -> None:
    without, with_them = (
        documented(n=64, variants=("mla",), phase="prefill", mla_projections=each)["results"][0] for each in (False, True)
    )
    assert without["mla_projections"]["included"] is False
    assert with_them["mla_projections"]["included"] is True
    assert without["mla_projections"]["flops"] == 2 * (2 * 64 * 32 * 512 * 128)
    assert with_them["flops"] - without["flops"] == without["mla_projections"]["flops"]
    assert without["problem"] != with_them["problem"]


def test_a_device_without_a_validated_l2_model_says_so() -> None:
    assert any("not validated" in note for note in documented(H100)["conventions"]["notes"])
    assert not any("not validated" in note for note in documented(H200)["conventions"]["notes"])


def test_the_device_has_every_ceiling_with_its_source() -> None:
    device = documented()["device"]
    assert (device["id"], device["sm_count"], device["l2_bytes"]) == ("h100-sxm5-80gb", 132, 50 * 2**20)
    for ceiling in device["datasheet"].values():
        assert ceiling["value"] > 0
        assert ceiling["source"]
        assert ceiling["kind"] in ("datasheet", "derived")


def test_unknown_levels_are_named() -> None:
    fp8 = documented(load("a100-sxm4-40gb"), dtype="fp8", variants=("flash",), phase="prefill")["results"][0]
    assert "tensor" in fp8["unknown"]
    assert fp8["ridge"] is None
    assert fp8["bound"] != "tensor"


def test_the_problem_by_the_names_of_its_options() -> None:
    problem = Problem(32, GroupedKV(8, 128, 64), uniform(2, 1, 4096), Mask(True, 100), page_size=32, max_len=8192, layers=3)
    assert problem_dict(problem) == {
        "batch": 2, "q_len": 1, "kv_len": 4096, "lengths": None, "q_heads": 32, "kv_heads": 8, "head_dim": 128,
        "v_head_dim": 64, "latent_dim": None, "rope_dim": None, "mask": "window", "window": 100, "dtype": "bf16",
        "kv_dtype": "bf16", "page_size": 32, "max_len": 8192, "shared_prefix": 0, "mla_projections": False, "layers": 3,
    }  # fmt: skip
    unequal = problem_dict(replace(problem, lengths=(Lengths(1, 10, 2), Lengths(1, 20, 1)), mask=Mask()))
    assert (unequal["q_len"], unequal["kv_len"], unequal["lengths"]) == (None, None, [[1, 10, 2], [1, 20, 1]])


def cached(lengths: tuple[Lengths, ...], **more: Any) -> Problem:
    return Problem(32, more.pop("kv", GroupedKV(8, 128, 128)), lengths, **more)


TOKEN = 2 * 8 * 128 * 2  # K and V of 8 heads in bf16


def test_the_kv_cache_is_of_the_whole_batch_and_one_layer() -> None:
    problem = cached(uniform(4, 1, 1000))
    assert kv_cache_bytes("split-kv", problem) == 4 * 1000 * TOKEN
    assert kv_cache_bytes("split-kv", replace(problem, layers=3)) == 3 * 4 * 1000 * TOKEN


def test_a_windowed_cache_holds_the_window() -> None:
    problem = cached((Lengths(1, 1000, 1), Lengths(1, 50, 1)), mask=Mask(True, 100))
    assert kv_cache_bytes("split-kv", problem) == (100 + 50) * TOKEN


def test_pages_round_up() -> None:
    problem = cached((Lengths(1, 1000, 1), Lengths(1, 1, 1), Lengths(1, 0, 1)), page_size=16)
    assert kv_cache_bytes("paged", problem) == 1001 * TOKEN
    assert kv_cache_bytes_allocated("paged", problem) == (63 + 1) * 16 * TOKEN


def test_pages_of_a_window_are_kept_whole() -> None:
    # The last 100 of 1000 tokens, 900 - 999, lie in pages 56 - 62.
    problem = cached(uniform(1, 1, 1000), mask=Mask(True, 100), page_size=16)
    assert kv_cache_bytes("paged", problem) == 100 * TOKEN
    assert kv_cache_bytes_allocated("paged", problem) == 7 * 16 * TOKEN


def test_a_shared_prefix_is_stored_once_where_it_is_paged() -> None:
    problem = cached(uniform(4, 1, 1000), page_size=16, shared_prefix=500)  # 31 whole pages, 496 tokens
    assert kv_cache_bytes("paged", problem) == (4 * 1000 - 3 * 496) * TOKEN
    assert kv_cache_bytes_allocated("paged", problem) == (4 * 1008 - 3 * 496) * TOKEN
    assert kv_cache_bytes("split-kv", problem) == 4 * 1000 * TOKEN


def test_a_contiguous_cache_reserves_max_len() -> None:
    problem = cached((Lengths(1, 1000, 1), Lengths(1, 10, 1)), max_len=4096)
    assert kv_cache_bytes_allocated("split-kv", problem) == 2 * 4096 * TOKEN
    assert kv_cache_bytes_allocated("paged", problem) == (1008 + 16) * TOKEN
    assert kv_cache_bytes_allocated("split-kv", replace(problem, mask=Mask(True, 100))) == 2 * 100 * TOKEN


@pytest.mark.parametrize(
    ("kv_dtype", "token", "tensors"),
    [("fp8", 2 * 8 * 128, 2 * 4), ("int8", 2 * 8 * (128 + 4), 0), ("int4", 2 * 8 * (64 + 4 * 2), 0)],
)
def test_scales_are_part_of_the_cache(kv_dtype: str, token: int, tensors: int) -> None:
    problem = cached(uniform(2, 1, 100), kv_dtype=DTYPES[kv_dtype], layers=5)
    assert kv_cache_bytes("split-kv", problem) == 5 * (200 * token + tensors)


def test_a_latent_cache() -> None:
    problem = cached(uniform(1, 1, 100), kv=LatentKV(512, 64, 128, 128), kv_dtype=DTYPES["fp8"])
    assert kv_cache_bytes("mla", problem) == 100 * 576 + 4


def test_linear_attention_keeps_a_state() -> None:
    problem = cached(uniform(3, 1, 100_000), layers=2)
    assert kv_cache_bytes("linear", problem) == kv_cache_bytes_allocated("linear", problem) == 2 * 3 * 8 * 128 * 128 * 4
    (linear,) = [to_dict(r) for r in analyze_all(Request(variants=("linear",), phase="decode"), H100)]
    assert linear["kv_cache_bytes_per_token"] == 0


def test_layers_multiply_the_cache_only() -> None:
    one, many = (documented(layers=layers)["results"] for layers in (1, 7))
    for single, multiple in zip(one, many, strict=True):
        for field, value in single.items():
            if field == "problem":
                continue
            assert multiple[field] == (7 * value if field.startswith("kv_cache_bytes") else value), field


def test_ratios_are_between_0_and_1_and_times_positive() -> None:
    for result in documented()["results"]:
        assert 0 < result["sms_used"] <= 132
        assert math.isfinite(result["time_s"])
        assert result["time_s"] > 0


def test_full_ignores_the_mask_of_attention_and_not_what_projections_leave_out() -> None:
    # One token, a window of 100 of 1000 keys: 100 latents are projected, by any convention.
    options = {"q_len": 1, "kv_len": 1000, "window": 100, "variants": ("mla/expanded",), "mla_projections": True}
    exact, full = (documented(conventions=Conventions(c), **options)["results"][0]["flops"] for c in ("exact", "full"))
    projections = 2 * (2 * 100 * 32 * 512 * 128)
    assert (exact, full) == (projections + 2 * 32 * 100 * (192 + 128), projections + 2 * 32 * 1000 * (192 + 128))


def test_half_halves_the_attention_and_not_the_projections() -> None:
    options: dict[str, Any] = {"variants": ("mla/expanded",), "phase": "prefill", "n": 512, "heads": 2, "causal": True}
    projected = 2 * 512 * 2 * 512 * (128 + 128)
    for convention, attention in {"full": 512 * 512, "half": 512 * 512 // 2}.items():
        conventions = Conventions(convention)  # type: ignore[arg-type]
        result = documented(conventions=conventions, mla_projections=True, **options)["results"][0]
        assert result["flops"] == projected + 2 * 2 * attention * (128 + 64 + 128)
