"""Parse and format quantities: the only place in the project that knows a prefix.

Inside, every number is in SI base units (bytes, FLOPs, seconds, hertz) without a prefix. SI prefixes are powers of 1000 and
IEC prefixes powers of 1024: GB is not GiB. Problem sizes follow the field instead: ``1k`` tokens are 1024.
"""

import math
import re
from decimal import Decimal

from roofline.errors import InputError

SI_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
IEC_PREFIXES = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
SMALL_SI_PREFIXES = {"": 0, "m": 3, "µ": 6, "n": 9, "p": 12}
COUNT_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}

_PREFIXES = {**SI_PREFIXES, **IEC_PREFIXES}
_QUANTITY = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>\S*)\s*")
_COUNT = re.compile(r"(?P<number>[0-9]{1,15})(?P<suffix>[a-z]?)")


def parse_count(text: str) -> int:
    """Return the whole number that ``text`` names: ``2048``, ``2k`` (= 2048) or ``1m`` (= 1048576).

    Raises ``InputError`` for anything else: a sign, a fraction, an unknown suffix.
    """
    match = _COUNT.fullmatch(text.strip().lower())
    if match is None or match["suffix"] not in COUNT_SUFFIXES:
        raise InputError(f"expected a whole number such as 2048, 2k or 1m, got {text!r}")
    return int(match["number"]) * COUNT_SUFFIXES[match["suffix"]]


def parse_quantity(text: str, unit: str) -> float:
    """Return the value of ``text`` in ``unit``: ``parse_quantity("3.35 TB/s", "B/s")`` is 3.35e12.

    Raises ``InputError`` when the unit is another one, or the number is not finite and positive.
    """
    match = _QUANTITY.fullmatch(text)
    prefix = match["unit"].removesuffix(unit) if match and match["unit"].endswith(unit) else None
    if match is None or prefix not in _PREFIXES:
        raise InputError(f"expected a quantity in {unit}, such as '3.35 T{unit}', got {text!r}")
    number = float(match["number"])
    if math.isfinite(number) and number > 0:
        # In decimal, because 66.9 x 10^12 in binary is not the double nearest to 66.9e12.
        value = float(Decimal(match["number"]) * _PREFIXES[prefix])
        if math.isfinite(value):
            return value
    raise InputError(f"expected a positive quantity in {unit}, got {text!r}")


def format_si(value: float, unit: str, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits and an SI prefix: ``1.07 GFLOP``, ``12.9 µs``."""
    return _format(value, unit, SI_PREFIXES, 1000, digits)


def format_iec(value: float, unit: str = "B", digits: int = 3) -> str:
    """Return ``value`` with an IEC prefix, as memory sizes are given: ``128 GiB``."""
    return _format(value, unit, IEC_PREFIXES, 1024, digits)


def format_number(value: float, digits: int = 3) -> str:
    """Return a plain number with ``digits`` significant digits and no exponent: ``0.498``, ``15.5``, ``1490``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(value)))
    rounded = round(value, digits - 1 - exponent)
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    return f"{rounded:.{decimals}f}"


def format_percent(ratio: float, digits: int = 3) -> str:
    """Return a ratio of 0-1 as a percentage: ``88.1 %``."""
    return f"{format_number(ratio * 100, digits)} %"


def format_count(count: int) -> str:
    """Return a size as users type it: ``2k`` for 2048, ``1000`` for 1000; the inverse of ``parse_count``."""
    for suffix, factor in reversed(COUNT_SUFFIXES.items()):
        if factor > 1 and count >= factor and count % factor == 0:
            return f"{count // factor}{suffix}"
    return str(count)


def _format(value: float, unit: str, prefixes: dict[str, int], base: int, digits: int) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    magnitude = abs(value)
    if magnitude < 1:
        return _format_small(value, unit, digits)
    # Rounding can reach the next prefix: 999.9 kB is printed as 1.00 MB, not as 1000 kB.
    chosen = [prefix for prefix, factor in prefixes.items() if float(f"{magnitude:.{digits - 1}e}") >= factor][-1]
    scaled = value / prefixes[chosen]
    if abs(float(f"{scaled:.{digits - 1}e}")) >= base:
        chosen = list(prefixes)[min(list(prefixes).index(chosen) + 1, len(prefixes) - 1)]
        scaled = value / prefixes[chosen]
    return f"{format_number(scaled, digits)} {chosen}{unit}"


def _format_small(value: float, unit: str, digits: int) -> str:
    for prefix, exponent in SMALL_SI_PREFIXES.items():
        scaled = value * 10**exponent
        if abs(float(f"{scaled:.{digits - 1}e}")) >= 1:
            return f"{format_number(scaled, digits)} {prefix}{unit}"
    return f"{value:.{digits - 1}e} {unit}"
