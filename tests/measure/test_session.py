import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from roofline.configurations import Request
from roofline.errors import InputError, MissingError, RooflineError
from roofline.measure import counters
from roofline.measure.options import Options, Progress
from roofline.measure.session import measure
from roofline.profiles.local import Gpu
from roofline.records import Record, read
from tests.measure.test_supervisor import FAKE_WORKER

OPTIONS = Options(
    request=Request(n=1024, phase="prefill", variants=("naive", "flash")),
    counters="off",
    calibrate=False,
    output=Path("run.jsonl"),
    worker=FAKE_WORKER,
)


def statuses(path: Path) -> dict[str, str]:
    return {f"{one.configuration} {one.implementation}": one.status for one in read(path).records}


def test_a_run_is_saved_with_all_its_points(gpu: Gpu) -> None:
    told: list[Progress] = []
    result = measure(OPTIONS, told.append)
    run = read(result.path)
    assert run.records == result.records
    assert statuses(result.path) == {
        "mha/naive roofline/naive": "ok",
        "mha/flash roofline/flash": "ok",
        "gqa/flash roofline/flash": "ok",
        "mqa/flash roofline/flash": "ok",
        "swa/flash roofline/flash": "ok",
    }
    assert [one.record for one in told if one.record] == list(result.records)
    assert told[-1].done == told[-1].total == 5
    environment = run.header.environment
    assert environment["gpu"]["name"] == "NVIDIA H200"
    assert environment["gpu_state"]["driver"] == "580.159.04"
    assert environment["worker"]["torch"] == "2.11.0"
    assert run.header.profile.datasheet["hbm_bytes_per_s"].value == 4.8e12


def test_latency_tokens_and_memory_are_recorded(gpu: Gpu) -> None:
    prefill = measure(OPTIONS).records[0].measurement
    assert prefill is not None
    assert prefill.prefill_latency_s == prefill.time_s.median
    assert prefill.attention_tokens_per_s is None
    assert prefill.max_memory_bytes == 10**6
    assert prefill.implementation == "roofline/naive"
    request = Request(n=1024, batch=4, phase="decode", variants=("split-kv",))
    decode = measure(replace(OPTIONS, request=request, output=Path("decode.jsonl"))).records[0].measurement
    assert decode is not None
    assert decode.prefill_latency_s is None
    assert decode.attention_tokens_per_s == pytest.approx(4 / decode.time_s.median)
    assert decode.hbm_bytes_source == "predicted"
    assert decode.hbm_bytes_per_s is not None


def test_faults_cost_one_record_each(gpu: Gpu) -> None:
    faults = ("fault/crash", "fault/hang", "fault/oom", "fault/wrong", "fault/nonsense", "torch/cudnn")
    request = Request(n=1024, phase="prefill", variants=("chunked",))
    result = measure(replace(OPTIONS, request=request, implementations=faults, timeout_s=0.3))
    by_name = {str(one.implementation): one for one in read(result.path).records}
    assert {name: one.status for name, one in by_name.items()} == {
        "roofline/chunked": "ok",
        "fault/crash": "failed",
        "fault/hang": "failed",
        "fault/oom": "failed",
        "fault/wrong": "wrong",
        "fault/nonsense": "failed",
        "torch/cudnn": "ok",
    }
    assert by_name["fault/wrong"].measurement is None
    assert by_name["torch/cudnn"].plan is None  # not ours to tell


def test_resume_goes_on_where_the_run_stopped(gpu: Gpu) -> None:
    first = measure(replace(OPTIONS, implementations=("fault/interrupt",)))
    assert first.interrupted
    before = read(first.path)
    assert len(before.records) < 5
    result = measure(replace(OPTIONS, output=None, resume=first.path))
    after = read(first.path)
    assert after.header.run_id == before.header.run_id
    assert after.records[: len(before.records)] == before.records
    assert len(result.records) == 5 - len(before.records)
    assert {one.run_id for one in after.records} == {before.header.run_id}
    assert measure(replace(OPTIONS, output=None, resume=first.path)).records == ()


def test_resume_counts_what_was_timed_and_not_counted(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    path = measure(replace(OPTIONS, implementations=("peer/1",))).path
    asked: list[list[str]] = []

    def count(self: counters.Replay, cases: list) -> object:
        asked.append([f"{case.configuration.name} {case.implementation}" for case in cases])
        yield 0, {"mode": "steady", "calls": 8, "hbm_read_bytes": 3e9, "hbm_write_bytes": 1e9}

    monkeypatch.setattr(counters.Replay, "count", count)
    told: list[Progress] = []
    options = replace(OPTIONS, output=None, resume=path, counters="auto")
    (counted,) = measure(options, told.append).records
    assert asked.pop() == [name for name in statuses(path) if "peer/1" not in name]
    assert counted.measurement.hbm_bytes_source == "counted"
    assert (told[-1].done, told[-1].total) == (1, 5)
    measure(options)
    assert asked.pop() == [name for name in statuses(path) if "peer/1" not in name][1:]  # the first has its counters
    measure(replace(options, implementations=("peer/1",), count_peers=True))
    assert asked.pop()[-1].endswith("peer/1")


def test_resume_with_other_options_says_so(gpu: Gpu) -> None:
    path = measure(replace(OPTIONS, command=("roofline", "measure", "--n", "1024"))).path
    other = replace(OPTIONS, output=None, resume=path, request=Request(n=64, variants=("chunked",)))
    assert measure(other).notes == ("5 points of the file not asked for now; it was begun by: roofline measure --n 1024",)


def test_resume_counts_no_other_plan_than_was_timed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    path = measure(OPTIONS).path
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["plan"]["q_tile"] = 999
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked: list[int] = []

    def count(self: counters.Replay, cases: list) -> object:
        asked.append(len(cases))
        yield from ()

    monkeypatch.setattr(counters.Replay, "count", count)
    measure(replace(OPTIONS, output=None, resume=path, counters="auto"))
    assert asked == [len(lines) - 2]


def test_resume_needs_the_same_device(gpu: Gpu) -> None:
    path = measure(OPTIONS).path
    header, rest = path.read_text().split("\n", 1)
    changed = json.loads(header)
    changed["profile"]["id"] = "a100"
    path.write_text(json.dumps(changed) + "\n" + rest)
    with pytest.raises(InputError, match="made on a100, this is h200-sxm-141gb"):
        measure(replace(OPTIONS, output=None, resume=path))
    with pytest.raises(InputError, match="contradict"):
        measure(replace(OPTIONS, resume=path))


def test_a_run_without_a_name_gets_one_that_is_free(gpu: Gpu) -> None:
    paths = {measure(replace(OPTIONS, output=None, request=Request(n=64, variants=("chunked",)))).path for _ in range(3)}
    assert len(paths) == 3
    assert all(path.name.startswith("roofline-h200-sxm-141gb-2") and path.suffix == ".jsonl" for path in paths)


def test_an_uncalibrated_gpu_is_calibrated_first(gpu: Gpu) -> None:
    result = measure(replace(OPTIONS, calibrate=True))
    measured = read(result.path).header.profile.measured
    assert measured["hbm_bytes_per_s"].value == pytest.approx(4.6e12, rel=0.01)
    assert result.records[0].prediction.time_measured_roof_s is not None


def test_refused_counters_leave_the_run_whole(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "find_ncu", lambda: None)
    result = measure(replace(OPTIONS, counters="auto"))
    assert [one.status for one in result.records] == ["ok"] * 5
    assert "ncu (Nsight Compute) is not installed" in result.notes[0]
    with pytest.raises(RooflineError, match="--counters ncu: ncu"):
        measure(replace(OPTIONS, counters="ncu", output=Path("other.jsonl")))
    assert len(read(Path("other.jsonl")).records) == 5


@pytest.mark.parametrize("count_peers", [True, False])
def test_our_kernels_are_counted_first(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, count_peers: bool) -> None:
    asked: list[bool] = []

    def count(self: counters.Replay, cases: list) -> object:
        asked.extend(case.is_ours for case in cases)
        yield len(cases) - 1, {"mode": "steady", "calls": 8, "hbm_read_bytes": 3e9}

    monkeypatch.setattr(counters.Replay, "count", count)
    options = replace(OPTIONS, counters="auto", implementations=("peer/1",), count_peers=count_peers)
    (counted,) = (record for record in measure(options).records if record.counters is not None)
    assert asked == sorted(asked, reverse=True)
    assert (False in asked) == count_peers
    assert counted.implementation == ("peer/1" if count_peers else "roofline/flash")


def test_counted_points_replace_timed_ones(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(self: counters.Replay, cases: list) -> object:
        yield 1, {"mode": "steady", "calls": 8, "hbm_read_bytes": 3e9, "hbm_write_bytes": 1e9, "tensor_flops": 5.0}

    monkeypatch.setattr(counters.Replay, "count", count)
    result = measure(replace(OPTIONS, counters="auto"))
    run = read(result.path)
    assert run.records == result.records
    counted = run.records[1]
    assert counted.measurement.hbm_bytes_source == "counted"
    assert counted.measurement.hbm_bytes_per_s == pytest.approx(4e9 / counted.measurement.time_s.median)
    assert any("counted 5 tensor FLOPs, predicted" in note for note in counted.notes)


def test_a_full_disk_ends_the_run_in_one_line(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    path = Path("run.jsonl")

    def fill(progress: Progress) -> None:
        if progress.record is not None and progress.done == 2:
            size = path.stat().st_size + 10
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(RooflineError, match="no space left; the 2 points before are saved"):
            measure(OPTIONS, fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert len(read(path).records) == 2


def test_without_a_gpu_one_line_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.measure import gpu as finding

    monkeypatch.setattr(finding, "gpus", lambda: ())
    with pytest.raises(MissingError, match=r"measure needs an NVIDIA GPU.*, and found none; works here: analyze") as error:
        measure(OPTIONS)
    assert error.value.exit_code == 3
    assert "\n" not in str(error.value)


def test_without_torch_the_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.measure import gpu as finding
    from tests.measure.conftest import H200

    monkeypatch.setattr(finding.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match="needs torch and triton: pip install"):
        finding.required_gpu(None, "measure", (H200,))


def test_the_supervising_process_imports_no_torch() -> None:
    modules = ["session", "calibrate", "counters", "doctor", "environment", "supervisor"]
    script = ";".join(f"import roofline.measure.{name}" for name in modules)
    script += ";import roofline.compare, sys; print([m for m in ('torch', 'triton', 'pandas') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"


def test_a_gpu_without_a_profile_is_calibrated_into_a_measured_only_one(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.measure import session

    unknown = replace(gpu, name="NVIDIA H999", uuid="GPU-00000000-1b2c-4f6a-9a43-0f6c3a1f7a10")
    monkeypatch.setattr(session, "required_gpu", lambda wanted, command: unknown)
    profile = read(measure(replace(OPTIONS, calibrate=True)).path).header.profile
    assert (profile.id, profile.datasheet) == ("nvidia-h999", {})
    assert (profile.sm_count, profile.l2_bytes) == (132, 60 * 2**20)  # as torch told
    assert profile.measured["hbm_bytes_per_s"].kind == "measured"


def test_a_worker_without_cuda_is_one_line(gpu: Gpu) -> None:
    with pytest.raises(MissingError, match="torch sees no CUDA device"):
        measure(replace(OPTIONS, worker=(*FAKE_WORKER, "missing")))
    assert not Path("run.jsonl").exists()


def test_bad_suites_are_named(gpu: Gpu) -> None:
    with pytest.raises(InputError, match="--suite: unknown suite 'huge'; expected one of quick, default, full"):
        measure(replace(OPTIONS, request=None, suite="huge"))


def test_a_disturbed_gpu_is_said(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from roofline.measure import environment

    busy = environment.GpuState(utilisation=0.6, other_processes=(4711,))
    monkeypatch.setattr(environment, "gpu_state", lambda uuid: busy)
    notes = measure(OPTIONS).notes
    assert notes == ("1 other process(es) compute on this GPU (pid 4711)", "the GPU was 60% busy before the run")


def test_records_are_the_points_made(gpu: Gpu) -> None:
    assert all(isinstance(one, Record) for one in measure(OPTIONS).records)
