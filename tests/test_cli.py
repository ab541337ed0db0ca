"""The command line as its users meet it: a student without a GPU, a CI job, a person who mistypes.

The golden file is the output of ``roofline analyze --n 2048 --d 64`` at 80 columns. To write it anew after a change that is
meant: ``ROOFLINE_UPDATE_GOLDEN=1 pytest tests/test_cli.py -k golden``, and read the difference before committing it.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roofline import cli
from roofline.profiles import local
from tests.command_line import runner

GOLDEN = Path(__file__).parent / "golden"
L4_TOML = Path(local.__file__).parent / "data" / "l4.toml"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


class FakeNvml:
    """The few functions of ``pynvml`` that finding GPUs takes."""

    def __init__(self, *gpus: tuple[str, str, int]) -> None:
        self.gpus = gpus

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[str, str, int]:
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu: tuple[str, str, int]) -> str:
        return gpu[0]

    def nvmlDeviceGetName(self, gpu: tuple[str, str, int]) -> str:
        return gpu[1]

    def nvmlDeviceGetMemoryInfo(self, gpu: tuple[str, str, int]) -> SimpleNamespace:
        return SimpleNamespace(total=gpu[2])

    def nvmlDeviceGetCudaComputeCapability(self, gpu: tuple[str, str, int]) -> tuple[int, int]:
        return (9, 0)


H200 = ("GPU-aaaa", "NVIDIA H200", 150754820096)
L4 = ("GPU-bbbb", "NVIDIA L4", 23034 * 2**20)
LAPTOP = ("GPU-cccc", "NVIDIA GeForce RTX 4090 Laptop GPU", 16 * 2**30)


def _no_nvml() -> Any:
    raise ImportError("no driver here")


@pytest.fixture(autouse=True)
def _machine_without_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "_nvml", _no_nvml)
    monkeypatch.setenv("ROOFLINE_DATA_DIR", str(tmp_path / "data"))
    for name in ("CUDA_VISIBLE_DEVICES", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def roofline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process; returns exit code, stdout and stderr."""

    return runner(monkeypatch, capsys)


Run = Callable[..., tuple[int, str, str]]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str, columns: int = 80) -> str:
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "argv", ["roofline", *arguments])
    monkeypatch.setattr(sys, "stdout", screen)
    with pytest.raises(SystemExit):
        cli.main()
    return screen.getvalue()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--n 0", "--n"), ("--n -5", "--n"), ("--n two", "--n"), ("--n 1.5", "--n"), ("--n 999999999999999", "--n"),
        (f"--n {'9' * 40}", "--n"), ("--n 1k:4k:x2", "--n"), ("--q-len 0", "--q-len"), ("--kv-len 0", "--kv-len"),
        ("--kv-lens 0", "--kv-lens"), ("--kv-lens 1,,2", "--kv-lens"), ("--kv-lens 5,999999999999999", "--kv-lens"),
        ("--d 0", "--d"), ("--d 99999999", "--d"), ("--dv 0", "--dv"), ("--heads 0", "--heads"),
        ("--heads 9999999", "--heads"), ("--kv-heads 0", "--kv-heads"), ("--kv-heads 5", "--kv-heads"),
        ("--kv-heads 64", "--kv-heads"), ("--batch 0", "--batch"), ("--batch 999999999999", "--batch"),
        ("--window 0", "--window"), ("--window -1", "--window"), ("--dtype fp4", "--dtype"), ("--dtype int8", "--dtype"),
        ("--kv-dtype fp32", "--kv-dtype"), ("--kv-dtype nf4", "--kv-dtype"), ("--page-size 0", "--page-size"),
        ("--max-len 0", "--max-len"), ("--max-len 5", "--max-len"), ("--shared-prefix 99999", "--shared-prefix"),
        ("--latent-dim 0", "--latent-dim"), ("--rope-dim -1", "--rope-dim"),
        ("--latent-dim 0 --variants flash", "--latent-dim"), ("--splits 0", "--splits"), ("--splits 999999", "--splits"),
        ("--tile 64", "--tile"), ("--tile 0x64", "--tile"), ("--tile 64x99999", "--tile"), ("--chunk axb", "--chunk"),
        ("--chunk 0x1", "--chunk"), ("--naive-passes 4", "--naive-passes"), ("--layers 0", "--layers"),
        ("--variants flashy", "--variants"), ("--variants flash,", "--variants"), ("--variants mla/chunked", "--variants"),
        ("--phase training", "--phase"), ("--decode --phase prefill", "--decode"), ("--decode --q-len 4", "--decode"),
        ("--n 512 --kv-len 513", "--kv-len"), ("--n 512 --kv-lens 1,2", "--kv-lens"),
        ("--batch 2 --kv-lens 1,2,3", "--batch"), ("--variants linear --window 5", "--window"),
        ("--device h101", "--device"), ("--device L4X", "--device"), ("--roof best", "--roof"),
        ("--flop-convention twice", "--flop-convention"), ("--json --csv", "--json and --csv"), ("-o table", "-o"),
        ("-o result.xlsx", "-o"), ("--bogus", "--bogus"), ("--n", "--n"), ("extra", "extra"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_that_names_the_option(roofline: Run, arguments: str, named: str) -> None:
    code, out, err = roofline("analyze", *arguments.split())
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("roofline: ")
    assert named in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["--n", "--d", "--kv-lens", "--tile", "--variants", "--dtype", "--device", "--phase"])
def test_an_empty_value_is_refused(roofline: Run, option: str) -> None:
    code, out, err = roofline("analyze", option, "")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert option in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--n 1:2", "--n"),
        ("--d 4:1:x2", "--d"),
        ("--batch 1:9:x1", "--batch"),
        ("--n 1:900000000000000:+1", "--n"),
        ("--n 0,1", "--n"),
    ],
)
def test_bad_axes_of_a_sweep_are_named(roofline: Run, arguments: str, named: str) -> None:
    code, out, err = roofline("sweep", *arguments.split())
    assert (code, out, err.splitlines()[-1].startswith("roofline: ")) == (2, "", True)
    assert named in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("300 GB/s", "3 PB/s", "datasheet.hbm_bytes_per_s"),
        ("300 GB/s", "300", "datasheet.hbm_bytes_per_s"),
        ("300 GB/s", "-1 GB/s", "datasheet.hbm_bytes_per_s"),
        ("hbm_bytes_per_s", "hbm_bytes", "datasheet.hbm_bytes"),
        ("[datasheet]", "[datashet]", "datashet"),
        ("58 SM", "58.5 SM", "hardware.sm_count"),
    ],
)
def test_an_absurd_profile_is_refused_with_its_file_and_key(
    roofline: Run, tmp_path: Path, old: str, new: str, named: str
) -> None:
    text = L4_TOML.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    code, out, err = roofline("analyze", "--device", str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "mine.toml" in err
    assert named in err


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n", b"{}", b"", b'{"schema": "roofline.record/1"}', b"x" * 2_000_000])
def test_a_file_of_another_kind_is_no_profile(roofline: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.toml"
    path.write_bytes(content)
    code, out, err = roofline("analyze", "--device", str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "other.toml" in err


def test_a_missing_profile_and_a_folder_are_named(roofline: Run, tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        code, out, err = roofline("analyze", "--device", f"{path}/" if path.is_dir() else str(path))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert str(path) in err


def test_an_unknown_device_lists_near_names(roofline: Run) -> None:
    _, _, err = roofline("analyze", "--device", "h100")
    assert "h100-sxm5-80gb" in err
    assert "h100-pcie-80gb" in err


def test_no_command_shows_help_and_is_bad_usage(roofline: Run) -> None:
    code, out, err = roofline()
    assert code == 2
    assert "Usage" in out + err


def test_a_fault_is_one_line_without_debug_and_a_traceback_with_it(roofline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(cli.analysis, "analyze_all", broken)
    code, out, err = roofline("analyze")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "--debug" in err
    monkeypatch.setattr(sys, "argv", ["roofline", "--debug", "analyze"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_the_format_of_a_file_follows_from_its_suffix(roofline: Run, tmp_path: Path) -> None:
    for name in ("a.json", "a.csv", "a.txt"):
        code, out, err = roofline("analyze", "-o", name)
        assert (code, out) == (0, "")
        assert err == f"roofline: wrote {name}\n"
    document = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert document["schema"] == "roofline.analysis/1"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text(encoding="utf-8"))))
    assert [row["configuration"] for row in rows] == [result["configuration"] for result in document["results"]]
    assert [int(row["flops"]) for row in rows] == [result["flops"] for result in document["results"]]
    assert "mha/flash" in (tmp_path / "a.txt").read_text(encoding="utf-8")


def test_nothing_is_overwritten_without_force(roofline: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("mine", encoding="utf-8")
    code, out, err = roofline("analyze", "-o", str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--force" in err
    assert path.read_text(encoding="utf-8") == "mine"
    assert roofline("analyze", "-o", str(path), "--force")[0] == 0
    assert json.loads(path.read_text(encoding="utf-8"))["results"]


def test_a_file_in_a_missing_folder_names_the_file_and_leaves_nothing(roofline: Run, tmp_path: Path) -> None:
    code, out, err = roofline("analyze", "-o", "missing/a.json")
    assert code in (1, 2)
    assert (out, err.count("\n")) == ("", 1)
    assert "missing/a.json" in err
    assert list(tmp_path.glob("**/*.partial")) == []


def test_data_goes_to_stdout_and_notes_to_stderr(roofline: Run) -> None:
    code, out, err = roofline("sweep", "--n", "1k:4k:x2", "--variants", "naive", "--phase", "prefill", "--csv")
    assert code == 0
    assert [row["kv_len"] for row in csv.DictReader(io.StringIO(out))] == ["1024", "2048", "4096"]
    assert "no GPU here" in err


def test_golden_output_at_80_columns(roofline: Run) -> None:
    code, out, err = roofline("analyze", "--n", "2048", "--d", "64")
    assert (code, err) == (0, "")
    path = GOLDEN / "analyze-n2048-d64.txt"
    if os.environ.get("ROOFLINE_UPDATE_GOLDEN"):
        path.write_text(out, encoding="utf-8")
    assert out == path.read_text(encoding="utf-8")


def test_without_a_gpu_the_default_device_is_used_and_said(roofline: Run) -> None:
    code, out, _ = roofline("analyze")
    assert code == 0
    assert out.startswith("H100 SXM5 80GB")
    assert "no GPU here: predicting for h100-sxm5-80gb" in out
    notes = json.loads(roofline("analyze", "--json")[1])["conventions"]["notes"]
    assert any("no GPU here" in note for note in notes)


def test_piped_output_has_no_codes_and_is_not_truncated(roofline: Run) -> None:
    for arguments in (
        ["analyze"],
        ["analyze", "--n", "1g", "--heads", "1024", "--batch", "1024"],
        ["devices"],
        ["devices", "l4"],
    ):
        code, out, _ = roofline(*arguments)
        assert code == 0
        assert "\x1b" not in out
        assert "…" not in out
        assert "mha/flash" in out or arguments[0] == "devices"


def test_tables_fit_80_columns_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (
        ["analyze"],
        ["analyze", "--n", "10000000", "--heads", "128"],
        ["analyze", "--kv-lens", "512,2k,8k"],
        ["devices"],
    ):
        with monkeypatch.context() as patched:
            screen = ANSI.sub("", on_a_terminal(patched, *arguments))
        assert "…" not in screen
        assert max(map(len, screen.splitlines())) <= 80


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        assert COLOUR.search(on_a_terminal(patched, "analyze"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(on_a_terminal(monkeypatch, "analyze"))


def test_the_local_gpu_is_the_device(roofline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_nvml", lambda: FakeNvml(H200))
    document = json.loads(roofline("analyze", "--json")[1])
    assert document["device"]["id"] == "h200-sxm-141gb"
    assert document["conventions"]["notes"] == []


def test_a_gpu_that_no_profile_knows_is_said_and_the_default_used(roofline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_nvml", lambda: FakeNvml(LAPTOP))
    code, out, _ = roofline("analyze")
    assert code == 0
    assert out.startswith("H100 SXM5 80GB")
    text = " ".join(out.split())
    assert "no profile for the GPU 'NVIDIA GeForce RTX 4090 Laptop GPU'" in text
    assert "predicting for h100-sxm5-80gb" in text


def test_of_several_gpus_the_first_is_used_and_said_and_another_can_be_picked(
    roofline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_nvml", lambda: FakeNvml(H200, L4))
    first = json.loads(roofline("analyze", "--json")[1])
    assert first["device"]["id"] == "h200-sxm-141gb"
    assert any("GPU 0 of 2" in note for note in first["conventions"]["notes"])
    for picked in ("1", "GPU-bb"):
        assert json.loads(roofline("analyze", "--json", "--gpu", picked)[1])["device"]["id"] == "l4"
    code, out, err = roofline("analyze", "--gpu", "2")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--gpu" in err
    assert "GPU-aaaa" in err


def test_cuda_visible_devices_is_respected(roofline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_nvml", lambda: FakeNvml(H200, L4))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert json.loads(roofline("analyze", "--json")[1])["device"]["id"] == "l4"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert json.loads(roofline("analyze", "--json")[1])["device"]["id"] == "h100-sxm5-80gb"


def test_asking_for_a_gpu_that_is_not_there_is_exit_code_3(roofline: Run) -> None:
    code, out, err = roofline("analyze", "--gpu", "0")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "--gpu 0" in err


def test_a_named_device_needs_no_gpu(roofline: Run) -> None:
    for name in ("l4", "NVIDIA L4", str(L4_TOML)):
        assert json.loads(roofline("analyze", "--json", "--device", name)[1])["device"]["id"] == "l4"


def test_a_device_without_bf16_uses_fp16_and_says_so(roofline: Run) -> None:
    document = json.loads(roofline("analyze", "--json", "--device", "t4")[1])
    assert {result["problem"]["dtype"] for result in document["results"]} == {"fp16"}
    assert any("has no bf16" in note for note in document["conventions"]["notes"])


def test_version(roofline: Run) -> None:
    code, out, _ = roofline("--version")
    assert code == 0
    assert re.fullmatch(r"roofline \d+\.\d+\S*\n", out)


def test_as_a_process_into_a_pipe(tmp_path: Path) -> None:
    """The whole of it once, as a CI job runs it: python -m roofline, output to a file, no terminal, no GPU."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "40"}
    path = tmp_path / "out.txt"
    with path.open("w") as stream:
        run = subprocess.run(
            [sys.executable, "-m", "roofline", "analyze", "--n", "2048", "--d", "64"],
            stdout=stream, stderr=subprocess.PIPE, text=True, check=False, env=environment,
            cwd=Path(__file__).parent.parent,
        )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert path.read_text(encoding="utf-8") == (GOLDEN / "analyze-n2048-d64.txt").read_text(encoding="utf-8")


def test_a_reader_that_closes_the_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m roofline sweep --n 1:5000:+1 --csv --device l4 --variants naive --phase prefill | head -n 2"
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent
    )
    assert run.stdout.count("\n") == 2
    assert "Traceback" not in run.stderr
    assert run.returncode == 0
