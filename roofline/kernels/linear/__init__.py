"""Linear attention without normaliser and feature map: O_i = sum of (q_i k_j) v_j over the keys that i sees.

Katharopoulos et al., arXiv:2006.16236. Inputs: ``q`` [q_tokens, q_heads, d]; ``k`` [tokens, kv_heads, d] and ``v`` [tokens,
kv_heads, dv] of the tokens that enter the state (``state_tokens``); ``state`` fp32 [batch, kv_heads, d, dv], what all earlier
tokens have added up to, where there are any. Recurrent (decode) reads ``state`` and writes the next one to ``state_out``.
"""

import torch

from roofline.kernels.inputs import TORCH_DTYPES, normal
from roofline.kernels.linear import chunked, parallel, recurrent
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import device_support
from roofline.plan import MMA_ROWS, Plan, next_power_of_two
from roofline.problem import GroupedKV, Lengths, Problem

WIDEST_HEAD = 128  # a CTA holds the state of a head, d x dv in fp32, in registers
MOST_TOKENS = 2**30
ROWS_AT_ONCE = 1024  # of the reference


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why the kernels cannot run ``problem`` on ``device`` (with ``plan``), or ``None``."""
    kv = problem.kv
    if not isinstance(kv, GroupedKV):
        return "a latent KV cache runs as mla only"
    if reason := device_support(problem, device):
        return reason
    if TORCH_DTYPES.get(problem.kv_dtype.name) != TORCH_DTYPES[problem.dtype.name]:
        return "linear attention caches a state, no K and V in a dtype of their own"
    if problem.mask.window is not None:
        return "linear attention has no sliding window"
    if max(kv.head_dim, kv.v_head_dim) > WIDEST_HEAD:
        return f"heads wider than {WIDEST_HEAD}"
    if max(problem.q_tokens, problem.kv_tokens) > MOST_TOKENS:
        return f"more than {MOST_TOKENS} tokens"
    for size in (plan.q_tile, plan.kv_tile) if plan else ():
        if size < MMA_ROWS or size != next_power_of_two(size):
            return f"a tile of {size}: expected a power of two, at least {MMA_ROWS}"
    return None


def default_form(problem: Problem) -> str:
    """Return the form that a plan has without a choice: recurrent for decode, else chunked."""
    return "recurrent" if problem.is_decode else "chunked"


def state_tokens(problem: Problem, lengths: Lengths, form: str) -> int:
    """Return how many keys of a sequence are inputs: all, or those that came with its queries where a state has the rest."""
    if form == "parallel" or (form == "chunked" and problem.mask.is_full):
        return lengths.kv_len
    return min(lengths.q_len, lengths.kv_len)


def make_inputs(problem: Problem, seed: int, device: torch.device, form: str | None = None) -> Inputs:
    """Return random inputs of ``form`` (by default as a plan chooses it); the state is that of random tokens."""
    form, kv = form or default_form(problem), problem.kv
    assert isinstance(kv, GroupedKV)
    generator, dtype = torch.Generator(device).manual_seed(seed), TORCH_DTYPES[problem.dtype.name]
    tokens = sum(lengths.count * state_tokens(problem, lengths, form) for lengths in problem.lengths)
    tensors = {
        "q": normal((problem.q_tokens, problem.q_heads, kv.head_dim), dtype, generator),
        "k": normal((tokens, kv.heads, kv.head_dim), dtype, generator),
        "v": normal((tokens, kv.heads, kv.v_head_dim), dtype, generator),
    }
    earlier = [
        lengths.kv_len - state_tokens(problem, lengths, form) for lengths in problem.lengths for _ in range(lengths.count)
    ]
    if form == "recurrent" or any(earlier):
        # n independent tokens add up to a state of standard deviation sqrt(n)
        deviation = torch.tensor(earlier, dtype=torch.float32, device=device).sqrt()
        shape = (problem.batch, kv.heads, kv.head_dim, kv.v_head_dim)
        tensors["state"] = normal(shape, torch.float32, generator) * deviation[:, None, None, None]
    if form == "recurrent":
        tensors["state_out"] = torch.empty_like(tensors["state"])
    return Inputs(problem, tensors)


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O [q_tokens, q_heads, dv] by the form of ``plan``; the recurrent one also fills ``state_out``."""
    q, v = inputs.tensors["q"], inputs.tensors["v"]
    out = torch.empty((*q.shape[:2], v.shape[-1]), dtype=q.dtype, device=q.device) if out is None else out
    if plan.form == "recurrent":
        recurrent.launch(inputs, plan, out)
    elif plan.form == "parallel":
        parallel.launch(inputs, plan, out)
    else:
        chunked.launch(inputs, plan, out)
    return out


def reference(inputs: Inputs) -> torch.Tensor:
    """Return O in float64: (Q K^T, masked) V, and Q times the state of the earlier tokens."""
    return quadratic(inputs, torch.float64)


def quadratic(inputs: Inputs, dtype: torch.dtype) -> torch.Tensor:
    """Return O by the quadratic form with every product rounded to ``dtype``."""
    problem, state = inputs.problem, inputs.tensors.get("state")
    q, k, v = (inputs.tensors[name].to(dtype) for name in "qkv")
    out = torch.zeros((*q.shape[:2], v.shape[-1]), dtype=dtype, device=q.device)
    q_start = kv_start = sequence = 0
    for lengths in problem.lengths:
        # Which keys are inputs is read off them: a state stands for the others.
        tokens = state_tokens(problem, lengths, "parallel" if state is None else "recurrent")
        for _ in range(lengths.count):
            for head in range(problem.q_heads):
                kv_head = head // problem.group
                keys, values = (tensor[kv_start : kv_start + tokens, kv_head] for tensor in (k, v))
                for first in range(0, lengths.q_len, ROWS_AT_ONCE):
                    queries = torch.arange(first, min(first + ROWS_AT_ONCE, lengths.q_len), device=q.device)
                    rows = q[q_start + queries, head]
                    products = rows @ keys.T
                    if not problem.mask.is_full:
                        seen = torch.arange(tokens, device=q.device) <= (queries + tokens - lengths.q_len)[:, None]
                        products = torch.where(seen, products, 0.0)
                    total = products @ values
                    if state is not None:
                        total = total + rows @ state[sequence, kv_head].to(dtype)
                    out[q_start + queries, head] = total
            q_start, kv_start, sequence = q_start + lengths.q_len, kv_start + tokens, sequence + 1
    return out
