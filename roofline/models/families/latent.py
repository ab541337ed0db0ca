"""Families with multi-head latent attention: DeepSeek-V2 and V3 and their kin, MiniCPM3, GLM-4.7 Flash.

The cache holds one latent of ``kv_lora_rank`` values and one RoPE key of ``qk_rope_head_dim`` a token and layer, whatever
``num_key_value_heads`` says: 512 + 64 = 576 for DeepSeek-V2 (arXiv:2405.04434, section 2.1).
"""

from dataclasses import dataclass

from roofline.models.families.body import Body
from roofline.models.families.mlps import MLP, deepseek_mlps
from roofline.models.fields import MAX_LAYERS, MAX_VOCAB, Fields
from roofline.models.mixers import Attention
from roofline.models.spec import DenseMLP, Layer
from roofline.problem import LatentKV


@dataclass(frozen=True, slots=True)
class Latent:
    """One family: the documented defaults of its configuration class. ``experts`` ``None``: dense unless the file says so."""

    owner: str
    hidden: int
    layers: int
    heads: int
    inner: int
    vocab: int
    q_rank: int | None
    latent: int
    nope: int
    rope: int
    value: int | None
    experts: int | None = None
    active: int | None = None
    shared: int = 0
    expert_width: int = 0
    first_dense: int = 0
    tied: bool = False

    def read(self, fields: Fields) -> Body:
        """Read a file of this family."""
        hidden = fields.size("hidden_size", default=self.hidden)
        num_layers = fields.size("num_hidden_layers", default=self.layers, most=MAX_LAYERS)
        attention = self.attention(fields, hidden)
        mlps: list[MLP]
        if self.experts is None and not fields.has("n_routed_experts"):
            mlps = [DenseMLP(fields.size("intermediate_size", default=self.inner))] * num_layers
        else:
            mlps = deepseek_mlps(
                fields,
                num_layers,
                self.experts,
                self.active,
                self.shared,
                self.expert_width,
                self.first_dense,
                self.inner,
            )
        layers = [Layer((attention,), mlp, 2 * hidden) for mlp in mlps]
        vocab = fields.size("vocab_size", default=self.vocab, most=MAX_VOCAB)
        return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=self.tied), hidden)

    def attention(self, fields: Fields, hidden: int) -> Attention:
        """The attention of every layer."""
        heads = fields.size("num_attention_heads", default=self.heads)
        q_rank = fields.optional_size("q_lora_rank", default=self.q_rank)
        latent = fields.size("kv_lora_rank", default=self.latent)
        nope, rope = fields.size("qk_nope_head_dim", default=self.nope), fields.size("qk_rope_head_dim", default=self.rope)
        value = self._value_dim(fields, hidden, heads)
        norms = latent + (q_rank or 0)
        return Attention(heads, LatentKV(latent, rope, nope, value), q_rank=q_rank, vectors=norms)

    def _value_dim(self, fields: Fields, hidden: int, heads: int) -> int:
        if self.value is not None:
            return fields.size("v_head_dim", default=self.value)
        if not fields.has("v_head_dim") or fields.is_null("v_head_dim"):
            if hidden % heads:
                raise fields.error(
                    f"{heads} attention heads do not divide the hidden size {hidden}, and there is no v_head_dim"
                )
            return fields.infer("v_head_dim", hidden // heads, "hidden_size / num_attention_heads")
        return fields.size("v_head_dim", default=1)


DEEPSEEK_V2 = Latent(
    "DeepseekV2Config", 4096, 32, 32, 11008, 102400, 1536, 512, 128, 64, 128, experts=64, shared=2, expert_width=1407
)
DEEPSEEK_V3 = Latent(
    "DeepseekV3Config", 7168, 61, 128, 18432, 129280, 1536, 512, 128, 64, 128,
    experts=256, active=8, shared=1, expert_width=2048, first_dense=3,
)  # fmt: skip
GLM4_MOE_LITE = Latent(
    "Glm4MoeLiteConfig", 2048, 47, 20, 10240, 154880, 768, 512, 192, 64, 256,
    experts=64, active=4, shared=1, expert_width=1536, first_dense=1,
)  # fmt: skip
MISTRAL4 = Latent(
    "Mistral4Config", 4096, 36, 32, 12288, 131072, 1024, 256, 64, 64, 128, experts=128, active=4, shared=1, expert_width=2048
)
MINICPM3 = Latent("MiniCPM3Config", 2560, 62, 40, 6400, 73448, 768, 256, 64, 32, None, tied=True)
