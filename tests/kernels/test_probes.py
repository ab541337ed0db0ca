"""Calibration probes do what they say, and count it."""

import pytest
import torch

from roofline.errors import InputError
from roofline.kernels import probes

BLOCK = 128
pytestmark = pytest.mark.kernels


def _words(device: torch.device, blocks: int = 5) -> torch.Tensor:
    return torch.arange(blocks * BLOCK, dtype=torch.int32, device=device)


def test_copy(device: torch.device) -> None:
    source, target = _words(device), torch.full((5 * BLOCK,), -1, dtype=torch.int32, device=device)
    probe = probes.copy(source, target, ctas=2, block=BLOCK)
    probe.run()
    assert torch.equal(source, target)
    assert (probe.amount, probe.unit) == (2 * 4 * 5 * BLOCK, "byte")


def test_write(device: torch.device) -> None:
    target = torch.full((5 * BLOCK,), -1, dtype=torch.int32, device=device)
    probe = probes.write(target, ctas=3, block=BLOCK)
    probe.run()
    assert bool((target > 0).all())
    assert probe.amount == 4 * 5 * BLOCK


@pytest.mark.parametrize("hidden", [0, 3 * BLOCK + 7])
def test_read_sees_every_word(device: torch.device, hidden: int) -> None:
    """A word that makes the fold take the unlikely value shows in the sink."""
    source, sink = torch.zeros(5 * BLOCK, dtype=torch.int32, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    source[hidden] = 5
    probes.read_words[(1,)](source, sink, source.numel(), 1, 5, BLOCK=BLOCK)
    assert int(sink) == 5
    probe = probes.read(source, ctas=2, block=BLOCK, passes=3)
    probe.run()
    assert probe.amount == 3 * 4 * 5 * BLOCK


def test_exponentials(device: torch.device) -> None:
    probe = probes.exponentials(2, device, rounds=3, warps=1)
    probe.run()
    assert (probe.amount, probe.unit) == (2 * 32 * probes.EXPONENTIALS_IN_FLIGHT * 3, "exp")


def test_empty(device: torch.device) -> None:
    probes.empty(device).run()


def test_words_that_do_not_fill_a_block_are_refused(device: torch.device) -> None:
    with pytest.raises(InputError, match="multiple of 128"):
        probes.read(torch.zeros(BLOCK + 1, dtype=torch.int32, device=device), 1, BLOCK)


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "bf16"])
def test_matmul(device: torch.device, dtype: str) -> None:
    probe = probes.matmul(64, dtype, device)
    probe.run()
    assert (probe.amount, probe.unit) == (2 * 64**3, "FLOP")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp16", "int8", "fp8"])
def test_matmul_of_few_bits(device: torch.device, dtype: str) -> None:
    if dtype == "fp8" and torch.cuda.get_device_capability(device) < (8, 9):
        pytest.skip("fp8 needs compute capability 8.9")
    probes.matmul(256, dtype, device).run()
