"""Each family, counted by hand: layers by kind, heads, cache and attention FLOPs of a reduced config written from facts.

The comment of a case names the published config.json its fields are from. ``CAUSAL`` and ``window`` are pairs of one head in a
prefill of 8192 tokens; a case's FLOPs are layers x query heads x 2 x pairs x (d_qk + d_v), its bytes are bf16.
"""

from typing import Any, NamedTuple

import pytest

from roofline.dtypes import DTYPES
from roofline.models.crossover import attention_flops
from roofline.models.kvcache import model_cache
from roofline.models.load import read_config
from roofline.models.mixers import Attention
from roofline.models.spec import ModelSpec

N = 8192
LONG = 32768
CAUSAL = 8192 * 8193 // 2  # 33,558,528


def window(width: int) -> int:
    return width * (width + 1) // 2 + (N - width) * width


class Case(NamedTuple):
    name: str
    config: dict[str, Any]
    kinds: dict[str, int]
    heads: tuple[int, int, int]  # query heads, KV heads, head size
    token_bytes: int
    long_bytes: int  # one sequence of 32768 tokens, states included
    flops: int


def full(layers: int, heads: int, kv: int, d: int) -> tuple[tuple[int, int, int], int, int, int]:
    """Heads, bytes and FLOPs of ``layers`` layers that all see everything: 2 (K, V) x kv x d x 2 B a token and layer."""
    token = layers * 2 * kv * d * 2
    return (heads, kv, d), token, token * LONG, layers * heads * 2 * CAUSAL * 2 * d


CASES = [
    # zai-org/GLM-4.1V-9B-Thinking: the language model of a vision model
    Case(
        "glm-4.1v-9b",
        {"model_type": "glm4v", "text_config": {"model_type": "glm4v_text", "num_key_value_heads": 2}, "vision_config": {}},
        {"full": 40},
        *full(40, 32, 2, 128),
    ),
    # zai-org/GLM-4.5V: 96 heads of 128 on a width of 4096
    Case(
        "glm-4.5v",
        {"model_type": "glm4v_moe", "text_config": {"model_type": "glm4v_moe_text", "head_dim": 128}, "vision_config": {}},
        {"full": 46},
        *full(46, 96, 8, 128),
    ),
    # openai-community/gpt2: 12 heads of 64
    Case("gpt2", {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12}, {"full": 12}, *full(12, 12, 12, 64)),
    # EleutherAI/gpt-neox-20b
    Case(
        "gpt-neox-20b",
        {"model_type": "gpt_neox", "hidden_size": 6144, "num_attention_heads": 64, "num_hidden_layers": 44},
        {"full": 44},
        *full(44, 64, 64, 96),
    ),
    # EleutherAI/gpt-j-6b
    Case("gpt-j-6b", {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28}, {"full": 28}, *full(28, 16, 16, 256)),
    # EleutherAI/gpt-neo-2.7B: every second layer sees 256 tokens
    Case(
        "gpt-neo-2.7b",
        {
            "model_type": "gpt_neo", "hidden_size": 2560, "num_heads": 20, "num_layers": 32, "window_size": 256,
            "attention_types": [[["global", "local"], 16]],
        },
        {"full": 16, "window 256": 16}, (20, 20, 128), 32 * 2 * 20 * 128 * 2, 16 * 2 * 20 * 128 * 2 * (256 + LONG),
        16 * 20 * 2 * 256 * (window(256) + CAUSAL),
    ),
    # facebook/opt-6.7b
    Case(
        "opt-6.7b",
        {"model_type": "opt", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "ffn_dim": 16384},
        {"full": 32},
        *full(32, 32, 32, 128),
    ),
    # bigscience/bloom: n_embed is the hidden size
    Case(
        "bloom",
        {"model_type": "bloom", "n_embed": 14336, "num_attention_heads": 112, "n_layer": 70},
        {"full": 70},
        *full(70, 112, 112, 128),
    ),
    # mosaicml/mpt-7b
    Case(
        "mpt-7b",
        {
            "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
            "attn_config": {"attn_type": "multihead_attention", "alibi": True},
        },
        {"full": 32},
        *full(32, 32, 32, 128),
    ),
    # tiiuae/falcon-7b: multi-query, 71 heads of 64
    Case(
        "falcon-7b",
        {
            "model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32,
            "multi_query": True, "new_decoder_architecture": False, "num_kv_heads": 71,
        },
        {"full": 32},
        *full(32, 71, 1, 64),
    ),
    # tiiuae/falcon-40b: new architecture, 8 KV heads though multi_query says true
    Case(
        "falcon-40b",
        {
            "model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_hidden_layers": 60, "num_kv_heads": 8,
            "multi_query": True, "new_decoder_architecture": True,
        },
        {"full": 60},
        *full(60, 128, 8, 64),
    ),
    # tiiuae/falcon-rw-1b: neither, one KV head a query head
    Case(
        "falcon-rw-1b",
        {
            "model_type": "falcon", "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 24,
            "multi_query": False, "new_decoder_architecture": False,
        },
        {"full": 24},
        *full(24, 32, 32, 64),
    ),
    # bigcode/starcoder
    Case(
        "starcoder",
        {"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "multi_query": True},
        {"full": 40},
        *full(40, 48, 1, 128),
    ),
    # bigcode/starcoder2-7b: window 4096 in every layer
    Case(
        "starcoder2-7b",
        {
            "model_type": "starcoder2", "hidden_size": 4608, "num_attention_heads": 36, "num_hidden_layers": 32,
            "num_key_value_heads": 4, "sliding_window": 4096,
        },
        {"window 4096": 32}, (36, 4, 128), 32 * 2 * 4 * 128 * 2, 32 * 2 * 4 * 128 * 2 * 4096, 32 * 36 * 2 * window(4096) * 256,
    ),
    # THUDM/chatglm3-6b
    Case(
        "chatglm3-6b",
        {
            "model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 28, "kv_channels": 128,
            "multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 65024, "ffn_hidden_size": 13696,
        },
        {"full": 28},
        *full(28, 32, 2, 128),
    ),
    # zai-org/glm-4-9b-hf; zai-org/GLM-4-9B-0414 (glm4) has the same attention
    Case("glm-4-9b", {"model_type": "glm"}, {"full": 40}, *full(40, 32, 2, 128)),
    Case("glm-4-9b-0414", {"model_type": "glm4", "attention_bias": False}, {"full": 40}, *full(40, 32, 2, 128)),
    # zai-org/GLM-4.5-Air: 96 heads of 128 in a hidden size of 4096
    Case(
        "glm-4.5-air",
        {"model_type": "glm4_moe", "hidden_size": 4096, "num_attention_heads": 96, "num_hidden_layers": 46, "head_dim": 128},
        {"full": 46},
        *full(46, 96, 8, 128),
    ),
    # meta-llama/Meta-Llama-3-8B and 70B (320 KiB a token)
    Case(
        "llama-3-8b",
        {
            "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
        },
        {"full": 32},
        *full(32, 32, 8, 128),
    ),
    Case(
        "llama-3-70b",
        {
            "model_type": "llama", "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80,
            "num_key_value_heads": 8,
        },
        {"full": 80}, (64, 8, 128), 320 * 1024, 320 * 1024 * LONG, 80 * 64 * 2 * CAUSAL * 256,
    ),
    # meta-llama/Llama-4-Scout-17B-16E: chunks of 8192 in three of four layers; 8192 tokens are one chunk, so all causal
    Case(
        "llama-4-scout",
        {
            "model_type": "llama4",
            "text_config": {
                "model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 48,
                "num_key_value_heads": 8, "head_dim": 128, "no_rope_layers": [], "attention_chunk_size": 8192,
            },
        },
        {"chunk 8192": 36, "full": 12}, (40, 8, 128), 48 * 4096, 36 * 4096 * 8192 + 12 * 4096 * LONG,
        48 * 40 * 2 * CAUSAL * 256,
    ),
    # the same with chunks of 3000: two whole chunks and one of 2192 tokens
    Case(
        "llama-4-chunks-of-3000",
        {"model_type": "llama4_text", "num_hidden_layers": 4, "attention_chunk_size": 3000},
        {"chunk 3000": 3, "full": 1}, (40, 8, 128), 4 * 4096, 3 * 4096 * 3000 + 4096 * LONG,
        40 * 2 * 256 * (3 * (2 * 3000 * 3001 // 2 + 2192 * 2193 // 2) + CAUSAL),
    ),
    # mistralai/Mistral-7B-v0.1; v0.3 has sliding_window null
    Case(
        "mistral-7b-v0.1",
        {"model_type": "mistral", "sliding_window": 4096, "num_key_value_heads": 8},
        {"window 4096": 32}, (32, 8, 128), 131072, 131072 * 4096, 32 * 32 * 2 * window(4096) * 256,
    ),
    Case("mistral-7b-v0.3", {"model_type": "mistral", "sliding_window": None}, {"full": 32}, *full(32, 32, 8, 128)),
    # mistralai/Mistral-Nemo-Base-2407: head_dim 128, not 5120 / 32
    Case(
        "mistral-nemo",
        {
            "model_type": "mistral", "hidden_size": 5120, "num_hidden_layers": 40, "head_dim": 128, "sliding_window": None,
            "num_attention_heads": 32, "num_key_value_heads": 8,
        },
        {"full": 40},
        *full(40, 32, 8, 128),
    ),
    # mistralai/Mixtral-8x7B-v0.1
    Case("mixtral-8x7b", {"model_type": "mixtral", "sliding_window": None}, {"full": 32}, *full(32, 32, 8, 128)),
    # Qwen/Qwen-7B: intermediate_size is both halves
    Case("qwen-7b", {"model_type": "qwen", "kv_channels": 128}, {"full": 32}, *full(32, 32, 32, 128)),
    # Qwen/Qwen2-7B: sliding_window 131072 is switched off
    Case(
        "qwen2-7b",
        {
            "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_hidden_layers": 28,
            "num_key_value_heads": 4, "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28,
        },
        {"full": 28},
        *full(28, 28, 4, 128),
    ),
    # the same, switched on for the last 7 layers
    Case(
        "qwen2-windowed",
        {
            "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_hidden_layers": 28,
            "num_key_value_heads": 4, "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 21,
        },
        {"full": 21, "window 4096": 7}, (28, 4, 128), 28 * 2048, 21 * 2048 * LONG + 7 * 2048 * 4096,
        28 * 2 * 256 * (21 * CAUSAL + 7 * window(4096)),
    ),
    # Qwen/Qwen1.5-MoE-A2.7B
    Case("qwen1.5-moe", {"model_type": "qwen2_moe", "use_sliding_window": False}, {"full": 24}, *full(24, 16, 16, 128)),
    # Qwen/Qwen3-32B and Qwen3-30B-A3B: head_dim 128 of their own
    Case(
        "qwen3-32b",
        {
            "model_type": "qwen3", "hidden_size": 5120, "num_attention_heads": 64, "num_hidden_layers": 64,
            "num_key_value_heads": 8, "head_dim": 128,
        },
        {"full": 64},
        *full(64, 64, 8, 128),
    ),
    Case(
        "qwen3-30b-a3b",
        {"model_type": "qwen3_moe", "num_hidden_layers": 48, "head_dim": 128, "num_key_value_heads": 4},
        {"full": 48},
        *full(48, 32, 4, 128),
    ),
    # Qwen/Qwen3-Next-80B-A3B-Instruct: 12 of 48 layers attend; state 32 x 128 x 128 fp32, convolution 3 x 8192 bf16
    Case(
        "qwen3-next",
        {"model_type": "qwen3_next", "num_hidden_layers": 48, "head_dim": 256, "num_key_value_heads": 2},
        {"linear (gated-delta)": 36, "full": 12}, (16, 2, 256), 12 * 2 * 2 * 256 * 2,
        12 * 2048 * LONG + 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2), 12 * 16 * 2 * CAUSAL * 512,
    ),
    # google/gemma-7b: 16 heads of 256 in 3072
    Case("gemma-7b", {"model_type": "gemma", "head_dim": 256}, {"full": 28}, *full(28, 16, 16, 256)),
    # google/gemma-2-9b: window 4096 in every second layer
    Case(
        "gemma-2-9b",
        {
            "model_type": "gemma2", "hidden_size": 3584, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
            "num_hidden_layers": 42, "sliding_window": 4096,
        },
        {"window 4096": 21, "full": 21}, (16, 8, 256), 42 * 8192, 21 * 8192 * 4096 + 21 * 8192 * LONG,
        16 * 2 * 512 * 21 * (window(4096) + CAUSAL),
    ),
    # google/gemma-3-27b-it: five of six layers with 1024; 62 layers end on two windows
    Case(
        "gemma-3-27b",
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text", "hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16,
                "head_dim": 128, "num_hidden_layers": 62, "sliding_window": 1024,
            },
        },
        {"window 1024": 52, "full": 10}, (32, 16, 128), 62 * 8192, 52 * 8192 * 1024 + 10 * 8192 * LONG,
        32 * 2 * 256 * (52 * window(1024) + 10 * CAUSAL),
    ),
    # google/gemma-3-4b-it leaves its heads to the defaults: 8 and 4 of 256
    Case(
        "gemma-3-4b",
        {"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}},
        {"window 1024": 29, "full": 5}, (8, 4, 256), 34 * 4096, 29 * 4096 * 1024 + 5 * 4096 * LONG,
        8 * 2 * 512 * (29 * window(1024) + 5 * CAUSAL),
    ),
    # google/gemma-3n-E4B-it: 35 layers, every fifth full; the last 15 (12 windowed, 3 full) store nothing
    Case(
        "gemma-3n-e4b",
        {"model_type": "gemma3n", "text_config": {"num_hidden_layers": 35, "sliding_window": 512, "num_kv_shared_layers": 15}},
        {"window 512": 16, "full": 4, "window 512, shared kv": 12, "full, shared kv": 3}, (8, 2, 256), 20 * 2048,
        16 * 2048 * 512 + 4 * 2048 * LONG, 8 * 2 * 512 * (28 * window(512) + 7 * CAUSAL),
    ),
    # microsoft/phi-2
    Case(
        "phi-2",
        {"model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32, "num_hidden_layers": 32},
        {"full": 32},
        *full(32, 32, 32, 80),
    ),
    # microsoft/Phi-3-mini-4k-instruct: window 2047
    Case(
        "phi-3-mini",
        {"model_type": "phi3", "sliding_window": 2047},
        {"window 2047": 32}, (32, 32, 96), 32 * 2 * 32 * 96 * 2, 32 * 2 * 32 * 96 * 2 * 2047, 32 * 32 * 2 * window(2047) * 192,
    ),
    # microsoft/Phi-3.5-MoE-instruct
    Case("phi-3.5-moe", {"model_type": "phimoe", "sliding_window": 131072}, {"window 131072": 32}, *full(32, 32, 8, 128)),
    # CohereLabs/c4ai-command-r-v01
    Case("command-r", {"model_type": "cohere"}, {"full": 40}, *full(40, 64, 64, 128)),
    # CohereLabs/c4ai-command-r7b-12-2024: three of four layers with 4096
    Case(
        "command-r7b",
        {
            "model_type": "cohere2", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
            "num_key_value_heads": 8, "sliding_window": 4096, "sliding_window_pattern": 4,
        },
        {"window 4096": 24, "full": 8}, (32, 8, 128), 131072, 4096 * (24 * 4096 + 8 * LONG),
        32 * 2 * 256 * (24 * window(4096) + 8 * CAUSAL),
    ),
    # deepseek-ai/DeepSeek-V2: 512 + 64 values a token and layer; expanded d_qk 192, d_v 128
    Case(
        "deepseek-v2",
        {
            "model_type": "deepseek_v2", "hidden_size": 5120, "num_attention_heads": 128, "num_hidden_layers": 60,
            "num_experts_per_tok": 6, "first_k_dense_replace": 1,
        },
        {"mla full": 60}, (128, 1, 128), 60 * 576 * 2, 60 * 576 * 2 * LONG, 60 * 128 * 2 * CAUSAL * (192 + 128),
    ),
    # deepseek-ai/DeepSeek-V3, and moonshotai/Kimi-K2-Instruct with half the heads
    Case("deepseek-v3", {"model_type": "deepseek_v3"}, {"mla full": 61}, (128, 1, 128), 61 * 1152, 61 * 1152 * LONG,
         61 * 128 * 2 * CAUSAL * 320),
    Case("kimi-k2", {"model_type": "kimi_k2", "num_attention_heads": 64}, {"mla full": 61}, (64, 1, 128), 61 * 1152,
         61 * 1152 * LONG, 61 * 64 * 2 * CAUSAL * 320),
    # openbmb/MiniCPM3-4B: latent 256 + 32, d_qk 96, d_v 64
    Case("minicpm3-4b", {"model_type": "minicpm3"}, {"mla full": 62}, (40, 1, 64), 62 * 288 * 2, 62 * 288 * 2 * LONG,
         62 * 40 * 2 * CAUSAL * (96 + 64)),
    # ai21labs/Jamba-v0.1: 4 of 32 layers attend; state 8192 x 16 fp32, convolution 3 x 8192 bf16
    Case("jamba-v0.1", {"model_type": "jamba"}, {"state space (mamba1)": 28, "full": 4}, (32, 8, 128), 4 * 4096,
         4 * 4096 * LONG + 28 * (8192 * 16 * 4 + 3 * 8192 * 2), 4 * 32 * 2 * CAUSAL * 256),
    # nvidia/Nemotron-H-8B-Base-8K: 4 of 52; state 8192 x 128 fp32, convolution 3 x (8192 + 2 x 8 x 128) bf16
    Case("nemotron-h-8b", {"model_type": "nemotron_h"}, {"state space (mamba2)": 24, "no mixer": 24, "full": 4}, (32, 8, 128),
         4 * 4096, 4 * 4096 * LONG + 24 * (8192 * 128 * 4 + 3 * 10240 * 2), 4 * 32 * 2 * CAUSAL * 256),
    # Zyphra/Zamba2-2.7B: attention over twice the width in 9 of 54 layers; state 5120 x 64 fp32
    Case("zamba2-2.7b", {"model_type": "zamba2", "num_mem_blocks": 2, "n_mamba_heads": 80},
         {"state space (mamba2)": 45, "full + state space (mamba2)": 9}, (32, 32, 160), 9 * 2 * 32 * 160 * 2,
         9 * 2 * 32 * 160 * 2 * LONG + 54 * (5120 * 64 * 4 + 3 * (5120 + 2 * 64) * 2), 9 * 32 * 2 * CAUSAL * 320),
    # Zyphra/Zamba2-7B names its 13 hybrid layers by number; state 7168 x 64 fp32, convolution 3 x (7168 + 2 x 2 x 64) bf16
    Case("zamba2-7b", {"model_type": "zamba2", "hidden_size": 3584, "num_hidden_layers": 81, "num_mem_blocks": 2,
                       "mamba_ngroups": 2, "n_mamba_heads": 112, "hybrid_layer_ids": [6, 11, *range(17, 78, 6)]},
         {"state space (mamba2)": 68, "full + state space (mamba2)": 13}, (32, 32, 224), 13 * 2 * 32 * 224 * 2,
         13 * 2 * 32 * 224 * 2 * LONG + 81 * (7168 * 64 * 4 + 3 * (7168 + 2 * 2 * 64) * 2), 13 * 32 * 2 * CAUSAL * 448),
    # Zyphra/Zamba-7B-v1: 13 of 76 layers hybrid (2, then 7, 13, 19 ... 73); 16 heads of 464; state 7424 x 16 fp32
    Case("zamba-7b", {"model_type": "zamba"}, {"state space (mamba1)": 63, "full + state space (mamba1)": 13}, (16, 16, 464),
         13 * 2 * 16 * 464 * 2, 13 * 2 * 16 * 464 * 2 * LONG + 76 * (7424 * 16 * 4 + 3 * 7424 * 2), 13 * 16 * 2 * CAUSAL * 928),
    # ibm-granite/granite-4.0-h-small: attention at 5, 15, 25, 35; state 8192 x 128 fp32
    Case(
        "granite-4.0-h-small",
        {
            "model_type": "granitemoehybrid", "num_hidden_layers": 40, "num_key_value_heads": 8, "mamba_d_state": 128,
            "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
        },
        {"state space (mamba2)": 36, "full": 4}, (32, 8, 128), 4 * 4096,
        4 * 4096 * LONG + 36 * (8192 * 128 * 4 + 3 * (8192 + 2 * 128) * 2), 4 * 32 * 2 * CAUSAL * 256,
    ),
    # ibm-granite/granite-3.1-8b-base, and the MoE of granite-3.1-3b-a800m-base
    Case("granite-3.1-8b", {"model_type": "granite", "num_hidden_layers": 40, "num_key_value_heads": 8}, {"full": 40},
         *full(40, 32, 8, 128)),
    Case(
        "granite-3.1-3b-a800m",
        {
            "model_type": "granitemoe", "hidden_size": 1536, "num_attention_heads": 24, "num_key_value_heads": 8,
            "num_hidden_layers": 32, "num_local_experts": 40, "num_experts_per_tok": 8, "intermediate_size": 512,
        },
        {"full": 32},
        *full(32, 24, 8, 64),
    ),
    # ibm-ai-platform/Bamba-9B-v2: attention at 9, 18, 27; state 8192 x 128 fp32
    Case("bamba-9b", {"model_type": "bamba", "attn_layer_indices": [9, 18, 27], "mamba_d_state": 128},
         {"state space (mamba2)": 29, "full": 3}, (32, 8, 128), 3 * 4096,
         3 * 4096 * LONG + 29 * (8192 * 128 * 4 + 3 * (8192 + 256) * 2), 3 * 32 * 2 * CAUSAL * 256),
    # tiiuae/Falcon-H1-7B-Instruct: attention and Mamba-2 side by side; 12 heads of 128 in 3072, inner size 3072
    Case(
        "falcon-h1-7b",
        {
            "model_type": "falcon_h1", "hidden_size": 3072, "num_hidden_layers": 44, "num_attention_heads": 12,
            "num_key_value_heads": 2, "head_dim": 128, "mamba_d_ssm": 3072, "mamba_n_heads": 24, "mamba_d_head": 128,
            "mamba_d_state": 256, "mamba_n_groups": 1,
        },
        {"full + state space (mamba2)": 44}, (12, 2, 128), 44 * 1024,
        44 * (1024 * LONG + 3072 * 256 * 4 + 3 * (3072 + 512) * 2), 44 * 12 * 2 * CAUSAL * 256,
    ),
    # MiniMaxAI/MiniMax-Text-01: one softmax layer of eight; state 64 x 128 x 128 fp32 in the others
    Case(
        "minimax-text-01",
        {
            "model_type": "minimax_text_01", "hidden_size": 6144, "num_attention_heads": 64, "num_hidden_layers": 80,
            "head_dim": 128, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
        },
        {"linear (lightning)": 70, "full": 10}, (64, 8, 128), 10 * 4096, 10 * 4096 * LONG + 70 * 64 * 128 * 128 * 4,
        10 * 64 * 2 * CAUSAL * 256,
    ),
    # openai/gpt-oss-120b: window 128 in every second layer, 64 heads of 64
    Case("gpt-oss-120b", {"model_type": "gpt_oss"}, {"window 128": 18, "full": 18}, (64, 8, 64), 36 * 2048,
         2048 * 18 * (128 + LONG), 64 * 2 * 128 * 18 * (window(128) + CAUSAL)),
    # allenai/OLMo-7B-hf, OLMo-2-1124-7B, OLMoE-1B-7B-0924 and Olmo-3-1025-7B (4096 in three of four layers)
    Case("olmo-7b", {"model_type": "olmo"}, {"full": 32}, *full(32, 32, 32, 128)),
    Case("olmo-2-7b", {"model_type": "olmo2"}, {"full": 32}, *full(32, 32, 32, 128)),
    Case("olmoe-1b-7b", {"model_type": "olmoe"}, {"full": 16}, *full(16, 16, 16, 128)),
    Case("olmo-3-7b", {"model_type": "olmo3"}, {"window 4096": 24, "full": 8}, (32, 32, 128), 32 * 16384,
         16384 * (24 * 4096 + 8 * LONG), 32 * 2 * 256 * (24 * window(4096) + 8 * CAUSAL)),
    # databricks/dbrx-base
    Case(
        "dbrx",
        {
            "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        {"full": 40},
        *full(40, 48, 8, 128),
    ),
    # HuggingFaceTB/SmolLM3-3B
    Case("smollm3-3b", {"model_type": "smollm3", "use_sliding_window": False}, {"full": 36}, *full(36, 16, 4, 128)),
    # tiiuae/falcon-mamba-7b: expand 16, but intermediate_size 8192 is what the layers have
    Case(
        "falcon-mamba-7b",
        {"model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "expand": 16, "intermediate_size": 8192},
        {"state space (mamba1)": 64}, (0, 0, 0), 0, 64 * (8192 * 16 * 4 + 3 * 8192 * 2), 0,
    ),
    # state-spaces/mamba-2.8b-hf: no cache that grows; state 5120 x 16 fp32
    Case(
        "mamba-2.8b", {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64}, {"state space (mamba1)": 64},
        (0, 0, 0), 0, 64 * (5120 * 16 * 4 + 3 * 5120 * 2), 0,
    ),
]  # fmt: skip


def first_attention(spec: ModelSpec) -> tuple[int, int, int]:
    for mixer, _ in spec.mixers:
        if isinstance(mixer, Attention):
            return mixer.q_heads, getattr(mixer.kv, "heads", 1), mixer.kv.head_dim
    return 0, 0, 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_family_counted_by_hand(case: Case) -> None:
    spec = read_config(case.config, "config.json", case.name)
    bf16 = DTYPES["bf16"]
    cache = model_cache(spec, LONG, 1, bf16, bf16)
    assert spec.attention_kinds == case.kinds
    assert first_attention(spec) == case.heads
    assert cache.bytes_per_token == case.token_bytes
    assert cache.sequence_bytes == case.long_bytes
    assert attention_flops(spec, "prefill", N) == case.flops
