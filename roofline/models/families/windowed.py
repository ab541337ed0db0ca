"""Families whose layers differ by more than a window: Llama 4 (chunks), Gemma 3n (shared KV), Qwen3-Next and 3.5 (hybrid)."""

from dataclasses import dataclass

from roofline.models.families.body import Body
from roofline.models.families.mlps import MLP, moe, qwen_mlps
from roofline.models.families.plain import grouped
from roofline.models.families.windows import periodic
from roofline.models.fields import MAX_EXPERTS, MAX_LAYERS, MAX_TOKENS, MAX_VOCAB, Fields
from roofline.models.mixers import Attention, LinearAttention, Mixer
from roofline.models.spec import DenseMLP, Layer
from roofline.models.weights import Weight


def llama4(fields: Fields) -> Body:
    """Llama 4: chunked attention in the layers with RoPE, full attention in every fourth; experts in every n-th layer."""
    hidden = fields.size("hidden_size", default=5120)
    num_layers = fields.size("num_hidden_layers", default=48, most=MAX_LAYERS)
    heads = fields.size("num_attention_heads", default=40)
    kv_heads = fields.size_or("num_key_value_heads", derived=heads, rule="one per query head", default=8)
    kv = grouped(fields, hidden, heads, kv_heads, 128)
    chunked = _llama4_chunked(fields, num_layers)
    chunk = fields.optional_size("attention_chunk_size", default=8192, most=MAX_TOKENS) if any(chunked) else None
    if any(chunked) and chunk is None:
        raise fields.error("some layers have chunked attention, but attention_chunk_size gives no chunk")
    step = fields.size("interleave_moe_layer_step", default=1, most=MAX_LAYERS)
    sparse = fields.indices("moe_layers", num_layers)
    if sparse is None:
        sparse = frozenset(range(step - 1, num_layers, step))
    width = fields.size("intermediate_size", default=8192)
    experts = fields.size("num_local_experts", default=16, most=MAX_EXPERTS)
    active = fields.size("num_experts_per_tok", default=1, most=MAX_EXPERTS)
    routed = moe(fields, experts, active, width, shared_width=width)
    dense = DenseMLP(fields.size("intermediate_size_mlp", default=16384)) if len(sparse) < num_layers else None
    layers = []
    for layer in range(num_layers):
        attention = Attention(heads, kv, chunk=chunk if chunked[layer] else None)
        layers.append(Layer((attention,), routed if layer in sparse else dense, 2 * hidden))
    vocab = fields.size("vocab_size", default=202048, most=MAX_VOCAB)
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=False), hidden)


def _llama4_chunked(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.kinds("layer_types", layers, {"full_attention": False, "chunked_attention": True})
    if kinds is not None:
        return kinds
    if fields.data.get("no_rope_layers") not in (None, []):
        rope = fields.numbers("no_rope_layers", layers, most=1)  # 1: the layer has RoPE, whatever the name says
        assert rope is not None
        return tuple(has_rope == 1 for has_rope in rope)
    every = fields.size("no_rope_layer_interval", default=4, most=MAX_LAYERS)
    return tuple((layer + 1) % every != 0 for layer in range(layers))


def gemma3n(fields: Fields) -> Body:
    """Gemma 3n: the last ``num_kv_shared_layers`` read the cache of the last layer of their kind before them.

    Beside attention and MLP it has AltUp, LAuReL and per-layer embeddings, counted as other projections. The K and V
    projections of sharing layers, which a checkpoint may hold and no pass uses, are left out.
    """
    hidden = fields.size("hidden_size", default=2048)
    num_layers = fields.size("num_hidden_layers", default=35, most=MAX_LAYERS)
    heads = fields.size("num_attention_heads", default=8)
    kv_heads = fields.size("num_key_value_heads", default=2)
    kv = grouped(fields, hidden, heads, kv_heads, 256)
    windows = periodic(512, 5, pattern_name=None)(fields, num_layers)
    shared = fields.size("num_kv_shared_layers", default=15, least=0, most=MAX_LAYERS)
    first_shared = num_layers - shared
    if shared and first_shared < 1:
        raise fields.error(f"num_kv_shared_layers {shared} leaves none of the {num_layers} layers a cache of its own")
    if not set(windows[first_shared:]) <= set(windows[:first_shared]):
        raise fields.error(f"num_kv_shared_layers {shared}: a shared layer has no earlier layer of its kind")
    if isinstance(fields.data.get("intermediate_size"), list):
        widths = fields.numbers("intermediate_size", num_layers, least=1)
        assert widths is not None
    else:
        widths = (fields.size("intermediate_size", default=16384),) * num_layers
    inputs = fields.size("altup_num_inputs", default=4, most=64)
    rank = fields.size("laurel_rank", default=64)
    low = fields.size("hidden_size_per_layer_input", default=256)
    pair = 2 * hidden
    extra = (
        Weight("other projections", hidden, rank, hidden),
        Weight("other projections", rank, hidden, hidden),
        Weight("other projections", hidden, low, hidden + low),
        Weight("other projections", low, hidden, hidden + low),
        Weight("other projections", hidden, inputs, hidden + inputs),
        Weight("other projections", inputs, inputs * (inputs + 1), 0),
    )
    layers = []
    for layer, (window, width) in enumerate(zip(windows, widths, strict=True)):
        shares = layer >= first_shared
        norms = kv.head_dim * (1 if shares else 2)  # over q, and over k where there is one
        attention = Attention(heads, kv, window, shared_kv=shares, vectors=norms)
        layers.append(Layer((attention,), DenseMLP(width), 8 * hidden, extra))
    outside = (
        Weight("other projections", hidden, num_layers * low, hidden + num_layers * low),
        Weight("other projections", hidden, 2 * (inputs - 1) * hidden, (inputs - 1) * pair),
    )
    vocab = fields.size("vocab_size", default=262400, most=MAX_VOCAB)
    table = fields.size("vocab_size_per_layer_input", default=262144, most=MAX_VOCAB) * num_layers * low
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=True), hidden + low, outside, table)


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """Qwen3-Next and Qwen 3.5: gated delta-net layers, with gated softmax attention in every fourth."""

    owner: str
    hidden: int
    layers: int
    kv_heads: int
    vocab: int
    inner: int
    experts: int
    active: int
    expert_width: int
    switch: bool = True  # whether decoder_sparse_step and mlp_only_layers exist

    def read(self, fields: Fields) -> Body:
        """Read a file of this family."""
        hidden = fields.size("hidden_size", default=self.hidden)
        num_layers = fields.size("num_hidden_layers", default=self.layers, most=MAX_LAYERS)
        linear = fields.kinds("layer_types", num_layers, {"full_attention": False, "linear_attention": True})
        if linear is None:
            every = fields.size("full_attention_interval", default=4, most=MAX_LAYERS)
            linear = tuple((layer + 1) % every != 0 for layer in range(num_layers))
        attention = self._attention(fields, hidden) if not all(linear) else None
        delta = self._delta(fields) if any(linear) else None
        layers = []
        for is_linear, mlp in zip(linear, self._mlps(fields, num_layers), strict=True):
            mixer: Mixer | None = delta if is_linear else attention
            assert mixer is not None
            # the gate that scales the shared expert is one more value a hidden channel
            layers.append(Layer((mixer,), mlp, 2 * hidden + (hidden if getattr(mlp, "shared_width", 0) else 0)))
        vocab = fields.size("vocab_size", default=self.vocab, most=MAX_VOCAB)
        return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=False), hidden)

    def _attention(self, fields: Fields, hidden: int) -> Attention:
        heads = fields.size("num_attention_heads", default=16)
        kv_heads = fields.size("num_key_value_heads", default=self.kv_heads)
        kv = grouped(fields, hidden, heads, kv_heads, 256)
        return Attention(heads, kv, output_gate=True, vectors=2 * kv.head_dim)

    def _delta(self, fields: Fields) -> LinearAttention:
        k_heads, v_heads = fields.size("linear_num_key_heads", default=16), fields.size("linear_num_value_heads", default=32)
        k_dim, v_dim = fields.size("linear_key_head_dim", default=128), fields.size("linear_value_head_dim", default=128)
        kernel = fields.size("linear_conv_kernel_dim", default=4, most=1024)
        if v_heads % k_heads:
            raise fields.error(f"linear_num_key_heads {k_heads} does not divide linear_num_value_heads {v_heads}")
        convolution = kernel * (2 * k_heads * k_dim + v_heads * v_dim)
        vectors = convolution + 2 * v_heads + v_dim
        return LinearAttention("gated-delta", k_heads, v_heads, k_dim, v_dim, kernel, vectors)

    def _mlps(self, fields: Fields, layers: int) -> list[MLP]:
        if self.experts == 0:
            return [DenseMLP(fields.size("intermediate_size", default=self.inner))] * layers
        if self.switch:
            return qwen_mlps(
                fields, layers, self.experts, self.active, self.expert_width, self.expert_width,
                lambda: fields.size("intermediate_size", default=self.inner),
            )  # fmt: skip
        experts = fields.size("num_experts", default=self.experts, most=MAX_EXPERTS)
        active = fields.size("num_experts_per_tok", default=self.active, most=MAX_EXPERTS)
        width = fields.size("moe_intermediate_size", default=self.expert_width)
        shared = fields.size("shared_expert_intermediate_size", default=self.expert_width, least=0)
        return [moe(fields, experts, active, width, shared_width=shared)] * layers


QWEN3_NEXT = GatedDelta("Qwen3NextConfig", 2048, 48, 2, 151936, 5632, 512, 10, 512)
QWEN3_5 = GatedDelta("Qwen3_5TextConfig", 4096, 32, 4, 248320, 12288, 0, 0, 0)
QWEN3_5_MOE = GatedDelta("Qwen3_5MoeTextConfig", 2048, 40, 2, 248320, 0, 256, 8, 512, switch=False)
