"""What ``import roofline`` offers in a notebook or a script: the command line's numbers as objects, documents and DataFrames.

::

    import roofline

    result = roofline.analyze(n=8192, d=128, causal=True, device="h200-sxm-141gb")
    result["gqa/flash"].prediction.bound
    roofline.to_frame(result)                                         # one row a configuration
    roofline.to_frame(roofline.analyze(n=n) for n in (1024, 2048))    # several analyses in one frame

    model = roofline.analyze_model("llama-3-8b", "h100-sxm5-80gb", n=2048)
    model.decode.tokens_per_s, model.capacity.sequences
    roofline.to_frame(model)                                          # one row a phase and part of the forward pass
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from roofline import analysis, models, profiles
from roofline.analysis import Conventions, FlopConvention, Result
from roofline.configurations import DEFAULT_HEAD_DIM, DEFAULT_N, DEFAULT_Q_HEADS, PHASES, Phase, Request
from roofline.errors import InputError
from roofline.models import ModelAnalysis, ModelSpec, load_model, shipped_models
from roofline.profiles import Profile, Roof

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Analysis", "analyze", "analyze_model", "document", "load_model", "shipped_models", "sweep_model", "to_frame",
]  # fmt: skip

T = TypeVar("T")
Device = str | Path | Profile


@dataclass(frozen=True, slots=True)
class Analysis:
    """Every configuration of one request on one device; ``notes`` say how the device was chosen."""

    results: tuple[Result, ...]
    profile: Profile
    conventions: Conventions
    notes: tuple[str, ...]

    def __iter__(self) -> Iterator[Result]:
        """Iterate over the results in the order of the comparison."""
        return iter(self.results)

    def __len__(self) -> int:
        """Count the results."""
        return len(self.results)

    def __getitem__(self, configuration: str) -> Result:
        """Return the first result of that name (``gqa/flash``), prefill before decode; ``phase=`` in the request picks one."""
        for result in self.results:
            if result.configuration.name == configuration:
                return result
        names = ", ".join(dict.fromkeys(result.configuration.name for result in self.results))
        raise KeyError(f"{configuration!r} is none of {names}")


def analyze(
    n: int | None = None,
    *,
    q_len: int | None = None,
    kv_len: int | None = None,
    kv_lens: Iterable[int] | None = None,
    d: int = DEFAULT_HEAD_DIM,
    dv: int | None = None,
    heads: int = DEFAULT_Q_HEADS,
    kv_heads: int | None = None,
    batch: int | None = None,
    causal: bool = False,
    window: int | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    page_size: int = 16,
    max_len: int | None = None,
    shared_prefix: int = 0,
    latent_dim: int = 512,
    rope_dim: int = 64,
    mla_projections: bool = False,
    splits: int | None = None,
    tile: tuple[int, int] | None = None,
    chunk: tuple[int, int] | None = None,
    naive_passes: int = 3,
    layers: int = 1,
    variants: Iterable[str] | None = None,
    phase: Phase | None = None,
    device: Device = "auto",
    gpu: str | None = None,
    roof: Roof = "datasheet",
    flop_convention: FlopConvention = "exact",
) -> Analysis:
    """Count and predict attention in every form, as ``roofline analyze`` does; the arguments are its options.

    ``device``: a name, a profile file, a ``Profile``, or ``auto`` for the local GPU. ``phase``: both unless given. Raises
    ``roofline.errors.InputError``, one line that names the option, for what does not fit.
    """
    profile, notes = _resolve(device, gpu, roof)
    _one_of("flop_convention", flop_convention, get_args(FlopConvention))
    if phase is not None:
        _one_of("phase", phase, PHASES)
    request = Request(
        n, q_len, kv_len, None if kv_lens is None else tuple(kv_lens), d, dv, heads, kv_heads, batch, causal, window,
        profile.default_dtype if dtype is None else dtype, kv_dtype, page_size, max_len, shared_prefix, latent_dim, rope_dim,
        mla_projections, splits, tile, chunk, naive_passes, layers, None if variants is None else tuple(variants), phase,
    )  # fmt: skip
    conventions = Conventions(flop_convention, roof)
    return Analysis(tuple(analysis.analyze_all(request, profile, conventions)), profile, conventions, notes)


def analyze_model(
    model: str | Path | ModelSpec,
    device: Device = "auto",
    n: int = DEFAULT_N,
    batch: int = 1,
    *,
    gpu: str | None = None,
    phase: Phase | None = None,
    dtype: str | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    page_size: int = 16,
    reserve_bytes: int | None = None,
    roof: Roof = "datasheet",
) -> ModelAnalysis:
    """Analyze a whole model, as ``roofline analyze --model`` does.

    ``model``: a shipped name (``shipped_models()``), a ``config.json``, its folder, or what ``load_model`` returned.
    """
    spec = model if isinstance(model, ModelSpec) else load_model(model)
    profile, _ = _resolve(device, gpu, roof)
    phases = PHASES if phase is None else (_one_of("phase", phase, PHASES),)
    return models.analyze_model(
        spec, profile, n, batch, phases=phases, dtype=dtype, weight_dtype=weight_dtype,
        kv_dtype=kv_dtype, page_size=page_size, reserve_bytes=reserve_bytes, roof=roof,
    )  # fmt: skip


def sweep_model(
    model: str | Path | ModelSpec, device: Device, lengths: Iterable[int], batches: Iterable[int] = (1,), **options: Any
) -> Iterator[ModelAnalysis]:
    """Analyze every length with every batch, one at a time; ``options`` are those of ``analyze_model``."""
    spec = model if isinstance(model, ModelSpec) else load_model(model)
    profile, _ = _resolve(device, options.pop("gpu", None), options.get("roof", "datasheet"))
    for n, batch in product(lengths, batches):
        yield analyze_model(spec, profile, n, batch, **options)


def document(result: Analysis | ModelAnalysis) -> dict[str, Any]:
    """The document that ``--json`` prints: ``roofline.analysis/1`` or ``roofline.model/1``."""
    if isinstance(result, ModelAnalysis):
        return models.document(result)
    return analysis.document(result.results, result.profile, result.conventions, result.notes)


def to_frame(results: Analysis | ModelAnalysis | Iterable[Analysis | ModelAnalysis]) -> pd.DataFrame:
    """The rows that ``--csv`` prints, of one result or of several below one another."""
    import pandas as pd

    each = (results,) if isinstance(results, Analysis | ModelAnalysis) else results
    return pd.DataFrame([row for result in each for row in _rows(result)])


def _rows(result: Analysis | ModelAnalysis) -> Iterable[dict[str, Any]]:
    if isinstance(result, ModelAnalysis):
        return models.rows(document(result))
    from roofline.reports.output import analysis_rows

    return analysis_rows(document(result))


def _resolve(device: Device, gpu: str | None, roof: Roof) -> tuple[Profile, tuple[str, ...]]:
    _one_of("roof", roof, get_args(Roof))
    if isinstance(device, Profile):
        return device, ()
    profile, note = profiles.resolve(str(device), gpu, roof=roof)
    return profile, (note,) if note else ()


def _one_of(name: str, value: T, allowed: tuple[T, ...]) -> T:
    """Check a name where no type checker does."""
    if value not in allowed:
        raise InputError(f"{name}: expected {' or '.join(map(str, allowed))}, got {value!r}")
    return value
