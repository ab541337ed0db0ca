"""One attention problem: what is computed, not how. Sizes are whole numbers; bytes follow from the dtypes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from roofline.dtypes import DTYPES, DType
from roofline.errors import InputError
from roofline.masks import FULL, Mask

MAX_LENGTH = 2**40
MAX_BATCH = 2**31
MAX_WIDTH = 2**20  # heads, head sizes, pages, layers
DECODE_MAX_Q_LEN = 8  # one token, or a few with speculative decoding
INT4_GROUP = 32  # elements that share one scale


class Lengths(NamedTuple):
    """``count`` sequences of ``q_len`` queries over ``kv_len`` keys each."""

    q_len: int
    kv_len: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody needs here


class GroupedKV(NamedTuple):
    """Keys and values of ``heads`` KV heads (MHA: as many as query heads, MQA: one), ``head_dim`` and ``v_head_dim`` wide."""

    heads: int
    head_dim: int
    v_head_dim: int


class LatentKV(NamedTuple):
    """The latent cache of MLA (DeepSeek-V2, arXiv:2405.04434, section 2.1): one latent and one RoPE key a token.

    ``head_dim`` is the key size of a head without RoPE and ``v_head_dim`` the value size: what W_UK and W_UV project to.
    """

    latent_dim: int
    rope_dim: int
    head_dim: int
    v_head_dim: int

    @property
    def cached_dim(self) -> int:
        """Values cached per token and layer: 512 + 64 for DeepSeek-V2."""
        return self.latent_dim + self.rope_dim


@dataclass(frozen=True, slots=True)
class Problem:
    """Attention of a batch. Raises ``InputError`` when a size is not positive, huge, or does not fit the others.

    ``lengths`` holds runs of equal sequences in batch order. ``page_size`` (tokens), ``max_len`` (tokens reserved a sequence
    where the cache is contiguous) and ``shared_prefix`` (tokens, in pages that all sequences share) describe the KV cache.
    """

    q_heads: int
    kv: GroupedKV | LatentKV
    lengths: tuple[Lengths, ...]
    mask: Mask = FULL
    dtype: DType = DTYPES["bf16"]
    kv_dtype: DType = DTYPES["bf16"]
    page_size: int = 16
    max_len: int | None = None
    shared_prefix: int = 0
    mla_projections: bool = False
    layers: int = 1

    def __post_init__(self) -> None:
        """Check every size once, so that no later module has to."""
        _check("--heads", self.q_heads, MAX_WIDTH)
        _check("--page-size", self.page_size, MAX_LENGTH)
        _check("--layers", self.layers, MAX_WIDTH)
        if isinstance(self.kv, GroupedKV):
            _check("--kv-heads", self.kv.heads, MAX_WIDTH)
            if self.q_heads % self.kv.heads:
                raise InputError(f"--kv-heads {self.kv.heads} does not divide the {self.q_heads} query heads")
        else:
            _check("--latent-dim", self.kv.latent_dim, MAX_WIDTH)
            if self.kv.rope_dim:  # 0: no decoupled RoPE key
                _check("--rope-dim", self.kv.rope_dim, MAX_WIDTH)
        _check("--d", self.kv.head_dim, MAX_WIDTH)
        _check("--dv", self.kv.v_head_dim, MAX_WIDTH)
        if self.mask.window is not None:
            _check("--window", self.mask.window, MAX_LENGTH)
        if not self.lengths:
            raise InputError("--batch: a batch needs at least one sequence")
        for lengths in self.lengths:
            _check("--batch", lengths.count, MAX_BATCH)
            _check("--q-len", lengths.q_len, MAX_LENGTH)
            if lengths.kv_len:  # a sequence without keys is legal inside a batch
                _check("--kv-len", lengths.kv_len, MAX_LENGTH)
        self._check_cache()

    def _check_cache(self) -> None:
        if self.kv_dtype.bits > self.dtype.bits:
            raise InputError(f"--kv-dtype {self.kv_dtype.name} is wider than --dtype {self.dtype.name}")
        if self.max_len is not None:
            _check("--max-len", self.max_len, MAX_LENGTH)
            longest = max(lengths.kv_len for lengths in self.lengths)
            if self.max_len < longest:
                raise InputError(f"--max-len {self.max_len} is shorter than a sequence of {longest} tokens")
        if self.shared_prefix:
            _check("--shared-prefix", self.shared_prefix, MAX_LENGTH)
            shortest = min(lengths.kv_len for lengths in self.lengths)
            if self.shared_prefix > shortest:
                raise InputError(f"--shared-prefix {self.shared_prefix} is longer than a sequence of {shortest} tokens")

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return sum(lengths.count for lengths in self.lengths)

    @property
    def q_tokens(self) -> int:
        """Query tokens of the batch."""
        return sum(lengths.count * lengths.q_len for lengths in self.lengths)

    @property
    def kv_tokens(self) -> int:
        """Key tokens of the batch."""
        return sum(lengths.count * lengths.kv_len for lengths in self.lengths)

    @property
    def kv_heads(self) -> int:
        """KV heads that are stored: 1 for a latent cache."""
        return self.kv.heads if isinstance(self.kv, GroupedKV) else 1

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.q_heads // self.kv_heads

    @property
    def is_decode(self) -> bool:
        """Whether every sequence adds only a few tokens (at most ``DECODE_MAX_Q_LEN``)."""
        return max(lengths.q_len for lengths in self.lengths) <= DECODE_MAX_Q_LEN

    @property
    def pairs(self) -> int:
        """Unmasked (query, key) pairs of one query head, over the batch."""
        return sum(lengths.count * self.mask.pairs(lengths.q_len, lengths.kv_len) for lengths in self.lengths)

    @property
    def visible_keys(self) -> int:
        """Keys that some query sees, over the batch."""
        return sum(lengths.count * self.mask.visible_keys(lengths.q_len, lengths.kv_len) for lengths in self.lengths)

    def row_bytes(self, width: int) -> int:
        """Bytes of one row of ``width`` elements in the compute dtype (Q, O, S, P)."""
        return (width * self.dtype.bits + 7) // 8

    def kv_row_bytes(self, width: int) -> int:
        """Bytes of one cached row of ``width`` elements in the KV dtype, scales apart."""
        return (width * self.kv_dtype.bits + 7) // 8

    def scale_row_bytes(self, width: int) -> int:
        """Bytes of the scales that belong to one cached row: int8 one fp32, int4 one fp16 per 32 elements."""
        if self.kv_dtype.name == "int8":
            return 4
        if self.kv_dtype.name == "int4":
            return 2 * -(-width // INT4_GROUP)
        return 0

    @property
    def scale_tensor_bytes(self) -> int:
        """Bytes of a scale that belongs to a whole tensor: fp8 has one fp32."""
        return 4 if self.kv_dtype.name == "fp8" else 0


def uniform(batch: int, q_len: int, kv_len: int) -> tuple[Lengths, ...]:
    """Lengths of a batch of equal sequences."""
    return (Lengths(q_len, kv_len, batch),)


def ragged(pairs: Iterable[tuple[int, int]]) -> tuple[Lengths, ...]:
    """Lengths of a batch given as one ``(q_len, kv_len)`` a sequence, equal neighbours joined."""
    runs: list[Lengths] = []
    for q_len, kv_len in pairs:
        if runs and runs[-1][:2] == (q_len, kv_len):
            runs[-1] = Lengths(q_len, kv_len, runs[-1].count + 1)
        else:
            runs.append(Lengths(q_len, kv_len, 1))
    return tuple(runs)


def _check(option: str, value: int, most: int) -> None:
    if not 0 < value <= most:
        raise InputError(f"{option} {value}: expected a whole number from 1 to {most}")
