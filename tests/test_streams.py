"""Outputs that cannot take what is written: another encoding, a full disk, nothing at all."""

import os
import subprocess
import sys

import pytest

SMALL = ("--n", "256", "--variants", "flash,split-kv", "--device", "h100-sxm5-80gb")


def roofline(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "roofline", *arguments], capture_output=True, check=False, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("command", [("analyze", *SMALL, "--plot"), ("explain", "flash", "--phase", "decode")])
def test_a_stream_that_lacks_a_letter_gets_another(encoding: str, command: tuple[str, ...]) -> None:
    done = roofline(*command, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert "?" not in text
    if encoding == "ascii" and command[0] == "analyze":
        assert "us" in text
        assert "time >=" in text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "roofline", "analyze", *SMALL], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "roofline: cannot write the output: No space left on device"
    assert b"Traceback" not in done.stderr


def test_a_measured_roof_of_which_nothing_was_measured_is_refused() -> None:
    done = roofline("analyze", *SMALL, "--roof", "measured")
    assert done.returncode == 3
    assert done.stdout == b""
    assert b"--roof measured: nothing was measured on H100 SXM5 80GB" in done.stderr


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_a_missing_folder_is_said_before_anything_is_printed(option: str) -> None:
    done = roofline("analyze", *SMALL, option, "nowhere/page" + (".html" if option == "--html" else ".json"))
    assert done.returncode == 2
    assert done.stdout == b""
    assert option.encode() in done.stderr


def test_explain_takes_its_variant_once() -> None:
    done = roofline("explain", "flash", "--variants", "naive")
    assert done.returncode == 2
    assert b"--variants" in done.stderr
