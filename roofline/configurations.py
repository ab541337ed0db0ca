"""What a request compares: named configurations, as visible lists, from the options of the command line.

A request changes the base problem of all default configurations. Options that name an axis (KV heads, window, variants,
phase) pin it, and configurations that become equal are listed once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import Literal, NamedTuple

from roofline.dtypes import compute_dtype, kv_dtype
from roofline.errors import InputError
from roofline.masks import Mask
from roofline.plan import Choices
from roofline.problem import (
    DECODE_MAX_Q_LEN,
    MAX_BATCH,
    MAX_LENGTH,
    MAX_WIDTH,
    GroupedKV,
    LatentKV,
    Lengths,
    Problem,
    ragged,
    uniform,
)

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")
Sharing = Literal["mha", "gqa", "mqa", "swa", "mla", "linear"]

DEFAULT_N = 2048
DEFAULT_HEAD_DIM = 128
DEFAULT_Q_HEADS = 32
DEFAULT_GQA_KV_HEADS = 8
DEFAULT_WINDOW = 1024
VARIANT_NAMES = ("naive", "chunked", "flash", "split-kv", "paged", "mla", "linear")


class Entry(NamedTuple):
    """One line of the default comparison: which heads share KV (or how it is stored), and the variant with its form."""

    sharing: Sharing
    variant: str
    form: str | None = None


DEFAULT_COMPARISON: dict[Phase, tuple[Entry, ...]] = {
    "prefill": (
        Entry("mha", "naive"),
        Entry("mha", "chunked"),
        Entry("mha", "flash"),
        Entry("gqa", "flash"),
        Entry("mqa", "flash"),
        Entry("swa", "flash"),
        Entry("mla", "mla", "expanded"),
        Entry("linear", "linear", "chunked"),
    ),
    "decode": (
        Entry("mha", "naive"),
        Entry("mha", "flash"),
        Entry("mha", "split-kv"),
        Entry("gqa", "split-kv"),
        Entry("mqa", "split-kv"),
        Entry("gqa", "paged"),
        Entry("swa", "split-kv"),
        Entry("mla", "mla", "absorbed"),
        Entry("linear", "linear", "recurrent"),
    ),
}
FORMS = {"mla": ("expanded", "absorbed"), "linear": ("parallel", "chunked", "recurrent")}


class Configuration(NamedTuple):
    """A named problem and variant, with what is fixed of its plan."""

    name: str
    variant: str
    phase: Phase
    problem: Problem
    choices: Choices


@dataclass(frozen=True, slots=True)
class Request:
    """The problem options of the command line, parsed; ``None`` where the user left an option out."""

    n: int | None = None
    q_len: int | None = None
    kv_len: int | None = None
    kv_lens: tuple[int, ...] | None = None
    d: int = DEFAULT_HEAD_DIM
    dv: int | None = None
    heads: int = DEFAULT_Q_HEADS
    kv_heads: int | None = None
    batch: int | None = None
    causal: bool = False
    window: int | None = None
    dtype: str = "bf16"
    kv_dtype: str | None = None
    page_size: int = 16
    max_len: int | None = None
    shared_prefix: int = 0
    latent_dim: int = 512
    rope_dim: int = 64
    mla_projections: bool = False
    splits: int | None = None
    tile: tuple[int, int] | None = None
    chunk: tuple[int, int] | None = None
    naive_passes: int = 3
    layers: int = 1
    variants: tuple[str, ...] | None = None
    phase: Phase | None = None

    def __post_init__(self) -> None:
        """Reject options that contradict each other, and sizes that no problem checks under the name the user typed."""
        if self.n is not None and self.kv_len is not None and self.n != self.kv_len:
            raise InputError(f"--n {self.n} and --kv-len {self.kv_len} contradict each other: give one of them")
        if self.kv_lens is not None:
            for option, value in (("--n", self.n), ("--kv-len", self.kv_len)):
                if value is not None:
                    raise InputError(f"--kv-lens and {option} contradict each other: --kv-lens defines the batch")
            if self.batch is not None and self.batch != len(self.kv_lens):
                raise InputError(f"--batch {self.batch} contradicts the {len(self.kv_lens)} lengths of --kv-lens")
            if not self.kv_lens or not any(self.kv_lens):
                raise InputError("--kv-lens: expected at least one sequence with keys")
        for option, size, least, most in (
            ("--n", self.n, 1, MAX_LENGTH),
            ("--kv-len", self.kv_len, 1, MAX_LENGTH),
            ("--kv-lens", max(self.kv_lens or (0,)), 0, MAX_LENGTH),
            ("--batch", self.batch, 1, MAX_BATCH),
            ("--latent-dim", self.latent_dim, 1, MAX_WIDTH),  # also where no configuration of the request has a latent
            ("--rope-dim", self.rope_dim, 0, MAX_WIDTH),
        ):
            if size is not None and not least <= size <= most:
                raise InputError(f"{option} {size}: expected a whole number from {least} to {most}")
        if self.kv_dtype is not None:
            kv_dtype(self.kv_dtype)
        for variant in self.variants or ():
            _parse_variant(variant)


def configurations(request: Request) -> list[Configuration]:
    """Return the configurations of ``request`` in the order of the default comparison, equal ones once.

    Raises ``InputError`` when a size is bad or nothing is left to compare.
    """
    found = [configuration for phase in _phases(request) for configuration in _of_phase(request, phase)]
    if not found:
        raise InputError(f"--variants {', '.join(request.variants or ())}: no configuration in phase {request.phase}")
    return found


def _of_phase(request: Request, phase: Phase) -> Iterator[Configuration]:
    dtype = compute_dtype(request.dtype)
    stored = dtype if request.kv_dtype is None else kv_dtype(request.kv_dtype)
    lengths = _lengths(request, phase)
    made: set[tuple[str, str | None, GroupedKV | LatentKV, int | None]] = set()
    for entry in _entries(request, phase):
        window, kv = _window(request, entry), _kv(request, entry.sharing)
        key = (entry.variant, entry.form, kv, window)
        if key in made:  # pinned axes make entries of the default comparison equal
            continue
        made.add(key)
        problem = Problem(
            q_heads=request.heads,
            kv=kv,
            lengths=lengths,
            mask=Mask(request.causal or window is not None, window),
            dtype=dtype,
            kv_dtype=stored,
            page_size=request.page_size,
            max_len=request.max_len,
            shared_prefix=request.shared_prefix,
            mla_projections=request.mla_projections,
            layers=request.layers,
        )
        choices = Choices(request.tile, request.chunk, request.splits, request.naive_passes, entry.form, phase == "decode")
        yield Configuration(_name(request, entry, kv, window), entry.variant, phase, problem, choices)


def _phases(request: Request) -> tuple[Phase, ...]:
    if request.phase is not None:
        return (request.phase,)
    if request.q_len is not None:
        return ("decode",) if request.q_len <= DECODE_MAX_Q_LEN else ("prefill",)
    return PHASES


def _lengths(request: Request, phase: Phase) -> tuple[Lengths, ...]:
    if request.kv_lens is not None:
        q_len = 1 if request.q_len is None and phase == "decode" else request.q_len
        if q_len is None:  # each sequence attends to itself; one without tokens has no queries either
            return ragged((kv_len, kv_len) for kv_len in request.kv_lens if kv_len)
        return ragged((q_len, kv_len) for kv_len in request.kv_lens)
    n = request.n if request.n is not None else request.kv_len
    kv_len = DEFAULT_N if n is None else n
    q_len = request.q_len if request.q_len is not None else (1 if phase == "decode" else kv_len)
    return uniform(1 if request.batch is None else request.batch, q_len, kv_len)


def _entries(request: Request, phase: Phase) -> Iterable[Entry]:
    if request.variants is None:
        return DEFAULT_COMPARISON[phase]
    entries: list[Entry] = []
    for name in request.variants:
        variant, form = _parse_variant(name)
        listed = [e for e in DEFAULT_COMPARISON[phase] if e.variant == variant and form in (None, e.form)]
        if not listed and (request.phase is not None or request.q_len is not None or form is not None or not _listed(variant)):
            listed = [_unlisted(variant, form)]
        entries.extend(listed)
    return entries


def _listed(variant: str) -> bool:
    return any(entry.variant == variant for entries in DEFAULT_COMPARISON.values() for entry in entries)


def _unlisted(variant: str, form: str | None) -> Entry:
    sharing: Sharing = "mla" if variant == "mla" else "linear" if variant == "linear" else "gqa"
    return Entry(sharing, variant, form)


def _parse_variant(text: str) -> tuple[str, str | None]:
    """``flash`` or, with a form, ``mla/absorbed``."""
    variant, _, form = text.partition("/")
    if variant not in VARIANT_NAMES:
        raise InputError(f"--variants: unknown variant {text!r}; expected some of {', '.join(VARIANT_NAMES)}")
    if form and form not in FORMS.get(variant, ()):
        known = ", ".join(f"{variant}/{name}" for name in FORMS.get(variant, ())) or variant
        raise InputError(f"--variants: unknown form {text!r}; expected {known}")
    return variant, form or None


def _window(request: Request, entry: Entry) -> int | None:
    if entry.sharing == "swa" and request.window is None:
        return DEFAULT_WINDOW
    if entry.sharing == "linear" and request.variants is None:
        return None  # linear attention has no window: it stays in the default comparison without one
    return request.window


def _kv(request: Request, sharing: Sharing) -> GroupedKV | LatentKV:
    dv = request.d if request.dv is None else request.dv
    if sharing == "mla":
        return LatentKV(request.latent_dim, request.rope_dim, request.d, dv)
    return GroupedKV(_kv_heads(request, sharing), request.d, dv)


def _kv_heads(request: Request, sharing: Sharing) -> int:
    if request.kv_heads is not None:
        return request.kv_heads
    if sharing in ("mha", "linear"):
        return request.heads
    if sharing == "mqa":
        return 1
    return gcd(request.heads, DEFAULT_GQA_KV_HEADS) if request.heads > 0 else 1  # 8 where they divide the query heads


def _name(request: Request, entry: Entry, kv: GroupedKV | LatentKV, window: int | None) -> str:
    """Sharing and variant; under a window the configuration with the KV heads of ``swa`` takes that name."""
    if isinstance(kv, LatentKV) or entry.sharing == "linear":
        return f"{entry.sharing}/{entry.form}" if entry.form else entry.sharing
    if window is not None and kv.heads == _kv_heads(request, "swa"):
        prefix = "swa"
    elif kv.heads == request.heads:
        prefix = "mha"
    else:
        prefix = "mqa" if kv.heads == 1 else "gqa"
    return f"{prefix}/{entry.variant}"
