"""Cache and capacity: published sizes, windows, pages, shared layers, and the same numbers as the rest of roofline."""

import pytest

from roofline.analysis import kv_cache_bytes
from roofline.dtypes import DTYPES
from roofline.models import analyze_model, load_model
from roofline.models.kvcache import ModelCache, capacity, model_cache
from roofline.models.load import read_config
from roofline.profiles import load

BF16 = DTYPES["bf16"]
H100 = load("h100-sxm5-80gb")


def cache(name: str, n: int, batch: int = 1, kv: str = "bf16", page: int = 16) -> ModelCache:
    return model_cache(load_model(name), n, batch, BF16, DTYPES[kv], page)


def test_published_sizes() -> None:
    assert cache("llama-3-70b", 1).bytes_per_token == 320 * 1024
    assert cache("llama-3-8b", 1).bytes_per_token == 128 * 1024
    # DeepSeek-V2 caches 576 values a token and layer (arXiv:2405.04434, section 2.1), whatever its 128 KV heads say
    assert cache("deepseek-v2", 1).bytes_per_token == 60 * 576 * 2
    assert cache("deepseek-v3", 1).bytes_per_token == 70_272  # the DeepSeek-V3 papers' 70 KB
    assert cache("deepseek-v2", 131072).sequence_bytes == 60 * 131072 * 576 * 2  # 8.44 GiB: row 12 of the source texts


def test_row_8_of_the_source_texts() -> None:
    """Batch 32, n 8192, 32 layers of 32 heads of 128 in fp16: 128 GiB."""
    spec = read_config({"model_type": "llama"}, "config.json", "llama")
    assert model_cache(spec, 8192, 32, DTYPES["fp16"], DTYPES["fp16"]).batch_bytes == 137_438_953_472


def test_windows_hold_what_they_see_and_pages_everything() -> None:
    """gpt-oss-20b: 24 layers of 2 KiB a token, half of them with a window of 128."""
    sized = cache("gpt-oss-20b", 5000, batch=3)
    assert sized.sequence_bytes == 12 * 2048 * (128 + 5000)
    assert sized.batch_bytes == 3 * sized.sequence_bytes
    assert sized.allocated_bytes == 3 * 24 * 2048 * 5008  # 313 pages of 16
    assert [(kind.kind, kind.layers, kind.tokens) for kind in sized.kinds] == [("window 128", 12, 128), ("full", 12, 5000)]
    short = cache("gpt-oss-20b", 100)
    assert short.sequence_bytes == 24 * 2048 * 100


def test_shared_layers_are_counted_once() -> None:
    spec = read_config({"model_type": "gemma3n_text"}, "config.json", "gemma-3n")
    sized = model_cache(spec, 4096, 1, BF16, BF16)
    assert sized.bytes_per_token == 20 * 2048
    assert sized.allocated_sequence_bytes == 20 * 2048 * 4096
    assert {kind.kind: kind.sequence_bytes for kind in sized.kinds}["full, shared kv"] == 0


def test_precisions_and_their_scales() -> None:
    """Llama-3-8B, 8 heads of 128: int8 one fp32 scale a row, int4 one fp16 scale per 32 values, fp8 one fp32 a tensor."""
    assert cache("llama-3-8b", 1, kv="fp8").bytes_per_token == 32 * 2 * 8 * 128
    assert cache("llama-3-8b", 10, kv="fp8").batch_bytes == 10 * 32 * 2 * 8 * 128 + 32 * 2 * 4
    assert cache("llama-3-8b", 1, kv="int8").bytes_per_token == 32 * 2 * 8 * (128 + 4)
    assert cache("llama-3-8b", 1, kv="int4").bytes_per_token == 32 * 2 * 8 * (64 + 8)


@pytest.mark.parametrize("name", ["llama-3-8b", "gemma-3-27b", "deepseek-v2", "gpt-oss-120b", "mistral-7b-v0.1"])
@pytest.mark.parametrize("kv", ["bf16", "fp8", "int8", "int4"])
def test_the_same_bytes_as_analyze_gives(name: str, kv: str) -> None:
    result = analyze_model(load_model(name), H100, 10_000, 4, phases=("decode",), kv_dtype=kv)
    layers = sum(layers * kv_cache_bytes(variant, problem) for _, layers, problem, variant in result.problems)
    assert result.cache.batch_bytes == layers


def test_capacity() -> None:
    """80 GB less a tenth and 16.06 GB of weights, in sequences of 1 GiB."""
    result = analyze_model(load_model("llama-3-8b"), H100, 8192)
    room = result.capacity
    assert room is not None
    assert room.reserve_bytes == round(0.1 * room.memory_bytes)
    assert room.weight_bytes == 2 * 8_030_261_248
    assert room.sequences == room.sequences_allocated == room.free_bytes // 2**30 == 56
    # a window of 4096 at n 8192 halves what is used, not what full pages allocate
    mistral = analyze_model(load_model("mistral-7b-v0.1"), H100, 8192, reserve_bytes=0).capacity
    assert mistral is not None
    assert mistral.sequences == mistral.free_bytes // 2**29
    assert mistral.sequences_allocated == mistral.free_bytes // 2**30
    # a model larger than the device leaves room for none
    large = analyze_model(load_model("llama-3.1-405b"), H100, 8192).capacity
    assert large is not None
    assert large.sequences == 0
    assert large.free_bytes < 0


def test_capacity_is_exact_at_the_edge() -> None:
    sized = cache("llama-3-8b", 8192)
    assert capacity(sized, 3 * 2**30 + 10, 10, 0).sequences == 3
    assert capacity(sized, 3 * 2**30 + 9, 10, 0).sequences == 2
