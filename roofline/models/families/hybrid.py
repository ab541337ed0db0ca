"""Hybrids: attention and Mamba layers in Jamba, Bamba, Granite 4, Falcon-H1 and Nemotron-H, linear attention in MiniMax."""

from roofline.models.families.body import Body
from roofline.models.families.mlps import MLP, moe
from roofline.models.families.plain import grouped
from roofline.models.families.statespace import mamba1, mamba2, mamba2_by_prefix
from roofline.models.fields import MAX_EXPERTS, MAX_LAYERS, MAX_TOKENS, MAX_VOCAB, Fields
from roofline.models.mixers import Attention, LinearAttention, Mixer
from roofline.models.spec import DenseMLP, Layer, MoE

MAMBA_OR_ATTENTION = {"mamba": False, "attention": True, "linear_attention": False, "full_attention": True}


def jamba(fields: Fields) -> Body:
    """Jamba: attention in one layer of eight, experts in every second."""
    hidden = fields.size("hidden_size", default=4096)
    num_layers = fields.size("num_hidden_layers", default=32, most=MAX_LAYERS)
    attention = _attention(fields, hidden, heads=32, kv_heads=8, window_name="sliding_window")
    state_space = mamba1(fields, hidden, norms=True)
    width = fields.size("intermediate_size", default=14336)
    experts = fields.size("num_experts", default=16, most=MAX_EXPERTS)
    active = fields.size("num_experts_per_tok", default=2, most=MAX_EXPERTS)
    dense = DenseMLP(width)
    routed: MLP = moe(fields, experts, active, width) if experts > 1 else dense
    attends = _every(fields, "attn_layer", 8, 4, num_layers)
    sparse = _every(fields, "expert_layer", 2, 1, num_layers)
    layers = [
        Layer((attention if attends[layer] else state_space,), routed if sparse[layer] else dense, 2 * hidden)
        for layer in range(num_layers)
    ]
    vocab = fields.size("vocab_size", default=65536, most=MAX_VOCAB)
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=False), hidden)


def bamba(fields: Fields) -> Body:
    """Bamba: Mamba-2, with attention in the layers that ``attn_layer_indices`` names."""
    hidden = fields.size("hidden_size", default=4096)
    num_layers = fields.size("num_hidden_layers", default=32, most=MAX_LAYERS)
    attends = fields.indices("attn_layer_indices", num_layers)
    if attends is None:
        attends = fields.infer("attn_layer_indices", frozenset(), f"default of {fields.owner}: no attention layer")
    attention = _attention(fields, hidden, heads=32, kv_heads=8, own_head_dim=True)
    state_space = mamba2_by_prefix(fields, hidden, heads=128, groups=1, state=256)
    mlp = DenseMLP(fields.size("intermediate_size", default=14336))
    layers = [Layer((attention if layer in attends else state_space,), mlp, 2 * hidden) for layer in range(num_layers)]
    vocab = fields.size("vocab_size", default=128000, most=MAX_VOCAB)
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=False), hidden)


def granite_hybrid(fields: Fields) -> Body:
    """Granite 4: ``layer_types`` names Mamba-2 and attention layers; experts, if any, beside a shared MLP."""
    hidden = fields.size("hidden_size", default=4096)
    num_layers = fields.size("num_hidden_layers", default=32, most=MAX_LAYERS)
    attends = fields.kinds("layer_types", num_layers, MAMBA_OR_ATTENTION)
    if attends is None:
        attends = fields.kinds("layers_block_type", num_layers, MAMBA_OR_ATTENTION)
    if attends is None:
        attends = fields.infer("layer_types", (False,) * num_layers, f"default of {fields.owner}: Mamba in every layer")
    attention = _attention(fields, hidden, heads=32, kv_heads=None, bias="attention_bias") if any(attends) else None
    state_space = mamba2_by_prefix(fields, hidden, heads=128, groups=1, state=256) if not all(attends) else None
    experts = fields.size("num_local_experts", default=8, least=0, most=MAX_EXPERTS)
    shared = fields.size("shared_intermediate_size", default=1024)
    mlp: MLP = DenseMLP(shared)
    if experts:
        active = fields.size("num_experts_per_tok", default=2, most=MAX_EXPERTS)
        mlp = moe(fields, experts, active, fields.size("intermediate_size", default=11008), shared_width=shared)
    layers = [Layer((_one(attention if here else state_space),), mlp, 2 * hidden) for here in attends]
    vocab = fields.size("vocab_size", default=32000, most=MAX_VOCAB)
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=False), hidden)


def falcon_h1(fields: Fields) -> Body:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    hidden = fields.size("hidden_size", default=4096)
    num_layers = fields.size("num_hidden_layers", default=32, most=MAX_LAYERS)
    attention = _attention(fields, hidden, heads=32, kv_heads=8, own_head_dim=True)
    norm = fields.flag("mamba_rms_norm", default=False)
    state_space = mamba2_by_prefix(fields, hidden, heads=128, groups=1, state=256, norm=norm)
    mlp = DenseMLP(fields.size("intermediate_size", default=14336))
    vocab = fields.size("vocab_size", default=128000, most=MAX_VOCAB)
    layers = [Layer((attention, state_space), mlp, 2 * hidden)] * num_layers
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=False), hidden)


NEMOTRON_PATTERN = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
NEMOTRON_KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
NEMOTRON_NAMES = {
    "mamba": "mamba",
    "attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
    "linear_attention": "mamba",
    "full_attention": "attention",
}


def nemotron_h(fields: Fields) -> Body:
    """Nemotron-H: each layer is one of Mamba-2 (M), attention (*), MLP (-) and experts (E), in ``hybrid_override_pattern``."""
    hidden = fields.size("hidden_size", default=4096)
    kinds = _nemotron_kinds(fields)
    needed = set(kinds)
    norm = hidden
    built: dict[str, Layer] = {}
    if "attention" in needed:
        window_name = "sliding_window"
        mixer = _attention(fields, hidden, 32, 8, head_dim=128, bias="attention_bias", window_name=window_name)
        built["attention"] = Layer((mixer,), None, norm)
    if "mamba" in needed:
        heads, width = fields.size("mamba_num_heads", default=128), fields.size("mamba_head_dim", default=64)
        groups = fields.size("n_groups", "mamba_n_groups", default=8)
        state = fields.size("ssm_state_size", default=128)
        kernel = fields.size("conv_kernel", "mamba_d_conv", default=4, most=1024)
        conv_bias = fields.flag("use_conv_bias", "mamba_conv_bias", default=True)
        proj_bias = fields.flag("mamba_proj_bias", default=False)
        state_space = mamba2(
            fields, hidden, heads * width, heads, groups, state, kernel, conv_bias=conv_bias, proj_bias=proj_bias
        )
        built["mamba"] = Layer((state_space,), None, norm)
    if "mlp" in needed:
        built["mlp"] = Layer((), DenseMLP(fields.size("intermediate_size", default=21504), gated=False), norm)
    if "moe" in needed:
        built["moe"] = Layer((), _nemotron_moe(fields), norm)
    vocab = fields.size("vocab_size", default=131072, most=MAX_VOCAB)
    return Body(hidden, vocab, [built[kind] for kind in kinds], fields.flag("tie_word_embeddings", default=False), hidden)


def _nemotron_moe(fields: Fields) -> MoE:
    experts = fields.size("n_routed_experts", default=8, most=MAX_EXPERTS)
    active = fields.size("num_experts_per_tok", default=2, most=MAX_EXPERTS)
    width = fields.size("moe_intermediate_size", default=7688)
    shared = fields.size("n_shared_experts", default=1, least=0, most=1024)
    shared *= fields.size("moe_shared_expert_intermediate_size", default=7688)
    routed = moe(fields, experts, active, width, gated=False, shared_width=shared)
    latent = fields.optional_size("moe_latent_size", default=None)
    return MoE(routed.experts, routed.active, routed.width, False, routed.shared_width, latent)


def _nemotron_kinds(fields: Fields) -> tuple[str, ...]:
    listed = fields.data.get("layers_block_type")
    kinds: tuple[str, ...] | None = None
    if isinstance(listed, list) and 0 < len(listed) <= MAX_LAYERS:
        kinds = fields.kinds("layers_block_type", len(listed), NEMOTRON_NAMES)
    if kinds is None or fields.has("hybrid_override_pattern"):
        pattern = fields.text("hybrid_override_pattern", NEMOTRON_PATTERN)
        if not 0 < len(pattern) <= MAX_LAYERS or set(pattern) - set(NEMOTRON_KINDS):
            raise fields.error(f"hybrid_override_pattern: expected letters of {''.join(NEMOTRON_KINDS)}, got {pattern[:40]!r}")
        spelt = tuple(NEMOTRON_KINDS[letter] for letter in pattern)
        if kinds is not None and kinds != spelt:
            raise fields.error("layers_block_type and hybrid_override_pattern name different layers")
        kinds = spelt
    if fields.has("num_hidden_layers"):
        count = fields.size("num_hidden_layers", default=len(kinds), most=MAX_LAYERS)
        if count != len(kinds):
            raise fields.error(f"num_hidden_layers is {count}, but the pattern of layers has {len(kinds)}")
    return kinds


def minimax(fields: Fields) -> Body:
    """MiniMax: lightning (linear) attention, with softmax attention in the layers that the list of kinds names."""
    hidden = fields.size("hidden_size", default=4096)
    num_layers = fields.size("num_hidden_layers", default=32, most=MAX_LAYERS)
    softmax = fields.kinds("layer_types", num_layers, {"full_attention": True, "linear_attention": False})
    codes = fields.numbers("attn_type_list", num_layers, most=1)  # MiniMax's own format: 1 softmax, 0 linear
    if softmax is None and codes is not None:
        softmax = tuple(code == 1 for code in codes)
    elif softmax is None:
        softmax = tuple(layer % 2 == 0 for layer in range(num_layers))
        fields.infer("layer_types", "softmax and linear in turn", f"default of {fields.owner}")
    attention = _attention(fields, hidden, heads=32, kv_heads=8, own_head_dim=True, window_name="sliding_window")
    heads, width = attention.q_heads, attention.kv.head_dim
    linear = LinearAttention("lightning", heads, heads, width, width, vectors=heads * width)
    experts = fields.size("num_local_experts", default=8, most=MAX_EXPERTS)
    active = fields.size("num_experts_per_tok", default=2, most=MAX_EXPERTS)
    shared = fields.size("shared_intermediate_size", default=0, least=0) if fields.has("shared_intermediate_size") else 0
    routed = moe(fields, experts, active, fields.size("intermediate_size", default=14336), shared_width=shared)
    layers = [Layer((attention if is_softmax else linear,), routed, 2 * hidden) for is_softmax in softmax]
    vocab = fields.size("vocab_size", default=32000, most=MAX_VOCAB)
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=False), hidden)


def _attention(
    fields: Fields,
    hidden: int,
    heads: int,
    kv_heads: int | None,
    *,
    head_dim: int | None = None,
    own_head_dim: bool | None = None,
    bias: str | None = None,
    window_name: str | None = None,
) -> Attention:
    """Grouped attention; a family reads ``head_dim`` where it has a default for it, or says so."""
    q_heads = fields.size("num_attention_heads", default=heads)
    kv = fields.size_or("num_key_value_heads", derived=q_heads, rule="one per query head", default=kv_heads)
    own = head_dim is not None if own_head_dim is None else own_head_dim
    shape = grouped(fields, hidden, q_heads, kv, head_dim, own_head_dim=own, names=("head_dim", "attention_head_dim"))
    window = fields.optional_size(window_name, most=MAX_TOKENS) if window_name and fields.has(window_name) else None
    has_bias = bias is not None and fields.flag(bias, default=False)
    vectors = (q_heads + 2 * kv) * shape.head_dim + hidden if has_bias else 0
    return Attention(q_heads, shape, window, vectors=vectors)


def _every(fields: Fields, name: str, period: int, offset: int, layers: int) -> list[bool]:
    """One layer in ``<name>_period``, the one at ``<name>_offset``."""
    each = fields.size(f"{name}_period", default=period, most=MAX_LAYERS)
    first = fields.size(f"{name}_offset", default=offset, least=0, most=MAX_LAYERS)
    if first >= each:
        raise fields.error(f"{name}_offset {first} is not below {name}_period {each}")
    return [layer % each == first for layer in range(layers)]


def _one(mixer: Mixer | None) -> Mixer:
    assert mixer is not None
    return mixer
