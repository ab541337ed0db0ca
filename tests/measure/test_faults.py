"""The kernels that break on purpose must at least compile: without a GPU, for one that is only named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.kernels
ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, torch, triton
from triton.runtime.jit import JITFunction
from roofline.kernels.protocol import Inputs
from roofline.measure.worker.faults import endless, illegal_address
from tests.kernels.compiling import NamedTarget

triton.runtime.driver.set_active(NamedTarget(90))
compiled, run = [], JITFunction.run
JITFunction.run = lambda self, *a, grid, warmup, **k: compiled.append(run(self, *a, grid=grid, warmup=True, **k))
for module in (endless, illegal_address):
    module.launch(Inputs(None, {"q": torch.zeros(8)}), None)
print(json.dumps({kernel.metadata.name: kernel.asm["ptx"] for kernel in compiled}))
"""


def test_they_compile_and_still_break() -> None:
    """In a process that does not interpret; neither the loop nor the far address may be optimised away."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    ptx = json.loads(done.stdout)
    assert "atom." in ptx["_spin"]
    assert "bra" in ptx["_spin"]
    assert "st.global" in ptx["_write"]
