"""The reader of families whose layers all have softmax attention with grouped heads: one entry of facts a family.

An entry holds the defaults that the family's configuration class documents and the traits that its file does not give. Facts
are from huggingface/transformers, src/transformers/models/<family>/configuration_*.py and modeling_*.py (v4.57 and v5), or from
the repository of the model where transformers has no class.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from roofline.models.families.body import Body, Norm, norm_values
from roofline.models.families.mlps import MLPRule, dense
from roofline.models.families.windows import WindowRule, no_window
from roofline.models.fields import MAX_LAYERS, MAX_VOCAB, Fields
from roofline.models.mixers import Attention
from roofline.models.spec import DenseMLP, Layer, MoE
from roofline.problem import GroupedKV

HeadsRule = Callable[[Fields, int], int]


@dataclass(frozen=True, slots=True)
class Plain:
    """One family. Sizes are the documented defaults; ``kv_heads`` and ``head_dim`` ``None`` means derived from the others.

    ``names``: the fields' names where they are not the usual ones, the aliases after them. ``*_bias``: of the projections to
    Q, K and V, of the output, the MLP and the LM head, each a constant or a field with its default. ``norms``: norms a layer;
    ``qk_norm``: over one head or the whole width, with ``qk_norm_flag`` only where ``use_qk_norm`` says so. ``positions``:
    field, default and extra rows of a learned position table; ``shared_gate``: a gate scales the shared expert.
    """

    owner: str
    hidden: int
    layers: int
    heads: int
    inner: int | None
    vocab: int
    kv_heads: int | None = None
    head_dim: int | None = None
    tied: bool = False
    gated: bool = True
    norm: Norm = "rms"
    norms: int = 2
    qk_norm: Literal["none", "head", "width"] = "none"
    qk_norm_flag: bool = False
    qkv_bias: bool | tuple[str, bool] = False
    o_bias: bool | tuple[str, bool] = False
    mlp_bias: bool | tuple[str, bool] = False
    head_bias: bool | tuple[str, bool] = False
    sinks: bool = False
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own_head_dim: bool = True
    kv_rule: HeadsRule | None = None
    window: WindowRule = no_window
    mlp: MLPRule = dense
    positions: tuple[str, int, int] | None = None
    embedding_norm: bool = False
    shared_gate: bool = False
    tied_always: bool | None = None

    def read(self, fields: Fields) -> Body:
        """Read a file of this family."""
        hidden = fields.size(*self._names("hidden_size"), default=self.hidden)
        num_layers = fields.size(*self._names("num_hidden_layers"), default=self.layers, most=MAX_LAYERS)
        vocab = fields.size(*self._names("vocab_size"), default=self.vocab, most=MAX_VOCAB)
        q_heads, kv = self._heads(fields, hidden)
        windows = self.window(fields, num_layers)
        mlps = self.mlp(fields, self, hidden, num_layers)
        attention_vectors = self._attention_vectors(fields, hidden, q_heads, kv)
        mlp_bias = _bias(fields, self.mlp_bias)
        norm = norm_values(self.norm, hidden)
        layers = []
        for window, mlp in zip(windows, mlps, strict=True):
            attention = Attention(q_heads, kv, window, vectors=attention_vectors)
            layers.append(Layer((attention,), mlp, self.norms * norm + self._mlp_vectors(mlp, hidden, biased=mlp_bias)))
        return Body(hidden, vocab, layers, self._tied(fields), norm + self._outside(fields, hidden, vocab))

    def intermediate(self, fields: Fields, hidden: int) -> int:
        """Width of the MLP; the families of GPT-2 take four times the hidden size where it is not given."""
        names = self._names("intermediate_size")
        if self.inner is None:
            return fields.size_or(*names, derived=4 * hidden, rule="4 x hidden_size")
        return fields.size(*names, default=self.inner)

    def _names(self, name: str) -> tuple[str, ...]:
        return self.names.get(name, (name,))

    def _heads(self, fields: Fields, hidden: int) -> tuple[int, GroupedKV]:
        heads_name = self._names("num_attention_heads")
        q_heads = fields.size(*heads_name, default=self.heads)
        if self.kv_rule is not None:
            kv_heads = self.kv_rule(fields, q_heads)
        else:
            names = self._names("num_key_value_heads")
            kv_heads = fields.size_or(*names, derived=q_heads, rule="one per query head", default=self.kv_heads)
        return q_heads, grouped(fields, hidden, q_heads, kv_heads, self.head_dim, own_head_dim=self.own_head_dim)

    def _attention_vectors(self, fields: Fields, hidden: int, q_heads: int, kv: GroupedKV) -> int:
        q_width, kv_width = q_heads * kv.head_dim, kv.heads * kv.head_dim
        vectors = q_width + 2 * kv_width if _bias(fields, self.qkv_bias) else 0
        vectors += hidden if _bias(fields, self.o_bias) else 0
        vectors += q_heads if self.sinks else 0
        if self.qk_norm_flag and not fields.flag("use_qk_norm", default=False):
            return vectors
        return vectors + {"none": 0, "head": 2 * kv.head_dim, "width": q_width + kv_width}[self.qk_norm]

    def _mlp_vectors(self, mlp: DenseMLP | MoE, hidden: int, *, biased: bool) -> int:
        bias = mlp.width * (2 if mlp.gated else 1) + hidden if biased else 0
        if isinstance(mlp, DenseMLP):
            return bias
        gate = hidden if self.shared_gate and mlp.shared_width else 0
        return mlp.experts * (bias + (1 if biased else 0)) + gate  # one bias an expert in the router

    def _tied(self, fields: Fields) -> bool:
        if self.tied_always is not None:
            return self.tied_always
        return fields.flag("tie_word_embeddings", default=self.tied)

    def _outside(self, fields: Fields, hidden: int, vocab: int) -> int:
        bias = (vocab if _bias(fields, self.head_bias) else 0) + (norm_values(self.norm, hidden) if self.embedding_norm else 0)
        if self.positions is None:
            return bias
        name, default, extra = self.positions
        return bias + (fields.size(name, default=default, most=2**24) + extra) * hidden


def grouped(
    fields: Fields,
    hidden: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int | None,
    *,
    own_head_dim: bool = True,
    names: tuple[str, ...] = ("head_dim",),
) -> GroupedKV:
    """Grouped K and V, from the file's ``head_dim`` or from the hidden size, which the heads then have to divide."""
    if q_heads % kv_heads:
        raise fields.error(f"{kv_heads} key/value heads do not divide the {q_heads} attention heads")
    given = own_head_dim and any(fields.has(name) for name in names) and not fields.is_null(*names)
    if head_dim is None and not given and hidden % q_heads:
        raise fields.error(f"{q_heads} attention heads do not divide the hidden size {hidden}, and there is no head_dim")
    if own_head_dim:
        rule = "hidden size / attention heads"
        width = fields.size_or(*names, derived=max(hidden // q_heads, 1), rule=rule, default=head_dim)
    else:
        width = fields.infer("head_dim", hidden // q_heads, "hidden size / attention heads")
    return GroupedKV(kv_heads, width, width)


def _bias(fields: Fields, rule: bool | tuple[str, bool]) -> bool:
    return rule if isinstance(rule, bool) else fields.flag(rule[0], default=rule[1])
