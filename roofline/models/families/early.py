"""Families whose heads or layers are given in ways of their own: OPT, Falcon, MPT, ChatGLM, GPT-Neo, the first Qwen, DBRX."""

from dataclasses import replace

from roofline.models.families.body import Body, norm_values
from roofline.models.families.dense import OPT
from roofline.models.families.mlps import moe
from roofline.models.families.plain import grouped
from roofline.models.fields import MAX_EXPERTS, MAX_LAYERS, MAX_TOKENS, MAX_VOCAB, Fields, shown
from roofline.models.mixers import Attention
from roofline.models.spec import DenseMLP, Layer
from roofline.models.weights import Weight
from roofline.problem import GroupedKV


def opt(fields: Fields) -> Body:
    """OPT; the 350M model has embeddings narrower than its layers, a matrix on either side of them, and no final norm."""
    body = OPT.read(fields)
    hidden = body.hidden
    embedding = fields.size_or("word_embed_proj_dim", derived=hidden, rule="hidden_size")
    projections = (
        Weight("other projections", embedding, hidden, embedding + hidden),
        Weight("other projections", hidden, embedding, hidden + embedding),
    )
    final_norm = norm_values("layer", hidden) if not fields.flag("do_layer_norm_before", default=True) else 0
    narrow = embedding != hidden
    return replace(body, embedding=embedding, extra=projections if narrow else (), vectors=body.vectors - final_norm)


def falcon(fields: Fields) -> Body:
    """Falcon: one KV head where ``multi_query`` holds and the architecture is the old one, else ``num_kv_heads``."""
    hidden = fields.size("hidden_size", "n_embed", default=4544)
    num_layers = fields.size("num_hidden_layers", "n_layer", default=32, most=MAX_LAYERS)
    heads = fields.size("num_attention_heads", "n_head", default=71)
    if fields.has("n_head_kv") and not fields.has("new_decoder_architecture"):
        new = fields.infer("new_decoder_architecture", True, "n_head_kv is given, as in the first format of Falcon-40B")
    else:
        new = fields.flag("new_decoder_architecture", default=False)
    multi_query = fields.flag("multi_query", default=True)
    if new or not multi_query:
        given = fields.size_or("num_kv_heads", "n_head_kv", derived=heads, rule="one per query head")
        kv_heads = given if new else heads
    else:
        kv_heads = 1
    kv = grouped(fields, hidden, heads, kv_heads, None, own_head_dim=False)
    inner = fields.size_or("ffn_hidden_size", derived=4 * hidden, rule="4 x hidden_size")
    bias = fields.flag("bias", default=False)
    norms = 1 if fields.flag("parallel_attn", default=True) else 2
    if new:
        norms = fields.size_or(
            "num_ln_in_parallel_attn", derived=2, rule="one each of attention and MLP in the new architecture"
        )
    vectors = heads * kv.head_dim + 2 * kv_heads * kv.head_dim + hidden if bias else 0
    mlp_vectors = inner + hidden if bias else 0
    layer = Layer(
        (Attention(heads, kv, vectors=vectors),),
        DenseMLP(inner, gated=False),
        norms * norm_values("layer", hidden) + mlp_vectors,
    )
    vocab = fields.size("vocab_size", default=65024, most=MAX_VOCAB)
    tied = fields.flag("tie_word_embeddings", default=True)
    return Body(hidden, vocab, [layer] * num_layers, tied, norm_values("layer", hidden))


def mpt(fields: Fields) -> Body:
    """MPT: ``attn_config`` says how many KV heads; the MLP is ``expansion_ratio`` times as wide as the model."""
    hidden = fields.size("d_model", "hidden_size", default=2048)
    num_layers = fields.size("n_layers", "num_hidden_layers", default=24, most=MAX_LAYERS)
    heads = fields.size("n_heads", "num_attention_heads", default=16)
    attention = fields.child("attn_config", "MptAttentionConfig")
    kinds = {"multihead_attention": heads, "multiquery_attention": 1, "grouped_query_attention": None}
    kind = attention.text("attn_type", "multihead_attention")
    if kind not in kinds:
        raise attention.error(f"attn_type: unknown kind {kind[:40]!r}; expected one of {', '.join(kinds)}")
    kv_heads = kinds[kind]
    if kv_heads is None:
        kv_heads = attention.size("kv_n_heads", default=heads)
    if attention.data.get("prefix_lm") not in (None, False):
        raise attention.error("prefix_lm: attention in both directions inside a prefix is not modelled")
    window = attention.data.get("sliding_window_size", -1)
    slides = window != -1 or isinstance(window, bool)
    reach = attention.size("sliding_window_size", default=1, most=MAX_TOKENS) if slides else None
    kv = grouped(fields, hidden, heads, kv_heads, None, own_head_dim=False)
    inner = hidden * fields.size("expansion_ratio", default=4, most=64)
    no_bias = fields.flag("no_bias", default=True)
    q_width, kv_width = heads * kv.head_dim, kv_heads * kv.head_dim
    vectors = 0 if no_bias else q_width + 2 * kv_width + hidden
    vectors += q_width + kv_width if attention.has("qk_ln") and attention.flag("qk_ln", default=False) else 0
    norm = hidden if no_bias else 2 * hidden
    mlp_vectors = 0 if no_bias else inner + hidden
    layer = Layer((Attention(heads, kv, reach, vectors=vectors),), DenseMLP(inner, gated=False), 2 * norm + mlp_vectors)
    vocab = fields.size("vocab_size", default=50368, most=MAX_VOCAB)
    tied = fields.flag("tie_word_embeddings", default=True)
    return Body(hidden, vocab, [layer] * num_layers, tied, norm)


def chatglm(fields: Fields) -> Body:
    """ChatGLM2, ChatGLM3 and GLM-4 in THUDM's format: ``multi_query_group_num`` KV heads of ``kv_channels`` values."""
    if fields.has("inner_hidden_size") or fields.has("position_encoding_2d"):
        raise fields.error("the first ChatGLM attends in both directions inside the prompt, which is not modelled")
    hidden = fields.size("hidden_size", default=4096)
    num_layers = fields.size("num_layers", "num_hidden_layers", default=28, most=MAX_LAYERS)
    heads = fields.size("num_attention_heads", default=32)
    width = fields.size("kv_channels", default=128)
    kv_heads = heads
    if fields.flag("multi_query_attention", default=False):
        kv_heads = fields.size("multi_query_group_num", default=1)
    if heads % kv_heads:
        raise fields.error(f"multi_query_group_num {kv_heads} does not divide num_attention_heads {heads}")
    inner = fields.size("ffn_hidden_size", default=13696)
    bias = fields.flag("add_bias_linear", default=False)
    qkv_bias = fields.flag("add_qkv_bias", default=False) or bias
    norm = norm_values("rms" if fields.flag("rmsnorm", default=True) else "layer", hidden)
    vectors = ((heads + 2 * kv_heads) * width if qkv_bias else 0) + (hidden if bias else 0)
    attention = Attention(heads, GroupedKV(kv_heads, width, width), vectors=vectors)
    layer = Layer((attention,), DenseMLP(inner), 2 * norm + (2 * inner + hidden if bias else 0))
    final = norm if fields.flag("post_layer_norm", default=True) else 0
    vocab_name = "vocab_size" if fields.has("vocab_size") and not fields.has("padded_vocab_size") else "padded_vocab_size"
    vocab = fields.size(vocab_name, default=65024, most=MAX_VOCAB)
    return Body(hidden, vocab, [layer] * num_layers, False, final)


def gpt_neo(fields: Fields) -> Body:
    """GPT-Neo: ``attention_types`` repeats a list of global and local layers; local ones see ``window_size`` tokens."""
    hidden = fields.size("hidden_size", default=2048)
    num_layers = fields.size("num_layers", "num_hidden_layers", default=24, most=MAX_LAYERS)
    heads = fields.size("num_heads", "num_attention_heads", default=16)
    kv = grouped(fields, hidden, heads, heads, None, own_head_dim=False)
    local = _gpt_neo_local(fields, num_layers)
    window = fields.size("window_size", default=256, most=MAX_TOKENS) if any(local) else None
    inner = fields.size_or("intermediate_size", derived=4 * hidden, rule="4 x hidden_size")
    mlp, vectors = DenseMLP(inner, gated=False), 2 * norm_values("layer", hidden) + inner + hidden
    layers = [Layer((Attention(heads, kv, window if is_local else None, vectors=hidden),), mlp, vectors) for is_local in local]
    positions = fields.size("max_position_embeddings", default=2048, most=MAX_VOCAB) * hidden
    vocab = fields.size("vocab_size", default=50257, most=MAX_VOCAB)
    tied = fields.flag("tie_word_embeddings", default=True)
    return Body(hidden, vocab, layers, tied, norm_values("layer", hidden) + positions)


def _gpt_neo_local(fields: Fields, layers: int) -> list[bool]:
    kinds = fields.data.get("attention_types")
    if kinds is None:
        kinds = fields.infer("attention_types", [[["global", "local"], layers // 2]], f"default of {fields.owner}")
    local: list[bool] = []
    for entry in kinds if isinstance(kinds, list) else [None]:
        names, repeats = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if not isinstance(names, list) or type(repeats) is not int or not 0 < repeats * len(names) <= MAX_LAYERS:
            raise fields.error(f"attention_types: expected [[kinds of layer], repeats] entries, got {shown(kinds)}")
        if any(name not in ("global", "local") for name in names):
            raise fields.error(f"attention_types: expected global and local, got {shown(names)}")
        local += [name == "local" for name in names] * repeats
    if len(local) != layers:
        raise fields.error(f"attention_types: expected {layers} layers, got {len(local)}")
    return local


def qwen(fields: Fields) -> Body:
    """The first Qwen: one KV head a query head, ``kv_channels`` wide, and an MLP of half ``intermediate_size``."""
    hidden = fields.size("hidden_size", default=4096)
    num_layers = fields.size("num_hidden_layers", default=32, most=MAX_LAYERS)
    heads = fields.size("num_attention_heads", default=32)
    width = fields.size("kv_channels", default=128)
    inner = fields.size("intermediate_size", default=22016)
    if inner % 2:
        raise fields.error(f"intermediate_size: Qwen splits it in two halves, and {inner} is odd")
    attention = Attention(heads, GroupedKV(heads, width, width), vectors=3 * heads * width)
    layer = Layer((attention,), DenseMLP(inner // 2), 2 * hidden)
    vocab = fields.size("vocab_size", default=151936, most=MAX_VOCAB)
    return Body(hidden, vocab, [layer] * num_layers, fields.flag("tie_word_embeddings", default=False), hidden)


def dbrx(fields: Fields) -> Body:
    """DBRX: KV heads in ``attn_config``, experts in ``ffn_config``."""
    hidden = fields.size("d_model", "hidden_size", default=2048)
    num_layers = fields.size("n_layers", "num_hidden_layers", default=24, most=MAX_LAYERS)
    heads = fields.size("n_heads", "num_attention_heads", default=16)
    attention, ffn = fields.child("attn_config", "DbrxAttentionConfig"), fields.child("ffn_config", "DbrxFFNConfig")
    kv = grouped(fields, hidden, heads, attention.size("kv_n_heads", default=1), None, own_head_dim=False)
    routed = moe(
        ffn,
        ffn.size("moe_num_experts", default=4, most=MAX_EXPERTS),
        ffn.size("moe_top_k", default=1, most=MAX_EXPERTS),
        ffn.size("ffn_hidden_size", default=3584),
    )
    layer = Layer((Attention(heads, kv),), routed, 2 * hidden)  # LayerNorm without bias
    if fields.flag("tie_word_embeddings", default=False):
        raise fields.error("tie_word_embeddings: DBRX has an LM head of its own")
    return Body(hidden, fields.size("vocab_size", default=32000, most=MAX_VOCAB), [layer] * num_layers, False, hidden)
