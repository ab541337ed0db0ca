import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline import units
from roofline.errors import InputError


@pytest.mark.parametrize(
    ("prefix", "factor"),
    [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15), ("E", 1e18)],
)
def test_every_si_prefix(prefix: str, factor: float) -> None:
    assert units.SI_PREFIXES[prefix] == factor
    assert units.parse_quantity(f"2.5 {prefix}B/s", "B/s") == 2.5 * factor
    assert units.format_si(2.5 * factor, "B/s") == f"2.50 {prefix}B/s"


@pytest.mark.parametrize(
    ("prefix", "factor"),
    [
        ("", 1),
        ("Ki", 1024),
        ("Mi", 1048576),
        ("Gi", 1073741824),
        ("Ti", 1099511627776),
        ("Pi", 1125899906842624),
        ("Ei", 1152921504606846976),
    ],
)
def test_every_iec_prefix(prefix: str, factor: int) -> None:
    assert units.IEC_PREFIXES[prefix] == factor
    assert units.parse_quantity(f"80 {prefix}B", "B") == 80 * factor
    assert units.format_iec(80 * factor) == f"80.0 {prefix}B"


@pytest.mark.parametrize(("prefix", "value"), [("", 1.5), ("m", 1.5e-3), ("µ", 1.5e-6), ("n", 1.5e-9), ("p", 1.5e-12)])
def test_every_small_si_prefix(prefix: str, value: float) -> None:
    assert units.format_si(value, "s") == f"1.50 {prefix}s"


def test_no_table_holds_a_prefix_that_no_test_knows() -> None:
    assert "".join(units.SI_PREFIXES) == "kMGTPE"
    assert "".join(units.IEC_PREFIXES) == "KiMiGiTiPiEi"
    assert "".join(units.SMALL_SI_PREFIXES) == "mµnp"
    assert units.COUNT_SUFFIXES == {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def test_gb_is_not_gib() -> None:
    assert units.parse_quantity("80 GB", "B") == 80_000_000_000
    assert units.parse_quantity("80 GiB", "B") == 85_899_345_920


@pytest.mark.parametrize(
    ("text", "unit", "value"), [("66.9 TFLOP/s", "FLOP/s", 66.9e12), ("2.062 GHz", "Hz", 2062e6), ("1.1e3 kB", "B", 1.1e6)]
)
def test_a_decimal_number_stays_the_nearest_double(text: str, unit: str, value: float) -> None:
    assert units.parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("3.35", "B/s"),
        ("3.35 TB", "B/s"),
        ("3.35 XB/s", "B/s"),
        ("-1 B/s", "B/s"),
        ("0 B/s", "B/s"),
        ("inf B/s", "B/s"),
        ("nan B/s", "B/s"),
        ("1e999 B/s", "B/s"),
        ("1e308 EB/s", "B/s"),
        ("1e-9999999999999999999999 B/s", "B/s"),
        ("1e9999999999999999999999 B/s", "B/s"),
        ("1,5 B/s", "B/s"),
        ("", "B/s"),
        ("1 TB/s TB/s", "B/s"),
        ("1 TFLOP/s", "OP/s"),
    ],
)
def test_a_quantity_that_is_none_is_refused(text: str, unit: str) -> None:
    with pytest.raises(InputError, match="expected a"):
        units.parse_quantity(text, unit)


@given(st.floats(min_value=1, max_value=9e20), st.integers(min_value=3, max_value=12))
def test_parsing_what_was_formatted_gives_the_value_back_to_its_digits(value: float, digits: int) -> None:
    assert units.parse_quantity(units.format_si(value, "FLOP/s", digits), "FLOP/s") == pytest.approx(
        value, rel=10.0 ** (1 - digits)
    )
    assert units.parse_quantity(units.format_iec(value, "B", digits), "B") == pytest.approx(value, rel=10.0 ** (1 - digits))


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_written_value_is_read_back_to_the_last_bit(value: float) -> None:
    assert units.parse_quantity(f"{value!r} B/s", "B/s") == value


@given(st.integers(min_value=0, max_value=2**40))
def test_a_count_survives_formatting(count: int) -> None:
    assert units.parse_count(units.format_count(count)) == count


@pytest.mark.parametrize(("text", "count"), [("2048", 2048), ("2k", 2048), ("1M", 2**20), (" 3g ", 3 * 2**30), ("0", 0)])
def test_counts(text: str, count: int) -> None:
    assert units.parse_count(text) == count


@pytest.mark.parametrize("text", ["", "-1", "1.5k", "2kb", "2 k", "x", "1t", "0x10", "٣", "9" * 5000])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected a whole number"):
        units.parse_count(text)


@given(st.floats(min_value=1, max_value=9e20))
def test_a_formatted_number_never_reaches_the_next_prefix(value: float) -> None:
    assert float(units.format_si(value, "B").split()[0]) < 1000 or value > 9e20
    assert float(units.format_iec(value).split()[0]) < 1024


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.498, "0.498"), (15.5, "15.5"), (1490.0, "1490"), (0.0, "0"), (9.999, "10.0"), (-2.0, "-2.00"), (math.inf, "inf")],
)
def test_plain_numbers(value: float, text: str) -> None:
    assert units.format_number(value) == text


def test_a_ratio_is_printed_as_percent() -> None:
    assert units.format_percent(0.881) == "88.1 %"


def test_values_that_round_up_take_the_next_prefix() -> None:
    assert units.format_si(999_900, "B") == "1.00 MB"
    assert units.format_si(999.9e-6, "s") == "1.00 ms"
