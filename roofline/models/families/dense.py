"""The families that ``Plain`` reads, one entry each: class, hidden size, layers, heads, MLP width, vocabulary, then traits."""

from types import MappingProxyType

from roofline.models.families.mlps import experts_everywhere, first_dense_moe, qwen_moe
from roofline.models.families.plain import Plain
from roofline.models.families.windows import every_layer, periodic, qwen, smollm3
from roofline.models.fields import Fields

GPT2_NAMES = MappingProxyType(
    {
        "hidden_size": ("n_embd", "hidden_size"),
        "num_hidden_layers": ("n_layer", "num_hidden_layers"),
        "num_attention_heads": ("n_head", "num_attention_heads"),
        "intermediate_size": ("n_inner",),
    }
)
BLOOM_NAMES = MappingProxyType(
    {
        "hidden_size": ("hidden_size", "n_embed"),
        "num_hidden_layers": ("n_layer", "num_hidden_layers"),
        "num_attention_heads": ("n_head", "num_attention_heads"),
    }
)
OPT_NAMES = MappingProxyType({"intermediate_size": ("ffn_dim",)})


def _one_per_head(fields: Fields, heads: int) -> int:
    return heads


def _bigcode(fields: Fields, heads: int) -> int:
    return 1 if fields.flag("multi_query", default=True) else heads


GPT2 = Plain(
    "GPT2Config", 768, 12, 12, None, 50257, tied=True, gated=False, norm="layer", names=GPT2_NAMES, own_head_dim=False,
    kv_rule=_one_per_head, qkv_bias=True, o_bias=True, mlp_bias=True, positions=("n_positions", 1024, 0),
)  # fmt: skip
GPT_BIGCODE = Plain(
    "GPTBigCodeConfig", 768, 12, 12, None, 50257, tied=True, gated=False, norm="layer", names=GPT2_NAMES, own_head_dim=False,
    kv_rule=_bigcode, qkv_bias=True, o_bias=True, mlp_bias=True, positions=("n_positions", 1024, 0),
)  # fmt: skip
GPTJ = Plain(
    "GPTJConfig", 4096, 28, 16, None, 50400, gated=False, norm="layer", norms=1, names=GPT2_NAMES, own_head_dim=False,
    kv_rule=_one_per_head, mlp_bias=True, head_bias=True,
)  # fmt: skip
GPT_NEOX = Plain(
    "GPTNeoXConfig", 6144, 44, 64, 24576, 50432, gated=False, norm="layer", own_head_dim=False, kv_rule=_one_per_head,
    qkv_bias=("attention_bias", True), o_bias=("attention_bias", True), mlp_bias=True,
)  # fmt: skip
OPT = Plain(
    "OPTConfig", 768, 12, 12, 3072, 50272, tied=True, gated=False, norm="layer", names=OPT_NAMES, own_head_dim=False,
    kv_rule=_one_per_head, qkv_bias=("enable_bias", True), o_bias=("enable_bias", True), mlp_bias=("enable_bias", True),
    positions=("max_position_embeddings", 2048, 2),
)  # fmt: skip
BLOOM = Plain(
    "BloomConfig", 64, 2, 8, None, 250880, tied=True, gated=False, norm="layer", names=BLOOM_NAMES, own_head_dim=False,
    kv_rule=_one_per_head, qkv_bias=True, o_bias=True, mlp_bias=True, embedding_norm=True,
)  # fmt: skip
STARCODER2 = Plain(
    "Starcoder2Config", 3072, 30, 24, 12288, 49152, kv_heads=2, tied=True, gated=False, norm="layer",
    qkv_bias=("use_bias", True), o_bias=("use_bias", True), mlp_bias=("use_bias", True), window=every_layer(None),
)  # fmt: skip

LLAMA = Plain(
    "LlamaConfig", 4096, 32, 32, 11008, 32000, qkv_bias=("attention_bias", False), o_bias=("attention_bias", False),
    mlp_bias=("mlp_bias", False),
)  # fmt: skip
MISTRAL = Plain("MistralConfig", 4096, 32, 32, 14336, 32000, kv_heads=8, window=every_layer(4096))
MINISTRAL = Plain("MinistralConfig", 4096, 32, 32, 14336, 32000, kv_heads=8, window=every_layer(4096))
MINISTRAL3 = Plain("Ministral3Config", 4096, 34, 32, 14336, 131072, kv_heads=8, head_dim=128, window=every_layer(None))
MIXTRAL = Plain(
    "MixtralConfig", 4096, 32, 32, 14336, 32000, kv_heads=8, window=every_layer(None),
    mlp=experts_everywhere(("num_local_experts", 8), ("num_experts_per_tok", 2)),
)  # fmt: skip
QWEN2 = Plain("Qwen2Config", 4096, 32, 32, 22016, 151936, kv_heads=32, qkv_bias=True, window=qwen(last_layers_only=True))
QWEN2_VL = Plain(
    "Qwen2VLTextConfig", 8192, 80, 64, 29568, 152064, kv_heads=8, qkv_bias=True, window=qwen(last_layers_only=True)
)
QWEN2_MOE = Plain(
    "Qwen2MoeConfig", 2048, 24, 16, 5632, 151936, kv_heads=16, qkv_bias=("qkv_bias", True), window=qwen(last_layers_only=True),
    mlp=qwen_moe(60, 4, 1408, 5632), shared_gate=True,
)  # fmt: skip
QWEN3 = Plain(
    "Qwen3Config", 4096, 32, 32, 22016, 151936, kv_heads=32, head_dim=128, qk_norm="head",
    qkv_bias=("attention_bias", False), o_bias=("attention_bias", False), window=qwen(last_layers_only=True),
)  # fmt: skip
QWEN3_VL = Plain(
    "Qwen3VLTextConfig", 4096, 32, 32, 22016, 151936, kv_heads=32, head_dim=128, qk_norm="head",
    qkv_bias=("attention_bias", False), o_bias=("attention_bias", False),
)  # fmt: skip
QWEN3_VL_MOE = Plain(
    "Qwen3VLMoeTextConfig", 2048, 24, 16, 5632, 151936, kv_heads=16, tied=True, qk_norm="head",
    qkv_bias=("attention_bias", False), o_bias=("attention_bias", False), mlp=qwen_moe(60, 4, 1408, None),
)  # fmt: skip
QWEN3_MOE = Plain(
    "Qwen3MoeConfig", 2048, 24, 32, 6144, 151936, kv_heads=4, qk_norm="head", qkv_bias=("attention_bias", False),
    o_bias=("attention_bias", False), window=qwen(last_layers_only=False), mlp=qwen_moe(128, 8, 768, None),
)  # fmt: skip

GEMMA = Plain("GemmaConfig", 3072, 28, 16, 24576, 256000, kv_heads=16, head_dim=256, tied=True)
GEMMA2 = Plain(
    "Gemma2Config", 2304, 26, 8, 9216, 256000, kv_heads=4, head_dim=256, tied=True, norms=4,
    window=periodic(4096, 2, pattern_name=None),
)  # fmt: skip
GEMMA3 = Plain(
    "Gemma3TextConfig", 2304, 26, 8, 9216, 262208, kv_heads=4, head_dim=256, tied=True, norms=4, qk_norm="head",
    window=periodic(4096, 6),
)  # fmt: skip

PHI = Plain(
    "PhiConfig", 2048, 24, 32, 8192, 51200, gated=False, norm="layer", norms=1, qkv_bias=True, o_bias=True,
    mlp_bias=True, head_bias=True,
)  # fmt: skip
PHI3 = Plain("Phi3Config", 3072, 32, 32, 8192, 32064, window=every_layer(None))
PHIMOE = Plain(
    "PhimoeConfig", 4096, 32, 32, 6400, 32064, kv_heads=8, norm="layer", own_head_dim=False, window=every_layer(None),
    qkv_bias=("attention_bias", False), o_bias=("attention_bias", False), head_bias=("lm_head_bias", False),
    mlp=experts_everywhere(("num_local_experts", 16), ("num_experts_per_tok", 2)),
)  # fmt: skip
COHERE = Plain(
    "CohereConfig", 8192, 40, 64, 22528, 256000, tied=True, norm="scale", norms=1, qk_norm="width", qk_norm_flag=True
)
COHERE2 = Plain("Cohere2Config", 8192, 40, 64, 22528, 256000, tied=True, norm="scale", norms=1, window=periodic(4096, 4))

GLM = Plain("GlmConfig", 4096, 40, 32, 13696, 151552, kv_heads=2, head_dim=128, qkv_bias=("attention_bias", True))
GLM4 = Plain("Glm4Config", 4096, 40, 32, 13696, 151552, kv_heads=2, head_dim=128, norms=4, qkv_bias=("attention_bias", True))
GLM4_MOE = Plain(
    "Glm4MoeConfig", 4096, 46, 96, 10944, 151552, kv_heads=8, qkv_bias=("attention_bias", False), qk_norm="head",
    qk_norm_flag=True, mlp=first_dense_moe(experts=128, active=8, shared=1, width=1408, first_dense=1, inner=10944),
)  # fmt: skip
DEEPSEEK = Plain(
    "DeepseekConfig", 4096, 30, 32, 11008, 102400, kv_heads=32,
    mlp=first_dense_moe(experts=None, active=None, shared=None, width=1407, first_dense=0, inner=11008),
)  # fmt: skip

GRANITE = Plain(
    "GraniteConfig", 4096, 32, 32, 11008, 32000, qkv_bias=("attention_bias", False), o_bias=("attention_bias", False),
    mlp_bias=("mlp_bias", False),
)  # fmt: skip
GRANITE_MOE = Plain(
    "GraniteMoeConfig", 4096, 32, 32, 11008, 32000, own_head_dim=False, qkv_bias=("attention_bias", False),
    o_bias=("attention_bias", False), mlp=experts_everywhere(("num_local_experts", 8), ("num_experts_per_tok", 2)),
)  # fmt: skip
GRANITE_MOE_SHARED = Plain(
    "GraniteMoeSharedConfig", 4096, 32, 32, 11008, 32000, own_head_dim=False, qkv_bias=("attention_bias", False),
    o_bias=("attention_bias", False),
    mlp=experts_everywhere(("num_local_experts", 8), ("num_experts_per_tok", 2), shared="shared_intermediate_size"),
)  # fmt: skip

GPT_OSS = Plain(
    "GptOssConfig", 2880, 36, 64, 2880, 201088, kv_heads=8, head_dim=64, sinks=True, qkv_bias=True, o_bias=True, mlp_bias=True,
    window=periodic(128, 2, pattern_name=None),
    mlp=experts_everywhere(("num_local_experts", 128), ("num_experts_per_tok", 4)),
)  # fmt: skip
MINIMAX_M2 = Plain(
    "MiniMaxM2Config", 3072, 62, 48, 1536, 200064, kv_heads=8, head_dim=128, qk_norm="width",
    mlp=experts_everywhere(("num_local_experts", 256), ("num_experts_per_tok", 8)),
)  # fmt: skip

OLMO = Plain("OlmoConfig", 4096, 32, 32, 11008, 50304, norm="none", qkv_bias=("attention_bias", False))
OLMO2 = Plain("Olmo2Config", 4096, 32, 32, 11008, 50304, qk_norm="width", qkv_bias=("attention_bias", False))
OLMO3 = Plain(
    "Olmo3Config", 4096, 32, 32, 11008, 50304, qk_norm="width", qkv_bias=("attention_bias", False),
    window=periodic(4096, 4, pattern_name=None),
)  # fmt: skip
OLMOE = Plain(
    "OlmoeConfig", 2048, 16, 16, 2048, 50304, own_head_dim=False, qk_norm="width", qkv_bias=("attention_bias", False),
    mlp=experts_everywhere(("num_experts", 64), ("num_experts_per_tok", 8)),
)  # fmt: skip
SMOLLM3 = Plain("SmolLM3Config", 2048, 36, 16, 11008, 128256, kv_heads=4, tied=True, window=smollm3)
STABLELM = Plain(
    "StableLmConfig", 2560, 32, 32, 6912, 50304, kv_heads=32, norm="layer", own_head_dim=False, qkv_bias=("use_qkv_bias", False)
)
NEMOTRON = Plain("NemotronConfig", 6144, 32, 48, 24576, 256000, gated=False, norm="layer")
EXAONE4 = Plain("Exaone4Config", 4096, 32, 32, 16384, 102400, kv_heads=32, qk_norm="head", window=periodic(4096, 4))
SEED_OSS = Plain("SeedOssConfig", 4096, 64, 80, 27648, 155136, kv_heads=8, head_dim=128, qkv_bias=("attention_bias", True))
ERNIE4_5 = Plain("Ernie4_5Config", 1024, 18, 16, 3072, 103424, kv_heads=2, head_dim=128, tied=True)
ARCEE = Plain("ArceeConfig", 2560, 32, 32, 18432, 32000, gated=False)
HELIUM = Plain("HeliumConfig", 2560, 24, 20, 7040, 48000, kv_heads=20, head_dim=128)
APERTUS = Plain("ApertusConfig", 4096, 32, 32, 14336, 131072, gated=False, qk_norm="head")
INTERNLM2 = Plain("InternLM2Config", 4096, 32, 32, 11008, 103168, own_head_dim=False)
