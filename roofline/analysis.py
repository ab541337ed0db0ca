"""From a configuration to its result on a device: plan, cost and prediction, and the figures that are reported of them."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any, Literal, NamedTuple

from roofline.configurations import Configuration, Request, configurations
from roofline.cost import Cost
from roofline.masks import FULL
from roofline.model import Level, Prediction, predict
from roofline.plan import Plan, choose
from roofline.problem import GroupedKV, LatentKV, Problem
from roofline.profiles.profile import Profile, Roof
from roofline.variants import VARIANTS
from roofline.variants.linear import state_bytes
from roofline.variants.mla import projections

SCHEMA = "roofline.analysis/1"
FlopConvention = Literal["exact", "full", "half"]
VALIDATED_DEVICES = ("h200-sxm-141gb",)  # whose counters the L2 model was read off


class Conventions(NamedTuple):
    """How figures are counted: which FLOPs are reported, and under which roof times are predicted."""

    flops: FlopConvention = "exact"
    roof: Roof = "datasheet"


DEFAULT_CONVENTIONS = Conventions()


class Result(NamedTuple):
    """One configuration on one device. ``flops`` follow the FLOP convention; ``cost`` and ``prediction`` never do."""

    configuration: Configuration
    plan: Plan
    cost: Cost
    prediction: Prediction
    flops: int

    @property
    def intensity(self) -> float | None:
        """FLOPs per predicted HBM byte."""
        return self.prediction.hbm_level.intensity

    @property
    def attainable_flop_per_s(self) -> float:
        """Reported FLOPs over the predicted time."""
        return self.flops / self.prediction.time_s if self.prediction.time_s else 0.0


def analyze(configuration: Configuration, profile: Profile, conventions: Conventions = DEFAULT_CONVENTIONS) -> Result:
    """Predict one configuration on ``profile``. Raises ``InputError`` where variant and problem do not fit."""
    problem, variant = configuration.problem, configuration.variant
    plan = choose(variant, f"roofline/{variant}", problem, profile, configuration.choices)
    cost = VARIANTS[variant](problem, plan)
    flops = reported_flops(variant, problem, plan, cost, conventions.flops)
    prediction = predict(cost, profile, problem.dtype, conventions.roof, flops)
    return Result(configuration, plan, cost, prediction, flops)


def analyze_all(request: Request, profile: Profile, conventions: Conventions = DEFAULT_CONVENTIONS) -> list[Result]:
    """Predict every configuration of ``request``."""
    return [analyze(configuration, profile, conventions) for configuration in configurations(request)]


def reported_flops(variant: str, problem: Problem, plan: Plan, cost: Cost, convention: FlopConvention) -> int:
    """Useful FLOPs by ``convention``: ``full`` ignores the mask, ``half`` halves a plain causal square, else as exact.

    Linear attention's FLOPs do not depend on the mask.
    """
    if convention == "exact" or problem.mask.is_full or variant == "linear":
        return cost.flops
    square = all(lengths.q_len == lengths.kv_len for lengths in problem.lengths)
    if convention == "half" and (problem.mask.window is not None or not square):
        return cost.flops
    projected = sum(launch.flops for launch in cost.launches if launch.name in ("W_UK", "W_UV"))  # by no convention
    unmasked = VARIANTS[variant](replace(problem, mask=FULL, mla_projections=False), plan).flops
    return projected + (unmasked if convention == "full" else unmasked // 2)


def kv_cache_bytes(variant: str, problem: Problem) -> int:
    """Bytes of the KV cache in use: whole batch, ``problem.layers`` layers; a state for linear attention.

    A windowed cache holds the last ``window`` tokens of each sequence; paged sequences share the pages of their prefix.
    """
    if variant == "linear" and isinstance(problem.kv, GroupedKV):
        return state_bytes(problem, problem.kv) * problem.layers
    tokens = sum(lengths.count * problem.mask.cached_keys(lengths.kv_len) for lengths in problem.lengths)
    if variant == "paged":
        tokens -= shared_tokens(problem)
    tensors = 1 if isinstance(problem.kv, LatentKV) else 2
    return (tokens * kv_bytes_per_token(problem) + tensors * problem.scale_tensor_bytes) * problem.layers


def kv_bytes_per_token(problem: Problem) -> int:
    """Bytes that one token adds to the cache of one layer, scales of its rows included."""
    kv = problem.kv
    if isinstance(kv, LatentKV):
        return problem.kv_row_bytes(kv.cached_dim) + problem.scale_row_bytes(kv.cached_dim)
    widths = (kv.head_dim, kv.v_head_dim)
    return kv.heads * sum(problem.kv_row_bytes(width) + problem.scale_row_bytes(width) for width in widths)


def kv_cache_bytes_allocated(variant: str, problem: Problem) -> int:
    """Bytes allocated: whole pages where the cache is paged, ``max_len`` tokens a sequence where it is contiguous.

    A contiguous cache without ``max_len`` is taken to fit.
    """
    if variant == "linear":
        return kv_cache_bytes(variant, problem)
    page, tokens = problem.page_size, 0
    for _, kv_len, count in problem.lengths:
        held = problem.mask.cached_keys(kv_len)
        if variant == "paged":
            # A window's first page is kept whole, so it may hold tokens that the window has left.
            pages = -(-kv_len // page) - (kv_len - held) // page
            tokens += count * pages * page
        else:
            tokens += count * (held if problem.max_len is None else problem.mask.cached_keys(problem.max_len))
    if variant == "paged":
        tokens -= shared_tokens(problem)
    tensors = 1 if isinstance(problem.kv, LatentKV) else 2
    return (tokens * kv_bytes_per_token(problem) + tensors * problem.scale_tensor_bytes) * problem.layers


def shared_tokens(problem: Problem) -> int:
    """Tokens saved because sequences share the whole pages of their prefix."""
    prefix = problem.shared_prefix // problem.page_size * problem.page_size
    held = [(max(prefix - (kv_len - problem.mask.cached_keys(kv_len)), 0), count) for _, kv_len, count in problem.lengths]
    return sum(tokens * count for tokens, count in held) - max((tokens for tokens, _ in held), default=0)


def to_dict(result: Result) -> dict[str, Any]:
    """The figures of one result, as ``analyze --json`` and records hold them: SI base units, ratios 0-1, exact integers."""
    configuration, prediction, cost = result.configuration, result.prediction, result.cost
    problem, variant = configuration.problem, configuration.variant
    levels = prediction.levels
    hbm = levels["hbm"]
    per_token = 0 if variant == "linear" else kv_bytes_per_token(problem) * problem.layers
    return {
        "configuration": configuration.name,
        "variant": variant,
        "phase": configuration.phase,
        "problem": problem_dict(problem),
        "plan": asdict(result.plan),
        "flops": result.flops,
        "flops_executed": cost.flops_executed,
        "exp_ops": cost.exp_ops,
        "vector_ops": cost.vector_ops,
        "hbm_bytes": hbm.work,
        "hbm_bytes_min": cost.hbm_bytes_min,
        "hbm_bytes_cold": cost.hbm_bytes_cold,
        "sm_bytes": cost.sm_bytes,
        "l2_bytes": levels["l2"].work,
        "levels": {name: _level_dict(level) for name, level in levels.items()},
        "units": {
            name: {"work": level.work, "per_s": level.ceiling, "time_s": level.time_s}
            for name, level in prediction.units.items()
        },
        "intensity": hbm.intensity,
        "ridge": hbm.ridge,
        "bound": prediction.bound,
        "time_s": prediction.time_s,
        "attainable_flop_per_s": result.attainable_flop_per_s,
        "sms_used": prediction.sms_used,
        "kv_cache_bytes": kv_cache_bytes(variant, problem),
        "kv_cache_bytes_per_token": per_token,
        "kv_cache_bytes_allocated": kv_cache_bytes_allocated(variant, problem),
        "workspace_bytes": cost.workspace_bytes,
        "mla_projections": _projection_dict(problem, result.plan),
        "reasons": list(prediction.hbm.reasons),
        "unknown": list(prediction.unknown),
        "launches": [
            {
                "name": launch.name,
                "count": launch.count,
                "flops": launch.flops,
                "flops_executed": launch.flops_executed,
                "exp_ops": launch.exp_ops,
                "vector_ops": launch.vector_ops,
                "ctas": launch.ctas,
                "bound": bound,
                "time_s": time_s,
                "traffic": [
                    {
                        "tensor": traffic.tensor,
                        "role": traffic.role,
                        "read_bytes_min": traffic.read_bytes_min,
                        "write_bytes_min": traffic.write_bytes_min,
                        "read_bytes": entry.read_bytes,
                        "write_bytes": entry.write_bytes,
                        "sm_read_bytes": traffic.sm_read_bytes,
                        "sm_write_bytes": traffic.sm_write_bytes,
                    }
                    for traffic, entry in zip(launch.traffic, entries, strict=True)
                ],
            }
            for launch, entries, bound, time_s in zip(
                cost.launches, prediction.hbm.launches, prediction.launch_bounds, prediction.launch_times_s, strict=True
            )
        ],
    }


def document(
    results: Iterable[Result], profile: Profile, conventions: Conventions, notes: Iterable[str] = ()
) -> dict[str, Any]:
    """The whole of ``analyze --json``: schema, device, conventions and results."""
    return {
        "schema": SCHEMA,
        "device": device_dict(profile),
        "conventions": {
            "flop_convention": conventions.flops,
            "roof": conventions.roof,
            "peaks": "dense, fp32 accumulate",
            "hbm_bytes": "predicted, steady state, rotating inputs",
            "notes": [*notes, *validation_notes(profile)],
        },
        "results": [to_dict(result) for result in results],
    }


def validation_notes(profile: Profile) -> tuple[str, ...]:
    """Say so where the L2 model has not been checked against the counters of this device."""
    if profile.id in VALIDATED_DEVICES:
        return ()
    return ("the L2 model behind hbm_bytes is not validated on this device",)


def device_dict(profile: Profile) -> dict[str, Any]:
    """The device as other programs read it, every ceiling with kind and source."""
    return {
        "id": profile.id,
        "name": profile.name,
        "vendor": profile.vendor,
        "architecture": profile.architecture,
        "compute_capability": profile.compute_capability,
        "sm_count": profile.sm_count,
        "l2_bytes": profile.l2_bytes,
        "memory_bytes": profile.memory_bytes,
        "datasheet": {key: ceiling._asdict() for key, ceiling in profile.datasheet.items()},
        "measured": {key: ceiling._asdict() for key, ceiling in profile.measured.items()},
    }


def problem_dict(problem: Problem) -> dict[str, Any]:
    """The problem by the names of its options; lengths as one number where they are equal, else one a sequence run."""
    kv = problem.kv
    equal = len(problem.lengths) == 1
    common = {
        "batch": problem.batch,
        "q_len": problem.lengths[0].q_len if equal else None,
        "kv_len": problem.lengths[0].kv_len if equal else None,
        "lengths": None if equal else [list(lengths) for lengths in problem.lengths],
        "q_heads": problem.q_heads,
        "kv_heads": kv.heads if isinstance(kv, GroupedKV) else None,
        "head_dim": kv.head_dim,
        "v_head_dim": kv.v_head_dim,
        "latent_dim": kv.latent_dim if isinstance(kv, LatentKV) else None,
        "rope_dim": kv.rope_dim if isinstance(kv, LatentKV) else None,
        "mask": "window" if problem.mask.window is not None else "causal" if problem.mask.causal else "full",
        "window": problem.mask.window,
        "dtype": problem.dtype.name,
        "kv_dtype": problem.kv_dtype.name,
        "page_size": problem.page_size,
        "max_len": problem.max_len,
        "shared_prefix": problem.shared_prefix,
        "mla_projections": problem.mla_projections,
        "layers": problem.layers,
    }
    return common


def _level_dict(level: Level) -> dict[str, Any]:
    return {"bytes": level.work, "intensity": level.intensity, "ridge": level.ridge, "time_s": level.time_s}


def _projection_dict(problem: Problem, plan: Plan) -> dict[str, Any] | None:
    """What the projections of MLA cost, whether they are part of the configuration or not."""
    if not isinstance(problem.kv, LatentKV):
        return None
    cost = projections(problem, plan)
    return {"included": problem.mla_projections, "flops": cost.flops, "hbm_bytes_cold": cost.hbm_bytes_cold}
