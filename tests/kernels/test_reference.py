"""The references against torch's own attention, sequence by sequence."""

import pytest
import torch

from roofline.dtypes import DTYPES
from roofline.kernels import reference
from roofline.kernels.inputs import dense_inputs
from roofline.masks import CAUSAL, FULL, Mask
from roofline.problem import GroupedKV, Problem, ragged

pytestmark = pytest.mark.kernels
LENGTHS = ragged([(7, 7), (3, 11), (4, 0), (9, 4), (1, 6)])


def _problem(mask: Mask, dtype: str = "fp32") -> Problem:
    return Problem(4, GroupedKV(2, 10, 6), LENGTHS, mask, DTYPES[dtype], DTYPES[dtype])


def _torch_attention(problem: Problem, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The same by scaled_dot_product_attention with an explicit mask, one sequence at a time."""
    pieces, q_start, kv_start = [], 0, 0
    for q_len, kv_len, count in problem.lengths:
        for _ in range(count):
            q = tensors["q"][q_start : q_start + q_len].double().transpose(0, 1)
            k, v = (tensors[name][kv_start : kv_start + kv_len].double().transpose(0, 1) for name in "kv")
            visible = torch.ones(q_len, kv_len, dtype=torch.bool)
            for i in range(q_len):
                for j in range(kv_len):
                    last = kv_len - q_len + i
                    if problem.mask.causal or problem.mask.window is not None:
                        visible[i, j] = j <= last and (problem.mask.window is None or j > last - problem.mask.window)
            if kv_len:
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, visible, enable_gqa=True)
                out = torch.where(visible.any(1)[:, None], out, 0.0)
            else:
                out = q.new_zeros(4, q_len, 6)
            pieces.append(out.transpose(0, 1))
            q_start, kv_start = q_start + q_len, kv_start + kv_len
    return torch.cat(pieces)


@pytest.mark.parametrize("mask", [FULL, CAUSAL, Mask(True, 3), Mask(True, 1)], ids=str)
@pytest.mark.parametrize("block", [1, 50, 2**20])
def test_float64_reference_is_torch_attention(monkeypatch: pytest.MonkeyPatch, seed: int, mask: Mask, block: int) -> None:
    monkeypatch.setattr(reference, "BLOCK_SCORES", block)
    problem = _problem(mask)
    tensors = dict(dense_inputs(problem, seed, torch.device("cpu")).tensors)
    out = reference.attention(tensors["q"], tensors["k"], tensors["v"], problem)
    assert reference.relative_error(out, _torch_attention(problem, tensors)) < 1e-14


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("fp32", 1e-9, 1e-6), ("tf32", 1e-5, 3e-3), ("fp16", 1e-5, 1e-3), ("bf16", 1e-4, 1e-2)]
)
def test_plain_attention_errs_like_its_dtype(seed: int, dtype: str, least: float, most: float) -> None:
    problem = _problem(CAUSAL, dtype)
    q, k, v = dense_inputs(problem, seed, torch.device("cpu")).tensors.values()
    expected = reference.attention(q, k, v, problem)
    assert least < reference.relative_error(reference.plain(q, k, v, problem), expected) < most


def test_inputs_follow_the_seed(seed: int) -> None:
    problem, cpu = _problem(FULL), torch.device("cpu")
    first, again, other = (dense_inputs(problem, s, cpu).tensors["k"] for s in (seed, seed, seed + 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_relative_error_shows_nan_and_zero() -> None:
    zeros = torch.zeros(3)
    assert reference.relative_error(zeros, zeros) == 0
    assert not reference.relative_error(torch.tensor([torch.nan]), torch.ones(1)) <= 1
