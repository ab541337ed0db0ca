"""Parameter counts to the last digit, where the models' authors publish them: a miscounted matrix or bias anywhere shows."""

from typing import Any

import pytest

from roofline.dtypes import DTYPES
from roofline.models import load_model
from roofline.models.load import read_config
from roofline.models.works import Dtypes, model_works

EXACT: dict[str, tuple[dict[str, Any], int]] = {
    # bigscience/bloom, model card: 176,247,271,424 parameters
    "bloom": (
        {"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880},
        176_247_271_424,
    ),
    # EleutherAI/gpt-neox-20b, model card: 20554567680 parameters
    "gpt-neox-20b": ({"model_type": "gpt_neox"}, 20_554_567_680),
    # facebook/opt-350m: embeddings of 512, layers of 1024, no final norm
    "opt-350m": (
        {
            "model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
            "word_embed_proj_dim": 512, "do_layer_norm_before": False,
        },
        331_196_416,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_every_parameter_is_counted(name: str) -> None:
    config, published = EXACT[name]
    assert read_config(config, "config.json", name).total_params == published


def test_narrow_embeddings_make_a_narrow_head() -> None:
    spec = read_config(EXACT["opt-350m"][0], "config.json", "opt-350m")
    bf16 = Dtypes(*3 * (DTYPES["bf16"],))
    works = {work.name: work for work, _ in model_works(spec, "decode", 16, 1, bf16)}
    assert works["lm head"].flops == 2 * 512 * 50272
    assert works["embeddings"].weight_bytes == 512 * 2
    assert works["other projections"].flops == 2 * 2 * 512 * 1024
    assert load_model("gpt2").embedding_size == 768
