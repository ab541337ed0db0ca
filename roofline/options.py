"""The options that commands share, each stated once, and what they parse to.

Problem options reach Typer as texts, so that one table serves ``analyze`` (one value each) and ``sweep`` (lists and ranges).
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import typer

from roofline.analysis import Conventions
from roofline.configurations import DEFAULT_N, Phase, Request
from roofline.errors import InputError
from roofline.profiles.profile import Profile
from roofline.sweep import axis
from roofline.units import parse_count, parse_quantity


class ProblemOption(NamedTuple):
    """An option that commands share: the field of ``Request`` (or of a model's analysis) it sets, how it is read, its help."""

    name: str
    field: str
    kind: Literal["count", "counts", "pair", "name", "names", "flag", "bytes"]
    help: str
    panel: str = "Problem"

    @property
    def parameter(self) -> str:
        """Name of the Python parameter that Typer fills."""
        return self.name.removeprefix("--").replace("-", "_")


PROBLEM_OPTIONS = (
    ProblemOption("--n", "n", "count", "Tokens: q_len and kv_len in prefill, kv_len in decode (default 2048; 1k is 1024)."),
    ProblemOption("--q-len", "q_len", "count", "Query tokens a sequence."),
    ProblemOption("--kv-len", "kv_len", "count", "Key tokens a sequence."),
    ProblemOption("--kv-lens", "kv_lens", "counts", "A batch of unequal sequences: 512,2048,8192."),
    ProblemOption("--d", "d", "count", "Head size of Q and K (default 128); for MLA without the RoPE part."),
    ProblemOption("--dv", "dv", "count", "Head size of V and O (default: as --d)."),
    ProblemOption("--heads", "heads", "count", "Query heads (default 32)."),
    ProblemOption("--kv-heads", "kv_heads", "count", "KV heads of every configuration (default: heads, 8 for GQA, 1 for MQA)."),
    ProblemOption("--batch", "batch", "count", "Sequences (default 1)."),
    ProblemOption("--causal", "causal", "flag", "Causal mask, aligned bottom-right."),
    ProblemOption("--window", "window", "count", "The last W keys, the query's own included; implies --causal."),
    ProblemOption("--dtype", "dtype", "name", "fp32, tf32, bf16, fp16 or fp8 (default bf16, else fp16)."),
    ProblemOption("--kv-dtype", "kv_dtype", "name", "Storage of K and V: also int8 and int4 (default: as --dtype)."),
    ProblemOption("--page-size", "page_size", "count", "Tokens a page of a paged cache (default 16)."),
    ProblemOption("--max-len", "max_len", "count", "Tokens that a contiguous cache reserves a sequence."),
    ProblemOption("--shared-prefix", "shared_prefix", "count", "Tokens of a prefix whose whole pages all sequences share."),
    ProblemOption("--latent-dim", "latent_dim", "count", "Latent size of MLA (default 512)."),
    ProblemOption("--rope-dim", "rope_dim", "count", "RoPE key size of MLA (default 64)."),
    ProblemOption("--mla-projections", "mla_projections", "flag", "Count MLA's W_UK and W_UV as launches."),
    ProblemOption("--splits", "splits", "count", "Splits of the keys in split-KV (default: fill the SMs)."),
    ProblemOption("--tile", "tile", "pair", "Tile of queries x keys, such as 64x64."),
    ProblemOption("--chunk", "chunk", "pair", "Block of chunked attention, such as 1kx4k (the default)."),
    ProblemOption("--naive-passes", "naive_passes", "count", "Naive attention in 3 launches (default) or 6 passes over S."),
    ProblemOption("--layers", "layers", "count", "Layers; they multiply the KV cache only."),
    ProblemOption("--variants", "variants", "names", "Only some of naive, chunked, flash, split-kv, paged, mla, linear."),
    ProblemOption("--phase", "phase", "name", "prefill, decode or both (default)."),
    ProblemOption("--decode", "decode", "flag", "One query token a sequence."),
)  # fmt: skip

MODEL_OPTIONS = (
    ProblemOption("--model", "model", "name", "A whole model: config.json, its folder, or one of `roofline models`.", "Model"),
    ProblemOption("--weight-dtype", "weight_dtype", "name", "Storage of the layers' weights: bf16, fp8, int8, int4.", "Model"),
    ProblemOption("--reserve", "reserve_bytes", "bytes", "Memory kept free, such as 8GiB (default: a tenth).", "Model"),
)  # fmt: skip
WITH_MODEL = ("--n", "--batch", "--phase", "--decode", "--dtype", "--kv-dtype", "--page-size")  # the model's file has the rest
SWEPT_WITH_MODEL = ("--n", "--batch")

Device = Annotated[
    str, typer.Option("--device", help="Device name, profile file, or auto (the local GPU).", rich_help_panel="Device")
]
Gpu = Annotated[
    str | None, typer.Option("--gpu", help="GPU index or UUID on a machine with several.", rich_help_panel="Device")
]
RoofName = Annotated[str, typer.Option("--roof", help="datasheet or measured.", rich_help_panel="Device")]
FlopName = Annotated[
    str,
    typer.Option("--flop-convention", help="exact, full (no mask) or half (plain causal halved).", rich_help_panel="Device"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.", rich_help_panel="Output")]
Out = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write a file: .json, .csv or .txt.", rich_help_panel="Output")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.", rich_help_panel="Output")]

Given = Mapping[str, Any]  # problem options as typed, by parameter name


class ModelRequest(NamedTuple):
    """What ``--model`` asks for: the name, lengths and batches (one each but in a sweep), arguments of ``analyze_model``."""

    name: str
    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    settings: dict[str, Any]


def with_problem_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the problem options; it receives what the user typed of them as its first argument."""
    return _with(PROBLEM_OPTIONS, command)


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the problem options and those of a whole model; ``given["model"]`` says which of the two is meant."""
    return _with((*MODEL_OPTIONS, *PROBLEM_OPTIONS), command)


def with_measure_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the problem options and ``--model``: only a model's attention is measured, whatever its weights."""
    return _with((*MODEL_OPTIONS[:1], *PROBLEM_OPTIONS), command)


def _with(options: tuple[ProblemOption, ...], command: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    own = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in list(signature.parameters.values())[1:]]
    shared = [_parameter(option) for option in options]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        command({option.parameter: values.pop(option.parameter) for option in options}, **values)

    parameters = [*shared, *own]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def request(given: Given, profile: Profile) -> tuple[Request, list[str]]:
    """Build the request of ``analyze`` from the options typed, with notes for the header."""
    _refuse_model_options(given)
    values = {option.field: _read(option, given[option.parameter]) for option in PROBLEM_OPTIONS if _is_given(given, option)}
    notes = _default_dtype(values, profile)
    return _request(values), notes


@contextlib.contextmanager
def named(argument: str, *, instead_of: str) -> Iterator[None]:
    """Report bad input under the name that was typed, where an ``argument`` stands for an option."""
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(argument + text.removeprefix(instead_of) if text.startswith(instead_of) else text) from None


def request_axes(given: Given, profile: Profile) -> tuple[Request, dict[str, tuple[int, ...]], list[str]]:
    """Build the base request of ``sweep`` and the axes that a list or range spans, in the order of the options."""
    _refuse_model_options(given)
    values: dict[str, Any] = {}
    axes: dict[str, tuple[int, ...]] = {}
    for option in PROBLEM_OPTIONS:
        if not _is_given(given, option):
            continue
        text = given[option.parameter]
        if option.kind == "count" and ("," in text or ":" in text):
            axes[option.field] = axis(option.name, text)
            values[option.field] = axes[option.field][0]
        else:
            values[option.field] = _read(option, text)
    notes = _default_dtype(values, profile)
    return _request(values), axes, notes


def model_request(given: Given, profile: Profile | None, *, swept: bool = False) -> tuple[ModelRequest, list[str]]:
    """Build what ``--model`` asks for, with notes for the header; ``swept``: lengths and batches may be lists and ranges.

    Without a ``profile`` the dtype defaults to bf16, which every device has that ``measure`` runs on.
    """
    values: dict[str, Any] = {}
    for option in (*MODEL_OPTIONS, *PROBLEM_OPTIONS):
        if not _is_given(given, option):
            continue
        if option not in MODEL_OPTIONS and option.name not in WITH_MODEL:
            raise InputError(f"{option.name} contradicts --model, which says it: leave it out, or give {', '.join(WITH_MODEL)}")
        in_list = swept and option.name in SWEPT_WITH_MODEL
        text = given[option.parameter]
        values[option.field] = axis(option.name, text) if in_list else _read(option, text)
    notes = _default_dtype(values, profile)
    _decode_is_a_phase(values)
    phase = _one_of("--phase", values.pop("phase", "both"), ("prefill", "decode", "both"))
    values["phases"] = ("prefill", "decode") if phase == "both" else (phase,)
    lengths, batches = values.pop("n", DEFAULT_N), values.pop("batch", 1)
    as_axes = [value if isinstance(value, tuple) else (value,) for value in (lengths, batches)]
    return ModelRequest(values.pop("model"), as_axes[0], as_axes[1], values), notes


def refuse_with_model(given: Mapping[str, bool]) -> None:
    """Refuse options of a command that say nothing about a model, where they were given."""
    for name, was_given in given.items():
        if was_given:
            raise InputError(f"{name} contradicts --model: it is for attention problems, leave it out")


def _refuse_model_options(given: Given) -> None:
    for option in MODEL_OPTIONS:
        if given.get(option.parameter) is not None:
            raise InputError(f"{option.name} is for whole models: give --model too")


def _default_dtype(values: dict[str, Any], profile: Profile | None) -> list[str]:
    if "dtype" in values or profile is None:
        return []
    values["dtype"] = profile.default_dtype
    return [f"{profile.name} has no bf16: fp16 is used"] if values["dtype"] != "bf16" else []


def measure_options(given: Given, suite: str | None, peers: str | None, counters: str, l2: str) -> tuple[Any, list[str]]:
    """Build what ``measure`` is asked for, a model, a suite or the problem options typed, with notes for the terminal."""
    from roofline.measure.options import Options
    from roofline.peers import PEERS

    with_model = given["model"] is not None
    chosen, notes = _measured_model(given, suite) if with_model else ((), [])
    typed = () if with_model else tuple(option for option in PROBLEM_OPTIONS if _is_given(given, option))
    values = {option.field: _read(option, given[option.parameter]) for option in typed}
    names = tuple(name.strip() for name in peers.split(",")) if peers else ()
    wanted = Options(
        chosen=chosen,
        request=_request(values) if values else None,
        suite="default" if suite is None else suite,
        peers=tuple(PEERS) if names == ("all",) else names,
        counters=cast(Any, _one_of("--counters", counters, ("auto", "ncu", "off"))),
        l2=cast(Any, _one_of("--l2", l2, ("cold", "warm"))),
        command=("roofline", *sys.argv[1:]),
    )
    return wanted, notes


def _measured_model(given: Given, suite: str | None) -> tuple[tuple[Any, ...], list[str]]:
    """Return the configurations of ``measure --model`` and what to say of the layers."""
    from roofline.measure.models import layers_note, model_configurations
    from roofline.models import load_model

    if suite is not None:
        raise InputError("--suite contradicts --model: give one of them")
    asked, _ = model_request(given, None)
    spec, (n,), (batch,) = load_model(asked.name), asked.lengths, asked.batches
    return tuple(model_configurations(spec, n, batch, **asked.settings)), [layers_note(spec)]


def conventions(flop_convention: str, roof: str) -> Conventions:
    """Check the names of the two conventions."""
    return Conventions(
        cast(Any, _one_of("--flop-convention", flop_convention, ("exact", "full", "half"))),
        cast(Any, _one_of("--roof", roof, ("datasheet", "measured"))),
    )


def _request(values: dict[str, Any]) -> Request:
    if _decode_is_a_phase(values):
        values["q_len"] = 1
    if "phase" in values:
        phase = _one_of("--phase", values.pop("phase"), ("prefill", "decode", "both"))
        if phase != "both":
            values["phase"] = cast(Phase, phase)
    known = {field.name for field in fields(Request)}
    return Request(**{name: value for name, value in values.items() if name in known})


def _decode_is_a_phase(values: dict[str, Any]) -> bool:
    """Replace ``--decode`` by what it means."""
    if not values.pop("decode", False):
        return False
    if values.get("q_len", 1) != 1 or values.get("phase", "decode") != "decode":
        raise InputError("--decode means --q-len 1 --phase decode: leave out the option that says otherwise")
    values["phase"] = "decode"
    return True


def _is_given(given: Given, option: ProblemOption) -> bool:
    return given.get(option.parameter) not in (None, False)


def _parameter(option: ProblemOption) -> inspect.Parameter:
    kind: Any = bool if option.kind == "flag" else str | None
    metavar = {"count": "N", "counts": "A,B,..", "pair": "QxK", "names": "A,B,..", "bytes": "BYTES"}.get(option.kind)
    declared = typer.Option(option.name, help=option.help, rich_help_panel=option.panel, metavar=metavar)
    return inspect.Parameter(
        option.parameter,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if option.kind == "flag" else None,
        annotation=Annotated[kind, declared],
    )


def _read(option: ProblemOption, text: Any) -> Any:
    if option.kind == "count":
        return _count(option.name, text)
    if option.kind == "counts":
        return tuple(_count(option.name, part) for part in text.split(","))
    if option.kind == "pair":
        sizes = text.lower().split("x")
        if len(sizes) != 2:
            raise InputError(f"{option.name}: expected two sizes such as 64x64, got {text!r}")
        return tuple(_count(option.name, size) for size in sizes)
    if option.kind == "bytes":
        return _bytes(option.name, text)
    if option.kind == "names":
        return tuple(name.strip() for name in text.split(","))
    return text


def _count(option: str, text: str) -> int:
    try:
        return parse_count(text)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def _bytes(option: str, text: str) -> int:
    """Bytes from ``8GiB``, ``4.5 GB`` or a bare number."""
    try:
        return int(text) if text.isdecimal() and len(text) <= 18 else round(parse_quantity(text, "B"))
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def _one_of(option: str, name: str, allowed: tuple[str, ...]) -> str:
    if name not in allowed:
        raise InputError(f"{option}: expected {', '.join(allowed[:-1])} or {allowed[-1]}, got {name!r}")
    return name
