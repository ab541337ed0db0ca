"""What a kernel's output is compared with: attention in float64, and plain attention in the problem's own dtype.

The first is the truth. The second, independent of every kernel here, makes the rounding errors that the dtype cannot avoid;
its measured error sets the tolerance, so that no tolerance is tuned by hand.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from roofline.masks import Mask
from roofline.problem import Problem

BLOCK_SCORES = 2**25  # scores held at once: 256 MiB in float64
ALLOWED_RATIO = 2.0  # error of a kernel over the error of plain attention in the same dtype
UNIT_ROUNDOFF = {"fp32": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-9, "fp16": 2.0**-12}
TF32_DROPPED_BITS = 13  # of an fp32 mantissa, by the tensor cores


class _Block(NamedTuple):
    """Queries ``rows`` over keys ``keys`` of one sequence and one KV head; ``masked`` [queries, keys] is true where hidden."""

    rows: slice
    keys: slice
    kv_head: int
    masked: torch.Tensor | None


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: Problem, scale: float | None = None) -> torch.Tensor:
    """Return O [q_tokens, q_heads, d_v] in float64, for ``q`` [q_tokens, q_heads, d_qk] and packed ``k`` and ``v``.

    The KV heads are those of ``k``, the lengths and the mask those of ``problem``; ``scale`` defaults to 1 / sqrt(d_qk).
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = q.new_zeros((*q.shape[:2], v.shape[-1]), dtype=torch.float64)
    group = q.shape[1] // k.shape[1]
    for block in _blocks(problem, k.shape[1], group, q.device):
        heads = slice(block.kv_head * group, (block.kv_head + 1) * group)
        queries = q[block.rows, heads].double()  # [queries, group, d_qk]
        keys, values = k[block.keys, block.kv_head].double(), v[block.keys, block.kv_head].double()
        scores = torch.einsum("qgd,kd->qgk", queries, keys) * scale
        if block.masked is not None:
            scores.masked_fill_(block.masked[:, None], -torch.inf)
        weights = (scores - scores.amax(-1, keepdim=True)).exp_().nan_to_num_(nan=0.0)  # -inf - -inf: a row without keys
        total = weights.sum(-1, keepdim=True)
        out[block.rows, heads] = torch.einsum("qgk,kd->qgd", weights, values) / total.where(total > 0, 1.0)
    return out


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: Problem, scale: float | None = None) -> torch.Tensor:
    """Return O as textbook attention in the problem's dtype gives it: S and P rounded to the dtype, softmax in fp32."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = q.new_zeros((*q.shape[:2], v.shape[-1]))
    group, tf32 = q.shape[1] // k.shape[1], problem.dtype.name == "tf32"
    for block in _blocks(problem, k.shape[1], group, q.device):
        keys, values = _operand(k[block.keys, block.kv_head], tf32), _operand(v[block.keys, block.kv_head], tf32)
        for head in range(block.kv_head * group, (block.kv_head + 1) * group):
            scores = (_operand(q[block.rows, head], tf32) @ keys.T).float() * scale
            if block.masked is not None:
                scores = torch.where(block.masked, -torch.inf, scores)
            weights = _operand(torch.softmax(scores, -1).nan_to_num(nan=0.0).to(q.dtype), tf32)
            out[block.rows, head] = weights @ values
    return out


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """Return ``||out - reference|| / ||reference||`` over all elements; 0 where both are zero, NaN if ``out`` holds one."""
    norm = float(torch.linalg.vector_norm(reference.double()))
    error = float(torch.linalg.vector_norm(out.double() - reference.double()))
    return error / norm if norm else error


def tolerance(plain_out: torch.Tensor, reference: torch.Tensor, problem: Problem) -> float:
    """Return the largest relative error allowed to a kernel: twice that of ``plain_out``.

    At least the rounding of the output itself, which plain attention escapes where it only copies V (a row with one key).
    """
    return max(ALLOWED_RATIO * relative_error(plain_out, reference), UNIT_ROUNDOFF[problem.dtype.name])


def _blocks(problem: Problem, kv_heads: int, group: int, device: torch.device) -> Iterator[_Block]:
    q_start = kv_start = 0
    for q_len, kv_len, count in problem.lengths:
        rows = max(BLOCK_SCORES // (max(kv_len, 1) * group), 1)
        for _ in range(count):
            for first in range(0, q_len if kv_len else 0, rows):
                last = min(first + rows, q_len)
                masked = _masked(problem.mask, torch.arange(first, last, device=device), q_len, kv_len)
                for head in range(kv_heads):
                    yield _Block(slice(q_start + first, q_start + last), slice(kv_start, kv_start + kv_len), head, masked)
            q_start, kv_start = q_start + q_len, kv_start + kv_len


def _masked(mask: Mask, queries: torch.Tensor, q_len: int, kv_len: int) -> torch.Tensor | None:
    """Return which keys the queries do not see [queries, kv_len]: those after kv_len - q_len + i, those out of the window."""
    if mask.is_full:
        return None
    distance = queries[:, None] + (kv_len - q_len) - torch.arange(kv_len, device=queries.device)
    hidden = distance < 0
    return hidden if mask.window is None else hidden | (distance >= mask.window)


def _operand(tensor: torch.Tensor, tf32: bool) -> torch.Tensor:
    """Return a matmul operand as the unit sees it: tf32 drops the low bits of the mantissa."""
    if not tf32:
        return tensor
    return (tensor.contiguous().view(torch.int32) >> TF32_DROPPED_BITS << TF32_DROPPED_BITS).view(torch.float32)
