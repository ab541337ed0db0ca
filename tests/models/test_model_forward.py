"""The forward pass: figures of the field reproduced, parts counted by hand, limits that hold."""

from dataclasses import replace
from typing import Any

import pytest

from roofline.dtypes import DTYPES
from roofline.errors import InputError
from roofline.models import ModelAnalysis, analyze_model, load_model
from roofline.models.analysis import PHASES
from roofline.models.crossover import crossover
from roofline.models.forward import ForwardPass, Part, forward
from roofline.models.load import read_config
from roofline.models.weights import distinct_experts
from roofline.models.works import Dtypes
from roofline.plan import choose
from roofline.profiles import Ceiling, load
from roofline.variants import VARIANTS

H100 = load("h100-sxm5-80gb")
# The round figures that the field computes with: 989 TFLOP/s dense bf16, 3.35 TB/s
ROUND_H100 = replace(
    H100, datasheet={**H100.datasheet, "bf16_flop_per_s": Ceiling(989e12, "datasheet", "the round figure of the field")}
)
BF16, FP32 = DTYPES["bf16"], DTYPES["fp32"]


def analyze(name: str, n: int, batch: int = 1, **options: Any) -> ModelAnalysis:
    return analyze_model(load_model(name), ROUND_H100, n, batch, **options)


def one(result: ModelAnalysis, phase: str) -> ForwardPass:
    return next(each for each in result.passes if each.phase == phase)


def part(each: ForwardPass, name: str) -> Part:
    return next(part for part in each.parts if part.name == name)


def test_llama_3_8b_on_an_h100() -> None:
    result = analyze("llama-3-8b", 2048)
    # 32 x (4096 x 6144 + 4096 x 4096 + 3 x 4096 x 14336): no embeddings, LM head, norms
    assert result.spec.body_params == 6_979_321_856
    prefill = one(result, "prefill")
    body = 2 * 6_979_321_856 * 2048
    attention = 32 * 32 * 2 * (2048 * 2049 // 2) * 256
    assert prefill.flops == body + attention + 2 * 4096 * 128256  # the LM head sees one token
    assert prefill.flops == pytest.approx(2.97e13, rel=1e-3)
    assert prefill.floor_s == pytest.approx(30.0e-3, rel=1e-3)
    assert prefill.time_s == pytest.approx(30.34e-3, rel=1e-3)  # and the LM head's 1.05 GB, which nothing overlaps
    with_all_logits = prefill.flops + 2047 * 2 * 4096 * 128256
    assert with_all_logits == pytest.approx(3.18e13, rel=2e-3)  # what a prefill that keeps every logit would need


def test_llama_3_8b_at_32k() -> None:
    prefill = one(analyze("llama-3-8b", 32768), "prefill")
    assert prefill.flops == pytest.approx(7.39e14, rel=1e-3)
    assert prefill.floor_s == pytest.approx(747e-3, rel=1e-3)


def test_llama_3_8b_decode_reads_its_weights() -> None:
    decode = one(analyze("llama-3-8b", 2048), "decode")
    norms = 65 * 4096
    assert decode.weight_bytes == 2 * (6_979_321_856 + 4096 * 128256 + norms + 4096)  # one row of the embedding table
    assert decode.kv_bytes == 131072 * 2048
    assert decode.floor_s is not None
    assert decode.time_s is not None
    assert decode.time_s >= decode.floor_s > 4.5e-3
    assert decode.tokens_per_s == pytest.approx(219, rel=5e-3)
    assert {each.bound for each in decode.parts} == {"hbm"}


def test_mlp_of_one_gpt2_layer_and_token() -> None:
    """Row 7 of the source texts: 16 h^2 FLOPs and 32 h^2 bytes in fp32, for one token of one layer."""
    each = forward(load_model("gpt2"), "decode", 1, 1, Dtypes(FP32, FP32, FP32), H100)
    mlp = part(each, "mlp")
    assert mlp.flops == 12 * 16 * 768**2 == 12 * 9_437_184
    assert mlp.weight_bytes == 12 * 32 * 768**2 == 12 * 18_874_368


def test_crossover_of_gpt2() -> None:
    """Row 24: 16 h^2 = 4 n d x heads at n = 4 h; a prefill averages half the context."""
    spec = load_model("gpt2")
    assert crossover(spec, "decode") == 4 * 768
    assert crossover(spec, "prefill") == 8 * 768 - 1  # (n + 1) / 2 = 4 h


def test_crossover_with_windows_and_chunks() -> None:
    # all windows of 4096: 32 layers x 32 heads x 4096 x 512 < 2 x 3 x 4096 x 14336 x 32
    assert crossover(load_model("mistral-7b-v0.1"), "decode") is None
    spec = load_model("llama-4-scout")
    found = crossover(spec, "decode")
    assert found is not None
    # MLP: 48 x 2 x 2 experts x 3 x 5120 x 8192; 12 full layers see n, 36 see the last (n - 1) % 8192 + 1 tokens
    mlp, width = 48 * 2 * 2 * 3 * 5120 * 8192, 40 * 2 * 256
    assert width * (12 * found + 36 * ((found - 1) % 8192 + 1)) >= mlp
    assert width * (12 * (found - 1) + 36 * ((found - 2) % 8192 + 1)) < mlp
    assert crossover(load_model("nemotron-h-8b"), "prefill") is not None
    assert crossover(read_config({"model_type": "mamba"}, "config.json", "mamba"), "decode") is None


@pytest.mark.parametrize("phase", PHASES)
def test_attention_agrees_with_the_variants(phase: Any) -> None:
    """The same FLOPs and, for grouped heads, the same minimum bytes as ``roofline analyze`` counts."""
    for name in ("llama-3-8b", "gemma-3-27b", "llama-4-scout", "deepseek-v2", "gpt-oss-20b"):
        result = analyze_model(load_model(name), H100, 5000, 3, phases=(phase,))
        parts = {each.name: each for each in result.passes[0].parts}
        for kind, layers, problem, variant in result.problems:
            cost = VARIANTS[variant](problem, choose(variant, f"roofline/{variant}", problem, H100))
            counted = parts[f"attention ({kind})"]
            assert counted.flops == layers * cost.flops
            if variant != "mla":
                assert counted.kv_bytes + counted.activation_bytes == layers * cost.hbm_bytes_min


def test_latent_projections_are_counted_once_a_token() -> None:
    """DeepSeek-V2: q 5120 x 1536 and 1536 x 128 x 192, latent 5120 x 576, W_UK and W_UV 512 x 128 x 256, in both phases."""
    per_token = 5120 * 1536 + 1536 * 128 * 192 + 5120 * 576 + 512 * 128 * 256
    for each in analyze("deepseek-v2", 100).passes:
        assert part(each, "qkv projection").flops == 60 * 2 * each.tokens * per_token
    absorbed = part(one(analyze("deepseek-v2", 100), "decode"), "attention (mla full)")
    assert absorbed.flops == 60 * 128 * 2 * 100 * (576 + 512)
    assert absorbed.kv_bytes == 60 * 100 * 576 * 2


def test_experts_that_a_batch_touches() -> None:
    """Mixtral: 8 experts of 3 x 4096 x 14336; one token reads 2, four tokens 8 (1 - (3/4)^4) = 5.47 of them."""
    expert = 3 * 4096 * 14336
    assert distinct_experts(8, 2, 1) == pytest.approx(2)
    assert distinct_experts(8, 2, 4) == pytest.approx(8 * (1 - 0.75**4))
    for batch, touched in ((1, 2), (4, 5.46875), (256, 8)):
        decode = one(analyze("mixtral-8x7b", 10, batch), "decode")
        assert part(decode, "experts").weight_bytes == pytest.approx(32 * touched * expert * 2, rel=1e-9)
        assert part(decode, "experts").flops == 32 * batch * 2 * 2 * expert
        assert part(decode, "router").weight_bytes == 32 * 4096 * 8 * 2


def test_linear_and_state_space_layers() -> None:
    """Qwen3-Next: 36 layers, 6 x 32 x 128 x 128 FLOPs a token; the state is written once a prompt, moved twice a step."""
    state = 32 * 128 * 128 * 4 + 3 * 8192 * 2
    result = analyze("qwen3-next-80b-a3b", 4096, 2)
    prefill, decode = one(result, "prefill"), one(result, "decode")
    assert part(prefill, "linear (gated-delta)").flops == 36 * 2 * 4096 * 6 * 32 * 128 * 128
    assert part(prefill, "linear (gated-delta)").kv_bytes == 36 * 2 * state
    assert part(decode, "linear (gated-delta)").kv_bytes == 36 * 2 * 2 * state
    # q, k 16 x 128, v and gate 32 x 128, b and a 32; and back
    assert part(decode, "mixer projection").flops == 36 * 2 * 2 * 2048 * (2 * 2048 + 2 * 4096 + 64 + 4096)
    # Jamba: 28 Mamba-1 layers of 8192 x 16, on the vector units
    jamba = part(one(analyze("jamba-v0.1", 4096), "prefill"), "state space (mamba1)")
    assert jamba.flops == 28 * 4096 * 4 * 8192 * 16
    assert jamba.bound == "vector"


def test_weight_dtypes() -> None:
    """Quantised: the matrices of the layers. Embeddings, LM head and norms stay bf16; int4 has an fp16 scale per 128."""
    body, rest = 6_979_321_856, 2 * 4096 * 128256 + 65 * 4096
    assert analyze("llama-3-8b", 1).weight_bytes == 2 * (body + rest)
    assert analyze("llama-3-8b", 1, weight_dtype="fp8").weight_bytes == body + 2 * rest
    assert analyze("llama-3-8b", 1, weight_dtype="int4").weight_bytes == body // 2 + body // 128 * 2 + 2 * rest
    assert analyze("llama-3-8b", 1, dtype="fp8").weight_bytes == body + 2 * rest
    mixtral = {each.part: each for each in analyze("mixtral-8x7b", 1, weight_dtype="fp8").weights}
    assert mixtral["experts"].values == 32 * 8 * 3 * 4096 * 14336 == 4 * mixtral["experts"].active_values
    assert mixtral["experts"].bytes == mixtral["experts"].values
    assert mixtral["router"].bytes == 2 * 32 * 4096 * 8
    assert mixtral["router"].dtype == "bf16"


def test_shared_weights_are_resident_once_and_read_every_time() -> None:
    """Zamba2: nine layers run two shared blocks; the MLP of a block is 3 x 2560 x 10240."""
    config = {"model_type": "zamba2", "num_mem_blocks": 2, "n_mamba_heads": 80}
    result = analyze_model(read_config(config, "config.json", "zamba2"), H100, 64)
    weights = {each.part: each.values for each in result.weights}
    assert weights["mlp"] == 2 * 3 * 2560 * 10240
    assert result.decode is not None
    assert part(result.decode, "mlp").weight_bytes == 9 * 3 * 2560 * 10240 * 2


def test_a_device_without_ceilings_is_named() -> None:
    bare = replace(H100, datasheet={}, measured={}, memory_bytes=None)
    result = analyze_model(load_model("llama-3-8b"), bare, 16)
    for each in result.passes:
        assert each.unknown == ("hbm", "tensor")
        assert each.time_s is each.floor_s is each.tokens_per_s is None
        assert {part.bound for part in each.parts} == {None}
    assert result.capacity is None


def test_dtype_defaults_to_what_the_device_has() -> None:
    assert analyze_model(load_model("gpt2"), load("v100-sxm2-16gb"), 16).dtypes.compute.name == "fp16"
    assert analyze_model(load_model("gpt2"), H100, 16).dtypes.compute.name == "bf16"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 0}, "--n 0"),
        ({"n": 2**41}, "--n"),
        ({"batch": 0}, "--batch 0"),
        ({"weight_dtype": "fp4"}, "--weight-dtype"),
        ({"kv_dtype": "fp4"}, "--kv-dtype"),
        ({"dtype": "int4"}, "--dtype"),
        ({"dtype": "fp16", "kv_dtype": "fp32"}, "--kv-dtype"),
        ({"page_size": 0}, "--page-size 0"),
        ({"reserve_bytes": -1}, "--reserve -1"),
    ],
)
def test_sizes_and_dtypes_that_do_not_fit(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        analyze_model(load_model("gpt2"), H100, **{"n": 16, **options})
