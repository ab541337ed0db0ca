"""What measure, calibrate, doctor and compare print, from records of an H200."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from roofline import cli
from roofline.reports import measuring

PROBLEM = {
    "batch": 1,
    "q_len": 2048,
    "kv_len": 2048,
    "q_heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "v_head_dim": 128,
    "mask": "full",
    "dtype": "bf16",
    "kv_dtype": "bf16",
    "page_size": 16,
}


def record(**changes: Any) -> dict[str, Any]:
    return {
        "configuration": "gqa/flash",
        "implementation": "roofline/flash",
        "problem": PROBLEM,
        "status": "ok",
        "reason": None,
        "prediction": {
            "phase": "prefill",
            "time_s": 69.5e-6,
            "time_measured_roof_s": 90.8e-6,
            "hbm_bytes": 41_943_040,
            "flops": 1,
            "bound": "tensor",
        },
        "measurement": {"implementation": "roofline/flash", "time_s": {"median": 143e-6, "p10": 142e-6, "p90": 144e-6}},
        "counters": {"hbm_read_bytes": 25_165_824, "hbm_write_bytes": 16_860_000},
        **changes,
    }


def printed(records: list[dict[str, Any]]) -> str:
    stream = io.StringIO()
    measuring.render_run(measuring.run_document("run.jsonl", records, ["a note"]), Console(file=stream, width=80))
    return stream.getvalue()


def test_predicted_stands_beside_measured_and_counted() -> None:
    heading, columns, line = printed([record()]).splitlines()[:3]
    assert heading == "gqa prefill, n 2k, batch 1, 32 heads, 8 KV, d 128, bf16"
    assert columns.split() == ["by", "time", "roof", "of", "roof", "HBM", "counted", "error"]
    # 90.8 of 143 us are 63 %; 41,943,040 predicted against 42,025,824 counted bytes are -0.2 %
    assert line.split() == ["roofline/flash", "143", "µs", "90.8", "µs", "63", "%", "41.9", "MB", "42.0", "MB", "-0.2%"]


def test_each_problem_has_its_points_under_one_heading() -> None:
    """A suite holds the same configuration many times, and without its problem a line says nothing."""
    peer = record(
        implementation="fa3/fwd", counters=None, measurement={"implementation": "fa3/fwd", "time_s": {"median": 1e-3}}
    )
    longer = {**PROBLEM, "q_len": 4096, "kv_len": 4096, "page_size": 64}
    lines = printed([record(), peer, record(problem=longer)]).splitlines()
    assert [line.split(",")[1] for line in lines if line.startswith("gqa prefill")] == [" n 2k", " n 4k"]
    assert [line.split()[0] for line in lines if line.startswith("  ")][1:] == ["roofline/flash", "fa3/fwd", "roofline/flash"]
    assert any("pages of 64" in line for line in lines)
    ends = {line.rindex("µs") for line in lines if "roofline/flash" in line}
    assert len(ends) == 1  # the columns of all problems stand under each other
    assert all(len(line) <= 80 for line in lines)


def test_forms_of_one_kernel_are_told_apart() -> None:
    forms = [record(configuration=f"linear/{form}", implementation="roofline/linear") for form in ("chunked", "parallel")]
    for one in forms:
        one["measurement"] = {**one["measurement"], "implementation": "roofline/linear"}
    assert [line.split()[0] for line in printed(forms).splitlines()[2:4]] == ["roofline/chunked", "roofline/parallel"]


def test_what_an_implementation_cannot_do_is_said_once() -> None:
    refused = record(status="unsupported", reason="no window", implementation="fa3/fwd", measurement=None, counters=None)
    text = printed([refused, record(), refused])
    assert [line for line in text.splitlines() if "no window" in line] == ["fa3/fwd: unsupported: no window (2 points)"]


def test_a_failed_point_says_why_and_has_no_time() -> None:
    failed = record(status="failed", reason="out of [GPU] memory", measurement=None, counters=None)
    text = printed([failed])
    assert "gqa/flash roofline/flash: failed: out of [GPU] memory (n 2k, batch 1" in text
    assert "µs" not in text


def test_the_last_line_names_the_file_and_the_next_command() -> None:
    assert printed([record()]).splitlines()[-1] == "run.jsonl: roofline report run.jsonl"


def test_csv_rows_hold_counted_bytes_only_where_counters_ran() -> None:
    document = measuring.run_document("run.jsonl", [record(), record(counters=None)], [])
    assert [row["hbm_bytes_counted"] for row in measuring.run_rows(document)] == [42_025_824.0, None]


@pytest.mark.parametrize("command", ["measure", "calibrate"])
def test_without_a_gpu_one_line_names_what_works_here(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run([command], monkeypatch) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert "GPU" in shown.err
    assert "analyze" in shown.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["measure", "--suite", "huge"], "--suite"),
        (["measure", "--peers", "nobody"], "--peers"),
        (["measure", "--counters", "some"], "--counters"),
        (["measure", "--l2", "tepid"], "--l2"),
        (["measure", "--n", "0"], "--n"),
        (["compare", "nowhere.jsonl", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments, monkeypatch) == 2
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1
    assert named in shown.err


def test_doctor_works_anywhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert run(["doctor", "-o", str(out)], monkeypatch) == 0
    assert '"roofline.doctor/1"' in out.read_text()


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["roofline", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)
