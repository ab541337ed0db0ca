"""Flash attention against float64: shapes with edges in the interpreter, the same and larger ones on a GPU."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from roofline.dtypes import DTYPES
from roofline.kernels import flash, reference
from roofline.masks import CAUSAL
from roofline.plan import Choices, choose
from roofline.problem import GroupedKV, LatentKV, Problem, ragged, uniform
from tests.kernels.shapes import LARGE, MASKS, PROFILE, SMALL, grouped

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", SMALL)
def test_edges(agrees: Callable[..., None], lengths: str, mask: str) -> None:
    problem = grouped(SMALL[lengths], mask)
    agrees(flash, problem, choose("flash", "roofline/flash", problem, PROFILE, Choices(tile=(32, 16))))


@pytest.mark.parametrize(("d", "dv"), [(16, 64), (24, 40), (17, 13), (80, 16)])
@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16"])
def test_head_sizes(agrees: Callable[..., None], dtype: str, d: int, dv: int) -> None:
    problem = grouped(uniform(2, 33, 50), "causal", dtype, (2, 1), d, dv)
    agrees(flash, problem, choose("flash", "roofline/flash", problem, PROFILE, Choices(tile=(32, 32))))


@pytest.mark.parametrize(("head_dim", "rope_dim"), [(32, 16), (40, 8), (32, 0)])
def test_expanded_latent(agrees: Callable[..., None], head_dim: int, rope_dim: int) -> None:
    problem = Problem(2, LatentKV(64, rope_dim, head_dim, 32), uniform(2, 40, 40), CAUSAL, DTYPES["fp16"], DTYPES["fp16"])
    plan = choose("mla", "roofline/flash", problem, PROFILE, Choices(tile=(32, 32), form="expanded"))
    agrees(flash, problem, plan)


def test_heavy_tiles_of_many_heads_first(agrees: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    problem = grouped(uniform(3, 70, 70), "causal", heads=(3, 3))
    monkeypatch.setattr(flash, "head_span", lambda *_: 4)  # 9 heads in groups of 4, 4 and 1
    agrees(flash, problem, choose("flash", "roofline/flash", problem, PROFILE, Choices(tile=(32, 32))))


@pytest.mark.parametrize("d", range(1, 257))
def test_masked_scores_scale_exactly(d: int) -> None:
    """On a GPU scores * scale - maximum is one fused operation; a rounded product would leave a huge exponent behind."""
    hidden, scale = torch.tensor([flash.HIDDEN.value, d**-0.5 * flash.LOG2_E], dtype=torch.float32)
    assert float(hidden * scale) == float(hidden) * float(scale)  # the product of two fp32 numbers is exact in float64


@pytest.mark.gpu
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", LARGE)
@pytest.mark.parametrize(("dtype", "d"), [("bf16", 64), ("bf16", 128), ("bf16", 256), ("fp16", 96), ("fp32", 64), ("tf32", 64)])
def test_large(agrees: Callable[..., None], lengths: str, mask: str, dtype: str, d: int) -> None:
    problem = grouped(LARGE[lengths], mask, dtype, (8, 2), d, d)
    agrees(flash, problem, choose("flash", "roofline/flash", problem, PROFILE, Choices(portable=True)))


@pytest.mark.gpu
def test_expanded_deepseek(agrees: Callable[..., None]) -> None:
    problem = Problem(16, LatentKV(512, 64, 128, 128), uniform(2, 1100, 1100), CAUSAL)
    agrees(flash, problem, choose("mla", "roofline/flash", problem, PROFILE, Choices(form="expanded")))


@pytest.mark.gpu
@pytest.mark.parametrize("is_ragged", [False, True])
def test_offsets_beyond_32_bits(seed: int, device: torch.device, is_ragged: bool) -> None:
    heads, q_len, kv_len = 128, 100, 140_000  # K and V of 2.3e9 elements each
    lengths = ragged([(1, 1), (q_len, kv_len)]) if is_ragged else uniform(1, q_len, kv_len)
    problem = Problem(heads, GroupedKV(heads, 128, 128), lengths, CAUSAL)
    inputs = flash.make_inputs(problem, seed, device)
    plan = choose("flash", "roofline/flash", problem, PROFILE)
    assert (plan.kernel is None) == is_ragged
    out = flash.launch(inputs, plan)[-q_len:, -1:]
    one = replace(problem, q_heads=1, kv=GroupedKV(1, 128, 128), lengths=uniform(1, q_len, kv_len))
    q, k, v = (tensor[-(q_len if name == "q" else kv_len) :, -1:] for name, tensor in inputs.tensors.items())
    expected = reference.attention(q, k, v, one)
    allowed = reference.tolerance(reference.plain(q, k, v, one), expected, one)
    assert reference.relative_error(out, expected) <= allowed
