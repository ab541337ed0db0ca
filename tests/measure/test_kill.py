import random
import subprocess
import sys
from pathlib import Path


def test_a_hundred_kills_lose_no_completed_point(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    command = [sys.executable, "-m", "tests.measure.kill_many", str(tmp_path), str(seed), "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    before, while_, after = (int(word) for word in done.stdout.replace(",", "").split() if word.isdigit())
    assert before + while_ + after == 100
    assert while_ >= 5, f"seed {seed}: the kills missed the run: {done.stdout}"
