"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434). Absorbed (decode): all heads attend to one latent cache.

Absorbed inputs: ``q`` [q_tokens, q_heads, latent + rope] with W_UK folded in, ``cache`` [kv_tokens, latent + rope] (``k_scale``
as in ``quantised``, with one KV head); O [q_tokens, q_heads, latent]. A tile of the latent part is loaded once and serves as K
and V; its RoPE part is a tile of its own. `mla_hopper` does the same where the plan says so. Expanded inputs (prefill): those
of flash attention, one K and V a query head. Scores are scaled by 1 / sqrt(d + rope), the key size of a head before absorption.
"""

from importlib import import_module
from types import ModuleType
from typing import Any, cast

import torch
import triton
import triton.language as tl

from roofline.kernels import combine, packed, quantised
from roofline.kernels import reference as references
from roofline.kernels.decode import SCALES, SCALES_NONE
from roofline.kernels.inputs import TORCH_DTYPES, dense_inputs, normal
from roofline.kernels.protocol import Inputs, Kernel
from roofline.kernels.split_kv import MOST_KEYS
from roofline.kernels.support import HOPPER, LOG2_E, device_support
from roofline.kernels.support import PRECISION as PRECISIONS
from roofline.plan import HOPPER_LATENT_TILES, MMA_ROWS, Plan, hopper_latent_tile, is_hopper_latent
from roofline.problem import LatentKV, Problem

WIDEST_LATENT = 512  # an fp32 accumulator of 64 rows fills half the registers of an SM


def default_form(problem: Problem) -> str:
    """Return the form that a plan has without a choice: absorbed for decode, else expanded."""
    return "absorbed" if problem.is_decode else "expanded"


def supports(problem: Problem, device: torch.device, plan: Plan | None = None) -> str | None:
    """Return why the kernel cannot run ``problem`` on ``device`` (with ``plan``), or ``None``."""
    kv = problem.kv
    if not isinstance(kv, LatentKV):
        return "mla needs a latent KV cache"
    if problem.mla_projections:
        return "no kernel runs the projections W_UK and W_UV"
    if (plan.form if plan else default_form(problem)) != "absorbed":
        return _flash().supports(problem, device, plan)
    if reason := device_support(problem, device) or quantised.support(problem, device):
        return reason
    if kv.latent_dim > WIDEST_LATENT:
        return f"a latent wider than {WIDEST_LATENT}"
    if max(lengths.kv_len for lengths in problem.lengths) > MOST_KEYS:
        return f"more than {MOST_KEYS} keys in a sequence"
    if plan and plan.kernel == "hopper":
        return _unsupported_on_hopper(problem, device, plan)
    return packed.unsupported_tiles(plan) if plan else None


def make_inputs(problem: Problem, seed: int, device: torch.device, form: str | None = None) -> Inputs:
    """Return random inputs of ``form`` (by default as a plan chooses it)."""
    if (form or default_form(problem)) != "absorbed":
        return dense_inputs(problem, seed, device)
    kv = problem.kv
    assert isinstance(kv, LatentKV)
    generator, dtype = torch.Generator(device).manual_seed(seed), TORCH_DTYPES[problem.dtype.name]
    tensors = {"q": normal((problem.q_tokens, problem.q_heads, kv.cached_dim), dtype, generator)}
    cache = normal((problem.kv_tokens, 1, kv.cached_dim), dtype, generator)
    if problem.kv_dtype.name in quantised.STORED:
        cache, tensors["k_scale"] = quantised.quantise(cache, problem.kv_dtype)
    return Inputs(problem, {**tensors, "cache": cache[:, 0]})


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return O: absorbed [q_tokens, q_heads, latent], expanded [q_tokens, q_heads, v_head_dim]."""
    if plan.form != "absorbed":
        return _flash().launch(inputs, plan, out)
    problem, q, kv = inputs.problem, inputs.tensors["q"], inputs.problem.kv
    assert isinstance(kv, LatentKV)
    out = torch.empty((*q.shape[:2], kv.latent_dim), dtype=q.dtype, device=q.device) if out is None else out
    partial = lse = None
    if plan.splits > 1:
        partial, lse = combine.workspace(problem, plan, kv.latent_dim, q.device)
    if plan.kernel == "hopper":
        hopper(plan).launch(problem, plan, (q, inputs.tensors["cache"], out), partial, lse, _scale(kv) * LOG2_E)
    else:
        _launch_plain(inputs, plan, out, partial, lse)
    if partial is not None and lse is not None:
        combine.launch(problem, plan, partial, lse, out)
    return out


def hopper(plan: Plan) -> ModuleType:
    """Return the Hopper kernel that ``plan`` is for."""
    few = plan.q_tile == min(HOPPER_LATENT_TILES)
    return import_module("roofline.kernels.mla_hopper" + "_few" * few)  # Gluon, which the interpreter does not know


def _launch_plain(
    inputs: Inputs, plan: Plan, out: torch.Tensor, partial: torch.Tensor | None, lse: torch.Tensor | None
) -> None:
    problem, q, kv = inputs.problem, inputs.tensors["q"], inputs.problem.kv
    assert isinstance(kv, LatentKV)
    for work in packed.work(problem, plan, q.device):
        absorbed[(work.ctas,)](
            q,
            inputs.tensors["cache"],
            inputs.tensors.get("k_scale"),
            out,
            partial,
            lse,
            work.entries,
            work.q_len,
            work.kv_len,
            work.q_tiles,
            plan.splits,
            lse.shape[1] if lse is not None else 0,
            problem.mask.window or 0,
            _scale(kv) * LOG2_E,
            **_constants(problem, kv, plan, work),
        )


def reference(inputs: Inputs) -> torch.Tensor:
    """Return O in float64; absorbed: attention of all heads to the latent cache."""
    if "cache" not in inputs.tensors:
        return _flash().reference(inputs)
    q, k, v, scale = dense(inputs)
    return references.attention(q, k, v, inputs.problem, scale)


def dense(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Return q, the cache as the one K and V head of multi-query attention, and the scale of the scores."""
    kv, cache = inputs.problem.kv, inputs.tensors["cache"]
    assert isinstance(kv, LatentKV)
    keys = quantised.widen(cache[:, None], inputs.tensors.get("k_scale"))
    return inputs.tensors["q"], keys, keys[..., : kv.latent_dim], _scale(kv)


def _scale(kv: LatentKV) -> float:
    return float((kv.head_dim + kv.rope_dim) ** -0.5)


def _unsupported_on_hopper(problem: Problem, device: torch.device, plan: Plan) -> str | None:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != HOPPER:
        return "its plan is for compute capability 9.0"
    if not is_hopper_latent(problem):
        return "its plan is for equal sequences of 16-bit latents of 512 + 64 in the compute dtype, without a window"
    tile = hopper_latent_tile(problem)
    if (plan.q_tile, plan.kv_tile) != (tile.q_tile, tile.kv_tile):
        return f"a tile of {plan.q_tile}x{plan.kv_tile}: expected {tile.q_tile}x{tile.kv_tile}"
    return None


def _flash() -> Kernel:
    return cast(Kernel, import_module("roofline.kernels.flash"))


def _constants(problem: Problem, kv: LatentKV, plan: Plan, work: packed.Work) -> dict[str, Any]:
    rope_tile = plan.head_dim_tile - plan.v_head_dim_tile
    return {
        "Q_TILE": plan.q_tile,
        "ROWS": work.tile_rows,
        "KV_TILE": plan.kv_tile,
        "LATENT": kv.latent_dim,
        "LATENT_TILE": plan.v_head_dim_tile,
        "ROPE": kv.rope_dim,
        "ROPE_TILE": rope_tile or MMA_ROWS,
        "HEADS": problem.q_heads,
        "MASK": packed.mask_code(problem),
        "SCALES": SCALES.get(problem.kv_dtype.name, SCALES_NONE),
        "SPLIT": plan.splits > 1,
        "EQUAL": work.entries is None,
        "FIELDS": packed.FIELDS,
        "SPREAD": packed.must_spread(plan, work.tile_rows),
        "PRECISION": PRECISIONS[problem.dtype.name],
        "num_warps": plan.warps,
        "num_stages": plan.stages,
    }


@triton.jit
def absorbed(
    q, cache, scale, out, partial, lse, entries, q_len, kv_len, q_tiles, splits, lse_stride, window, softmax_scale,
    Q_TILE: tl.constexpr, ROWS: tl.constexpr, KV_TILE: tl.constexpr, LATENT: tl.constexpr, LATENT_TILE: tl.constexpr,
    ROPE: tl.constexpr, ROPE_TILE: tl.constexpr, HEADS: tl.constexpr, MASK: tl.constexpr, SCALES: tl.constexpr,
    SPLIT: tl.constexpr, EQUAL: tl.constexpr, FIELDS: tl.constexpr, SPREAD: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One CTA: ``ROWS`` (query, head) rows of one sequence over one split of its latents."""
    q_start, q_len, kv_start, kv_len, first_row, split, _ = packed.locate(
        tl.program_id(0), entries, q_len, kv_len, q_tiles, splits, Q_TILE, FIELDS, EQUAL
    )
    first, end = packed.kv_span(q_len, kv_len, first_row, window, Q_TILE, KV_TILE, HEADS, MASK)
    if SPLIT:
        per_split = tl.cdiv(end - first, splits)
        first += split * per_split
        end = tl.minimum(first + per_split, end)
        if first >= end:
            return

    WIDTH: tl.constexpr = LATENT + ROPE
    rows = first_row + tl.arange(0, ROWS)
    dims = tl.arange(0, LATENT_TILE)
    rope_dims = tl.arange(0, ROPE_TILE)
    lanes = tl.arange(0, KV_TILE)
    inside_rows = rows < q_len * HEADS
    queries = rows // HEADS
    out_rows = q_start * HEADS + rows
    q_rows = q + out_rows[:, None] * WIDTH
    q_mask = inside_rows[:, None] & (dims < LATENT)[None, :]
    # Beside 8-bit latents in a tile of the same shape a thread gets 32 bytes of Q and asks for them in halves: L1 joins them.
    CACHE: tl.constexpr = ".cg" if SCALES == 0 else ""
    q_latent = tl.load(q_rows + dims[None, :], mask=q_mask, other=0.0, cache_modifier=CACHE)
    if ROPE > 0:
        rope_mask = inside_rows[:, None] & (rope_dims < ROPE)[None, :]
        q_rope = tl.load(q_rows + LATENT + rope_dims[None, :], mask=rope_mask, other=0.0, cache_modifier=CACHE)
    row_scale = softmax_scale
    rope_scale = softmax_scale
    if SCALES == 1:
        value_scale = tl.load(scale)
        q_latent, sizes = packed.half_range(q_latent)
        row_scale = (sizes * (softmax_scale * value_scale))[:, None]
        if ROPE > 0:
            q_rope, sizes = packed.half_range(q_rope)
            rope_scale = (sizes * (softmax_scale * value_scale))[:, None]

    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, LATENT_TILE], tl.float32)
    cache += (kv_start + first * KV_TILE) * WIDTH
    for tile in range(first, end):
        keys = tile * KV_TILE + lanes
        inside = keys < kv_len
        token_rows = cache + lanes[:, None] * WIDTH
        latent_mask = inside[:, None] & (dims < LATENT)[None, :]
        latent = tl.load(token_rows + dims[None, :], mask=latent_mask, other=0.0, cache_modifier=".cg").to(q_latent.dtype)
        if ROPE > 0:
            key_mask = inside[:, None] & (rope_dims < ROPE)[None, :]
            rope = tl.load(token_rows + LATENT + rope_dims[None, :], mask=key_mask, other=0.0, cache_modifier=".cg")
        scores = packed.scaled_product(q_latent, tl.trans(latent), row_scale, kv_len > 0, SPREAD, PRECISION)
        if ROPE > 0:
            rope = tl.trans(rope.to(q_rope.dtype))
            scores += packed.scaled_product(q_rope, rope, rope_scale, kv_len > 0, SPREAD, PRECISION)
        if SCALES == 2:
            token_scale = tl.load(scale + kv_start + keys, mask=inside, other=0.0)
            scores *= token_scale[None, :]
        seen = packed.visible(keys, queries, q_len, kv_len, window, MASK)
        weights, rescale, peak, total = packed.online_softmax(scores, seen, peak, total)
        if SCALES == 2:
            weights *= token_scale[None, :]
        acc = acc * rescale[:, None]
        acc = tl.dot(weights.to(latent.dtype), latent, acc, input_precision=PRECISION)
        cache += KV_TILE * WIDTH

    normaliser = tl.where(total > 0.0, total, 1.0)  # a row without keys gives 0
    acc = acc / normaliser[:, None]
    if SCALES == 1:
        acc *= value_scale
    store_mask = inside_rows[:, None] & (dims < LATENT)[None, :]
    if SPLIT:
        part_rows = out_rows * splits + split
        tl.store(partial + part_rows[:, None] * LATENT + dims[None, :], acc, mask=store_mask)
        tl.store(lse + out_rows * lse_stride + split, peak + tl.log2(normaliser), mask=inside_rows)
    else:
        tl.store(out + out_rows[:, None] * LATENT + dims[None, :], acc.to(out.dtype.element_ty), mask=store_mask)
