"""Run files that somebody made to hurt: each reads as text, or is refused in one line."""

import json
from pathlib import Path

import pytest

from roofline.errors import InputError
from roofline.records import read

RUN = Path(__file__).parents[2] / "docs" / "results" / "h200" / "full-with-peers.jsonl"


def written(folder: Path, **changes: object) -> Path:
    header, point, *_ = RUN.read_text().splitlines()
    path = folder / "run.jsonl"
    path.write_text(header + "\n" + json.dumps({**json.loads(point), **changes}) + "\n")
    return path


def test_a_terminal_never_gets_the_control_characters_of_a_record(tmp_path: Path) -> None:
    (record,) = read(written(tmp_path, configuration="\x1b[31mred\x9b2J", notes=["\x07bell\tand tab"])).records
    assert record.configuration == "\ufffd[31mred\ufffd2J"
    assert record.notes == ["\ufffdbell\tand tab"]


def test_a_count_that_no_float_holds_is_refused(tmp_path: Path) -> None:
    prediction = json.loads(RUN.read_text().splitlines()[1])["prediction"] | {"flops": 10**400}
    with pytest.raises(InputError, match=r"run.jsonl:2: prediction.flops"):
        read(written(tmp_path, prediction=prediction))


def test_a_line_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("[" * 100_000 + "\n")
    with pytest.raises(InputError, match="expected a run file of roofline"):
        read(path)
    path.write_text(RUN.read_text().splitlines()[0] + "\n" + "[" * 100_000 + "\n")
    with pytest.raises(InputError, match=r"run.jsonl:2: expected a point"):
        read(path)
