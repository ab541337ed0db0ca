"""What compiling says, without a GPU: no spills, shared memory that fits a block, and the matrix instructions of the device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kernels
ROOT = Path(__file__).parents[2]
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}  # a block, CUDA programming guide, table of capabilities
MATRIX = {80: None, 90: "wgmma", 100: "tcgen05"}
# Kernels that multiply whole prefill tiles; what has 16 rows, four-byte elements on the vector units or no product is exempt.
WITHOUT_MATRIX = {"flash decode", "flash fp32"}
PREFILL_KERNELS = {"flash_kernel", "flash_hopper_kernel", "scores_kernel", "values_kernel", "merge_kernel"}


@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_resources(capability: int) -> None:
    """In a process that does not interpret, because that is fixed when a kernel's module is imported."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    script = [sys.executable, str(ROOT / "tests" / "kernels" / "compiling.py"), str(capability)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows
    assert [row for row in rows if row["spilled_bytes"]] == []
    assert [row for row in rows if row["shared_bytes"] > SHARED_BYTES[capability]] == []
    assert [row for row in rows if row["split_sectors"]] == []
    if matrix := MATRIX[capability]:
        prefill = [row for row in rows if row["kernel"] in PREFILL_KERNELS and row["case"] not in WITHOUT_MATRIX]
        assert prefill
        assert [row for row in prefill if not row[matrix]] == []
