"""What a launch allocates: nothing but the output and the workspace of its cost."""

import pytest
import torch

from roofline.kernels import load
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Choices, choose
from roofline.problem import GroupedKV, LatentKV, Problem, ragged, uniform
from roofline.variants import VARIANTS
from tests.kernels.shapes import PROFILE

pytestmark = [pytest.mark.gpu, pytest.mark.kernels]
KV = GroupedKV(2, 128, 128)
PREFILL, DECODE = uniform(2, 1000, 1000), uniform(3, 1, 5000)
CASES = {
    "naive": ("naive", Problem(4, KV, PREFILL, CAUSAL), Choices()),
    "naive six passes": ("naive", Problem(4, KV, PREFILL, CAUSAL), Choices(passes=6)),
    "chunked": ("chunked", Problem(4, KV, PREFILL, CAUSAL), Choices(chunk=(256, 300))),
    "chunked one block": ("chunked", Problem(4, KV, PREFILL), Choices(chunk=(1024, 1024))),
    "chunked without keys": ("chunked", Problem(4, KV, uniform(2, 1000, 100), CAUSAL), Choices(chunk=(256, 64))),
    "chunked window": ("chunked", Problem(4, KV, uniform(1, 16, 1000), Mask(True, 50)), Choices(chunk=(64, 300), decode=False)),
    "flash": ("flash", Problem(4, KV, PREFILL, CAUSAL), Choices()),
    "flash ragged": ("flash", Problem(4, KV, ragged([(100, 200), (1, 0)])), Choices()),
    "split-kv": ("split-kv", Problem(8, KV, DECODE), Choices(splits=5)),
    "split-kv one split": ("split-kv", Problem(8, KV, DECODE), Choices(splits=1)),
    "split-kv fused": ("split-kv", Problem(8, KV, ragged([(1, 5000), (1, 70)])), Choices(splits=5)),
    "paged": ("paged", Problem(8, KV, DECODE, page_size=16), Choices(splits=5)),
    "mla expanded": ("mla", Problem(4, LatentKV(512, 64, 128, 128), PREFILL, CAUSAL), Choices(form="expanded")),
    "mla absorbed": ("mla", Problem(16, LatentKV(512, 64, 128, 128), DECODE), Choices(splits=5)),
    "linear chunked": ("linear", Problem(8, KV, PREFILL, CAUSAL), Choices()),
    "linear chunked full": ("linear", Problem(8, KV, PREFILL, FULL), Choices()),
    "linear recurrent": ("linear", Problem(8, KV, DECODE, CAUSAL), Choices()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_launch_allocates_its_output_and_workspace(name: str, seed: int, device: torch.device) -> None:
    variant, problem, choices = CASES[name]
    kernel = load(variant)
    plan = choose(variant, f"roofline/{variant}", problem, PROFILE, choices)
    inputs = kernel.make_inputs(problem, seed, device)
    out = kernel.launch(inputs, plan)  # what is made once for a problem, lists of tiles and the like, is there from now on
    output_bytes = out.numel() * out.element_size()
    del out
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    kernel.launch(inputs, plan)
    torch.cuda.synchronize()
    expected = output_bytes + VARIANTS[variant](problem, plan).workspace_bytes
    # What was asked for: the allocator rounds small tensors to 512 B and large ones to blocks of up to 2 MiB.
    assert torch.cuda.memory_stats()["requested_bytes.all.peak"] - before == expected
