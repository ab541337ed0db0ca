"""Time and peak memory of `roofline sweep` over 100,000 problems, written as CSV, on one core.

Run: python benchmarks/sweep.py
"""

import os
import subprocess
import sys
import time

PROBLEMS = 100_000
COMMAND = [sys.executable, "-m", "roofline", "sweep", "--phase", "prefill", "--kv-heads", "32", "--causal", "--csv"]


def run(problems: int, variant: str) -> tuple[int, float, float]:
    """Return rows, seconds and peak resident memory in MB of a sweep over ``problems`` lengths."""
    arguments = [*COMMAND, "--variants", variant, "--n", f"1:{problems}:+1", "--device", "h100-sxm5-80gb"]
    start, rows = time.perf_counter(), -1  # the header is no row
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while block := process.stdout.read(1 << 20):
            rows += block.count(b"\n")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return rows, time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Print rate and memory at two sizes: memory must not grow with the grid."""
    for variant in ("naive", "flash"):
        for problems in (PROBLEMS // 10, PROBLEMS):
            rows, seconds, megabytes = run(problems, variant)
            each = seconds / rows * 1e6
            print(f"{variant}: {rows} rows in {seconds:.1f} s ({each:.0f} us a row), at most {megabytes:.0f} MB (bar 10 s)")


if __name__ == "__main__":
    main()
