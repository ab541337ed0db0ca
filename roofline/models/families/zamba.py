"""Zamba and Zamba2: Mamba layers, some of them behind a transformer block whose weights several layers share.

A hybrid layer runs a shared block (attention over the hidden state beside the embedding, twice as wide as the model, then an
MLP), a projection of its own, and its Mamba layer. Zamba (arXiv:2405.16712) has one block and Mamba-1, Zamba2
(arXiv:2411.15242, section 2) ``num_mem_blocks`` blocks, Mamba-2, and low-rank adapters that each hybrid layer has of its own.
"""

from dataclasses import replace

from roofline.models.families.body import Body
from roofline.models.families.statespace import mamba1, mamba2
from roofline.models.fields import MAX_LAYERS, MAX_VOCAB, Fields
from roofline.models.mixers import Attention, StateSpace
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
        listed = fields.indices("hybrid_layer_ids", num_layers)
        hybrid = None if listed is None else tuple(layer in listed for layer in range(num_layers))
    if hybrid is None:
        if num_layers != DEFAULT_LAYERS:
            raise fields.error(f"layers_block_type: missing, and its default is for {DEFAULT_LAYERS} layers, not {num_layers}")
        default = tuple(layer in DEFAULT_HYBRID_LAYERS for layer in range(num_layers))
        hybrid = fields.infer("layers_block_type", default, f"default of {fields.owner}")
    blocks = fields.size("num_mem_blocks", default=1, most=MAX_LAYERS)
    block = _attention(fields, hidden, heads=32, kv_heads=None)
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
    layers = _stack(hidden, hybrid, blocks, block, state_space, DenseMLP(inner), extra)
    vocab = fields.size("vocab_size", default=32000, most=MAX_VOCAB)
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=True), hidden)


def zamba(fields: Fields) -> Body:
    """Read the first Zamba: hybrid layers by period and offset, counted from the fourth layer on."""
    hidden = fields.size("hidden_size", default=3712)
    num_layers = fields.size("num_hidden_layers", default=76, most=MAX_LAYERS)
    period = fields.size("attn_layer_period", default=6, most=MAX_LAYERS)
    offset = fields.size("attn_layer_offset", default=4, least=0, most=MAX_LAYERS)
    hybrid = tuple(layer == 2 or (layer > 2 and (layer - 3) % period == offset) for layer in range(num_layers))
    block = _attention(fields, hidden, heads=16, kv_heads=16)
    mlp = DenseMLP(fields.size("intermediate_size", default=14848))
    projection = (Weight("other projections", hidden, hidden, 2 * hidden),)
    layers = _stack(hidden, hybrid, 1, block, mamba1(fields, hidden), mlp, projection)
    vocab = fields.size("vocab_size", default=32000, most=MAX_VOCAB)
    return Body(hidden, vocab, layers, fields.flag("tie_word_embeddings", default=True), hidden)


def _attention(fields: Fields, hidden: int, heads: int, kv_heads: int | None) -> Attention:
    """The attention of a shared block, over twice the hidden size."""
    q_heads = fields.size("num_attention_heads", default=heads)
    kv = fields.size_or("num_key_value_heads", derived=q_heads, rule="one per query head", default=kv_heads)
    if 2 * hidden % q_heads or q_heads % kv:
        raise fields.error(f"{q_heads} attention heads and {kv} KV heads do not divide twice the hidden size, {2 * hidden}")
    rule = "2 x hidden_size / num_attention_heads"
    width = fields.size_or("attention_head_dim", derived=2 * hidden // q_heads, rule=rule)
    if width * q_heads != 2 * hidden:
        raise fields.error(f"attention_head_dim {width}: expected {rule} = {2 * hidden // q_heads}")
    return Attention(q_heads, GroupedKV(kv, width, width), input_width=2 * hidden)


def _stack(
    hidden: int,
    hybrid: tuple[bool, ...],
    blocks: int,
    attention: Attention,
    state_space: StateSpace,
    mlp: DenseMLP,
    extra: tuple[Weight, ...],
) -> list[Layer]:
    """The layers; the first ``blocks`` hybrid ones own the weights that all hybrid ones run in turn."""
    layers, seen = [], 0
    for is_hybrid in hybrid:
        if not is_hybrid:
            layers.append(Layer((state_space,), None, hidden))
            continue
        tied = seen >= blocks
        seen += 1
        norms = hidden if tied else 4 * hidden
        mixers = (replace(attention, tied=tied), state_space)
        layers.append(Layer(mixers, replace(mlp, tied=tied), norms, extra))
    return layers


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
