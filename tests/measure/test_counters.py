import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roofline.configurations import Request, configurations
from roofline.errors import RooflineError
from roofline.measure import counters
from roofline.measure.cases import cases
from roofline.profiles.load import load
from tests.measure.conftest import H200

PROFILE = load("h200-sxm-141gb")

# Nsight Compute 2025.3 on an H200, from `benchmarks/counters.py`: some of its rows and columns. fp16 was asked for by the name
# that bf16 has, which this chip does not know: ncu leaves the column out and goes on.
REAL = (Path(__file__).parent / "ncu_raw.csv").read_text()
FLASH_BF16, FLASH_FP16 = 3, 4  # rows


def page_of_reads(reads: list[int]) -> str:
    """The real page with one row a range, all of them flash's, that read ``reads`` bytes."""
    lines = REAL.splitlines()
    flash = lines[-2]
    assert '"50,684,672"' in flash
    rows = [flash.replace('"94"', f'"{number}"').replace("50,684,672", f"{read:,}") for number, read in enumerate(reads)]
    return "\n".join([*lines[:5], *rows])


# A range of eight calls of flash, batch 2, 8 heads, n 4096, d 128, with bytes that are easy to divide.
RANGE = {
    "dram__bytes_read.sum": 8606400.0,
    "dram__bytes_write.sum": 800.0,
    "lts__t_sectors_srcunit_tex_op_read.sum": 1000.0,
    "lts__t_sectors_srcunit_tex_op_write.sum": 600.0,
    "lts__t_sectors_srcunit_tex_lookup_hit.sum": 400.0,
    "lts__t_sectors_srcunit_tex_lookup_miss.sum": 1200.0,
    "l1tex__m_l1tex2xbar_write_bytes.sum": 640.0,
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 8 * 137438953472.0,
    "sm__ops_path_tensor_src_fp16.sum": 0.0,
    "sm__inst_executed_pipe_xu.sum": 4096.0,
    "dram__bytes.sum.peak_sustained": 1536.0,
    "dram__cycles_elapsed.avg.per_second": 3131510416.67,
    "sm__cycles_elapsed.avg.per_second": 1.98e9,
}


def test_the_real_raw_page_is_read_row_by_row() -> None:
    rows = counters.parse(REAL)
    assert len(rows) == 5
    assert rows[0] == {
        "dram__bytes_read.sum": 4211712,
        "dram__bytes_write.sum": 40080384,
        "l1tex__m_xbar2l1tex_read_bytes.sum": 100663296,
        "l1tex__m_l1tex2xbar_write_bytes.sum": 67108864,
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 2 * 8 * 2048**2 * 64,
    }
    flash = counters.per_call(rows[FLASH_BF16], 1, "bf16")
    assert flash["tensor_flops"] == 4 * 2 * 8 * 4096**2 * 128
    assert flash["sm_read_bytes"] == 1090519040
    assert [row["dram__bytes_read.sum"] for row in counters.parse(page_of_reads([5, 7000]))] == [5, 7000]


def test_a_metric_that_this_chip_does_not_know_costs_itself_only() -> None:
    rows = counters.parse(REAL)
    assert counters.per_call(rows[FLASH_FP16], 1, "fp16")["tensor_flops"] is None  # and not the zero of bf16
    flash = counters.per_call(rows[FLASH_BF16], 1, "bf16")  # though fp16 is unknown
    assert flash["tensor_flops"] == 137438953472
    assert (flash["l2_bytes"], flash["l2_hit_rate"], flash["hbm_peak_bytes_per_s"]) == (None, None, None)
    assert flash["hbm_read_bytes"] == 50684672


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "n/a", ""])
def test_a_value_that_is_no_number_is_unknown(text: str) -> None:
    assert counters.parse(f'"ID","dram__bytes_read.sum"\n"","byte"\n"0","{text}"\n') == [{}]


def test_details_page_is_read_too() -> None:
    text = (
        '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","812","range","Command line profiler metrics","dram__bytes_read.sum","byte","1,024"\n'
        '"0","812","range","Command line profiler metrics","dram__bytes_write.sum","byte","(!) n/a"\n'
        '"1","812","range","Command line profiler metrics","dram__bytes_read.sum","byte","2,048"\n'
    )
    assert counters.parse(text) == [{"dram__bytes_read.sum": 1024}, {"dram__bytes_read.sum": 2048}]


def test_counts_are_per_call_and_in_bytes() -> None:
    counted = counters.per_call(RANGE, 8, "bf16")
    assert counted["hbm_read_bytes"] == 1075800
    assert counted["hbm_write_bytes"] == 100
    assert counted["l2_bytes"] == 1600 * 32 / 8
    assert counted["l2_hit_rate"] == 0.25
    assert counted["sm_read_bytes"] is None
    assert counted["sm_write_bytes"] == 80
    assert counted["tensor_flops"] == 137438953472  # 4 B H n^2 d of batch 2, 8 heads, n 4096, d 128
    assert counted["hbm_peak_bytes_per_s"] == pytest.approx(4.81e12, rel=1e-5)
    assert counted["clock_hz"] == 1.98e9
    assert (counted["mode"], counted["calls"]) == ("steady", 8)


def test_tensor_flops_of_a_dtype_that_is_not_counted_are_unknown() -> None:
    assert counters.per_call(RANGE, 8, "tf32")["tensor_flops"] is None


def test_operations_of_all_dtypes_are_counted_together() -> None:
    """A kernel may widen an fp8 cache to fp16 and compute in bf16 besides."""
    assert counters.per_call({**RANGE, "sm__ops_path_tensor_src_fp16.sum": 8.0}, 8, "bf16")["tensor_flops"] == 137438953473


def test_tensor_operations_are_asked_for_by_dtype() -> None:
    asked = [name for name in counters.metrics({"fp8"}) if "tensor" in name]
    assert asked == [counters.TENSOR_OPS[name] for name in ("bf16", "fp16", "fp8")]


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "run as root or with CAP_SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "containers and sandboxes"),
        ("==ERROR== Profiling is not supported on device 0.", "does not support this GPU"),
    ],
)
def test_a_refusal_names_the_permission(said: str, meaning: str) -> None:
    with pytest.raises(counters.Refused, match=meaning):
        counters.parse(said)


def test_no_table_is_an_error_with_what_ncu_said() -> None:
    with pytest.raises(RooflineError, match="no table: Failed to find metric foo"):
        counters.parse("==PROF== Connected\n==ERROR== Failed to find metric foo\n")


def test_the_command() -> None:
    command = counters.build_command("/opt/ncu", Path("plan.json"), Path("out.csv"), python="python3")
    assert command[0] == "/opt/ncu"
    assert command[-4:] == ["python3", "-m", "roofline.measure.worker.replay", "plan.json"]
    flags = command[1:-4]
    for flag in ("--replay-mode=app-range", "--cache-control=none", "--clock-control=none", "--print-units=base", "--csv"):
        assert flag in flags
    (asked,) = (flag for flag in flags if flag.startswith("--metrics="))
    assert asked.removeprefix("--metrics=").split(",") == list(counters.metrics())
    assert len(set(counters.metrics())) == len(counters.metrics())


@pytest.fixture
def three_cases() -> list:
    request = Request(n=1024, phase="prefill", variants=("flash",))
    return [case for group in cases(configurations(request), PROFILE) for case in group][:3]


def fake_ncu(monkeypatch: pytest.MonkeyPatch, broken: set[str]) -> list[int]:
    """Stand in for ncu: ranges for all cases of the plan, or exit without a table if a broken one is among them."""
    sizes: list[int] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        plan = json.loads(Path(command[-1]).read_text())
        heads = [case["problem"]["kv_heads"] for case in plan["cases"]]
        sizes.append(len(heads))
        lines = [{"case": index, "calls": 8} for index in range(len(heads))]
        if "refuse" in broken:
            return subprocess.CompletedProcess(command, 1, "==ERROR== ERR_NVGPUCTRPERM", "")
        if "hang" in broken:
            raise subprocess.TimeoutExpired(command, 1)
        if 8 in heads and "crash" in broken:
            return subprocess.CompletedProcess(command, 139, "==ERROR== The application returned an error code (139).", "")
        if 8 in heads and "skip" in broken:
            lines[heads.index(8)] = {"case": heads.index(8), "reason": "OutOfMemoryError: tried to allocate"}
        Path(plan["done"]).write_text("\n".join(map(json.dumps, lines)))
        (log,) = (flag.removeprefix("--log-file=") for flag in command if flag.startswith("--log-file="))
        counted = [head for head, line in zip(heads, lines, strict=True) if "calls" in line]
        Path(log).write_text(page_of_reads([8 * head for head in counted]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return sizes


def count(three_cases: list) -> tuple[dict[int, float], list[str]]:
    replay = counters.Replay(H200, PROFILE, 0, ncu="/opt/ncu")
    return {index: counted["hbm_read_bytes"] for index, counted in replay.count(three_cases)}, replay.notes


def test_all_cases_are_counted_in_one_run(three_cases: list, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = fake_ncu(monkeypatch, set())
    assert count(three_cases) == ({0: 32, 1: 8, 2: 1}, [])
    assert sizes == [3]


def test_a_case_that_cannot_be_replayed_is_noted(three_cases: list, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ncu(monkeypatch, {"skip"})
    counted, notes = count(three_cases)
    assert counted == {0: 32, 2: 1}
    assert notes == ["gqa/flash roofline/flash was not counted: OutOfMemoryError: tried to allocate"]


def test_a_case_that_breaks_the_run_costs_its_own_counters_only(three_cases: list, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = fake_ncu(monkeypatch, {"crash"})
    counted, notes = count(three_cases)
    assert counted == {0: 32, 2: 1}
    assert sizes == [3, 1, 2, 1, 1]
    (note,) = notes
    assert note.startswith("gqa/flash roofline/flash was not counted: ncu printed no table: The application returned an error")


def test_a_refusal_ends_it_at_once(three_cases: list, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = fake_ncu(monkeypatch, {"refuse"})
    with pytest.raises(counters.Refused):
        count(three_cases)
    assert sizes == [3]


def test_a_run_that_hangs_is_noted(three_cases: list, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ncu(monkeypatch, {"hang"})
    counted, notes = count(three_cases)
    assert counted == {}
    assert len(notes) == 3
    assert "did not end within" in notes[0]


def test_without_ncu(three_cases: list) -> None:
    with pytest.raises(counters.Refused, match="not installed"):
        list(replace(counters.Replay(H200, PROFILE, 0), ncu=None).count(three_cases))
