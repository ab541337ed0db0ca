"""The families by ``model_type``: a reader each, and the configuration class whose defaults it takes."""

from collections.abc import Callable
from typing import NamedTuple

from roofline.models.families import dense, early, hybrid, latent, statespace, windowed, zamba
from roofline.models.families.body import Body
from roofline.models.families.latent import Latent
from roofline.models.families.plain import Plain
from roofline.models.families.windowed import GatedDelta
from roofline.models.fields import Fields


class Reader(NamedTuple):
    """How a family is read. ``owner`` names the class whose documented defaults stand in for missing fields."""

    owner: str
    read: Callable[[Fields], Body]


def _table(family: Plain | Latent | GatedDelta) -> Reader:
    return Reader(family.owner, family.read)


FAMILIES: dict[str, Reader] = {
    "apertus": _table(dense.APERTUS),
    "arcee": _table(dense.ARCEE),
    "bamba": Reader("BambaConfig", hybrid.bamba),
    "bloom": _table(dense.BLOOM),
    "chatglm": Reader("ChatGLMConfig", early.chatglm),
    "cohere": _table(dense.COHERE),
    "cohere2": _table(dense.COHERE2),
    "dbrx": Reader("DbrxConfig", early.dbrx),
    "deepseek": _table(dense.DEEPSEEK),
    "deepseek_v2": _table(latent.DEEPSEEK_V2),
    "deepseek_v3": _table(latent.DEEPSEEK_V3),
    "ernie4_5": _table(dense.ERNIE4_5),
    "exaone4": _table(dense.EXAONE4),
    "falcon": Reader("FalconConfig", early.falcon),
    "falcon_h1": Reader("FalconH1Config", hybrid.falcon_h1),
    "falcon_mamba": Reader("FalconMambaConfig", statespace.pure_mamba1),
    "gemma": _table(dense.GEMMA),
    "gemma2": _table(dense.GEMMA2),
    "gemma3_text": _table(dense.GEMMA3),
    "gemma3n_text": Reader("Gemma3nTextConfig", windowed.gemma3n),
    "glm": _table(dense.GLM),
    "glm4": _table(dense.GLM4),
    "glm4_moe": _table(dense.GLM4_MOE),
    "glm4_moe_lite": _table(latent.GLM4_MOE_LITE),
    "gpt2": _table(dense.GPT2),
    "gpt_bigcode": _table(dense.GPT_BIGCODE),
    "gpt_neo": Reader("GPTNeoConfig", early.gpt_neo),
    "gpt_neox": _table(dense.GPT_NEOX),
    "gpt_oss": _table(dense.GPT_OSS),
    "gptj": _table(dense.GPTJ),
    "granite": _table(dense.GRANITE),
    "granitemoe": _table(dense.GRANITE_MOE),
    "granitemoehybrid": Reader("GraniteMoeHybridConfig", hybrid.granite_hybrid),
    "granitemoeshared": _table(dense.GRANITE_MOE_SHARED),
    "helium": _table(dense.HELIUM),
    "internlm2": _table(dense.INTERNLM2),
    "jamba": Reader("JambaConfig", hybrid.jamba),
    "kimi_k2": _table(latent.DEEPSEEK_V3),
    "llama": _table(dense.LLAMA),
    "llama4_text": Reader("Llama4TextConfig", windowed.llama4),
    "mamba": Reader("MambaConfig", statespace.pure_mamba1),
    "mamba2": Reader("Mamba2Config", statespace.pure_mamba2),
    "minicpm3": _table(latent.MINICPM3),
    "minimax": Reader("MiniMaxConfig", hybrid.minimax),
    "minimax_m1": Reader("MiniMaxConfig", hybrid.minimax),
    "minimax_m2": _table(dense.MINIMAX_M2),
    "minimax_text_01": Reader("MiniMaxConfig", hybrid.minimax),
    "ministral": _table(dense.MINISTRAL),
    "ministral3": _table(dense.MINISTRAL3),
    "mistral": _table(dense.MISTRAL),
    "mistral4": _table(latent.MISTRAL4),
    "mixtral": _table(dense.MIXTRAL),
    "mpt": Reader("MptConfig", early.mpt),
    "nemotron": _table(dense.NEMOTRON),
    "nemotron_h": Reader("NemotronHConfig", hybrid.nemotron_h),
    "olmo": _table(dense.OLMO),
    "olmo2": _table(dense.OLMO2),
    "olmo3": _table(dense.OLMO3),
    "olmoe": _table(dense.OLMOE),
    "opt": Reader("OPTConfig", early.opt),
    "phi": _table(dense.PHI),
    "phi3": _table(dense.PHI3),
    "phimoe": _table(dense.PHIMOE),
    "qwen": Reader("QWenConfig", early.qwen),
    "qwen2": _table(dense.QWEN2),
    "qwen2_moe": _table(dense.QWEN2_MOE),
    "qwen2_vl_text": _table(dense.QWEN2_VL),
    "qwen3": _table(dense.QWEN3),
    "qwen3_5_moe_text": _table(windowed.QWEN3_5_MOE),
    "qwen3_5_text": _table(windowed.QWEN3_5),
    "qwen3_moe": _table(dense.QWEN3_MOE),
    "qwen3_next": _table(windowed.QWEN3_NEXT),
    "qwen3_vl_moe_text": _table(dense.QWEN3_VL_MOE),
    "qwen3_vl_text": _table(dense.QWEN3_VL),
    "seed_oss": _table(dense.SEED_OSS),
    "smollm3": _table(dense.SMOLLM3),
    "stablelm": _table(dense.STABLELM),
    "starcoder2": _table(dense.STARCODER2),
    "zamba": Reader("ZambaConfig", zamba.zamba),
    "zamba2": Reader("Zamba2Config", zamba.zamba2),
}

# Older names of a family, and its name in its authors' own format.
ALIASES: dict[str, str] = {
    "codegen": "gptj",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "MiniMaxText01": "minimax_text_01",
    "MiniMaxM1": "minimax_m1",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_5": "qwen3_5_text",
    "gemma3n": "gemma3n_text",
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_vl_text",
    "qwen2_5_vl_text": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}

# Models of images or sound and text: the language model is in ``text_config``, of the type named here unless it says its own.
NESTED: dict[str, str] = {
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "idefics3": "llama",
    "internvl": "qwen2",
    "kimi_k25": "kimi_k2",
    "kimi_vl": "deepseek_v3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "mistral",
    "qwen2_5_vl": "qwen2_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "smolvlm": "llama",
}

ENCODERS = frozenset(
    {
        "albert", "bert", "big_bird", "camembert", "clip", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "esm",
        "funnel", "hubert", "modernbert", "mpnet", "nomic_bert", "roberta", "roformer", "siglip", "vit", "wav2vec2",
        "xlm-roberta", "xlm-roberta-xl",
    }
)  # fmt: skip
ENCODER_DECODERS = frozenset(
    {
        "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "encoder-decoder", "fsmt", "led", "longt5", "m2m_100",
        "marian", "mbart", "moonshine", "mt5", "mvp", "nllb-moe", "pegasus", "plbart", "prophetnet", "seamless_m4t",
        "speech_to_text", "switch_transformers", "t5", "t5gemma", "umt5", "whisper",
    }
)  # fmt: skip
