"""Flash attention, forward: one CTA a q tile and query head, online softmax, nothing but Q, K, V and O in memory.

The tiles it runs and the rows it loads are those that ``variants.flash`` counts: kv tiles that the mask hides are skipped, cut
ones run whole. Online softmax: Milakov and Gimelshein, arXiv:1805.02867; tiling: Dao et al., arXiv:2205.14135.

A key wider than a power of two because a RoPE part follows it (expanded MLA: 128 + 64) is multiplied as two tiles, so 192
columns run as 192.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from roofline.cost import ceil_div
from roofline.kernels import flash_hopper
from roofline.kernels import reference as references
from roofline.kernels.inputs import dense_inputs
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import LOG2_E, MIN_DOT_TILE, PRECISION, prefill_support
from roofline.kernels.tiles import (
    HIDDEN,
    can_describe,
    descriptor,
    head_span,
    kv_span,
    load_tile,
    locate,
    store_tile,
    visible,
    window_of,
    work_items,
)
from roofline.plan import Plan, padded_width
from roofline.problem import LatentKV, Problem

REGISTERS, MAX_REGISTERS = 2**16, 255  # of an SM and of a thread, on every supported GPU
UNSEEN = tl.constexpr(-(2.0**99))  # above HIDDEN, below every score


@triton.jit
def flash_kernel(
    q, q_rope, k, k_rope, v, o, work,
    sequences, q_tiles, q_heads, kv_heads, q_len, kv_len, window, head_span, scale_log2,
    D: tl.constexpr, D_TILE: tl.constexpr, ROPE: tl.constexpr, ROPE_TILE: tl.constexpr, DV: tl.constexpr, DV_TILE: tl.constexpr,
    Q_TILE: tl.constexpr, KV_TILE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    RAGGED: tl.constexpr, WHOLE: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute one q tile. ``WHOLE``: no mask, and kv_len is a multiple of the kv tile. ``sequences``: of a uniform batch.

    Grid, uniform: [sequences * q_heads * q_tiles], the q tiles of a head consecutive; under a causal mask the heavy tiles of
    ``head_span`` heads first. Ragged: [q_heads * q_tiles], ``q_tiles`` rows of ``work``.
    """
    index = tl.program_id(0)
    if RAGGED:
        head, tile = index // q_tiles, index % q_tiles
        batch = 0
    else:
        span = index // (head_span * q_tiles)
        heads = tl.minimum(head_span, sequences * q_heads - span * head_span)
        index -= span * head_span * q_tiles
        if CAUSAL:
            tile = q_tiles - 1 - index // heads
            head = span * head_span + index % heads
        else:
            tile = index % q_tiles
            head = span * head_span + index // q_tiles
        batch, head = head // q_heads, head % q_heads
    q_start, q_len, kv_start, kv_len, tile, _ = locate(work, tile, batch, tile, q_len, kv_len, 0, RAGGED)
    kv_head = head // (q_heads // kv_heads)
    row = tile * Q_TILE

    queries = load_tile(q, batch, head, q_start, row, q_len, q_heads, Q_TILE, D, D_TILE, D + ROPE, True, TMA)
    rope = queries
    if ROPE:
        rope = load_tile(q_rope, batch, head, q_start, row, q_len, q_heads, Q_TILE, ROPE, ROPE_TILE, D + ROPE, True, TMA)
    acc = tl.zeros([Q_TILE, DV_TILE], tl.float32)
    total = tl.zeros([Q_TILE], tl.float32)
    peak = tl.full([Q_TILE], float("-inf"), tl.float32)  # running row maximum, in units of log2
    last_query = tl.minimum(row + Q_TILE, q_len) - 1
    first, whole_first, whole_last, last = kv_span(row, last_query, q_len, kv_len, window, KV_TILE, CAUSAL, WINDOW)
    if WINDOW:
        acc, total, peak = _steps(
            acc, total, peak, queries, rope, k, k_rope, v, batch, kv_head, kv_start, row, q_len, kv_len, kv_heads, window,
            scale_log2, first, whole_first, D, D_TILE, ROPE, ROPE_TILE, DV, DV_TILE, Q_TILE, KV_TILE,
            CAUSAL, WINDOW, True, TMA, PRECISION,
        )  # fmt: skip
    acc, total, peak = _steps(
        acc, total, peak, queries, rope, k, k_rope, v, batch, kv_head, kv_start, row, q_len, kv_len, kv_heads, window,
        scale_log2, whole_first, whole_last, D, D_TILE, ROPE, ROPE_TILE, DV, DV_TILE, Q_TILE, KV_TILE,
        CAUSAL, WINDOW, False, TMA, PRECISION,
    )  # fmt: skip
    if not WHOLE:
        acc, total, peak = _steps(
            acc, total, peak, queries, rope, k, k_rope, v, batch, kv_head, kv_start, row, q_len, kv_len, kv_heads, window,
            scale_log2, whole_last, last, D, D_TILE, ROPE, ROPE_TILE, DV, DV_TILE, Q_TILE, KV_TILE,
            CAUSAL, WINDOW, True, TMA, PRECISION,
        )  # fmt: skip
    share = tl.where(peak > UNSEEN * scale_log2, 1.0 / tl.maximum(total, 1.0), 0.0)  # a row without keys gives 0
    result = (acc * share[:, None]).to(o.dtype if TMA else o.dtype.element_ty)
    store_tile(o, result, batch, head, q_start, row, q_len, q_heads, Q_TILE, DV, DV_TILE, DV, TMA)


@triton.jit
def _steps(
    acc, total, peak, queries, rope, k, k_rope, v, batch, kv_head, kv_start, row, q_len, kv_len, kv_heads, window,
    scale_log2, first, last,
    D: tl.constexpr, D_TILE: tl.constexpr, ROPE: tl.constexpr, ROPE_TILE: tl.constexpr, DV: tl.constexpr, DV_TILE: tl.constexpr,
    Q_TILE: tl.constexpr, KV_TILE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Run kv tiles ``first`` to ``last``; ``MASKED`` where the mask or the end of the keys may cut them."""
    APART: tl.constexpr = PRECISION == "ieee" and queries.dtype == tl.float32
    for step in tl.range(first, last):
        key = step * KV_TILE
        keys = load_tile(
            k, batch, kv_head, kv_start, key, kv_len, kv_heads, KV_TILE, D, D_TILE, D + ROPE, MASKED, TMA
        )  # fmt: skip
        scores = tl.dot(queries, keys.T, input_precision=PRECISION)
        if ROPE:
            rope_keys = load_tile(
                k_rope, batch, kv_head, kv_start, key, kv_len, kv_heads, KV_TILE, ROPE, ROPE_TILE, D + ROPE, MASKED, TMA
            )  # fmt: skip
            scores = tl.dot(rope, rope_keys.T, scores, input_precision=PRECISION)
        if MASKED:
            seen = visible(
                row + tl.arange(0, Q_TILE), key, tl.arange(0, KV_TILE), q_len, kv_len, window, CAUSAL, WINDOW
            )  # fmt: skip
            scores = tl.where(seen, scores, HIDDEN)
        higher = tl.maximum(peak, tl.max(scores, 1) * scale_log2)
        weights = tl.exp2(scores * scale_log2 - higher[:, None])
        kept = tl.exp2(peak - higher)
        peak = higher
        total = total * kept + tl.sum(weights, 1)
        if not APART:
            acc = acc * kept[:, None]
        values = load_tile(v, batch, kv_head, kv_start, key, kv_len, kv_heads, KV_TILE, DV, DV_TILE, DV, MASKED, TMA)
        if APART:
            # One chain of additions over all keys would lose digits: a tile adds up on its own. Explicitly fused, because an
            # addition would be folded into the product.
            product = tl.dot(weights, values, input_precision=PRECISION)
            acc = tl.fma(acc, tl.broadcast_to(kept[:, None], acc.shape), product)
        else:
            acc = tl.dot(weights.to(values.dtype), values, acc, input_precision=PRECISION)
    return acc, total, peak


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why ``problem`` cannot run (in tiles of ``plan``), or ``None``; a latent cache runs expanded."""
    if plan is not None and plan.kernel == "hopper":
        return flash_hopper.supports(problem, device, plan)
    return prefill_support(problem, device, plan)


make_inputs = dense_inputs


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return softmax(Q K^T / sqrt(d_qk), mask) V, [q_tokens, q_heads, d_v], by the kernel that ``plan`` names."""
    if plan.kernel == "hopper":
        return flash_hopper.launch(inputs, plan, out)
    problem, (q, k, v) = inputs.problem, (inputs.tensors[name] for name in "qkv")
    out = q.new_empty((*q.shape[:2], v.shape[-1])) if out is None else out
    grid, arguments, constants = launch_arguments(problem, plan, q, k, v, out)
    # Addresses of loads through pointers take the registers of a second CTA.
    registers = register_limit(plan.warps, plan.ctas_per_sm if constants["TMA"] else 1)
    flash_kernel[grid](*arguments, **constants, num_warps=plan.warps, num_stages=plan.stages, maxnreg=registers)
    return out


def launch_arguments(
    problem: Problem, plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor
) -> tuple[tuple[int], tuple[Any, ...], dict[str, Any]]:
    """Return the grid, the arguments and the compile-time constants of one launch."""
    latent = problem.kv if isinstance(problem.kv, LatentKV) and problem.kv.rope_dim else None
    rope, d, dv = latent.rope_dim if latent else 0, q.shape[-1] - (latent.rope_dim if latent else 0), v.shape[-1]
    rope_tile = padded_width(rope) if rope else MIN_DOT_TILE
    d_tile = plan.head_dim_tile - (rope_tile if rope else 0)
    parts = (q[..., :d], q[..., d:] if rope else q, k[..., :d], k[..., d:] if rope else k, v, out)
    q_len, kv_len, sequences = problem.lengths[0]
    is_ragged = len(problem.lengths) > 1
    causal = not problem.mask.is_full
    if is_ragged:
        work = work_items(problem.lengths, plan.q_tile, causal, q.device)
        q_tiles, span, grid = work.shape[0], 1, work.shape[0] * problem.q_heads
    else:
        work, q_tiles = q, ceil_div(q_len, plan.q_tile)
        span, grid = head_span(problem, k, v), sequences * problem.q_heads * q_tiles
    # On the vector units operands come to registers anyway, and through shared memory they take more of them.
    tma = not is_ragged and problem.dtype.matmul_unit == "tensor" and can_describe(*parts)
    if tma:
        tiles = [(plan.q_tile, d_tile), (plan.q_tile, rope_tile), (plan.kv_tile, d_tile), (plan.kv_tile, rope_tile)]
        tiles += [(plan.kv_tile, plan.v_head_dim_tile), (plan.q_tile, plan.v_head_dim_tile)]
        tensors = [descriptor(part, sequences, *tile) for part, tile in zip(parts, tiles, strict=True)]
    else:
        tensors = list(parts)
    longest = max(max(lengths[:2]) for lengths in problem.lengths)
    constants = {
        "D": d, "D_TILE": d_tile, "ROPE": rope, "ROPE_TILE": rope_tile, "DV": dv, "DV_TILE": plan.v_head_dim_tile,
        "Q_TILE": plan.q_tile, "KV_TILE": plan.kv_tile, "CAUSAL": causal, "WINDOW": problem.mask.window is not None,
        "RAGGED": is_ragged, "WHOLE": not (is_ragged or causal or kv_len % plan.kv_tile), "TMA": tma,
        "PRECISION": PRECISION[problem.dtype.name],
    }  # fmt: skip
    sizes = (sequences, q_tiles, problem.q_heads, k.shape[1], q_len, kv_len, window_of(problem.mask, longest), span)
    return (grid,), (*tensors, work, *sizes, q.shape[-1] ** -0.5 * LOG2_E), constants


def register_limit(warps: int, ctas_per_sm: int) -> int:
    """Registers a thread that let ``ctas_per_sm`` CTAs run on an SM; said even for one, or ptxas may spill to fit two."""
    return min(REGISTERS // (ctas_per_sm * warps * 32) // 8 * 8, MAX_REGISTERS)


def reference(inputs: Inputs) -> torch.Tensor:
    """Return O in float64."""
    q, k, v = (inputs.tensors[name] for name in "qkv")
    return references.attention(q, k, v, inputs.problem)
