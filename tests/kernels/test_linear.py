"""Linear attention, chunked and recurrent, against its quadratic form in float64."""

from dataclasses import replace

import pytest
import torch

from roofline.dtypes import DTYPES
from roofline.kernels import linear, reference
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Plan
from roofline.problem import GroupedKV, Lengths, Problem, ragged, uniform

CHUNKED = Plan("roofline/linear", 16, 16, 16, 16, form="chunked", packed=True)
RECURRENT = replace(CHUNKED, form="recurrent")
PARALLEL = replace(CHUNKED, form="parallel", packed=False, kv_tile=32)
RAGGED = ragged([(37, 37), (20, 50), (40, 7), (9, 0), (16, 16), (1, 1)])
DECODE = ragged([(1, 37), (3, 50), (8, 5), (2, 0), (1, 1)])


def _problem(lengths: tuple[Lengths, ...], mask: Mask, heads: tuple[int, int] = (4, 2), d: int = 16, dv: int = 16) -> Problem:
    return Problem(heads[0], GroupedKV(heads[1], d, dv), lengths, mask, DTYPES["fp16"], DTYPES["fp16"])


def _check(problem: Problem, plan: Plan, seed: int, device: torch.device) -> None:
    assert linear.supports(problem, device, plan) is None
    inputs = linear.make_inputs(problem, seed, device, plan.form)
    expected, plain = linear.reference(inputs), linear.quadratic(inputs, torch.float16)
    if "state_out" in inputs.tensors:
        inputs.tensors["state_out"].fill_(torch.nan)
    out = torch.full(expected.shape, torch.nan, dtype=torch.float16, device=device)
    assert linear.launch(inputs, plan, out) is out
    error = reference.relative_error(out, expected)
    assert error <= reference.tolerance(plain, expected, problem), f"relative error {error:.3g}, seed {seed}"
    if "state_out" in inputs.tensors:
        assert reference.relative_error(inputs.tensors["state_out"], _next_state(inputs)) < 1e-6


def _next_state(inputs: linear.Inputs) -> torch.Tensor:
    state, start = inputs.tensors["state"].double(), 0
    sequence = 0
    for lengths in inputs.problem.lengths:
        tokens = min(lengths.q_len, lengths.kv_len)
        for _ in range(lengths.count):
            k, v = (inputs.tensors[name][start : start + tokens].double() for name in "kv")
            state[sequence] += torch.einsum("thd,the->hde", k, v)
            start, sequence = start + tokens, sequence + 1
    return state


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("lengths", [RAGGED, uniform(2, 35, 35), uniform(2, 20, 43), uniform(2, 43, 20)], ids=str)
def test_chunked(seed: int, device: torch.device, lengths: tuple[Lengths, ...], mask: Mask) -> None:
    _check(_problem(lengths, mask), CHUNKED, seed, device)


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("lengths", [DECODE, uniform(3, 1, 35), uniform(2, 4, 4)], ids=str)
def test_recurrent(seed: int, device: torch.device, lengths: tuple[Lengths, ...], mask: Mask) -> None:
    _check(_problem(lengths, mask), RECURRENT, seed, device)


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [FULL, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("lengths", [RAGGED, uniform(2, 20, 43), uniform(2, 43, 20)], ids=str)
def test_parallel(seed: int, device: torch.device, lengths: tuple[Lengths, ...], mask: Mask) -> None:
    _check(_problem(lengths, mask), PARALLEL, seed, device)


@pytest.mark.kernels
@pytest.mark.parametrize("form", ["chunked", "recurrent", "parallel"])
def test_odd_widths_and_groups(seed: int, device: torch.device, form: str) -> None:
    plan = replace(CHUNKED, form=form, head_dim_tile=32, v_head_dim_tile=16)
    _check(_problem(uniform(1, 7, 7), CAUSAL, (3, 1), 20, 11), plan, seed, device)


@pytest.mark.kernels
def test_refusals(device: torch.device) -> None:
    assert "window" in (linear.supports(_problem(RAGGED, Mask(True, 4)), device) or "")
    assert "24" in (linear.supports(_problem(RAGGED, CAUSAL), device, replace(CHUNKED, kv_tile=24)) or "")
