"""A whole model on a device: prefill, decode, weights, cache and capacity in one result."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from roofline.dtypes import compute_dtype
from roofline.dtypes import kv_dtype as kv_dtype_named
from roofline.errors import InputError
from roofline.models.attention import AttentionProblem, Phase, attention_problems
from roofline.models.crossover import crossover
from roofline.models.forward import ForwardPass, forward
from roofline.models.kvcache import Capacity, ModelCache, capacity, model_cache
from roofline.models.parameters import PartWeights, weights_by_part
from roofline.models.predictions import AttentionPrediction, predict_attention
from roofline.models.spec import ModelSpec
from roofline.models.weights import weight_dtype as weight_dtype_named
from roofline.models.works import Dtypes
from roofline.problem import MAX_LENGTH
from roofline.profiles.profile import Profile, Roof

PHASES: tuple[Phase, ...] = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class ModelAnalysis:
    """A model on a device. ``capacity`` is ``None`` where the device's memory is not known; times are limits.

    ``crossover_n``: for each phase the length at which attention overtakes the MLP, ``None`` where it never does;
    ``attention``: the attention layers once more, as ``roofline analyze`` predicts their variants.
    """

    spec: ModelSpec
    profile: Profile
    dtypes: Dtypes
    roof: Roof
    passes: tuple[ForwardPass, ...]
    weights: tuple[PartWeights, ...]
    cache: ModelCache
    capacity: Capacity | None
    crossover_n: dict[Phase, int | None]
    attention: tuple[AttentionPrediction, ...]

    @property
    def prefill(self) -> ForwardPass | None:
        """The prefill, if it was asked for."""
        return self._pass("prefill")

    @property
    def decode(self) -> ForwardPass | None:
        """The decode step, if it was asked for."""
        return self._pass("decode")

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory."""
        return sum(part.bytes for part in self.weights)

    @property
    def problems(self) -> tuple[AttentionProblem, ...]:
        """The attention problems of every phase, as ``roofline measure`` takes them."""
        return tuple(
            problem for each in self.passes for problem in _problems(self.spec, each, self.dtypes, self.cache.page_size)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not modelled, and what a reader should know of this model at this size on this device."""
        notes, context = list(self.spec.notes), self.spec.context_tokens
        if context is not None and self.cache.n > context:
            notes.append(f"{self.cache.n} tokens are more than the {context} that the model is made for")
        room = self.capacity
        if room is not None and room.free_bytes < 0:
            notes.append(f"weights and reserve do not fit in the memory of one {self.profile.name}, the times ignore that")
        elif room is not None and self.cache.batch > room.sequences:
            fit = f"only {room.sequences} sequences of {self.cache.n} tokens fit"
            none = f"no sequence of {self.cache.n} tokens fits"
            notes.append(f"{fit if room.sequences else none} beside the weights")
        return tuple(notes)

    def _pass(self, phase: Phase) -> ForwardPass | None:
        return next((each for each in self.passes if each.phase == phase), None)


def analyze_model(
    spec: ModelSpec,
    profile: Profile,
    n: int,
    batch: int = 1,
    *,
    phases: Iterable[Phase] = PHASES,
    dtype: str | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    page_size: int = 16,
    reserve_bytes: int | None = None,
    roof: Roof = "datasheet",
) -> ModelAnalysis:
    """Analyze ``spec`` on ``profile`` with ``batch`` sequences of ``n`` tokens.

    ``dtype`` defaults to bf16, or fp16 where the device has no bf16; weights and KV default to it. ``reserve_bytes``: memory
    kept free beside weights and caches, a tenth of the device's by default. Raises ``InputError`` for sizes and dtypes that do
    not fit.
    """
    compute = compute_dtype(profile.default_dtype if dtype is None else dtype)
    weights = compute if weight_dtype is None else weight_dtype_named(weight_dtype)
    dtypes = Dtypes(compute, weights, compute if kv_dtype is None else kv_dtype_named(kv_dtype))
    if not 0 < page_size <= MAX_LENGTH:
        raise InputError(f"--page-size {page_size}: expected a whole number from 1 to {MAX_LENGTH}")
    if reserve_bytes is not None and reserve_bytes < 0:
        raise InputError(f"--reserve {reserve_bytes}: expected a number of bytes, not a negative one")
    passes = tuple(forward(spec, phase, n, batch, dtypes, profile, roof) for phase in phases)
    cache = model_cache(spec, n, batch, compute, dtypes.kv, page_size)
    by_part = weights_by_part(spec, weights, compute)
    room = None
    if profile.memory_bytes is not None:
        room = capacity(cache, profile.memory_bytes, sum(part.bytes for part in by_part), reserve_bytes)
    crossovers: dict[Phase, int | None] = {phase: crossover(spec, phase) for phase in PHASES}
    attention = tuple(
        prediction
        for each in passes
        for prediction in predict_attention(each.phase, _problems(spec, each, dtypes, page_size), profile, roof)
    )
    return ModelAnalysis(spec, profile, dtypes, roof, passes, by_part, cache, room, crossovers, attention)


def sweep_model(
    spec: ModelSpec, profile: Profile, lengths: Iterable[int], batches: Iterable[int], **options: Any
) -> Iterator[ModelAnalysis]:
    """Analyze every length with every batch, as each is asked for; ``options`` are those of ``analyze_model``."""
    for n, batch in product(lengths, batches):
        yield analyze_model(spec, profile, n, batch, **options)


def _problems(spec: ModelSpec, each: ForwardPass, dtypes: Dtypes, page_size: int) -> tuple[AttentionProblem, ...]:
    return attention_problems(spec, each.phase, each.n, each.batch, dtypes.compute, dtypes.kv, page_size)
