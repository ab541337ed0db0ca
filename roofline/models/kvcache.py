"""The KV cache of a whole model: what a token, a sequence and a batch hold, and how many sequences fit on a device."""

from dataclasses import dataclass
from typing import NamedTuple

from roofline.dtypes import DType
from roofline.models.attention import attention_problem, kv_row_bytes, scale_tensor_bytes
from roofline.models.mixers import STATE_BYTES, Attention, Recurrent
from roofline.models.spec import ModelSpec

RESERVE_SHARE = 0.1  # of the device's memory, for activations, workspaces and fragmentation, where no reserve is given


class KindCache(NamedTuple):
    """The cache of one kind of layer: ``layers`` of them, bytes a token of one layer, tokens held, bytes a sequence of all."""

    kind: str
    layers: int
    bytes_per_token: int
    tokens: int
    sequence_bytes: int


@dataclass(frozen=True, slots=True)
class ModelCache:
    """The cache of ``batch`` sequences of ``n`` tokens each.

    ``bytes_per_token``: what one more token adds while no window is full. ``sequence_bytes``: one sequence, windowed and
    chunked layers with the tokens they can still see, states included; ``state_bytes`` is the part that does not grow.
    ``allocated_sequence_bytes``: an engine that reserves whole pages for all ``n`` tokens in every layer with a cache of its
    own, windowed or not. ``scale_bytes``: per-tensor scales of an fp8 cache, once for all sequences.
    """

    n: int
    batch: int
    page_size: int
    bytes_per_token: int
    sequence_bytes: int
    state_bytes: int
    allocated_sequence_bytes: int
    scale_bytes: int
    kinds: tuple[KindCache, ...]

    @property
    def batch_bytes(self) -> int:
        """Bytes in use for the whole batch."""
        return self.batch * self.sequence_bytes + self.scale_bytes

    @property
    def allocated_bytes(self) -> int:
        """Bytes that an engine of full pages allocates for the whole batch."""
        return self.batch * self.allocated_sequence_bytes + self.scale_bytes


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many sequences fit: memory less ``reserve_bytes`` and ``weight_bytes``, in caches as used and as full pages."""

    memory_bytes: int
    reserve_bytes: int
    weight_bytes: int
    sequences: int
    sequences_allocated: int

    @property
    def free_bytes(self) -> int:
        """Bytes left for caches; negative where not even the weights fit."""
        return self.memory_bytes - self.reserve_bytes - self.weight_bytes


def model_cache(spec: ModelSpec, n: int, batch: int, dtype: DType, kv_dtype: DType, page_size: int = 16) -> ModelCache:
    """Size the cache of ``batch`` sequences of ``n`` tokens."""
    per_token = sequence = states = allocated = scales = 0
    kinds = []
    for mixer, layers in spec.mixers:
        if isinstance(mixer, Attention):
            problem = attention_problem(mixer, "decode", n, batch, dtype, kv_dtype, page_size)
            row = 0 if mixer.shared_kv else kv_row_bytes(problem)
            tokens = mixer.cached_tokens(n)
            per_token += layers * row
            allocated += layers * row * -(-n // page_size) * page_size
            scales += 0 if mixer.shared_kv else layers * scale_tensor_bytes(problem)
            kinds.append(KindCache(mixer.kind, layers, row, tokens, layers * row * tokens))
        else:
            state = layers * state_bytes(mixer, dtype)
            states += state
            kinds.append(KindCache(mixer.kind, layers, 0, 0, state))
        sequence += kinds[-1].sequence_bytes
    return ModelCache(n, batch, page_size, per_token, sequence, states, allocated + states, scales, tuple(kinds))


def state_bytes(mixer: Recurrent, dtype: DType) -> int:
    """Bytes of one layer's state for one sequence: fp32, and the rows of its convolution in the compute dtype."""
    return mixer.state_values * STATE_BYTES + (mixer.conv_values * dtype.bits + 7) // 8


def capacity(cache: ModelCache, memory_bytes: int, weight_bytes: int, reserve_bytes: int | None = None) -> Capacity:
    """Count the sequences of ``cache.n`` tokens that fit in ``memory_bytes``; the reserve defaults to a tenth of it."""
    reserve = round(memory_bytes * RESERVE_SHARE) if reserve_bytes is None else reserve_bytes
    free = max(memory_bytes - reserve - weight_bytes - cache.scale_bytes, 0)
    return Capacity(
        memory_bytes,
        reserve,
        weight_bytes,
        free // cache.sequence_bytes if cache.sequence_bytes else 0,
        free // cache.allocated_sequence_bytes if cache.allocated_sequence_bytes else 0,
    )
