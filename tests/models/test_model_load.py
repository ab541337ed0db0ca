"""Names, paths and files: what is found, what is refused, and that each refusal is one line that names the field."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofline.errors import InputError
from roofline.models import ModelSpec, analyze_model, document, load_model, shipped_models, to_frame
from roofline.models.load import read_config
from roofline.models.mixers import Attention
from roofline.models.spec import MoE
from roofline.profiles import load

# Parameter counts in 10^9 as the models' authors give them, to their digits; multimodal ones without their towers
PUBLISHED = {
    "deepseek-v2": 236, "deepseek-v2-lite": 15.7, "deepseek-v3": 671, "gemma-2-9b": 9.24, "gemma-3-27b": 27.0,
    "glm-4.5-air": 107, "gpt-oss-120b": 116.83, "gpt-oss-20b": 20.91, "gpt2": 0.124, "jamba-v0.1": 51.6, "llama-2-7b": 6.74,
    "llama-3-70b": 70.6, "llama-3-8b": 8.03, "llama-3.1-405b": 406, "llama-3.2-1b": 1.24, "llama-4-maverick": 401,
    "minimax-m2": 229, "minimax-text-01": 456, "mistral-7b-v0.1": 7.24, "mistral-small-24b": 23.6, "mixtral-8x7b": 46.7,
    "nemotron-h-8b": 8.1, "phi-4": 14.7, "qwen2.5-72b": 72.7, "qwen2.5-7b": 7.61, "qwen3-235b-a22b": 235,
    "qwen3-30b-a3b": 30.5, "qwen3-32b": 32.8, "qwen3-8b": 8.19, "qwen3-next-80b-a3b": 79.7,
}  # fmt: skip


def read(**config: Any) -> ModelSpec:
    return read_config(config, "config.json", "test")


def write(folder: Path, **config: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("name", shipped_models())
def test_shipped_model(name: str) -> None:
    spec = load_model(name)
    assert spec.name == name
    assert spec.source is not None
    assert spec.source.startswith("architecture fields of https://huggingface.co/")
    if name in PUBLISHED:
        assert spec.total_params / 1e9 == pytest.approx(PUBLISHED[name], rel=5e-3)


def test_a_file_and_its_folder_are_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, model_type="llama", num_hidden_layers=3)
    assert load_model(path).runs == load_model(str(tmp_path)).runs == load_model(tmp_path).runs
    assert load_model(path).num_layers == 3
    assert load_model("Llama-3-8B") == load_model("llama-3-8b")


def test_every_inferred_value_is_listed() -> None:
    spec = read(model_type="llama", hidden_size=2048, num_attention_heads=16, tie_word_embeddings=False)
    reasons = {entry.field: (entry.value, entry.reason) for entry in spec.inferred}
    assert reasons == {
        "num_hidden_layers": (32, "default of LlamaConfig"),
        "vocab_size": (32000, "default of LlamaConfig"),
        "num_key_value_heads": (16, "one per query head"),
        "head_dim": (128, "hidden size / attention heads"),
        "intermediate_size": (11008, "default of LlamaConfig"),
        "attention_bias": (False, "default of LlamaConfig"),
        "mlp_bias": (False, "default of LlamaConfig"),
    }


def test_null_where_it_means_something() -> None:
    assert read(model_type="llama", num_key_value_heads=None, head_dim=None).attention_kinds == {"full": 32}
    assert read(model_type="mistral", sliding_window=None).attention_kinds == {"full": 32}
    assert read(model_type="mistral").attention_kinds == {"window 4096": 32}  # MistralConfig's documented default
    lite = read(model_type="deepseek_v2", q_lora_rank=None, num_experts_per_tok=6)
    assert [entry.field for entry in lite.inferred].count("q_lora_rank") == 0


def test_moe_layouts() -> None:
    def sparse(spec: ModelSpec) -> list[bool]:
        return [isinstance(layer.mlp, MoE) for layer in spec.layers]

    assert sparse(read(model_type="deepseek_v3")) == [False] * 3 + [True] * 58
    assert sparse(read(model_type="deepseek_v3", first_k_dense_replace=1, moe_layer_freq=2, num_hidden_layers=5)) == [
        False, False, True, False, True,
    ]  # fmt: skip
    assert sparse(read(model_type="jamba", num_hidden_layers=4)) == [False, True, False, True]
    assert sparse(read(model_type="llama4_text", interleave_moe_layer_step=2, num_hidden_layers=4)) == [
        False,
        True,
        False,
        True,
    ]
    assert sparse(read(model_type="qwen3_moe", mlp_only_layers=[0], num_hidden_layers=3)) == [False, True, True]
    assert sparse(read(model_type="qwen2_moe", decoder_sparse_step=2, num_hidden_layers=4)) == [False, True, False, True]
    assert sparse(read(model_type="granitemoehybrid", num_local_experts=0)) == [False] * 32


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "no model_type"),
        ({"model_type": 3}, "model_type: expected a text"),
        ({"model_type": "lama"}, "unknown model_type 'lama'; did you mean llama"),
        ({"model_type": "bert"}, "encoder"),
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "llama", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "encoder"),
        ({"model_type": "chatglm", "position_encoding_2d": True}, "both directions"),
        ({"model_type": "llama", "hidden_size": None}, "hidden_size: expected a whole number"),
        ({"model_type": "llama", "hidden_size": True}, "hidden_size: expected a whole number"),
        ({"model_type": "llama", "hidden_size": 4096.0}, "hidden_size: expected a whole number"),
        ({"model_type": "llama", "hidden_size": "4096"}, "hidden_size: expected a whole number"),
        ({"model_type": "llama", "hidden_size": -1}, "hidden_size: expected a whole number"),
        ({"model_type": "llama", "hidden_size": 2**40}, "hidden_size: expected a whole number"),
        ({"model_type": "llama", "tie_word_embeddings": 1}, "tie_word_embeddings: expected true or false"),
        ({"model_type": "llama", "num_attention_heads": 30}, "30 attention heads do not divide the hidden size 4096"),
        ({"model_type": "llama", "num_key_value_heads": 5}, "5 key/value heads do not divide the 32 attention heads"),
        ({"model_type": "llama", "layer_types": ["sliding_attention"] * 32}, "layer_types names sliding_attention"),
        ({"model_type": "gpt2", "n_embd": 768, "hidden_size": 1024}, "n_embd is 768 and hidden_size, its other name, is 1024"),
        (
            {"model_type": "gpt_oss", "layer_types": ["full_attention"] * 3},
            "layer_types: expected one value for each of the 36",
        ),
        ({"model_type": "gpt_oss", "layer_types": ["full"] * 36}, "layer_types: unknown kind of layer 'full'"),
        ({"model_type": "gpt_oss", "sliding_window": None}, "sliding_window gives no window"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": None, "max_window_layers": 0},
            "gives no window",
        ),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"] * 32}, "use_sliding_window is false"),
        ({"model_type": "llama4_text", "attention_chunk_size": None}, "attention_chunk_size gives no chunk"),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 35}, "num_kv_shared_layers 35"),
        ({"model_type": "gemma3n_text", "intermediate_size": [1, 2]}, "intermediate_size: expected one value for each"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "a token uses 9 experts, but there are 8"),
        ({"model_type": "deepseek_v3", "first_k_dense_replace": 62}, "first_k_dense_replace"),
        ({"model_type": "deepseek_v2"}, "num_experts_per_tok"),
        ({"model_type": "jamba", "attn_layer_offset": 8}, "attn_layer_offset 8 is not below attn_layer_period 8"),
        ({"model_type": "bamba", "attn_layer_indices": [32]}, "attn_layer_indices"),
        ({"model_type": "bamba", "attn_layer_indices": [3, 3]}, "names a layer twice"),
        ({"model_type": "bamba", "mamba_d_head": 63}, "is not the inner size 8192"),
        ({"model_type": "nemotron_h", "num_hidden_layers": 51}, "num_hidden_layers is 51, but the pattern of layers has 52"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        ({"model_type": "zamba2", "num_hidden_layers": 38}, "layers_block_type: missing"),
        ({"model_type": "mpt", "attn_config": {"attn_type": "sparse"}}, "attn_config: attn_type: unknown kind"),
        ({"model_type": "mpt", "attn_config": {"prefix_lm": True}}, "attn_config: prefix_lm"),
        ({"model_type": "zamba2", "mamba_headdim": 64, "n_mamba_heads": 8}, "is not the inner size 5120"),
        ({"model_type": "mpt", "attn_config": 3}, "attn_config: expected an object"),
        ({"model_type": "dbrx", "ffn_config": {"moe_top_k": 0}}, "ffn_config: moe_top_k"),
        ({"model_type": "minimax", "attn_type_list": [0, 1]}, "attn_type_list: expected one value for each of the 32"),
        ({"model_type": "gemma3", "text_config": 3}, "text_config: expected an object"),
        ({"model_type": "llava", "text_config": {"model_type": "bert"}}, "text_config: bert is an encoder"),
        ({"model_type": "gpt_neo", "attention_types": [[["global"], 3]]}, "attention_types: expected 24 layers, got 3"),
        ({"model_type": "falcon_h1", "mamba_n_heads": 3}, "3 Mamba heads do not divide the inner size 1024"),
    ],
)
def test_refused_in_one_line(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config(config, "config.json", "test")
    assert said in str(caught.value)
    assert str(caught.value).startswith("config.json: ")
    assert str(caught.value).isprintable()


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    for wanted, said in (
        ("llama-3-8", "did you mean llama-3-8b"),
        ("nothing/like/it", "no such file; shipped names are"),
        (str(tmp_path), "no config.json in it"),
        ("a\x00b", "no such file"),
        ("a\nb", "no such file"),
    ):
        with pytest.raises(InputError) as caught:
            load_model(wanted)
        assert said in str(caught.value)
        assert str(caught.value).startswith("--model ")
        assert str(caught.value).isprintable()
    huge = tmp_path / "config.json"
    huge.write_bytes(b" " * (16 * 2**20 + 1))
    with pytest.raises(InputError, match="too large"):
        load_model(huge)


def test_notes_name_what_is_left_out() -> None:
    vision = read(model_type="llama4", text_config={}, vision_config={}, quantization_config={"bits": 4})
    assert vision.notes == ("only the language model is modelled: no vision or audio tower",)
    assert "multi-token prediction" in read(model_type="deepseek_v3", num_nextn_predict_layers=1).notes[0]
    assert "quantization_config" in read(model_type="gpt_oss", quantization_config={"quant_method": "mxfp4"}).notes[0]


def test_the_first_format_of_falcon_40b() -> None:
    config = {"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60}
    spec = read(**config)
    ((attention, layers),) = spec.mixers
    assert layers == 60
    assert isinstance(attention, Attention)
    assert attention.cached_values == 2 * 8 * 64


def test_notes_of_a_size_and_a_device() -> None:
    h100 = load("h100-sxm5-80gb")
    small = read(model_type="llama", max_position_embeddings=4096)
    assert analyze_model(small, h100, 4096).notes == ()
    assert "5000 tokens are more than the 4096" in analyze_model(small, h100, 5000).notes[0]
    large = analyze_model(load_model("llama-3.1-405b"), h100, 16)
    assert "do not fit" in document(large)["notes"][0]
    assert analyze_model(load_model("llama-3-8b"), h100, 8192, 56).notes == ()
    assert "only 56 sequences of 8192 tokens fit" in analyze_model(load_model("llama-3-8b"), h100, 8192, 57).notes[0]


def test_infinity_in_a_field_that_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "nemotron_h", "time_step_limit": [0.0, Infinity]}')
    assert load_model(path).num_layers == 52


def test_frame_of_several_results() -> None:
    h100 = load("h100-sxm5-80gb")
    frame = to_frame([analyze_model(load_model(name), h100, 1024) for name in ("llama-3-8b", "mixtral-8x7b")])
    assert set(frame["model"]) == {"llama-3-8b", "mixtral-8x7b"}
    assert set(frame["phase"]) == {"prefill", "decode"}
    assert {"name", "flops", "weight_bytes", "kv_bytes", "time_s", "bound"} <= set(frame.columns)


def test_import_is_light() -> None:
    code = "import sys, roofline.models; print(*sorted({'pandas', 'torch', 'pydantic', 'rich', 'typer'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
