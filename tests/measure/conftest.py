"""A GPU that is not there: an H200 by name, measured by the fake worker."""

from pathlib import Path

import pytest

from roofline.measure import calibrate as calibrating
from roofline.measure import doctor as doctoring
from roofline.measure import environment, session
from roofline.profiles.local import Gpu

H200 = Gpu(0, "GPU-5d2a2d4e-1b2c-4f6a-9a43-0f6c3a1f7a10", "NVIDIA H200", 150754820096, "9.0")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    monkeypatch.setenv("ROOFLINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    for module in (session, calibrating):
        monkeypatch.setattr(module, "required_gpu", lambda wanted, command: H200)
    monkeypatch.setattr(doctoring, "gpus", lambda: (H200,))
    monkeypatch.setattr(environment, "gpu_state", lambda uuid: environment.GpuState(driver="580.159.04"))
    return H200
