"""The decode and linear kernels on a GPU, with the plans they are given there: 16-bit types, large shapes, 64-bit offsets."""

from collections.abc import Callable

import pytest
import torch

from roofline import profiles
from roofline.dtypes import DTYPES
from roofline.kernels import linear, load, reference
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Choices, choose
from roofline.problem import GroupedKV, LatentKV, Lengths, Problem, ragged, uniform

pytestmark = [pytest.mark.gpu, pytest.mark.kernels]
PROFILE = profiles.load("h200-sxm-141gb")
RAGGED = ragged([(1, 3001), (1, 0), (8, 777), (3, 2), (1, 128), (1, 1)])


def grouped(
    group: int, lengths: tuple[Lengths, ...], d: int = 128, mask: Mask = FULL, dtype: str = "bf16", kv_dtype: str | None = None,
    page_size: int = 16, kv_heads: int = 8,
) -> Problem:  # fmt: skip
    kv = GroupedKV(kv_heads, d, d)
    return Problem(
        kv_heads * group, kv, lengths, mask, DTYPES[dtype], DTYPES[kv_dtype or dtype], page_size=page_size, shared_prefix=0
    )


def latent(heads: int, lengths: tuple[Lengths, ...], mask: Mask = FULL, kv_dtype: str = "bf16", dtype: str = "bf16") -> Problem:
    return Problem(heads, LatentKV(512, 64, 128, 128), lengths, mask, DTYPES[dtype], DTYPES[kv_dtype])


PROBLEMS = {
    "decode": ("split-kv", grouped(4, uniform(3, 1, 5000))),
    "fp16 causal": ("split-kv", grouped(8, uniform(2, 7, 1000), mask=CAUSAL, dtype="fp16")),
    "window": ("split-kv", grouped(4, uniform(2, 3, 5000), mask=Mask(True, 1000))),
    "ragged": ("split-kv", grouped(16, RAGGED, mask=CAUSAL)),
    "mqa": ("split-kv", grouped(32, uniform(2, 1, 3000), kv_heads=1)),
    "32 rows whole": ("split-kv", grouped(32, uniform(132, 1, 700), kv_heads=1)),
    "32 rows causal": ("split-kv", grouped(16, uniform(3, 2, 1000), mask=CAUSAL)),
    "32 rows window": ("split-kv", grouped(8, uniform(2, 4, 3000), d=64, mask=Mask(True, 1000), dtype="fp16")),
    "32 rows ragged d80": ("split-kv", grouped(20, RAGGED, d=80, kv_heads=2)),
    "32 rows d256": ("split-kv", grouped(32, uniform(2, 1, 900), d=256, kv_heads=2)),
    "32 rows in pages": ("paged", grouped(32, RAGGED, kv_heads=2)),
    "d80": ("split-kv", grouped(3, RAGGED, d=80, mask=CAUSAL)),
    "d256": ("split-kv", grouped(8, uniform(2, 8, 900), d=256, mask=CAUSAL)),
    "int8": ("split-kv", grouped(4, RAGGED, kv_dtype="int8")),
    "fp8": ("split-kv", grouped(4, RAGGED, kv_dtype="fp8")),
    "int8 in fp16": ("split-kv", grouped(8, uniform(2, 1, 3000), dtype="fp16", kv_dtype="int8")),
    "fp8 d80": ("split-kv", grouped(2, uniform(2, 2, 700), d=80, mask=CAUSAL, kv_dtype="fp8")),
    "fp8 64 rows": ("split-kv", grouped(8, uniform(2, 8, 900), mask=CAUSAL, kv_dtype="fp8")),
    "int8 window": ("split-kv", grouped(4, uniform(2, 3, 5000), mask=Mask(True, 1000), kv_dtype="int8")),
    "one token ragged": ("split-kv", grouped(4, ragged([(1, 9000), (1, 0), (1, 100), (1, 4097)]))),
    "pages ragged in int8": ("paged", grouped(4, ragged([(1, 9000), (1, 0), (1, 100), (1, 4097)]), kv_dtype="int8")),
    "whole heads": ("split-kv", grouped(4, uniform(16, 1, 1000))),
    "long": ("split-kv", grouped(4, uniform(1, 1, 131072))),
    "fp32": ("split-kv", grouped(4, RAGGED, dtype="fp32")),
    "tf32": ("split-kv", grouped(4, RAGGED, d=64, dtype="tf32")),
    "pages of 1": ("paged", grouped(4, RAGGED, page_size=1)),
    "pages of 16": ("paged", grouped(8, RAGGED, mask=CAUSAL)),
    "pages of 48": ("paged", grouped(4, uniform(2, 1, 1000), page_size=48)),
    "pages of 256": ("paged", grouped(4, uniform(3, 5, 1000), page_size=256, mask=CAUSAL)),
    "pages in fp8": ("paged", grouped(4, uniform(3, 1, 1000), kv_dtype="fp8")),
    "pages in int8": ("paged", grouped(4, uniform(3, 1, 1000), kv_dtype="int8")),
    "mla 16 heads": ("mla", latent(16, uniform(2, 1, 3000))),
    "mla 10 heads causal": ("mla", latent(10, uniform(3, 3, 777), CAUSAL)),
    "mla 5 heads before their keys": ("mla", latent(5, uniform(2, 6, 3), CAUSAL)),
    "mla 32 heads": ("mla", latent(32, uniform(3, 1, 64))),
    "mla 20 heads fp16": ("mla", latent(20, uniform(2, 1, 1000), kv_dtype="fp16", dtype="fp16")),
    "mla 128 heads": ("mla", latent(128, uniform(2, 1, 3000))),
    "mla 128 heads causal": ("mla", latent(128, uniform(3, 5, 777), CAUSAL)),
    "mla 128 heads before their keys": ("mla", latent(128, uniform(2, 6, 3), CAUSAL)),
    "mla 40 heads": ("mla", latent(40, uniform(3, 1, 64))),
    "mla 100 heads fp16": ("mla", latent(100, uniform(2, 2, 1000), kv_dtype="fp16", dtype="fp16")),
    "mla 128 heads ragged": ("mla", latent(128, RAGGED, CAUSAL)),
    "mla 16 heads ragged": ("mla", latent(16, RAGGED, CAUSAL)),
    "mla int8": ("mla", latent(128, uniform(2, 2, 500), CAUSAL, "int8")),
}


@pytest.mark.parametrize("splits", [None, 1, 5])
@pytest.mark.parametrize("name", PROBLEMS)
def test_decode(agrees: Callable, device: torch.device, name: str, splits: int | None) -> None:
    variant, problem = PROBLEMS[name]
    kernel = load(variant)
    plan = choose(variant, f"roofline/{variant}", problem, PROFILE, Choices(splits=splits))
    if reason := kernel.supports(problem, device, plan):
        pytest.skip(reason)

    def dense(inputs: object) -> tuple:
        q, *rest = kernel.dense(inputs)
        return q, *(tensor.to(q.dtype) if isinstance(tensor, torch.Tensor) else tensor for tensor in rest)

    agrees(kernel, problem, plan, dense)


@pytest.mark.parametrize("kv_dtype", ["fp8", "int8"])
def test_every_value_of_8_bits_is_widened_exactly(device: torch.device, kv_dtype: str) -> None:
    # One key a sequence, so that O is V times its scale; e4m3's two NaNs are left out.
    problem = grouped(1, uniform(1, 1, 1), kv_heads=4, kv_dtype=kv_dtype)
    inputs = load("split-kv").make_inputs(problem, 0, device)
    codes = torch.arange(512, device=device).to(torch.uint8).view(1, 4, 128)
    codes[(codes & 0x7F) == 0x7F] = 0
    inputs.tensors["v"].copy_(codes.view(inputs.tensors["v"].dtype))
    inputs.tensors["v_scale"].fill_(0.5)
    plan = choose("split-kv", "roofline/split_kv", problem, PROFILE)
    expected = inputs.tensors["v"].to(torch.float32) / 2
    assert torch.equal(load("split-kv").launch(inputs, plan).float(), expected)


def test_a_launch_leaves_the_counters_at_0(device: torch.device) -> None:
    problem = grouped(4, ragged([(1, 20000), (1, 0), (1, 100), (1, 4097)]))
    plan = choose("split-kv", "roofline/split_kv", problem, PROFILE)
    assert plan.fused
    inputs = load("split-kv").make_inputs(problem, 0, device)
    first = load("split-kv").launch(inputs, plan)
    for _ in range(20):
        assert torch.equal(load("split-kv").launch(inputs, plan), first)
    assert not inputs.tensors["counters"].any()


def test_more_than_2_31_elements(agrees: Callable) -> None:
    problem = grouped(1, uniform(65, 1, 8200), kv_heads=32)
    agrees(load("split-kv"), problem, choose("split-kv", "roofline/split_kv", problem, PROFILE))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(
    ("lengths", "mask"),
    [
        (uniform(2, 1000, 1000), CAUSAL),
        (ragged([(700, 900), (300, 100)]), CAUSAL),
        (uniform(2, 500, 800), FULL),
        (RAGGED, CAUSAL),
    ],
    ids=["square", "ragged", "full", "decode"],
)
def test_linear(seed: int, device: torch.device, lengths: tuple[Lengths, ...], mask: Mask, d: int, dtype: str) -> None:
    problem = grouped(4, lengths, d, mask, dtype, kv_heads=2)
    plan = choose("linear", "roofline/linear", problem, PROFILE)
    inputs = linear.make_inputs(problem, seed, device, plan.form)
    expected, plain = linear.reference(inputs), linear.quadratic(inputs, inputs.tensors["q"].dtype)
    out = torch.full(expected.shape, torch.nan, dtype=plain.dtype, device=device)
    linear.launch(inputs, plan, out)
    assert reference.relative_error(out, expected) <= reference.tolerance(plain, expected, problem)
