"""Which layers have an MLP and which a mixture of experts: the rules of the families, each one value a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from roofline.models.fields import MAX_EXPERTS, MAX_LAYERS, Fields
from roofline.models.spec import DenseMLP, MoE

if TYPE_CHECKING:
    from roofline.models.families.plain import Plain

MLP = DenseMLP | MoE
MLPRule = Callable[[Fields, "Plain", int, int], list[MLP]]


def dense(fields: Fields, family: Plain, hidden: int, layers: int) -> list[MLP]:
    """The same MLP in every layer."""
    return [DenseMLP(family.intermediate(fields, hidden), family.gated)] * layers


def experts_everywhere(experts: tuple[str, int], active: tuple[str, int], *, shared: str | None = None) -> MLPRule:
    """Experts as wide as ``intermediate_size`` in every layer, with shared experts of the width in field ``shared``."""

    def rule(fields: Fields, family: Plain, hidden: int, layers: int) -> list[MLP]:
        count = fields.size(experts[0], default=experts[1], most=MAX_EXPERTS)
        chosen = fields.size(active[0], default=active[1], most=MAX_EXPERTS)
        shared_width = 0 if shared is None else fields.size(shared, default=0, least=0)
        width = family.intermediate(fields, hidden)
        return [moe(fields, count, chosen, width, gated=family.gated, shared_width=shared_width)] * layers

    return rule


def qwen_moe(experts: int, active: int, width: int, shared_width: int | None) -> MLPRule:
    """Qwen: experts in every ``decoder_sparse_step``-th layer that ``mlp_only_layers`` does not name, else a dense MLP."""

    def rule(fields: Fields, family: Plain, hidden: int, layers: int) -> list[MLP]:
        return qwen_mlps(fields, layers, experts, active, width, shared_width, lambda: family.intermediate(fields, hidden))

    return rule


def qwen_mlps(
    fields: Fields, layers: int, experts: int, active: int, width: int, shared_width: int | None, inner: Callable[[], int]
) -> list[MLP]:
    """The layers of ``qwen_moe``; ``inner`` reads the width of the dense ones, which only some files have."""
    count = fields.size("num_experts", default=experts, least=0, most=MAX_EXPERTS)
    step = fields.size("decoder_sparse_step", default=1, most=MAX_LAYERS)
    dense_layers = fields.indices("mlp_only_layers", layers) or frozenset()
    sparse = [count > 0 and layer not in dense_layers and (layer + 1) % step == 0 for layer in range(layers)]
    mlps: list[MLP] = []
    expert = DenseMLP(inner()) if not all(sparse) else None
    routed = None
    if any(sparse):
        chosen = fields.size("num_experts_per_tok", default=active, most=MAX_EXPERTS)
        expert_width = fields.size("moe_intermediate_size", default=width)
        name = "shared_expert_intermediate_size"
        shared = 0 if shared_width is None else fields.size(name, default=shared_width, least=0)
        routed = moe(fields, count, chosen, expert_width, shared_width=shared)
    for is_sparse in sparse:
        mlp = routed if is_sparse else expert
        assert mlp is not None
        mlps.append(mlp)
    return mlps


def first_dense_moe(
    *, experts: int | None, active: int | None, shared: int | None, width: int, first_dense: int, inner: int
) -> MLPRule:
    """DeepSeek: dense MLPs in the first layers, then experts beside ``n_shared_experts`` shared ones of the same width."""

    def rule(fields: Fields, family: Plain, hidden: int, layers: int) -> list[MLP]:
        return deepseek_mlps(fields, layers, experts, active, shared, width, first_dense, inner)

    return rule


def deepseek_mlps(
    fields: Fields,
    layers: int,
    experts: int | None,
    active: int | None,
    shared: int | None,
    width: int,
    first_dense: int,
    inner: int,
) -> list[MLP]:
    """The layers of ``first_dense_moe``; without ``n_routed_experts`` all are dense."""
    count = fields.optional_size("n_routed_experts", default=experts, most=MAX_EXPERTS)
    dense_layer = DenseMLP(fields.size("intermediate_size", default=inner))
    if count is None:
        return [dense_layer] * layers
    chosen = fields.optional_size("num_experts_per_tok", default=active, most=MAX_EXPERTS)
    if chosen is None:
        raise fields.error(f"num_experts_per_tok: expected how many of the {count} experts a token uses")
    expert_width = fields.size("moe_intermediate_size", default=width)
    shared_count = (
        fields.size("n_shared_experts", default=shared or 0, least=0) if not fields.is_null("n_shared_experts") else 0
    )
    routed = moe(fields, count, chosen, expert_width, shared_width=shared_count * expert_width)
    kinds = fields.kinds("mlp_layer_types", layers, {"dense": False, "sparse": True})
    if kinds is None:
        first = fields.size("first_k_dense_replace", default=first_dense, least=0, most=layers)
        every = fields.size("moe_layer_freq", default=1, most=MAX_LAYERS) if fields.has("moe_layer_freq") else 1
        kinds = tuple(layer >= first and layer % every == 0 for layer in range(layers))
    return [routed if sparse else dense_layer for sparse in kinds]


def moe(fields: Fields, experts: int, active: int, width: int, *, gated: bool = True, shared_width: int = 0) -> MoE:
    """Experts, after a check that a token does not use more of them than there are."""
    if active > experts:
        raise fields.error(f"a token uses {active} experts, but there are {experts}")
    return MoE(experts, active, width, gated, shared_width)
