"""Grids of problems: axes such as ``1k:128k:x2`` or ``512,1k``, and one result at a time over their product."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from roofline.analysis import Conventions, Result, analyze, kv_cache_bytes, kv_cache_bytes_allocated
from roofline.configurations import Request, configurations
from roofline.errors import InputError
from roofline.problem import LatentKV
from roofline.profiles.profile import Profile
from roofline.units import parse_count

MOST_STEPS = 10_000_000  # values on one axis

# What a row of a sweep shows; every size that a user can sweep is among them.
COLUMNS = (
    "configuration", "phase", "batch", "q_len", "kv_len", "q_heads", "kv_heads", "head_dim", "v_head_dim", "latent_dim",
    "rope_dim", "window", "page_size", "max_len", "shared_prefix", "layers", "dtype", "kv_dtype", "passes", "splits", "flops",
    "flops_executed", "hbm_bytes", "hbm_bytes_min", "hbm_bytes_cold", "sm_bytes", "intensity", "ridge", "bound", "time_s",
    "attainable_flop_per_s", "sms_used", "kv_cache_bytes", "kv_cache_bytes_allocated", "workspace_bytes",
)  # fmt: skip


def axis(option: str, text: str) -> tuple[int, ...]:
    """Return the sizes of ``text``: parts separated by commas, each a size or a range ``A:B:xK`` or ``A:B:+K``, B included.

    Raises ``InputError`` that names ``option``.
    """
    try:
        sizes = [size for part in text.split(",") for size in _part(part)]
    except InputError as error:
        raise InputError(f"{option}: {error}") from None
    return tuple(dict.fromkeys(sizes))


def sweep(base: Request, axes: Mapping[str, tuple[int, ...]], profile: Profile, conventions: Conventions) -> Iterator[Result]:
    """Predict every configuration of every combination of ``axes``, the last axis fastest, one result at a time."""
    fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
    for values in product(*axes.values()):
        fields.update(zip(axes, values, strict=True))
        for configuration in configurations(Request(**fields)):
            yield analyze(configuration, profile, conventions)


def row(result: Result) -> tuple[Any, ...]:
    """The figures of one result in the order of ``COLUMNS``."""
    problem, prediction, cost, plan = result.configuration.problem, result.prediction, result.cost, result.plan
    longest = max(problem.lengths, key=lambda lengths: lengths.kv_len)
    hbm, kv, variant = prediction.hbm_level, problem.kv, result.configuration.variant
    latent, rope = (kv.latent_dim, kv.rope_dim) if isinstance(kv, LatentKV) else (None, None)
    return (
        result.configuration.name,
        result.configuration.phase,
        problem.batch,
        longest.q_len,
        longest.kv_len,
        problem.q_heads,
        problem.kv_heads,
        kv.head_dim,
        kv.v_head_dim,
        latent,
        rope,
        problem.mask.window,
        problem.page_size,
        problem.max_len,
        problem.shared_prefix,
        problem.layers,
        problem.dtype.name,
        problem.kv_dtype.name,
        plan.passes,
        plan.splits,
        result.flops,
        cost.flops_executed,
        hbm.work,
        cost.hbm_bytes_min,
        cost.hbm_bytes_cold,
        cost.sm_bytes,
        hbm.intensity,
        hbm.ridge,
        prediction.bound,
        prediction.time_s,
        result.attainable_flop_per_s,
        prediction.sms_used,
        kv_cache_bytes(variant, problem),
        kv_cache_bytes_allocated(variant, problem),
        cost.workspace_bytes,
    )


def _part(text: str) -> Iterator[int]:
    if ":" not in text:
        yield parse_count(text)
        return
    start_text, *rest = text.split(":")
    if len(rest) != 2 or rest[1][:1] not in ("x", "+"):
        raise InputError(f"expected a range A:B:xK or A:B:+K, got {text!r}")
    start, stop, step = parse_count(start_text), parse_count(rest[0]), parse_count(rest[1][1:])
    grows = step > 1 if rest[1][0] == "x" else step > 0
    if start < 1 or stop < start or not grows:
        raise InputError(f"the range {text!r} holds nothing or never ends")
    if rest[1][0] == "+" and (stop - start) // step >= MOST_STEPS:
        raise InputError(f"the range {text!r} has more than {MOST_STEPS} sizes")
    while start <= stop:
        yield start
        start = start * step if rest[1][0] == "x" else start + step
