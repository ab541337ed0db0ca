"""What the decode and linear kernels need of each architecture, with the plan that it is given; no GPU is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "compiling_decode.py"
SHARED_BYTES = {80: 163 * 1024, 86: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}
TMA_CASES = {
    "mla 16 heads", "mla 16 heads causal", "mla 20 heads fp16 whole",
    "mla 128 heads", "mla 64 heads fp16 whole", "mla 128 heads causal",
}  # fmt: skip
WGMMA_CASES = TMA_CASES | {
    "split-kv 32 rows", "split-kv 32 rows whole", "split-kv 32 rows causal", "paged 16 32 rows", "split-kv 64 rows",
    "split-kv d256 64 rows", "paged 16 64 rows", "linear d64", "linear d128",
}  # fmt: skip


@pytest.mark.kernels
@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_kernels_fit(capability: int, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SCRIPT.parents[2]), environment.get("PYTHONPATH"))))
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    run = subprocess.run([sys.executable, SCRIPT, str(capability)], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    reports = [json.loads(line) for line in run.stdout.splitlines()]
    assert len({report["case"] for report in reports}) >= 18
    for report in reports:
        assert report["spilled_bytes"] == 0, report
        assert report["shared_bytes"] <= SHARED_BYTES[capability], report
        assert not report["repeated"], report
        assert not report["split_sectors"], report
    if capability == 90:
        wgmma = {report["case"] for report in reports if report["wgmma"]}
        assert wgmma >= WGMMA_CASES
        assert {report["case"] for report in reports if report["tma"]} >= TMA_CASES
