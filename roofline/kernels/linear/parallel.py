"""Linear attention in its quadratic form, O = (Q K^T, masked) V: flash attention without the softmax.

One CTA a q tile and query head.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl

from roofline.kernels import packed
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import PRECISION as PRECISIONS
from roofline.plan import Plan
from roofline.problem import GroupedKV


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor) -> None:
    """Write O."""
    problem, tensors, kv = inputs.problem, inputs.tensors, inputs.problem.kv
    assert isinstance(kv, GroupedKV)
    by_head = replace(problem, kv=GroupedKV(problem.q_heads, kv.head_dim, kv.v_head_dim))  # rows of one query head a tile
    for work in packed.work(by_head, plan, out.device):
        multiply[(work.ctas * problem.q_heads,)](
            tensors["q"],
            tensors["k"],
            tensors["v"],
            out,
            work.entries,
            work.q_len,
            work.kv_len,
            work.q_tiles,
            Q_TILE=plan.q_tile,
            KV_TILE=plan.kv_tile,
            D=kv.head_dim,
            DV=kv.v_head_dim,
            D_TILE=plan.head_dim_tile,
            DV_TILE=plan.v_head_dim_tile,
            Q_HEADS=problem.q_heads,
            KV_HEADS=kv.heads,
            MASK=packed.mask_code(problem),
            EQUAL=work.entries is None,
            FIELDS=packed.FIELDS,
            SPREAD=packed.must_spread(plan, plan.q_tile),
            PRECISION=PRECISIONS[problem.dtype.name],
            num_warps=plan.warps,
            num_stages=plan.stages,
        )


@triton.jit
def multiply(
    q, k, v, out, entries, q_len, kv_len, q_tiles,
    Q_TILE: tl.constexpr, KV_TILE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, D_TILE: tl.constexpr,
    DV_TILE: tl.constexpr, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, MASK: tl.constexpr, EQUAL: tl.constexpr,
    FIELDS: tl.constexpr, SPREAD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute one q tile of one query head; the q tiles of a head are neighbours in the grid and share its keys in L2."""
    tiles = tl.num_programs(0) // Q_HEADS
    head = tl.program_id(0) // tiles
    q_start, q_len, kv_start, kv_len, first_row, _, _ = packed.locate(
        tl.program_id(0) % tiles, entries, q_len, kv_len, q_tiles, 1, Q_TILE, FIELDS, EQUAL
    )
    first, end = packed.kv_span(q_len, kv_len, first_row, 0, Q_TILE, KV_TILE, 1, MASK)
    rows = first_row + tl.arange(0, Q_TILE)
    dims = tl.arange(0, D_TILE)
    v_dims = tl.arange(0, DV_TILE)
    lanes = tl.arange(0, KV_TILE)
    places = (q_start + rows) * Q_HEADS + head
    q_mask = (rows < q_len)[:, None] & (dims < D)[None, :]
    queries = tl.load(q + places[:, None] * D + dims[None, :], mask=q_mask, other=0.0, cache_modifier=".cg")
    acc = tl.zeros([Q_TILE, DV_TILE], tl.float32)
    first_place = (kv_start + first * KV_TILE) * KV_HEADS + head // (Q_HEADS // KV_HEADS)
    k += first_place * D
    v += first_place * DV
    for tile in range(first, end):
        keys = tile * KV_TILE + lanes
        k_mask = (keys < kv_len)[:, None] & (dims < D)[None, :]
        v_mask = (keys < kv_len)[:, None] & (v_dims < DV)[None, :]
        k_tile = tl.load(k + lanes[:, None] * (KV_HEADS * D) + dims[None, :], mask=k_mask, other=0.0, cache_modifier=".cg")
        v_tile = tl.load(v + lanes[:, None] * (KV_HEADS * DV) + v_dims[None, :], mask=v_mask, other=0.0, cache_modifier=".cg")
        products = packed.scaled_product(queries, tl.trans(k_tile), 1.0, kv_len > 0, SPREAD, PRECISION)
        seen = packed.visible(keys, rows, q_len, kv_len, 0, MASK)
        products = tl.where(seen, products, 0.0).to(v_tile.dtype)
        acc = tl.dot(products, v_tile, acc, input_precision=PRECISION)
        k += KV_TILE * KV_HEADS * D
        v += KV_TILE * KV_HEADS * DV
    out_mask = (rows < q_len)[:, None] & (v_dims < DV)[None, :]
    tl.store(out + places[:, None] * DV + v_dims[None, :], acc.to(out.dtype.element_ty), mask=out_mask)
