"""Wrong answers that tools of this kind are known to give: one test each that this one cannot."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from roofline import profiles
from roofline.analysis import Conventions, analyze_all, to_dict
from roofline.configurations import Request
from roofline.errors import InputError
from roofline.profiles import load, match, names

H100 = "h100-sxm5-80gb"
LLAMA_3_8B = {"heads": 32, "d": 128}  # on 8 KV heads


def analyzed(variant: str, kv_heads: int, device: str = H100, convention: str = "exact", **options: Any) -> dict[str, Any]:
    results = analyze_all(
        Request(variants=(variant,), kv_heads=kv_heads, **options),
        load(device),
        Conventions(convention),  # type: ignore[arg-type]
    )
    (result,) = [each for each in results if each.configuration.problem.mask.window == options.get("window")]
    return to_dict(result)


def tensors(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {traffic["tensor"]: traffic for traffic in result["launches"][0]["traffic"]}


def test_flash_writes_an_output_of_n_by_d_not_n_by_n() -> None:
    """512x too many stores at n 32768, and an intensity of 65 instead of 26214 (groups of 4, d 64, 16 bit)."""
    flash = analyzed("flash", 8, heads=32, n=32768, d=64, phase="prefill", dtype="fp16")
    stored = tensors(flash)["O"]["write_bytes"]
    assert stored == 32 * 32768 * 64 * 2
    assert 32 * 32768 * 32768 * 2 // stored == 512
    # 4 n^2 d FLOPs a query head over 2 n d of Q and O and, for a quarter of the heads, 2 n d of K and V, 2 B each: 0.8 n.
    assert flash["intensity"] == pytest.approx(26214.4)


def test_flash_decode_is_not_slower_than_naive() -> None:
    """K and V of Llama-3-8B follow its 8 KV heads, not its 32 query heads (4x). The batch fills the SMs without splits."""
    options = {"n": 8192, "phase": "decode", "batch": 16, **LLAMA_3_8B}
    flash, naive, split = (analyzed(variant, 8, **options) for variant in ("flash", "naive", "split-kv"))
    cache = 16 * 2 * 8 * 8192 * 128 * 2
    for result in (flash, split):
        assert tensors(result)["K"]["read_bytes"] + tensors(result)["V"]["read_bytes"] == cache
        assert result["hbm_bytes"] < 1.01 * cache
        assert result["hbm_bytes"] <= naive["hbm_bytes"]
        assert result["time_s"] <= naive["time_s"] * 1.0001


def test_pv_flops_follow_the_query_heads() -> None:
    """Decode over a long cache has 4 FLOPs a byte with groups of 4 in 16 bit; 2.49 comes of PV counted by KV heads."""
    decode = analyzed("split-kv", 8, n=131072, phase="decode", splits=1, **LLAMA_3_8B)
    assert decode["flops"] == 2 * 32 * 131072 * 128 + 2 * 32 * 131072 * 128
    assert decode["intensity"] == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize("variant", ["naive", "flash", "split-kv", "paged"])
def test_decode_reads_the_cache_once_and_does_not_write_it(variant: str) -> None:
    decode = analyzed(variant, 8, n=131072, phase="decode", **LLAMA_3_8B)
    cache = 2 * 8 * 131072 * 128 * 2
    assert decode["kv_cache_bytes"] == cache
    assert cache <= decode["hbm_bytes"] < 1.1 * cache
    assert decode["hbm_bytes_min"] < 1.001 * cache
    kv = [t for launch in decode["launches"] for t in launch["traffic"] if t["tensor"] in ("K", "V")]
    assert sum(t["read_bytes"] for t in kv) == cache
    assert all(t["write_bytes"] == t["sm_write_bytes"] == 0 for t in kv)


def test_a_band_is_not_halved_again() -> None:
    """Causal halving of a windowed count gives 0.53x of the pairs."""
    for convention in ("exact", "half"):
        banded = analyzed("flash", 32, n=8192, window=512, phase="prefill", convention=convention, heads=32, d=128)
        assert banded["flops"] == 4 * 32 * 128 * (512 * 513 // 2 + (8192 - 512) * 512)


def test_causal_halving_is_applied_once() -> None:
    exact, half, full = (
        analyzed("flash", 32, n=8192, causal=True, phase="prefill", convention=c, heads=32, d=128)
        for c in ("exact", "half", "full")
    )
    assert full["flops"] == 4 * 32 * 128 * 8192**2
    assert half["flops"] == full["flops"] // 2
    assert exact["flops"] == 4 * 32 * 128 * (8192 * 8193 // 2)
    assert exact["time_s"] == half["time_s"] == full["time_s"]


def test_a_window_has_its_triangle() -> None:
    """n W is 2x too much at n = W + 1."""
    window = 1024
    result = analyzed("flash", 1, heads=1, n=window + 1, d=64, window=window, phase="prefill")
    pairs = window * (window + 1) // 2 + window
    assert result["flops"] == 4 * 64 * pairs
    assert 4 * 64 * (window + 1) * window / result["flops"] == pytest.approx(2, rel=0.01)


def test_time_has_the_quadratic_term() -> None:
    short, long = (analyzed("flash", 32, n=n, phase="prefill", heads=32, d=128)["time_s"] for n in (16384, 65536))
    assert long / short == pytest.approx(16, rel=0.05)


@pytest.mark.parametrize("name", names())
def test_no_time_beats_the_printed_dense_peak(name: str) -> None:
    profile = load(name)
    dtype = "bf16" if profile.supports_dtype("bf16") else "fp16"
    for result in analyze_all(Request(n=4096, dtype=dtype), profile):
        if peak := profile.datasheet.get(f"{dtype}_flop_per_s"):
            useful = min(result.cost.flops, result.cost.flops_executed)
            assert result.prediction.time_s >= useful / peak.value * (1 - 1e-9)
        assert result.prediction.time_s >= result.cost.hbm_bytes_min / profile.datasheet["hbm_bytes_per_s"].value * (1 - 1e-9)


def test_a_sparse_peak_never_enters() -> None:
    """1979 is an H100's bf16 rate with 2:4 sparsity."""
    h100 = load(H100)
    assert h100.datasheet["bf16_flop_per_s"].value == pytest.approx(989.4e12)
    flash = analyzed("flash", 32, n=65536, phase="prefill", heads=32, d=128)
    assert flash["attainable_flop_per_s"] <= 989.4e12
    # SMs x operations a clock of the dense architecture x clock: no profile's bf16 rate is above that.
    for name in names():
        profile = load(name)
        ops, clock = profile.tensor_ops_per_clk_per_sm.get("bf16"), profile.tensor_clock_hz or profile.boost_clock_hz
        if ops and clock and profile.sm_count:
            assert profile.datasheet["bf16_flop_per_s"].value <= profile.sm_count * ops * clock * 1.02


def test_gb_is_not_gib() -> None:
    """3.35 TB/s is 3.35e12 B/s: read as TiB/s, a byte would take 10 % less time than light."""
    assert load(H100).datasheet["hbm_bytes_per_s"].value == 3.35e12
    decode = analyzed("split-kv", 8, n=8192, phase="decode", batch=64, splits=1, **LLAMA_3_8B)
    assert decode["time_s"] == pytest.approx(decode["hbm_bytes"] / 3.35e12)


def test_tflops_are_powers_of_ten() -> None:
    flash = analyzed("flash", 32, n=16384, phase="prefill", heads=32, d=128)
    assert flash["bound"] == "tensor"
    assert flash["time_s"] == pytest.approx(4 * 32 * 128 * 16384**2 / 989.4e12)
    assert pytest.approx(1.0995, abs=1e-4) == 2**40 / 1e12  # what the other reading would gain


def test_b200_roofs_are_its_own() -> None:
    h100, b200 = load(H100), load("b200-sxm-180gb")
    for key in ("hbm_bytes_per_s", "bf16_flop_per_s"):
        assert b200.datasheet[key].value > 1.5 * h100.datasheet[key].value
        assert "H100" not in b200.datasheet[key].source


@pytest.mark.parametrize(("name", "printed"), [("rtx-4090", 165.2e12), ("rtx-3090", 71e12)])
def test_geforce_runs_bf16_at_its_fp32_accumulate_rate(name: str, printed: float) -> None:
    """The fp16-accumulate figure of these boards is twice as much."""
    for dtype in ("bf16", "fp16"):
        assert load(name).datasheet[f"{dtype}_flop_per_s"].value == pytest.approx(printed, rel=0.01)


def test_l40s_is_neither_l4_nor_l40() -> None:
    assert match("NVIDIA L40S", None).id == "l40s"
    assert match("NVIDIA L40", None).id == "l40"
    assert match("NVIDIA L4", None).id == "l4"
    rates = {name: load(name).datasheet["bf16_flop_per_s"].value for name in ("l4", "l40", "l40s")}
    assert len(set(rates.values())) == 3
    with pytest.raises(InputError):
        match("NVIDIA L400", None)


def test_h800_sxm_is_not_the_pcie_card() -> None:
    sxm = load("h800-sxm-80gb")
    assert sxm.datasheet["hbm_bytes_per_s"].value == pytest.approx(3.35e12)  # the PCIe card has 2.0
    with pytest.raises(InputError):
        load("h800-pcie-80gb")  # no source was found, so there is none
    folder = Path(profiles.__file__).parent / "data"
    driver_names = [n for path in folder.glob("*.toml") for n in tomllib.loads(path.read_text()).get("driver_names", ())]
    assert len(driver_names) == len(set(driver_names)) or _memory_decides(driver_names)


def _memory_decides(driver_names: list[str]) -> bool:
    """Where two profiles share a driver's name, the memory size tells them apart: without it there is no match."""
    for name in {each for each in driver_names if driver_names.count(each) > 1}:
        with pytest.raises(InputError):
            match(name, None)
    return True
