"""Kill a measuring run with SIGKILL at a hundred random moments, and look at what is left of its file each time.

Runs in a process of its own, without threads, so that it may fork: ``python -m tests.measure.kill_many FOLDER SEED TIMES``.
Prints how many runs were killed before, while and after points were made; exits with 1 if a completed point was lost.
"""

import mmap
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path

import roofline.measure.session as session
from roofline.configurations import Request
from roofline.measure import environment
from roofline.measure.options import Options, Progress
from roofline.records import read
from tests.measure.conftest import H200
from tests.measure.test_supervisor import FAKE_WORKER

POINTS = 30
LONGEST_S = 0.1
LONGEST_DURING_S = 0.03


def run(path: Path, completed: mmap.mmap) -> None:
    """Measure many points; each is announced in ``completed`` once it should survive."""

    def tell(progress: Progress) -> None:
        if progress.record is not None:
            completed[:8] = struct.pack("q", progress.done)

    names = tuple(f"peer/{number}" for number in range(POINTS - 1))
    request = Request(n=1024, phase="prefill", variants=("chunked",))
    options = Options(request=request, implementations=names, counters="off", calibrate=False, output=path, worker=FAKE_WORKER)
    session.measure(options, tell)


def kill_one(path: Path, delay_s: float, during: bool) -> int:
    """Run, kill after ``delay_s`` (from the first point on if ``during``), and return how many points were announced.

    Raises if the file does not hold them.
    """
    completed = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        try:
            run(path, completed)
        finally:
            os._exit(0)
    if during:
        patience = time.monotonic() + 20
        while not any(completed[:8]) and time.monotonic() < patience:
            time.sleep(1e-3)
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    announced = struct.unpack("q", completed[:8])[0]
    if path.exists() and path.read_bytes().count(b"\n"):
        kept = read(path).records
        assert len(kept) >= announced, f"{announced} points were announced, {len(kept)} are there"
        assert all(record.status == "ok" for record in kept)
    else:
        assert announced == 0
    return announced


def main(folder: Path, seed: int, times: int) -> None:
    """Kill ``times`` runs."""
    draw = random.Random(seed)
    session.required_gpu = lambda wanted, command: H200  # type: ignore[attr-defined]
    environment.gpu_state = lambda uuid: environment.GpuState()  # type: ignore[assignment]
    made = []
    for number in range(times):
        during = number % 2 == 0
        delay_s = draw.uniform(0, LONGEST_DURING_S if during else LONGEST_S)
        made.append(kill_one(folder / f"run-{number}.jsonl", delay_s, during))
    before, after = made.count(0), made.count(POINTS)
    sys.stdout.write(f"{before} before, {len(made) - before - after} while, {after} after points were made\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
