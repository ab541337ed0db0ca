"""The attention layers of a model as ``roofline analyze`` predicts them: launches, traffic and L2 of a variant, not a limit."""

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.model import predict
from roofline.models.attention import AttentionProblem, Phase
from roofline.plan import choose
from roofline.profiles.profile import Profile, Roof
from roofline.variants import VARIANTS


@dataclass(frozen=True, slots=True)
class AttentionPrediction:
    """One kind of attention in one phase: the variant, and FLOPs, HBM bytes and time of all its ``layers`` together."""

    phase: Phase
    kind: str
    layers: int
    variant: str
    flops: int
    hbm_bytes: int
    time_s: float
    bound: str


def predict_attention(
    phase: Phase, problems: Iterable[AttentionProblem], profile: Profile, roof: Roof = "datasheet"
) -> tuple[AttentionPrediction, ...]:
    """Predict each kind of attention layer with the variant that suits the phase; layers follow one another."""
    return tuple(_predict(phase, each, profile, roof) for each in problems)


def _predict(phase: Phase, each: AttentionProblem, profile: Profile, roof: Roof) -> AttentionPrediction:
    plan = choose(each.variant, f"roofline/{each.variant}", each.problem, profile)
    cost = VARIANTS[each.variant](each.problem, plan)
    prediction = predict(cost, profile, each.problem.dtype, roof)
    return AttentionPrediction(
        phase,
        each.kind,
        each.layers,
        each.variant,
        each.layers * cost.flops,
        each.layers * prediction.hbm.hbm_bytes,
        each.layers * prediction.time_s,
        prediction.bound,
    )
