"""One forward pass of a model on a device: each part with its FLOPs, its bytes, what binds it, and the least time that takes.

A limit, not a prediction. Each part takes at least the larger of its useful FLOPs over the peak and its bytes over the HBM
bandwidth, with everything inside the part fused; the pass takes the sum of its parts. Bytes of a part: its weights once (of
experts the expected number that the tokens use), the cache it reads or writes, its activations in and out once. Norms, biases
and activation functions are taken as fused: their weights count, their arithmetic does not. ``floor_s`` is stricter still: the
whole pass as one kernel, all FLOPs over the peak or all weight and cache bytes over the bandwidth.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, NamedTuple

from roofline.errors import InputError
from roofline.models.attention import Phase
from roofline.models.spec import ModelSpec
from roofline.models.works import Dtypes, Work, model_works
from roofline.problem import MAX_BATCH, MAX_LENGTH
from roofline.profiles.profile import Profile, Roof

PartBound = Literal["hbm", "tensor", "vector"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the pass, over the ``layers`` layers that have it. Bytes are those of HBM, each tensor once.

    ``flops``: useful matrix FLOPs; ``time_s``: the sum over the layers of what binds each, ``bound`` the one that takes most of
    it; both ``None`` where the device's ceilings are not known.
    """

    name: str
    layers: int
    flops: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int
    time_s: float | None
    bound: PartBound | None

    @property
    def bytes(self) -> int:
        """All bytes of the part."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """A prefill of ``batch`` prompts of ``n`` tokens, or one decode step of ``batch`` sequences with ``n`` tokens each.

    In prefill only each prompt's last token gets logits, as engines do it.
    """

    phase: Phase
    n: int
    batch: int
    parts: tuple[Part, ...]
    floor_s: float | None
    unknown: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """Tokens that pass through the layers."""
        return self.batch * (self.n if self.phase == "prefill" else 1)

    @property
    def flops(self) -> int:
        """Useful matrix FLOPs."""
        return sum(part.flops for part in self.parts)

    @property
    def attention_flops(self) -> int:
        """Useful FLOPs of attention over keys, projections and linear layers apart."""
        return sum(part.flops for part in self.parts if part.name.startswith("attention"))

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights read."""
        return sum(part.weight_bytes for part in self.parts)

    @property
    def kv_bytes(self) -> int:
        """Bytes of caches and states moved."""
        return sum(part.kv_bytes for part in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def bound(self) -> PartBound | None:
        """What most of ``time_s`` is spent on."""
        times: dict[PartBound, float] = {}
        for part in self.parts:
            if part.bound is not None and part.time_s is not None:
                times[part.bound] = times.get(part.bound, 0.0) + part.time_s
        return _longest(times)

    @property
    def time_s(self) -> float | None:
        """The parts one after the other, each at its bound: a limit for engines that run one kernel at a time."""
        times = [part.time_s for part in self.parts if part.time_s is not None]
        return sum(times) if times else None

    @property
    def tokens_per_s(self) -> float | None:
        """Prompt tokens (prefill) or new tokens (decode) a second at ``time_s``: a limit, not a prediction."""
        return self.tokens / self.time_s if self.time_s else None


class _Ceilings(NamedTuple):
    matmul: float | None
    vector: float | None
    hbm: float | None


def forward(
    spec: ModelSpec, phase: Phase, n: int, batch: int, dtypes: Dtypes, profile: Profile, roof: Roof = "datasheet"
) -> ForwardPass:
    """Count one pass and set each part under the ceilings of ``profile``."""
    for option, value, most in (("--n", n, MAX_LENGTH), ("--batch", batch, MAX_BATCH)):
        if not 0 < value <= most:
            raise InputError(f"{option} {value}: expected a whole number from 1 to {most}")
    keys = (f"{dtypes.compute.name}_flop_per_s", "fp32_flop_per_s", "hbm_bytes_per_s")
    found = [profile.ceiling(key, roof) for key in keys]
    ceilings = _Ceilings(*(None if ceiling is None else ceiling.value for ceiling in found))
    works = list(model_works(spec, phase, n, batch, dtypes))
    unknown = [name for name, value in (("hbm", ceilings.hbm), (dtypes.compute.matmul_unit, ceilings.matmul)) if value is None]
    parts = tuple(_parts(works, ceilings, vector_compute=dtypes.compute.matmul_unit == "vector"))
    return ForwardPass(phase, n, batch, parts, _floor(works, ceilings), tuple(unknown))


def _parts(works: Iterable[tuple[Work, int]], ceilings: _Ceilings, *, vector_compute: bool) -> Iterator[Part]:
    """Parts of the same name added up, in order of first appearance, the LM head last."""
    by_name: dict[str, list[tuple[Work, int]]] = {}
    for work, layers in works:
        by_name.setdefault(work.name, []).append((work, layers))
    for name, group in by_name.items():
        times: dict[PartBound, float] = {}
        for work, layers in group:
            time_s, bound = _time(work, ceilings, vector_compute)
            if time_s is not None and bound is not None:
                times[bound] = times.get(bound, 0.0) + layers * time_s
        yield Part(
            name,
            sum(layers for _, layers in group),
            sum(layers * work.flops for work, layers in group),
            sum(layers * work.weight_bytes for work, layers in group),
            sum(layers * work.kv_bytes for work, layers in group),
            sum(layers * work.activation_bytes for work, layers in group),
            sum(times.values()) if times else None,
            _longest(times),
        )


def _longest(times: dict[PartBound, float]) -> PartBound | None:
    return max(times.items(), key=itemgetter(1))[0] if times else None


def _time(work: Work, ceilings: _Ceilings, vector_compute: bool) -> tuple[float | None, PartBound | None]:
    unit: PartBound = "vector" if work.vector or vector_compute else "tensor"
    rate = ceilings.vector if work.vector else ceilings.matmul
    num_bytes = work.weight_bytes + work.kv_bytes + work.activation_bytes
    compute_s = work.flops / rate if rate else None
    memory_s = num_bytes / ceilings.hbm if ceilings.hbm else None
    if memory_s is None or (compute_s is not None and compute_s > memory_s):
        return compute_s, unit if compute_s is not None else None
    return memory_s, "hbm"


def _floor(works: Iterable[tuple[Work, int]], ceilings: _Ceilings) -> float | None:
    matmul = vector = num_bytes = 0
    for work, layers in works:
        num_bytes += layers * (work.weight_bytes + work.kv_bytes)
        if work.vector:
            vector += layers * work.flops
        else:
            matmul += layers * work.flops
    terms = ((matmul, ceilings.matmul), (vector, ceilings.vector), (num_bytes, ceilings.hbm))
    known = [amount / rate for amount, rate in terms if rate]
    return max(known) if known else None
