import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roofline.errors import InputError, RooflineError
from roofline.records import Writer, read, to_frame
from tests.records.example import header, numbered, record


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    with Writer.create(path, header()) as writer:
        for number in range(3):
            writer.append(numbered(number))
    return path


def test_what_is_written_is_read(run_file: Path) -> None:
    run = read(run_file)
    assert run.header == header()
    assert run.records == tuple(numbered(number) for number in range(3))
    assert not run.torn


def test_a_later_record_of_a_point_replaces_the_earlier(run_file: Path) -> None:
    writer, _ = Writer.resume(run_file)
    with writer:
        writer.append(record(implementation="peer/1", counters={"mode": "steady", "calls": 8}))
    run = read(run_file)
    assert [one.counters is not None for one in run.records] == [False, True, False]


@pytest.mark.parametrize("cut", [1, 2, 40, 500])
def test_a_torn_last_line_is_left_out(run_file: Path, cut: int) -> None:
    data = run_file.read_bytes()
    run_file.write_bytes(data[:-cut])
    run = read(run_file)
    whole = 3 if cut == 1 else 2  # without its newline a line is still whole
    assert len(run.records) == whole
    assert run.torn == (cut > 1)


def test_resuming_cuts_the_torn_line_off(run_file: Path) -> None:
    run_file.write_bytes(run_file.read_bytes()[:-40])
    writer, run = Writer.resume(run_file)
    with writer:
        writer.append(numbered(9))
    assert len(run.records) == 2
    assert [one.implementation for one in read(run_file).records] == ["peer/0", "peer/1", "peer/9"]


def test_resuming_completes_a_missing_newline(run_file: Path) -> None:
    run_file.write_bytes(run_file.read_bytes()[:-1])
    writer, _ = Writer.resume(run_file)
    with writer:
        writer.append(numbered(9))
    assert len(read(run_file).records) == 4


def test_a_newer_format_is_refused_by_name(run_file: Path) -> None:
    run_file.write_text(run_file.read_text().replace("roofline.record/1", "roofline.record/2"))
    with pytest.raises(InputError, match=r"roofline\.record/2.*roofline\.record/1"):
        read(run_file)


@pytest.mark.parametrize(
    "content", ["", "{", "[]\n", '{"schema": "nvbench/1"}\n', "\x00\xff\n", '{"schema": "roofline.record/1"}\n']
)
def test_another_kind_of_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other"
    path.write_text(content)
    with pytest.raises(InputError, match="other"):
        read(path)


def test_a_broken_line_in_the_middle_is_named(run_file: Path) -> None:
    lines = run_file.read_text().splitlines()
    lines[2] = lines[2][:50]
    run_file.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"run\.jsonl:3"):
        read(run_file)


def test_nothing_is_overwritten_without_force(run_file: Path) -> None:
    with pytest.raises(InputError, match="--force"):
        Writer.create(run_file, header())
    Writer.create(run_file, header("run-2"), force=True).close()
    assert read(run_file).header.run_id == "run-2"


def test_a_second_run_cannot_write_the_same_file(run_file: Path) -> None:
    writer, _ = Writer.resume(run_file)
    with writer:
        for attempt in (lambda: Writer.resume(run_file), lambda: Writer.create(run_file, header(), force=True)):
            with pytest.raises(InputError, match="another run is writing"):
                attempt()
    assert len(read(run_file).records) == 3  # force did not cut it before it asked for the lock


def test_unwritable_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the run file"):
        Writer.create(tmp_path / "nowhere" / "run.jsonl", header())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_clear_line() -> None:
    with pytest.raises(RooflineError, match="/dev/full: no space left"):
        Writer.create(Path("/dev/full"), header(), force=True)


def test_a_disk_that_fills_up_keeps_what_was_before(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from roofline.errors import RooflineError
from roofline.records import Writer
from tests.records.example import header, numbered
path = Path(sys.argv[1])
with Writer.create(path, header()) as writer:
    writer.append(numbered(0))
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))  # the next line fits in part
    try:
        writer.append(numbered(1))
    except RooflineError as error:
        print(error)
"""
    path = tmp_path / "run.jsonl"
    said = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True).stdout
    assert said == f"{path}: no space left; the 1 points before are saved\n"
    assert path.read_bytes().endswith(b"\n")
    assert [one.implementation for one in read(path).records] == ["peer/0"]


def _write_some(path: Path, run_id: str, count: int) -> None:
    with Writer.unique(path, header(run_id)) as writer:
        for number in range(count):
            writer.append(numbered(number))


def test_two_runs_at_once_get_files_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_some, args=(path, f"run-{number}", 20)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    runs = [read(found) for found in tmp_path.glob("*.jsonl")]
    assert sorted(run.header.run_id for run in runs) == ["run-0", "run-1"]
    assert [len(run.records) for run in runs] == [20, 20]


def test_a_frame_has_a_row_a_record(run_file: Path) -> None:
    frame = to_frame(read(run_file))
    assert list(frame["implementation"]) == ["peer/0", "peer/1", "peer/2"]
    assert frame["measurement.time_s.median"].iloc[0] == 1e-3
    assert "measurement.time_s.samples" not in frame


def test_lines_are_json_with_schema_first(run_file: Path) -> None:
    first, *rest = run_file.read_text().splitlines()
    assert next(iter(json.loads(first).items())) == ("schema", "roofline.record/1")
    assert all(json.loads(line)["run_id"] == "run-1" for line in rest)
    assert os.stat(run_file).st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
