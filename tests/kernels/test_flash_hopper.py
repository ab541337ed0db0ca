"""The Hopper kernel: what the host prepares, on any machine; its results, on a Hopper GPU (Gluon is not interpreted)."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from roofline.kernels import flash, flash_hopper
from roofline.kernels.flash_hopper import schedule
from roofline.kernels.protocol import Inputs
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Choices, Plan, choose
from roofline.problem import GroupedKV, Problem, uniform
from tests.kernels.conftest import HAS_GPU
from tests.kernels.shapes import PROFILE, grouped

pytestmark = pytest.mark.kernels
CPU = torch.device("cpu")
ON_HOPPER = HAS_GPU and torch.cuda.get_device_capability() == flash_hopper.HOPPER
needs_hopper = [pytest.mark.gpu, pytest.mark.skipif(HAS_GPU and not ON_HOPPER, reason="needs a Hopper GPU")]
GROWTH = 3.0  # of every element of K, from one end of the keys to the other: scores grow by some 1.7 d
LENGTHS = {
    "one query": uniform(2, 9, 9),
    "odd": uniform(3, 1000, 1000),
    "cut by one": uniform(2, 129, 257),
    "whole tiles": uniform(2, 2048, 2048),
    "longer keys": uniform(1, 513, 3000),
    "whole tiles before the first query": uniform(2, 130, 257),
    "many tiles a CTA": uniform(40, 300, 300),
}


def planned(problem: Problem) -> Plan:
    plan = choose("flash", "roofline/flash", problem, PROFILE)
    assert plan.kernel == "hopper"
    return plan


def rows_of(mask: Mask, q_len: int, kv_len: int, heads: int, tile: tuple[int, int], span: int, ctas: int) -> list[list[int]]:
    work = schedule(mask, q_len, kv_len, heads, *tile, span, ctas, CPU).tolist()
    assert all(0 < row[0] <= len(row) - 2 for row in work)  # a CTA reads one item ahead
    return [row[1 : 1 + row[0]] for row in work]


@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(True, 300)])
@pytest.mark.parametrize(("q_len", "kv_len", "heads", "span"), [(1, 1, 1, 1), (1000, 1000, 6, 4), (4096, 5000, 16, 3)])
def test_every_tile_is_run_once(mask: Mask, q_len: int, kv_len: int, heads: int, span: int) -> None:
    rows = rows_of(mask, q_len, kv_len, heads, (128, 64), span, 132)
    assert sorted(item for row in rows for item in row) == list(range(heads * -(-q_len // 128)))


@pytest.mark.parametrize("tile", [(128, 128), (192, 64)])
@pytest.mark.parametrize("n", [1024, 2048, 4096, 8192, 16384])
def test_ctas_get_even_shares_of_a_causal_mask(n: int, tile: tuple[int, int]) -> None:
    heads = 32 * 16384 // n
    rows = rows_of(CAUSAL, n, n, heads, tile, max(3 * 16384 // n, 1), 132)
    q_tiles = -(-n // tile[0])
    shares = [sum(-(-min((item % q_tiles + 1) * tile[0], n) // tile[1]) for item in row) for row in rows]
    assert max(shares) <= 1.03 * sum(shares) / len(shares)


def test_heads_that_share_l2_come_together_heavy_tiles_first() -> None:
    (row,) = rows_of(CAUSAL, 1024, 1024, 4, (128, 128), 2, 1)
    assert row[:4] == [7, 8 + 7, 6, 8 + 6]  # head * q tiles + q tile
    assert row[-8:] == [1, 9, 17, 25, 0, 8, 16, 24]  # what is left of all heads


def test_launch_arguments_follow_the_plan() -> None:
    problem = grouped(uniform(2, 300, 500), "causal", "bf16", (4, 2), 128, 128)
    inputs = flash.make_inputs(problem, 0, CPU)
    q, k, v = (inputs.tensors[name] for name in "qkv")
    grid, arguments, constants = flash_hopper.launch_arguments(problem, planned(problem), q, k, v, torch.empty_like(q))
    assert grid == (1,)  # a CPU has no SMs
    assert [descriptor.block_shape for descriptor in arguments[:4]] == [
        [1, 1, 64, 128],
        [1, 1, 128, 128],
        [1, 1, 128, 128],
        [1, 1, 64, 128],
    ]
    assert [descriptor.shape[2] for descriptor in arguments[:4]] == [300, 500, 500, 300]  # a copy ends with its sequence
    assert (constants["GROUPS"], constants["CAUSAL"], constants["WHOLE"]) == (2, True, False)


def test_what_is_not_covered_is_refused_in_one_line() -> None:
    problem = grouped(uniform(1, 256, 256), "causal", "bf16", (4, 2), 128, 128)
    plan = planned(problem)
    assert flash_hopper.tile_support(problem, plan) is None
    assert "128 or 192 query rows" in str(flash_hopper.tile_support(problem, replace(plan, q_tile=256)))
    assert "64 or 128 keys" in str(flash_hopper.tile_support(problem, replace(plan, kv_tile=32)))
    wide = replace(plan, q_tile=192, kv_tile=128, head_dim_tile=256, stages=2)
    assert "more than the shared memory" in str(flash_hopper.tile_support(problem, wide))
    assert "under a mask" in str(flash_hopper.tile_support(replace(problem, lengths=uniform(1, 256, 255)), plan))
    assert flash.supports(problem, CPU, plan) is not None  # in words, where no GPU is


@pytest.mark.parametrize("name", ["mask", "lengths"])
def test_the_portable_kernel_takes_over(name: str) -> None:
    change = {"mask": {"kv": GroupedKV(2, 96, 96)}, "lengths": {"lengths": uniform(1, 200, 100)}}[name]
    problem = replace(grouped(uniform(1, 256, 256), "causal", "fp16", (4, 2), 128, 128), **change)
    assert choose("flash", "roofline/flash", problem, PROFILE).kernel is None


@pytest.mark.parametrize("mask", ["full", "causal", "window"])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("dtype", "d"), [("bf16", 64), ("bf16", 128), ("bf16", 256), ("fp16", 64), ("fp16", 128)])
class TestOnHopper:
    pytestmark = needs_hopper

    def test_agrees(self, agrees: Callable[..., None], lengths: str, mask: str, dtype: str, d: int) -> None:
        problem = grouped(LENGTHS[lengths], mask, dtype, (8, 2), d, d)
        agrees(flash, problem, planned(problem))


class Growing:
    """Flash attention over keys whose scores grow from the last key, which the kernel runs first, to the first one."""

    supports, launch, reference = flash.supports, flash.launch, flash.reference

    @staticmethod
    def make_inputs(problem: Problem, seed: int, device: torch.device) -> Inputs:
        inputs = flash.make_inputs(problem, seed, device)
        q, k = inputs.tensors["q"], inputs.tensors["k"]
        growth = torch.linspace(GROWTH, 0, k.shape[0], device=device)[:, None, None]
        inputs.tensors.update(q=q.abs(), k=(k + growth).to(k.dtype))
        return inputs


@pytest.mark.parametrize("mask", ["full", "causal", "window"])
@pytest.mark.parametrize(("dtype", "d"), [("bf16", 64), ("bf16", 128), ("bf16", 256), ("fp16", 128)])
class TestGrowingMaximum:
    pytestmark = needs_hopper

    def test_agrees(self, agrees: Callable[..., None], mask: str, dtype: str, d: int) -> None:
        problem = grouped(uniform(1, 1000, 1500), mask, dtype, (4, 2), d, d)
        agrees(Growing, problem, planned(problem))


@pytest.mark.gpu
def test_tile_choice_on_a_gpu_is_portable_on_request(agrees: Callable[..., None]) -> None:
    problem = grouped(uniform(2, 500, 500), "causal", "bf16", (8, 2), 128, 128)
    agrees(flash, problem, choose("flash", "roofline/flash", problem, PROFILE, Choices(portable=True)))
