"""The figures of the source texts, counted by hand and compared with the tool: docs/seed-figures.md has the same numbers."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from roofline.analysis import analyze_all, to_dict
from roofline.configurations import Request
from roofline.profiles import load

PAGE = (Path(__file__).parent.parent / "docs" / "seed-figures.md").read_text(encoding="utf-8")
MIB, GIB = 2**20, 2**30


def analyzed(device: str = "a100-sxm4-40gb", **options: Any) -> dict[str, Any]:
    """The one result of a request that has the window asked for, as ``analyze --json`` prints it."""
    results = analyze_all(Request(**options), load(device))
    (result,) = [each for each in results if each.configuration.problem.mask.window == options.get("window")]
    return to_dict(result)


def one_head(variant: str = "flash", **options: Any) -> dict[str, Any]:
    options = {"n": 2048, "d": 64, "phase": "prefill", "dtype": "fp32", **options}
    return analyzed(heads=1, kv_heads=1, variants=(variant,), **options)


def moved(result: dict[str, Any], *tensors: str) -> int:
    """Cold bytes of some tensors, over all launches."""
    return sum(
        traffic["read_bytes_min"] + traffic["write_bytes_min"]
        for launch in result["launches"]
        for traffic in launch["traffic"]
        if traffic["tensor"] in tensors
    )


def test_row_1_flops_of_one_head() -> None:
    flops = one_head()["flops"]
    assert flops == 4 * 2048 * 2048 * 64 == 1_073_741_824
    assert 12 * flops == 12_884_901_888


def test_row_2_one_s_matrix() -> None:
    scores = one_head("naive")["launches"][0]["traffic"][-1]
    assert (scores["tensor"], scores["write_bytes_min"]) == ("S", 16_777_216)
    assert one_head("naive", dtype="fp16")["launches"][0]["traffic"][-1]["write_bytes_min"] == 8 * MIB


def test_row_3_naive_traffic_in_three_launches() -> None:
    naive = one_head("naive")
    assert len(naive["launches"]) == 3
    assert moved(naive, "S", "P") == 67_108_864 == 64 * MIB
    assert naive["hbm_bytes_cold"] == 69_206_016 == 64 * MIB + 4 * 2048 * 64 * 4


def test_row_4_cold_intensity_of_naive_and_the_l2_that_undercuts_it() -> None:
    naive = one_head("naive", device="h200-sxm-141gb")
    assert naive["flops"] / moved(naive, "S", "P") == 16.0
    assert naive["flops"] / naive["hbm_bytes_cold"] == pytest.approx(15.5, abs=0.05)
    assert naive["hbm_bytes"] == pytest.approx(22e6, rel=0.02)
    assert naive["hbm_bytes_cold"] == pytest.approx(69e6, rel=0.01)
    bf16 = one_head("naive", device="h200-sxm-141gb", dtype="bf16")
    assert bf16["hbm_bytes"] == pytest.approx(1.05e6, rel=0.01)
    assert bf16["hbm_bytes_cold"] == pytest.approx(35e6, rel=0.02)
    assert any("L2" in reason for reason in naive["reasons"])  # and it says so


def test_row_5_the_ridge_and_how_far_naive_is_below_it() -> None:
    bf16, tf32, fp32 = (one_head("naive", dtype=dtype) for dtype in ("bf16", "tf32", "fp32"))
    assert bf16["ridge"] == pytest.approx(312e12 / 1.555e12) == pytest.approx(200.6, abs=0.05)
    cold = {
        name: result["flops"] / result["hbm_bytes_cold"] for name, result in (("bf16", bf16), ("tf32", tf32), ("fp32", fp32))
    }
    assert cold["bf16"] == pytest.approx(31.0, abs=0.05)
    assert bf16["ridge"] / cold["bf16"] == pytest.approx(6.5, abs=0.05)
    assert tf32["ridge"] == pytest.approx(100, abs=0.5)
    assert fp32["ridge"] == pytest.approx(12.5, abs=0.05)
    assert cold["fp32"] > fp32["ridge"]
    assert fp32["bound"] == "vector"


def test_row_6_flash_with_tiles_of_64() -> None:
    flash = one_head(tile=(64, 64))
    n, d, rows = 2048, 64, 64
    assert flash["sm_bytes"] == n * d * (2 + 2 * n // rows) * 4 == 34_603_008
    assert n * d * (3 + 2 * n // 64) * 4 == 35_127_296  # the text's count
    assert flash["flops"] / 35_127_296 == pytest.approx(30.6, abs=0.05)
    assert flash["hbm_bytes_min"] == flash["hbm_bytes"] == 4 * n * d * 4 == 2_097_152
    assert flash["intensity"] == 512
    # The columns of the tile change nothing; its rows do.
    assert one_head(tile=(64, 128))["sm_bytes"] == flash["sm_bytes"]
    assert one_head(tile=(128, 64))["sm_bytes"] == n * d * (2 + 2 * n // 128) * 4


def test_row_8_kv_cache_of_a_batch() -> None:
    cache = analyzed(
        batch=32, n=8192, layers=32, heads=32, kv_heads=32, d=128, dtype="fp16", phase="decode", variants=("flash",)
    )
    assert cache["kv_cache_bytes"] == 2 * 32 * 8192 * 32 * 32 * 128 * 2 == 137_438_953_472 == 128 * GIB


def test_row_9_s_of_long_sequences() -> None:
    one = one_head("naive", n=32768)
    assert moved(one, "S") // 2 == 4 * GIB  # written and read
    assert 32 * 32 * (moved(one, "S") // 2) == 4096 * GIB
    heads = analyzed(heads=32, kv_heads=32, n=32768, d=64, dtype="fp32", phase="prefill", variants=("naive",))
    assert moved(heads, "S") // 2 == 128 * GIB  # what is alive at once


@pytest.mark.parametrize(
    ("n", "matrix", "six_passes"),
    [
        (512, MIB // 2, 3.5 * MIB),
        (2048, 8 * MIB, 50 * MIB),
        (8192, 128 * MIB, 776 * MIB),
        (32768, 2 * GIB, 12 * GIB + 32 * MIB),
        (131072, 32 * GIB, 192 * GIB + 128 * MIB),
    ],
)
def test_row_10_six_passes(n: int, matrix: int, six_passes: float) -> None:
    naive = one_head("naive", n=n, d=128, dtype="fp16", naive_passes=6)
    assert naive["launches"][0]["traffic"][-1]["write_bytes_min"] == matrix == n * n * 2
    assert naive["hbm_bytes_cold"] == six_passes == 6 * matrix + 4 * n * 128 * 2


def test_row_11_values_cached_per_token() -> None:
    options = {"heads": 128, "d": 128, "n": 1024, "phase": "decode", "dtype": "fp16"}
    mha, gqa = (analyzed(**options, kv_heads=kv_heads, variants=("split-kv",)) for kv_heads in (128, 8))
    mla = analyzed(**options, variants=("mla",))
    values = [result["kv_cache_bytes_per_token"] // 2 for result in (mha, gqa, mla)]
    assert values == [2 * 128 * 128, 2 * 8 * 128, 512 + 64] == [32_768, 2_048, 576]
    assert values[0] / values[2] == pytest.approx(56.9, abs=0.05)
    assert values[0] / 512 == 64


def test_row_12_sixty_layers_of_cache() -> None:
    options = {"heads": 128, "d": 128, "n": 131072, "layers": 60, "phase": "decode", "dtype": "fp16"}
    mha, gqa = (analyzed(**options, kv_heads=kv_heads, variants=("split-kv",)) for kv_heads in (128, 8))
    mla = analyzed(**options, variants=("mla",))
    assert mha["kv_cache_bytes"] == 480 * GIB
    assert gqa["kv_cache_bytes"] == 30 * GIB
    assert mla["kv_cache_bytes"] == 60 * 131072 * 576 * 2
    assert mla["kv_cache_bytes"] / GIB == pytest.approx(8.44, abs=0.005)
    assert 7.5 * GIB == 60 * 131072 * 512 * 2


def test_row_13_splits_follow_from_the_device() -> None:
    options = {"n": 131072, "phase": "decode", "heads": 32}
    one = analyzed(**{**options, "heads": 1}, kv_heads=1, variants=("split-kv",))
    # 2048 tiles of 64 on 108 SMs: 19 a split, and 108 splits work.
    assert one["plan"]["splits"] == 108 == one["launches"][0]["ctas"]
    flash = analyzed(**options, kv_heads=32, variants=("flash",))
    assert flash["sms_used"] == 32  # of 108: one CTA a query head
    split = analyzed(**options, kv_heads=8, variants=("split-kv",))
    assert split["sms_used"] > 0.9 * 108


def test_row_14_sliding_window() -> None:
    window, n = 1024, 8192
    pairs = window * (window + 1) // 2 + (n - window) * window
    assert one_head(n=n, window=window)["flops"] == 4 * 64 * pairs


def test_row_15_linear_attention() -> None:
    n, d = 2048, 64
    for causal in (False, True):
        linear = one_head("linear", causal=causal)
        assert linear["flops"] == 2 * n * d * d + 2 * n * d * d  # state and output
        assert linear["kv_cache_bytes"] == d * d * 4
        assert linear["kv_cache_bytes_per_token"] == 0
    assert one_head("linear", causal=True)["flops_executed"] > one_head("linear")["flops_executed"]
    early, late = (one_head("linear", n=n, phase="decode") for n in (16, 1_000_000))
    assert early["flops"] == late["flops"] == 4 * d * d
    assert early["hbm_bytes_min"] == late["hbm_bytes_min"]


def test_row_16_chunked_attention() -> None:
    chunked, naive = (one_head(variant, n=16384, d=128, dtype="fp16", chunk=(1024, 4096)) for variant in ("chunked", "naive"))
    matrix = 16384 * 16384 * 2
    assert naive["workspace_bytes"] == 2 * matrix  # S and P
    assert chunked["workspace_bytes"] == 2 * (matrix // 64) + 1024 * (4 * 128 + 8 + 8)
    assert naive["workspace_bytes"] / chunked["workspace_bytes"] > 59


def test_row_17_flash_needs_no_workspace() -> None:
    assert one_head()["workspace_bytes"] == 0


def test_row_18_waste_of_pages_and_of_reservation() -> None:
    options = {"heads": 32, "kv_heads": 8, "d": 128, "phase": "decode", "dtype": "bf16"}
    token = 2 * 8 * 128 * 2
    for n in range(1000, 1017):
        paged = analyzed(**options, n=n, variants=("paged",))
        wasted = paged["kv_cache_bytes_allocated"] - paged["kv_cache_bytes"]
        assert wasted == (-n % 16) * token
        assert wasted <= 15 * token
    reserved = analyzed(**options, n=1000, max_len=4096, variants=("split-kv",))
    assert reserved["kv_cache_bytes"] == 1000 * token
    assert reserved["kv_cache_bytes_allocated"] == 4096 * token


def table(number: int) -> list[dict[str, str]]:
    """The table under the heading of a row in docs/seed-figures.md."""
    section = re.split(rf"^## {number}\. ", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    assert rows
    return [dict(zip(head, row, strict=True)) for row in rows]


def whole(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.parametrize("row", table(7))
def test_docs_row_7_the_mlp(row: dict[str, str]) -> None:
    h, n = whole(row["h"]), whole(row["n"])
    assert whole(row["MLP FLOPs a token"]) == 16 * h * h
    assert whole(row["MLP weight bytes, fp32"]) == 2 * 4 * h * h * 4 == 32 * h * h
    assert whole(row["attention FLOPs a token"]) == 4 * n * h
    # The tool counts the same for one token of h / 64 heads.
    decode = analyzed(heads=h // 64, kv_heads=h // 64, d=64, n=n, phase="decode", variants=("flash",))
    assert decode["flops"] == whole(row["attention FLOPs a token"])


def test_docs_row_7_holds_the_case_of_the_text() -> None:
    assert [table(7)[0][name] for name in ("h", "MLP FLOPs a token", "MLP weight bytes, fp32")] == [
        "768",
        "9,437,184",
        "18,874,368",
    ]


@pytest.mark.parametrize("row", table(21))
def test_docs_row_21_the_tile_of_the_io_formula(row: dict[str, str]) -> None:
    profile, d = load(row["device"]), whole(row["d"])
    assert whole(row["shared memory of an SM, B"]) == profile.shared_memory_per_sm_bytes
    elements = whole(row["shared memory of an SM, B"]) // whole(row["element bytes"])
    assert whole(row["M, elements"]) == elements
    columns = math.ceil(elements / (4 * d))
    assert (whole(row["B_c"]), whole(row["B_r"])) == (columns, min(columns, d))


@pytest.mark.parametrize("row", table(22))
def test_docs_row_22_shared_memory_bandwidth(row: dict[str, str]) -> None:
    ceiling = load(row["device"]).datasheet["shared_memory_bytes_per_s"]
    derived = whole(row["SMs"]) * whole(row["B/clk"]) * float(row["clock, GHz"]) * 1e9
    assert ceiling.value == pytest.approx(derived, rel=1e-5)
    assert ceiling.kind == "derived"
    assert f"{derived / 1e12:.1f}" == row["TB/s"]


@pytest.mark.parametrize("row", table(23))
def test_docs_row_23_equal_within_a_tolerance(row: dict[str, str]) -> None:
    scores = [math.sin(7.0 * i) * 5 for i in range(64)]
    columns = [[math.cos(3.0 * i + column) for i in range(64)] for column in range(16)]
    standard = [_softmax_average(scores, column, 64) for column in columns]
    blocked = [_softmax_average(scores, column, whole(row["block"])) for column in columns]
    assert ("yes" if standard == blocked else "no") == row["bit for bit equal"]
    assert math.dist(blocked, standard) / math.hypot(*standard) < float(row["relative error below"])


def _softmax_average(scores: list[float], values: list[float], block: int) -> float:
    """Softmax of scores times values, in blocks with a running maximum and sum as flash attention does."""
    maximum, total, output = -math.inf, 0.0, 0.0
    for start in range(0, len(scores), block):
        part = scores[start : start + block]
        largest = max(maximum, *part)
        rescale = math.exp(maximum - largest) if maximum > -math.inf else 0.0
        weights = [math.exp(score - largest) for score in part]
        total = total * rescale + sum(weights)
        output = output * rescale + sum(w * v for w, v in zip(weights, values[start : start + block], strict=True))
        maximum = largest
    return output / total


@pytest.mark.parametrize("row", table(24))
def test_docs_row_24_attention_overtakes_the_mlp(row: dict[str, str]) -> None:
    h, n = whole(row["h"]), whole(row["n where they are equal"])
    assert n == 4 * h
    assert whole(row["FLOPs of either, a token"]) == 16 * h * h == 4 * n * h


def test_the_page_explains_every_row_but_those_that_need_a_gpu() -> None:
    explained = {
        int(number)
        for number in re.findall(r"^(\d+)\. \*\*|^## (\d+)\. ", PAGE, flags=re.MULTILINE)
        for number in number
        if number
    }
    assert explained == set(range(1, 25)) - {19, 20}
