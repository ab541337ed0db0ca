"""``report``, ``validate`` and ``analyze --html`` as their users meet them. Golden text: see tests/test_cli.py."""

import json
import os
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from roofline.reports import figure
from tests.command_line import runner
from tests.reports import runs

GOLDEN = Path(__file__).parent.parent / "golden"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def roofline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run a command line in this process; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    return runner(monkeypatch, capsys)


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return runs.write(tmp_path / "run.jsonl", [*runs.records()[:9], *runs.broken()])


def check_golden(name: str, text: str) -> None:
    golden = GOLDEN / name
    if os.environ.get("ROOFLINE_UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_golden_report(roofline: Command, run_file: Path) -> None:
    code, out, err = roofline("report", "run.jsonl")
    assert (code, err) == (0, "")
    check_golden("report.txt", out)
    assert max(map(len, out.splitlines())) <= 80


def test_golden_validate(roofline: Command, run_file: Path) -> None:
    code, out, _ = roofline("validate", "run.jsonl")
    assert code == 0
    check_golden("validate.txt", out)


def test_a_page(roofline: Command, run_file: Path) -> None:
    assert roofline("report", "run.jsonl", "-o", "r.html") == (0, "", "roofline: wrote r.html\n")
    assert Path("r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    code, _, err = roofline("report", "run.jsonl", "-o", "r.html")
    assert (code, err) == (2, "roofline: -o r.html: exists already; --force overwrites it\n")
    assert roofline("report", "run.jsonl", "-o", "r.html", "--force")[0] == 0


def test_tables_of_the_view(roofline: Command, run_file: Path) -> None:
    found = json.loads(roofline("report", "run.jsonl", "--json")[1])
    assert (found["schema"], len(found["points"])) == ("roofline.view/1", 13)
    assert len(roofline("report", "run.jsonl", "--csv")[1].splitlines()) == 14
    assert roofline("report", "run.jsonl", "-o", "r.json")[0] == 0
    assert json.loads(roofline("validate", "run.jsonl", "--json")[1])["schema"] == "roofline.validation/1"
    assert roofline("validate", "run.jsonl", "--csv")[1].startswith("variant,estimate,counter,points,median,p90,worst")


def test_predicted_points_as_a_page(roofline: Command) -> None:
    code, out, err = roofline("analyze", "--n", "2k", "--device", "h200-sxm-141gb", "--html", "p.html")
    assert (code, err) == (0, "roofline: wrote p.html\n")
    assert out.startswith("H200 SXM 141GB")
    assert "H200 SXM 141GB" in Path("p.html").read_text(encoding="utf-8")
    assert roofline("analyze", "--html", "p.txt")[2] == "roofline: --html p.txt: expected a name that ends in .html\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "expected a run file of roofline, got an empty file"),
        ('{"schema": "roofline.rec', "expected a run file of roofline, got a torn header"),
        ('{"schema": "roofline.record/9"}\n', "written as roofline.record/9, this roofline reads up to roofline.record/1"),
        ('{"schema": "roofline.analysis/1"}\n', "expected a run file of roofline (roofline.record/1)"),
    ],
)
def test_files_that_cannot_be_read(roofline: Command, tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "bad.jsonl").write_text(content)
    for command in (["report", "bad.jsonl", "-o", "r.html"], ["validate", "bad.jsonl"]):
        code, out, err = roofline(*command)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err
    assert not Path("r.html").exists()


def test_a_torn_last_line_is_left_out_and_said(roofline: Command, run_file: Path) -> None:
    run_file.write_bytes(run_file.read_bytes()[:-30])
    code, _, err = roofline("report", "run.jsonl", "-o", "r.html")
    assert code == 0
    assert "run.jsonl: the last line was cut off and left out" in err
    code, _, err = roofline("report", "missing.jsonl")
    assert (code, err.count("\n")) == (2, 1)


def test_a_run_without_points(roofline: Command, tmp_path: Path) -> None:
    runs.write(tmp_path / "none.jsonl", [])
    code, out, err = roofline("report", "none.jsonl")
    assert code == 0
    assert "No points." in out
    assert err == "roofline: none.jsonl: holds no points\n"
    assert roofline("report", "none.jsonl", "-o", "r.html")[0] == 0
    code, _, err = roofline("validate", "none.jsonl")
    assert (code, err.count("\n")) == (3, 1)
    assert "no point has counted HBM bytes" in err


def test_images_need_a_browser(roofline: Command, run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import plotly.io

    def broken(*_: object, **__: object) -> bytes:
        raise RuntimeError("no Chrome\nhere")

    monkeypatch.setattr(plotly.io, "to_image", broken)
    code, out, err = roofline("report", "run.jsonl", "--png", "r.png")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "r.png: needs kaleido (pip install 'roofline[image]') and Chrome or Chromium: no Chrome here" in err
    monkeypatch.setattr(plotly.io, "to_image", lambda *_, format, **__: format.encode())
    assert roofline("report", "run.jsonl", "--png", "r.png", "--svg", "r.svg")[0] == 0
    assert Path("r.svg").read_bytes() == b"svg"
    assert roofline("report", "run.jsonl", "--svg", "r.png")[0] == 2
    assert figure.WIDTH > figure.HEIGHT


def test_the_gallery_says_when_no_run_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str], run_file: Path) -> None:
    gallery = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "gallery.py"))
    main, names = gallery["main"], gallery["main"].__globals__
    names |= {"RESULTS": tmp_path / "results", "GALLERY": tmp_path / "gallery", "write_image": lambda shown, path: None}
    assert main() == 3
    assert "no stored runs" in capsys.readouterr().err
    (tmp_path / "results" / "h200").mkdir(parents=True)
    run_file.rename(tmp_path / "results" / "h200" / "quick.jsonl")
    assert main() == 0
    assert (tmp_path / "gallery" / "h200-quick.html").exists()
    assert "![Roofline of h200-quick](h200-quick.png)" in (tmp_path / "gallery" / "README.md").read_text(encoding="utf-8")
