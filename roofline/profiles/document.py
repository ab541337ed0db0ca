"""A profile as a TOML document: parse one strictly, and write one back.

Values are text with their unit and name where they are from; a key that is unknown, a unit that does not fit and a number that
no device has are errors, because a typo in a profile would otherwise become a wrong roof.
"""

import tomllib
from collections.abc import Mapping
from typing import Any

from roofline.errors import InputError
from roofline.profiles.profile import CEILING_UNITS, MATRIX_DTYPES, MATRIX_RATES, Ceiling, CeilingKind, Profile
from roofline.units import parse_quantity

IDENTITY = ("id", "name", "vendor", "architecture", "compute_capability")
MAX_FILE_BYTES = 2**20

# Hardware fields: the units they may be given in, and the range that any device of the past and the next years falls into.
HARDWARE: Mapping[str, tuple[tuple[str, ...], float, float]] = {
    "sm_count": (("SM", "CU", "Xe"), 1, 4096),  # what AMD calls a CU and Intel an Xe core
    "l2_bytes": (("B",), 2**14, 2**30),
    "memory_bytes": (("B",), 2**26, 2**44),
    "shared_memory_per_sm_bytes": (("B",), 2**10, 2**24),
    "shared_memory_per_block_bytes": (("B",), 2**10, 2**24),
    "boost_clock_hz": (("Hz",), 1e8, 1e10),
    "tensor_clock_hz": (("Hz",), 1e8, 1e10),
}
WHOLE = ("sm_count", "l2_bytes", "memory_bytes", "shared_memory_per_sm_bytes", "shared_memory_per_block_bytes")
OPS_UNIT = "op/clk"

# The widest range believed for each ceiling: a prefix that slipped by a thousand falls outside.
_RATE_LIMITS = {"B/s": (1e9, 1e14), "FLOP/s": (1e10, 1e17), "OP/s": (1e10, 1e17), "exp/s": (1e9, 1e15), "op/s": (1e9, 1e16)}
_LIMITS: Mapping[str, tuple[float, float]] = {
    **{key: _RATE_LIMITS[unit] for key, unit in CEILING_UNITS.items() if unit in _RATE_LIMITS},
    "l2_bytes_per_s": (1e10, 1e15),
    "shared_memory_bytes_per_s": (1e10, 1e16),
    "cta_read_bytes_per_s": (1e7, 1e13),
    "launch_s": (1e-9, 1e-2),
}
_TOP_LEVEL = (
    *IDENTITY,
    "driver_names",
    "driver_names_source",
    "notes",
    "hardware",
    "tensor_ops_per_clk_per_sm",
    "datasheet",
    "measured",
)


def decode(data: bytes, where: str) -> dict[str, Any]:
    """Return the TOML document in ``data``; raise ``InputError`` that names ``where`` if it is no TOML text."""
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"{where}: expected a device profile in TOML, got more than {MAX_FILE_BYTES} bytes")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{where}: expected a device profile in TOML, got a file that is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: expected a device profile in TOML: {' '.join(str(error).split())}") from None


def parse(document: Mapping[str, Any], where: str) -> Profile:
    """Return the profile that ``document`` describes.

    Raises ``InputError`` for anything missing, unknown, out of range or in another unit, with ``where`` (the file) and key.
    """
    profile = parse_partial(document, where)
    ceilings = {**profile.measured, **profile.datasheet}
    if "hbm_bytes_per_s" not in ceilings:
        raise InputError(f"{where}: datasheet.hbm_bytes_per_s is missing; expected the memory bandwidth, such as '3.35 TB/s'")
    if not any(key in ceilings for key in (*MATRIX_RATES, "fp32_flop_per_s")):
        raise InputError(f"{where}: no matrix rate; expected at least one of {', '.join(MATRIX_RATES)} under [datasheet]")
    return profile


def parse_partial(document: Mapping[str, Any], where: str) -> Profile:
    """Return the profile in ``document`` as ``parse`` does, but without asking for a complete set of ceilings."""
    for key in document:
        if key not in _TOP_LEVEL:
            raise InputError(f"{where}: unknown key {key!r}; expected one of {', '.join(_TOP_LEVEL)}")
    identity: dict[str, Any] = {key: _text(document.get(key), f"{where}: {key}") for key in IDENTITY}
    hardware, sources = _hardware(_table(document, "hardware", where), where)
    names = _texts(document.get("driver_names", []), f"{where}: driver_names")
    if "driver_names_source" in document:
        sources["driver_names"] = _text(document["driver_names_source"], f"{where}: driver_names_source")
    elif names:
        raise InputError(f"{where}: driver_names_source is missing; expected where the driver's name was seen")
    return Profile(
        **identity,
        **hardware,
        driver_names=names,
        tensor_ops_per_clk_per_sm=_tensor_ops(_table(document, "tensor_ops_per_clk_per_sm", where), where, sources),
        datasheet=_ceilings(document, "datasheet", where),
        measured=_ceilings(document, "measured", where),
        notes=_texts(document.get("notes", []), f"{where}: notes"),
        sources=sources,
    )


def to_document(profile: Profile) -> dict[str, Any]:
    """Return the TOML document that ``parse_partial`` reads back as ``profile``; values are written to the last digit."""
    document: dict[str, Any] = {key: getattr(profile, key) for key in IDENTITY}
    if profile.driver_names:
        document["driver_names"] = list(profile.driver_names)
        document["driver_names_source"] = profile.sources.get("driver_names", "the driver")
    if profile.notes:
        document["notes"] = list(profile.notes)
    hardware = {key: getattr(profile, key) for key in HARDWARE if getattr(profile, key) is not None}
    if hardware:
        document["hardware"] = {
            key: {"value": f"{value!r} {HARDWARE[key][0][0]}", "source": profile.sources.get(key, "the driver")}
            for key, value in hardware.items()
        }
    if profile.tensor_ops_per_clk_per_sm:
        document["tensor_ops_per_clk_per_sm"] = {
            dtype: {"value": f"{ops} {OPS_UNIT}", "source": profile.sources.get(f"tensor_ops_per_clk_per_sm.{dtype}", "?")}
            for dtype, ops in profile.tensor_ops_per_clk_per_sm.items()
        }
    for section, ceilings in (("datasheet", profile.datasheet), ("measured", profile.measured)):
        if ceilings:
            document[section] = {key: _ceiling_entry(key, ceiling, section) for key, ceiling in ceilings.items()}
    return document


def _ceiling_entry(key: str, ceiling: Ceiling, section: str) -> dict[str, str]:
    entry = {"value": f"{float(ceiling.value)!r} {CEILING_UNITS[key]}", "source": ceiling.source}
    return entry if section == "measured" else {**entry, "kind": ceiling.kind}


def _hardware(table: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, entry in table.items():
        at = f"{where}: hardware.{key}"
        if key not in HARDWARE:
            raise InputError(f"{at}: unknown key; expected one of {', '.join(HARDWARE)}")
        units, low, high = HARDWARE[key]
        text, sources[key], _ = _entry(entry, at, ())
        unit = next((unit for unit in units if text.endswith(unit)), units[0])
        value = _quantity(text, unit, low, high, at)
        if key in WHOLE and not value.is_integer():
            raise InputError(f"{at}: expected a whole number of {unit}, got {text!r}")
        values[key] = int(value) if key in WHOLE else value
    return values, sources


def _tensor_ops(table: Mapping[str, Any], where: str, sources: dict[str, str]) -> dict[str, int]:
    ops: dict[str, int] = {}
    for dtype, entry in table.items():
        at = f"{where}: tensor_ops_per_clk_per_sm.{dtype}"
        if dtype not in MATRIX_DTYPES:
            raise InputError(f"{at}: unknown dtype; expected one of {', '.join(MATRIX_DTYPES)}")
        text, sources[f"tensor_ops_per_clk_per_sm.{dtype}"], _ = _entry(entry, at, ())
        value = _quantity(text, OPS_UNIT, 1, 2**20, at)
        if not value.is_integer():
            raise InputError(f"{at}: expected a whole number of {OPS_UNIT}, got {text!r}")
        ops[dtype] = int(value)
    return ops


def _ceilings(document: Mapping[str, Any], section: str, where: str) -> dict[str, Ceiling]:
    kinds: tuple[CeilingKind, ...] = ("measured",) if section == "measured" else ("datasheet", "derived")
    ceilings: dict[str, Ceiling] = {}
    for key, entry in _table(document, section, where).items():
        at = f"{where}: {section}.{key}"
        if key not in CEILING_UNITS:
            raise InputError(f"{at}: unknown key; expected one of {', '.join(CEILING_UNITS)}")
        text, source, kind = _entry(entry, at, kinds)
        value = _quantity(text, CEILING_UNITS[key], *_LIMITS[key], at)
        ceilings[key] = Ceiling(value, kind or kinds[0], source)
    return ceilings


def _entry(entry: object, at: str, kinds: tuple[CeilingKind, ...]) -> tuple[str, str, CeilingKind | None]:
    """Split ``{value, source, kind}``; ``kinds`` are those allowed here, none of them where an entry has no kind."""
    if not isinstance(entry, dict):
        raise InputError(f"{at}: expected {{ value = '...', source = '...' }}, got {_shown(entry)}")
    for key in entry:
        if key not in ("value", "source", *(("kind",) if kinds else ())):
            raise InputError(f"{at}: unknown key {key!r}; expected value, source{' or kind' if kinds else ''}")
    kind = next((kind for kind in kinds if kind == entry.get("kind")), None)
    if "kind" in entry and kind is None:
        raise InputError(f"{at}.kind: expected {' or '.join(kinds)}, got {_shown(entry['kind'])}")
    return _text(entry.get("value"), f"{at}.value"), _text(entry.get("source"), f"{at}.source"), kind


def _quantity(text: str, unit: str, low: float, high: float, at: str) -> float:
    try:
        value = parse_quantity(text, unit)
    except InputError as error:
        raise InputError(f"{at}: {error}") from None
    if not low <= value <= high:
        raise InputError(f"{at}: {text!r} is not plausible; expected {low:g} to {high:g} {unit}")
    return value


def _table(document: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise InputError(f"{where}: {key}: expected a table, got {_shown(table)}")
    return table


def _texts(value: object, at: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f"{at}: expected a list of texts, got {_shown(value)}")
    return tuple(_text(item, at) for item in value)


def _text(value: object, at: str) -> str:
    if value is None:
        raise InputError(f"{at} is missing; expected a text")
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{at}: expected a text, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits has no decimal repr
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
