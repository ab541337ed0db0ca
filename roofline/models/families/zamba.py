"""Zamba2: Mamba-2 layers, some of them behind a transformer block whose weights several layers share.

A hybrid layer runs one of ``num_mem_blocks`` shared blocks (attention over the hidden state beside the embedding, twice as
wide as the model, then an MLP), a projection of its own, and its Mamba-2 layer (arXiv:2411.15242, section 2).
"""

from roofline.models.families.body import Body
from roofline.models.families.statespace import mamba2
from roofline.models.fields import MAX_LAYERS, MAX_VOCAB, Fields
from roofline.models.mixers import Attention
from roofline.models.spec import DenseMLP, Layer
from roofline.models.weights import Weight
from roofline.problem import GroupedKV

KINDS = {"mamba": False, "linear_attention": False, "hybrid": True}
DEFAULT_HYBRID_LAYERS = frozenset({6, 12, 18, 24, 30, 36, 42, 47, 51})
DEFAULT_LAYERS = 54


def zamba2(fields: Fields) -> Body:
    """Read Zamba2; each shared block's weights count once."""
    hidden = fields.size("hidden_size", default=2560)
    num_layers = fields.size("num_hidden_layers", default=DEFAULT_LAYERS, most=MAX_LAYERS)
    hybrid = fields.kinds("layers_block_type", num_layers, KINDS)
    if hybrid is None:
        if num_layers != DEFAULT_LAYERS:
            raise fields.error(f"layers_block_type: missing, and its default is for {DEFAULT_LAYERS} layers, not {num_layers}")
        default = tuple(layer in DEFAULT_HYBRID_LAYERS for layer in range(num_layers))
        hybrid = fields.infer("layers_block_type", default, f"default of {fields.owner}")
    blocks = fields.size("num_mem_blocks", default=1, most=MAX_LAYERS)
    heads = fields.size("num_attention_heads", default=32)
    kv_heads = fields.size_or("num_key_value_heads", derived=heads, rule="one per query head")
    if 2 * hidden % heads or heads % kv_heads:
        raise fields.error(f"{heads} attention heads and {kv_heads} KV heads do not divide twice the hidden size, {2 * hidden}")
    width = fields.infer("attention_head_dim", 2 * hidden // heads, "2 x hidden_size / num_attention_heads")
    if fields.has("attention_head_dim") and fields.size("attention_head_dim", default=width) != width:
        raise fields.error(f"attention_head_dim: expected 2 x hidden_size / num_attention_heads = {width}")
    kv = GroupedKV(kv_heads, width, width)
    inner = fields.size_or("intermediate_size", derived=4 * hidden, rule="4 x hidden_size")
    mamba_width = hidden * fields.size("mamba_expand", default=2, most=64)
    state_space = mamba2(
        fields,
        hidden,
        mamba_width,
        _mamba_heads(fields, mamba_width),
        fields.size("mamba_ngroups", default=1),
        fields.size("mamba_d_state", default=64),
        fields.size("mamba_d_conv", default=4, most=1024),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=fields.flag("add_bias_linear", default=False),
    )
    extra = _adapters(fields, hidden, inner)
    layers, seen = [], 0
    for is_hybrid in hybrid:
        if not is_hybrid:
            layers.append(Layer((state_space,), None, hidden))
            continue
        tied = seen >= blocks
        seen += 1
        attention = Attention(heads, kv, tied=tied, input_width=2 * hidden)
        shared_norms = 0 if tied else 3 * hidden
        layers.append(Layer((attention, state_space), DenseMLP(inner, tied=tied), hidden + shared_norms, extra))
    vocab = fields.size("vocab_size", default=32000, most=MAX_VOCAB)
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=True), hidden)


def _mamba_heads(fields: Fields, inner: int) -> int:
    """``n_mamba_heads``, or as many as ``mamba_headdim`` leaves, which early files give in its place."""
    if not fields.has("mamba_headdim"):
        return fields.size("n_mamba_heads", default=8)
    width = fields.size("mamba_headdim", default=64)
    if fields.has("n_mamba_heads") or inner % width:
        heads = fields.size("n_mamba_heads", default=8)
        if heads * width != inner:
            raise fields.error(f"n_mamba_heads {heads} x mamba_headdim {width} is not the inner size {inner}")
        return heads
    return fields.infer("n_mamba_heads", inner // width, "mamba_expand x hidden_size / mamba_headdim")


def _adapters(fields: Fields, hidden: int, inner: int) -> tuple[Weight, ...]:
    """What a hybrid layer has of its own: the projection behind the block, and low-rank adapters of its MLP and attention."""
    rank = fields.size("adapter_rank", default=128)
    extra = [
        Weight("other projections", hidden, hidden, 2 * hidden),
        Weight("other projections", hidden, rank, hidden),
        Weight("other projections", rank, 2 * inner, 2 * inner),
    ]
    if fields.flag("use_shared_attention_adapter", default=False):
        wide = 2 * hidden
        for _ in ("q", "k", "v"):
            extra += [Weight("other projections", wide, rank, wide), Weight("other projections", rank, wide, wide)]
    return tuple(extra)
