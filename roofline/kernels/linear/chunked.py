"""Linear attention of prefill, in chunks of ``plan.kv_tile`` queries. Two launches.

``states``: one CTA a sequence and KV head runs over the chunks in order, K^T V on the tensor cores, the state in fp32
registers; K and V are read once. Under a causal mask it stores the state before each chunk that has keys, else the last state.
``output``: one CTA a chunk and KV head reads that state (and, causal, the chunk's K and V) once for all query heads of the
group: O = Q state + (Q K^T, masked) V. The state is multiplied in the compute dtype.

Under a causal mask token j belongs to query q_len - tokens + j, so both launches cut at the same places; the queries before the
first token see nothing.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl

from roofline.cost import ceil_div
from roofline.kernels import packed
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import PRECISION as PRECISIONS
from roofline.kernels.tiles import load_fp32_rows
from roofline.plan import Plan
from roofline.problem import GroupedKV, Problem

FIELDS = 8  # int64 values of an entry: q_start, q_len, kv_start, tokens, first chunk with keys, first state, sequence, chunk


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What a launch needs to find its place: entries of unequal sequences, or the sizes of equal ones."""

    states: int
    chunks: int
    sequences: torch.Tensor | None
    chunk_entries: torch.Tensor | None
    q_len: int
    tokens: int
    first_chunk: int
    stored: int


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor) -> None:
    """Write O."""
    problem, tensors = inputs.problem, inputs.tensors
    assert isinstance(problem.kv, GroupedKV)
    sizes = _sizes(problem, plan, out.device)
    shape = (sizes.states, problem.kv_heads, problem.kv.head_dim, problem.kv.v_head_dim)
    stored = torch.empty(shape, dtype=torch.float32, device=out.device)
    place = (sizes.q_len, sizes.tokens, sizes.first_chunk, sizes.stored)
    constants = _constants(problem, plan, sizes)
    states[(problem.batch * problem.kv_heads,)](
        tensors["k"], tensors["v"], tensors.get("state"), stored, sizes.sequences, *place, **constants
    )
    output[(sizes.chunks * problem.kv_heads,)](
        tensors["q"],
        tensors["k"],
        tensors["v"],
        stored,
        out,
        sizes.chunk_entries,
        *place,
        **constants,
        GROUP=problem.group,
        SPREAD=packed.must_spread(plan, plan.kv_tile),
    )


@lru_cache(maxsize=64)
def _sizes(problem: Problem, plan: Plan, device: torch.device) -> _Sizes:
    causal, chunk = problem.mask.causal, plan.kv_tile
    q_start = kv_start = states = sequence = 0
    sequences, chunks = [], []
    entry: tuple[int, ...] = ()
    stored = 0
    for q_len, kv_len, count in problem.lengths:
        tokens = min(q_len, kv_len) if causal else kv_len
        first_chunk = (q_len - tokens) // chunk if causal else 0
        stored = (ceil_div(q_len, chunk) - first_chunk if tokens else 0) if causal else 1
        for _ in range(count):
            entry = (q_start, q_len, kv_start, tokens, first_chunk, states, sequence)
            sequences.append((*entry, 0))
            chunks += [(*entry, index) for index in range(ceil_div(q_len, chunk))]
            q_start, kv_start, states, sequence = q_start + q_len, kv_start + tokens, states + stored, sequence + 1
    if len(problem.lengths) == 1:
        return _Sizes(states, len(chunks), None, None, entry[1], entry[3], entry[4], stored)
    by_sequence, by_chunk = (torch.tensor(entries, dtype=torch.int64, device=device) for entries in (sequences, chunks))
    return _Sizes(states, len(chunks), by_sequence, by_chunk, 1, 0, 0, 0)  # the sizes of equal sequences are not used


def _constants(problem: Problem, plan: Plan, sizes: _Sizes) -> dict[str, Any]:
    assert isinstance(problem.kv, GroupedKV)
    return {
        "CHUNK": plan.kv_tile,
        "D": problem.kv.head_dim,
        "DV": problem.kv.v_head_dim,
        "D_TILE": plan.head_dim_tile,
        "DV_TILE": plan.v_head_dim_tile,
        "KV_HEADS": problem.kv_heads,
        "CAUSAL": problem.mask.causal,
        "EQUAL": sizes.sequences is None,
        "FIELDS": FIELDS,
        "PRECISION": PRECISIONS[problem.dtype.name],
        "num_warps": plan.warps,
        "num_stages": plan.stages,
    }


@triton.jit
def _locate(
    slot, sequence, chunk, entries, q_len, tokens, first_chunk, stored,
    FIELDS: tl.constexpr, EQUAL: tl.constexpr,
):  # fmt: skip
    """Return (q_start, q_len, kv_start, tokens, first chunk, first state, chunk) of a CTA; starts are 64-bit."""
    if EQUAL:
        wide = sequence.to(tl.int64)
        return wide * q_len, q_len, wide * tokens, tokens, first_chunk, wide * stored, chunk
    else:
        entry = entries + slot.to(tl.int64) * FIELDS
        return (
            tl.load(entry), tl.load(entry + 1).to(tl.int32), tl.load(entry + 2), tl.load(entry + 3).to(tl.int32),
            tl.load(entry + 4).to(tl.int32), tl.load(entry + 5), tl.load(entry + 7).to(tl.int32),
        )  # fmt: skip


@triton.jit
def _load(
    rows, first, length, WIDTH: tl.constexpr, TILE: tl.constexpr, STRIDE: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """Return CHUNK rows from ``first`` as [CHUNK, TILE], 0 outside 0 .. length."""
    lanes = first + tl.arange(0, CHUNK)
    dims = tl.arange(0, TILE)
    mask = ((lanes >= 0) & (lanes < length))[:, None] & (dims < WIDTH)[None, :]
    return tl.load(rows + lanes.to(tl.int64)[:, None] * STRIDE + dims[None, :], mask=mask, other=0.0, cache_modifier=".cg")


@triton.jit
def states(
    k, v, state, stored_states, entries, q_len, tokens, first_chunk, stored,
    CHUNK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, D_TILE: tl.constexpr, DV_TILE: tl.constexpr,
    KV_HEADS: tl.constexpr, CAUSAL: tl.constexpr, EQUAL: tl.constexpr, FIELDS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum k v^T over one sequence and KV head, chunk by chunk."""
    kv_head = tl.program_id(0) % KV_HEADS
    sequence = tl.program_id(0) // KV_HEADS
    _, q_len, kv_start, tokens, first_chunk, first_state, _ = _locate(
        sequence, sequence, 0, entries, q_len, tokens, first_chunk, stored, FIELDS, EQUAL
    )
    dims = tl.arange(0, D_TILE)
    v_dims = tl.arange(0, DV_TILE)
    places = dims[:, None] * DV + v_dims[None, :]
    inside = (dims < D)[:, None] & (v_dims < DV)[None, :]
    total = tl.zeros([D_TILE, DV_TILE], tl.float32)
    if state is not None:
        past = state + tl.program_id(0).to(tl.int64) * (D * DV)
        total = load_fp32_rows(past, D, D_TILE, DV, DV_TILE)
    k += (kv_start * KV_HEADS + kv_head) * D
    v += (kv_start * KV_HEADS + kv_head) * DV
    target = stored_states + (first_state * KV_HEADS + kv_head) * (D * DV)
    lead = 0
    chunks = tl.cdiv(tokens, CHUNK)
    if CAUSAL:
        lead = q_len - tokens - first_chunk * CHUNK  # queries of the first chunk that come before the first token
        chunks = tl.cdiv(tokens + lead, CHUNK) * (tokens > 0)
    for chunk in range(0, chunks):
        if CAUSAL:
            tl.store(target + places, total, mask=inside)
            target += KV_HEADS * D * DV
        keys = _load(k, chunk * CHUNK - lead, tokens, D, D_TILE, KV_HEADS * D, CHUNK)
        values = _load(v, chunk * CHUNK - lead, tokens, DV, DV_TILE, KV_HEADS * DV, CHUNK)
        total = tl.dot(tl.trans(keys), values, total, input_precision=PRECISION)
    if not CAUSAL:
        tl.store(target + places, total, mask=inside)


@triton.jit
def output(
    q, k, v, stored_states, out, entries, q_len, tokens, first_chunk, stored,
    CHUNK: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, D_TILE: tl.constexpr, DV_TILE: tl.constexpr,
    KV_HEADS: tl.constexpr, CAUSAL: tl.constexpr, EQUAL: tl.constexpr, FIELDS: tl.constexpr, PRECISION: tl.constexpr,
    GROUP: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """Turn one chunk of queries of a group into O."""
    kv_head = tl.program_id(0) % KV_HEADS
    slot = tl.program_id(0) // KV_HEADS
    q_chunks = tl.cdiv(q_len, CHUNK)
    q_start, q_len, kv_start, tokens, first_chunk, first_state, chunk = _locate(
        slot, slot // q_chunks, slot % q_chunks, entries, q_len, tokens, first_chunk, stored, FIELDS, EQUAL
    )
    v_dims = tl.arange(0, DV_TILE)
    lanes = tl.arange(0, CHUNK)
    place = first_state
    state_rows = D
    if CAUSAL:
        place += chunk - first_chunk
        state_rows *= ((chunk >= first_chunk) & (tokens > 0)).to(tl.int32)
    source = stored_states + (place * KV_HEADS + kv_head) * (D * DV)
    state = load_fp32_rows(source, state_rows, D_TILE, DV, DV_TILE).to(q.dtype.element_ty)
    if CAUSAL:
        first_token = chunk * CHUNK - (q_len - tokens)
        k += (kv_start * KV_HEADS + kv_head) * D
        v += (kv_start * KV_HEADS + kv_head) * DV
        keys = tl.trans(_load(k, first_token, tokens, D, D_TILE, KV_HEADS * D, CHUNK))
        values = _load(v, first_token, tokens, DV, DV_TILE, KV_HEADS * DV, CHUNK)
        seen = lanes[:, None] >= lanes[None, :]
    first_row = q_start * (KV_HEADS * GROUP) + kv_head * GROUP
    q += first_row * D
    out += first_row * DV
    queries_left = q_len - chunk * CHUNK
    row_stride: tl.constexpr = KV_HEADS * GROUP
    rows = (chunk * CHUNK + lanes).to(tl.int64) * row_stride
    store_mask = (lanes < queries_left)[:, None] & (v_dims < DV)[None, :]
    for head in range(0, GROUP):
        queries = _load(q + head * D, chunk * CHUNK, q_len, D, D_TILE, row_stride * D, CHUNK)
        result = packed.scaled_product(queries, state, 1.0, q_len > 0, SPREAD, PRECISION)
        if CAUSAL:
            products = packed.scaled_product(queries, keys, 1.0, queries_left > 0, SPREAD, PRECISION)
            products = tl.where(seen, products, 0.0).to(queries.dtype)
            result = tl.dot(products, values, result, input_precision=PRECISION)
        tl.store(out + (rows[:, None] + head) * DV + v_dims[None, :], result.to(out.dtype.element_ty), mask=store_mask)
