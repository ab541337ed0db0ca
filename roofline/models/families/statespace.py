"""Mamba layers as the families' files describe them, and the models made of nothing else."""

from roofline.models.families.body import Body
from roofline.models.fields import MAX_LAYERS, MAX_VOCAB, Fields
from roofline.models.mixers import StateSpace
from roofline.models.spec import Layer


def mamba1(
    fields: Fields, hidden: int, *, prefix: str = "mamba_", state: int = 16, bias_default: bool = False, norms: bool = False
) -> StateSpace:
    """A Mamba-1 layer; ``norms``: Jamba's over dt, B and C."""
    names = ("mamba_d_state", "mamba_expand", "mamba_d_conv", "mamba_dt_rank") if prefix else _OWN_NAMES
    inner = hidden * fields.size(names[1], default=2, most=64)
    if not prefix:  # Falcon Mamba gives expand 16 and an intermediate_size of twice the hidden size, which holds
        inner = fields.size_or("intermediate_size", derived=inner, rule="expand x hidden_size")
    width = fields.size(names[0], default=state)
    kernel = fields.size(names[2], default=4, most=1024)
    rank = -(-hidden // 16)
    if fields.data.get(names[3], "auto") == "auto":
        fields.infer(names[3], rank, "hidden_size / 16, rounded up")
    else:
        rank = fields.size(names[3], default=rank)
    conv_bias = fields.flag(f"{prefix}conv_bias" if prefix else "use_conv_bias", default=True)
    proj_bias = fields.flag(f"{prefix}proj_bias" if prefix else "use_bias", default=bias_default)
    vectors = kernel * inner + (inner if conv_bias else 0) + inner + inner * width + inner  # conv, dt bias, A, D
    vectors += (2 * inner + hidden if proj_bias else 0) + (rank + 2 * width if norms else 0)
    return StateSpace("mamba1", inner, width, kernel, dt_rank=rank, vectors=vectors)


_OWN_NAMES = ("state_size", "expand", "conv_kernel", "time_step_rank")


def mamba2(
    fields: Fields,
    hidden: int,
    inner: int,
    heads: int,
    groups: int,
    state: int,
    kernel: int,
    *,
    conv_bias: bool,
    proj_bias: bool,
    norm: bool = True,
) -> StateSpace:
    """A Mamba-2 layer from sizes that the family has read."""
    if inner % heads:
        raise fields.error(f"{heads} Mamba heads do not divide the inner size {inner}")
    if heads % groups:
        raise fields.error(f"{groups} Mamba groups do not divide the {heads} heads")
    convolved = inner + 2 * groups * state
    vectors = kernel * convolved + (convolved if conv_bias else 0) + 3 * heads + (inner if norm else 0)  # conv, dt, A, D, norm
    vectors += inner + convolved + heads + hidden if proj_bias else 0
    return StateSpace("mamba2", inner, state, kernel, heads, groups, vectors=vectors)


def mamba2_by_prefix(fields: Fields, hidden: int, *, heads: int, groups: int, state: int, norm: bool = True) -> StateSpace:
    """A Mamba-2 layer in the fields that Bamba, Granite 4 and Falcon-H1 share, with the family's defaults."""
    expand = fields.size("mamba_expand", default=2, most=64)
    count = fields.size("mamba_n_heads", default=heads)
    inner = expand * hidden
    if fields.has("mamba_d_ssm") or fields.owner == "FalconH1Config":
        inner = fields.size_or("mamba_d_ssm", derived=inner, rule="mamba_expand x hidden_size", default=1024)
    width = fields.data.get("mamba_d_head", "auto")
    if width != "auto" and fields.size("mamba_d_head", default=1) * count != inner:
        raise fields.error(f"mamba_n_heads {count} x mamba_d_head {fields.data['mamba_d_head']} is not the inner size {inner}")
    return mamba2(
        fields,
        hidden,
        inner,
        count,
        fields.size("mamba_n_groups", default=groups),
        fields.size("mamba_d_state", default=state),
        fields.size("mamba_d_conv", default=4, most=1024),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        proj_bias=fields.flag("mamba_proj_bias", default=False),
        norm=norm,
    )


def pure_mamba1(fields: Fields) -> Body:
    """Mamba and Falcon Mamba: nothing but Mamba-1 layers."""
    hidden = fields.size("hidden_size", default=768)
    layers = fields.size("num_hidden_layers", default=32, most=MAX_LAYERS)
    layer = Layer((mamba1(fields, hidden, prefix=""),), None, hidden)
    tied = fields.flag("tie_word_embeddings", default=True)
    return Body(hidden, fields.size("vocab_size", default=50280, most=MAX_VOCAB), [layer] * layers, tied, hidden)


def pure_mamba2(fields: Fields) -> Body:
    """Mamba-2 (and Codestral Mamba): nothing but Mamba-2 layers."""
    hidden = fields.size("hidden_size", default=4096)
    layers = fields.size("num_hidden_layers", default=64, most=MAX_LAYERS)
    inner = hidden * fields.size("expand", default=2, most=64)
    heads, width = fields.size("num_heads", default=128), fields.size("head_dim", default=64)
    if heads * width != inner:
        raise fields.error(f"num_heads {heads} x head_dim {width} is not the inner size {inner}")
    mixer = mamba2(
        fields,
        hidden,
        inner,
        heads,
        fields.size("n_groups", default=8),
        fields.size("state_size", default=128),
        fields.size("conv_kernel", default=4, most=1024),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=fields.flag("use_bias", default=False),
    )
    tied = fields.flag("tie_word_embeddings", default=False)
    vocab = fields.size("vocab_size", default=32768, most=MAX_VOCAB)
    return Body(hidden, vocab, [Layer((mixer,), None, hidden)] * layers, tied, hidden)
