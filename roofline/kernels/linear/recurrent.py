"""Linear attention of decode: the state of a KV head in registers, updated by the new tokens one by one.

One CTA a sequence, KV head and ``v_head_dim_tile`` columns of a state, which do not depend on one another. State, V and O move
once, Q and K once for each CTA of a state; the products are matrix-vector and run on the vector units in fp32.
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl

from roofline.cost import ceil_div
from roofline.kernels.protocol import Inputs
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem

FIELDS = 4  # int64 values of an entry: q_start, q_len, first new token, new tokens


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor) -> None:
    """Write O and ``state_out``."""
    problem, tensors = inputs.problem, inputs.tensors
    assert isinstance(problem.kv, GroupedKV)
    q_len, kv_len, _ = problem.lengths[0]
    entries = _entries(problem, out.device) if len(problem.lengths) > 1 else None
    blocks = ceil_div(problem.kv.v_head_dim, plan.v_head_dim_tile)
    step[(problem.batch * problem.kv_heads * blocks,)](
        tensors["q"],
        tensors["k"],
        tensors["v"],
        tensors["state"],
        tensors["state_out"],
        out,
        entries,
        q_len,
        min(q_len, kv_len),
        D=problem.kv.head_dim,
        DV=problem.kv.v_head_dim,
        D_TILE=plan.head_dim_tile,
        COLUMNS=plan.v_head_dim_tile,
        BLOCKS=blocks,
        KV_HEADS=problem.kv_heads,
        GROUP=problem.group,
        FULL=problem.mask.is_full,
        EQUAL=entries is None,
        FIELDS=FIELDS,
        num_warps=plan.warps,
        num_stages=1,
    )


@lru_cache(maxsize=64)
def _entries(problem: Problem, device: torch.device) -> torch.Tensor:
    entries, q_start, kv_start = [], 0, 0
    for q_len, kv_len, count in problem.lengths:
        for _ in range(count):
            entries.append((q_start, q_len, kv_start, min(q_len, kv_len)))
            q_start, kv_start = q_start + q_len, kv_start + min(q_len, kv_len)
    return torch.tensor(entries, dtype=torch.int64, device=device)


@triton.jit
def step(
    q, k, v, state, state_out, out, entries, q_len, tokens,
    D: tl.constexpr, DV: tl.constexpr, D_TILE: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, FULL: tl.constexpr, EQUAL: tl.constexpr, FIELDS: tl.constexpr,
):  # fmt: skip
    """Add ``tokens`` new tokens to columns of a state and multiply the group's queries by what each of them sees of it."""
    first_column = tl.program_id(0) % BLOCKS * COLUMNS
    place = tl.program_id(0) // BLOCKS
    kv_head = place % KV_HEADS
    sequence = place // KV_HEADS
    if EQUAL:
        q_start = sequence.to(tl.int64) * q_len
        kv_start = sequence.to(tl.int64) * tokens
    else:
        entry = entries + sequence * FIELDS
        q_start = tl.load(entry)
        q_len = tl.load(entry + 1).to(tl.int32)
        kv_start = tl.load(entry + 2)
        tokens = tl.load(entry + 3).to(tl.int32)
    dims = tl.arange(0, D_TILE)
    v_dims = first_column + tl.arange(0, COLUMNS)
    places = place.to(tl.int64) * (D * DV) + dims[:, None] * DV + v_dims[None, :]
    inside = (dims < D)[:, None] & (v_dims < DV)[None, :]
    total = tl.load(state + places, mask=inside, other=0.0, cache_modifier=".cg")
    k += (kv_start * KV_HEADS + kv_head) * D
    v += (kv_start * KV_HEADS + kv_head) * DV
    first_row = q_start * (KV_HEADS * GROUP) + kv_head * GROUP
    q += first_row * D
    out += first_row * DV
    if FULL:
        for token in range(0, tokens):
            key = tl.load(k + tl.cast(token, tl.int64) * (KV_HEADS * D) + dims, mask=dims < D, other=0.0).to(tl.float32)
            value = tl.load(v + tl.cast(token, tl.int64) * (KV_HEADS * DV) + v_dims, mask=v_dims < DV, other=0.0).to(tl.float32)
            total += key[:, None] * value[None, :]
    for query in range(0, q_len):
        token = query - (q_len - tokens)  # the first queries came before any key
        if not FULL:
            key = tl.load(k + tl.cast(token, tl.int64) * (KV_HEADS * D) + dims, mask=(dims < D) & (token >= 0), other=0.0).to(
                tl.float32
            )
            value = tl.load(v + tl.cast(token, tl.int64) * (KV_HEADS * DV) + v_dims, mask=v_dims < DV, other=0.0).to(tl.float32)
            total += key[:, None] * value[None, :]
        for head in range(0, GROUP):
            row = tl.cast(query, tl.int64) * (KV_HEADS * GROUP) + head
            queries = tl.load(q + row * D + dims, mask=dims < D, other=0.0).to(tl.float32)
            result = tl.sum(queries[:, None] * total, 0)
            tl.store(out + row * DV + v_dims, result.to(out.dtype.element_ty), mask=v_dims < DV)
    tl.store(state_out + places, total, mask=inside)
