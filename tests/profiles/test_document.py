"""What a profile file may not be: each mistake is one line that names the file, the key and what was expected."""

import tomllib
from pathlib import Path

import pytest
import tomli_w

from roofline.errors import InputError
from roofline.profiles import load
from roofline.profiles.document import parse, parse_partial, to_document
from roofline.profiles.load import names

GOOD = """
id = "test-1"
name = "Test 1"
vendor = "Somebody"
architecture = "First"
compute_capability = "1.0"

[hardware]
sm_count = { value = "10 SM", source = "sheet" }
l2_bytes = { value = "4 MiB", source = "sheet" }

[tensor_ops_per_clk_per_sm]
bf16 = { value = "1024 op/clk", source = "sheet" }

[datasheet]
hbm_bytes_per_s = { value = "1 TB/s", source = "sheet" }
bf16_flop_per_s = { value = "100 TFLOP/s", kind = "derived", source = "sheet" }
"""


def refusal(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "device.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load(path)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "device.toml"
    path.write_text(GOOD)
    profile = load(str(path))
    assert (profile.sm_count, profile.l2_bytes, profile.tensor_ops_per_clk_per_sm) == (10, 4 * 2**20, {"bf16": 1024})
    assert profile.datasheet["hbm_bytes_per_s"].value == 1e12
    assert profile.datasheet["hbm_bytes_per_s"].kind == "datasheet"
    assert profile.datasheet["bf16_flop_per_s"].kind == "derived"


HBM = 'hbm_bytes_per_s = { value = "1 TB/s", source = "sheet" }'
SMS = 'value = "10 SM"'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('id = "test-1"\n', "", "id is missing"),
        ('name = "Test 1"\n', 'name = ""\n', "name: expected a text"),
        ('vendor = "Somebody"\n', "vendor = 5\n", "vendor: expected a text"),
        ('architecture = "First"\n', "", "architecture is missing"),
        ('compute_capability = "1.0"', "compute_capability = 1.0", "compute_capability: expected a text"),
        ('id = "test-1"\n', 'id = "test-1"\nsparse = true\n', "unknown key 'sparse'"),
        ('id = "test-1"\n', 'id = "test-1"\ndriver_names = "X"\n', "driver_names: expected a list"),
        ('id = "test-1"\n', 'id = "test-1"\ndriver_names = ["X"]\n', "driver_names_source is missing"),
        ('id = "test-1"\n', 'id = "test-1"\nmeasured = 3\n', "measured: expected a table"),
        (HBM, "", "datasheet.hbm_bytes_per_s is missing"),
        ('bf16_flop_per_s = { value = "100 TFLOP/s", kind = "derived", source = "sheet" }', "", "no matrix rate"),
        (HBM, HBM + '\nhbm_bandwidth = { value = "1 TB/s", source = "s" }', "datasheet.hbm_bandwidth: unknown key"),
        (HBM, "hbm_bytes_per_s = 1e12", "datasheet.hbm_bytes_per_s: expected { value"),
        (HBM, "hbm_bytes_per_s = true", "datasheet.hbm_bytes_per_s: expected { value"),
        (HBM, f"hbm_bytes_per_s = {'9' * 3000}", "datasheet.hbm_bytes_per_s: expected { value"),
        (HBM, 'hbm_bytes_per_s = { value = 3.35, source = "s" }', "hbm_bytes_per_s.value: expected a text"),
        (HBM, 'hbm_bytes_per_s = { value = inf, source = "s" }', "hbm_bytes_per_s.value: expected a text"),
        (HBM, 'hbm_bytes_per_s = { value = "1 TB/s" }', "hbm_bytes_per_s.source is missing"),
        (HBM, 'hbm_bytes_per_s = { value = "1 TB/s", source = "s", sparse = true }', "unknown key 'sparse'"),
        (HBM, 'hbm_bytes_per_s = { value = "1 TB/s", source = "s", kind = "measured" }', "kind: expected datasheet or derived"),
        ("1 TB/s", "1 TB", "expected a quantity in B/s"),
        ("1 TB/s", "1 TFLOP/s", "expected a quantity in B/s"),
        ("1 TB/s", "-1 TB/s", "expected a quantity in B/s"),
        ("1 TB/s", "nan TB/s", "expected a quantity in B/s"),
        ("1 TB/s", "inf B/s", "expected a quantity in B/s"),
        ("1 TB/s", "0 TB/s", "expected a positive quantity"),
        ("1 TB/s", "3 PB/s", "'3 PB/s' is not plausible"),
        ("1 TB/s", "3 kB/s", "'3 kB/s' is not plausible"),
        ("100 TFLOP/s", "989 PFLOP/s", "'989 PFLOP/s' is not plausible"),
        ("100 TFLOP/s", "989 MFLOP/s", "'989 MFLOP/s' is not plausible"),
        (SMS, 'value = "0 SM"', "hardware.sm_count: expected a positive quantity"),
        (SMS, 'value = "10.5 SM"', "hardware.sm_count: expected a whole number"),
        (SMS, 'value = "1 MSM"', "hardware.sm_count: '1 MSM' is not plausible"),
        (SMS, 'value = "10"', "hardware.sm_count: expected a quantity in SM"),
        ("4 MiB", "2 GiB", "hardware.l2_bytes: '2 GiB' is not plausible"),
        ("l2_bytes =", "l3_bytes =", "hardware.l3_bytes: unknown key"),
        ('value = "4 MiB"', 'kind = "derived", value = "4 MiB"', "hardware.l2_bytes: unknown key 'kind'"),
        ("1024 op/clk", "1024", "tensor_ops_per_clk_per_sm.bf16: expected a quantity in op/clk"),
        ("1024 op/clk", "2.5 op/clk", "tensor_ops_per_clk_per_sm.bf16: expected a whole number"),
        ("bf16 = {", "bfloat16 = {", "tensor_ops_per_clk_per_sm.bfloat16: unknown dtype"),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert GOOD.count(old) >= 1
    assert expected in refusal(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff\xfe\x00binary", "not UTF-8"),
        (b"just prose, no TOML", "expected a device profile in TOML"),
        (b"x = " + b"9" * 5000, "expected a device profile in TOML"),
        (b"x = " + b"[" * 100_000, "expected a device profile in TOML"),
        (b"#" * (2**20 + 1), "more than 1048576 bytes"),
        (b"[tool.ruff]\nline-length = 128\n", "unknown key 'tool'"),
        (b"", "id is missing"),
    ],
)
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    assert expected in refusal(tmp_path, content)


def test_a_path_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got a directory"):
        load(f"{tmp_path}/")
    with pytest.raises(InputError, match="no such file"):
        load(str(tmp_path / "absent.toml"))
    with pytest.raises(InputError, match="cannot read"):
        load("a\0b.toml")


@pytest.mark.parametrize("name", names())
def test_a_profile_survives_being_written(name: str) -> None:
    profile = load(name)
    written = tomllib.loads(tomli_w.dumps(to_document(profile)))
    assert parse(written, "memory") == profile


def test_a_partial_document_needs_no_ceilings() -> None:
    document = tomllib.loads(GOOD)
    del document["datasheet"]
    assert parse_partial(document, "memory").datasheet == {}
