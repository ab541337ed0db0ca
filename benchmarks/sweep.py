"""Time and peak memory of `roofline sweep` over 100,000 problems, written as CSV, on one core.

Run: python benchmarks/sweep.py
"""

import os
import subprocess
import sys
import time

PROBLEMS = 100_000
RUNS = 3  # the least counts: other work on the machine only adds
COMMAND = [sys.executable, "-m", "roofline", "sweep", "--phase", "prefill", "--kv-heads", "32", "--causal", "--csv"]


def run(lengths: int, variant: str) -> tuple[int, float, float]:
    """Return rows, seconds and peak resident memory in MB of a sweep over ``lengths``, each row a problem of its own."""
    arguments = [*COMMAND, "--variants", variant, "--n", f"1:{lengths}:+1", "--device", "h100-sxm5-80gb"]
    start, rows = time.perf_counter(), -1  # the header is no row
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while block := process.stdout.read(1 << 20):
            rows += block.count(b"\n")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the sweep failed with exit code {process.returncode}: {' '.join(arguments)}")
    return rows, time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Print rate and memory at two sizes: memory must not grow with the grid."""
    # flash has two configurations a length, without and with a window; naive has one.
    for variant, configurations in (("flash", 2), ("naive", 1)):
        for problems in (PROBLEMS // 10, PROBLEMS):
            runs = [run(problems // configurations, variant) for _ in range(RUNS)]
            rows, seconds, megabytes = min(runs, key=lambda one: one[1])
            each = seconds / rows * 1e6
            speed = f"{rows} rows in {seconds:.1f} s ({each:.0f} us a row, least of {RUNS})"
            print(f"{variant}: {speed}, {megabytes:.0f} MB (bar 10 s)")


if __name__ == "__main__":
    main()
