"""Flash attention, forward, on Hopper: warp groups with tasks of their own, in Gluon (``triton.experimental.gluon``).

One CTA stays on each SM and computes one q tile after another. One warp moves Q, K and V into shared memory by TMA and runs
ahead, into the next q tile too. Each group of four warps has 64 rows of the q tile: in its turn it starts Q K^T of the next kv
tile and P V of this one, and it computes a softmax while the tensor cores work for another group (FlashAttention-3,
arXiv:2407.08608). kv tiles run from the last to the first, so that those which the mask cuts come first. A group runs the kv
tiles that its own rows see, one where it has no rows, and gives the others of the q tile back: ``variants.flash`` counts both.

O is rescaled where a maximum has grown by much, not at every step: it is correct relative to any reference, as long as nothing
overflows (the idea is FlashAttention-4's). Whether it has grown is read off the sums of the weights.

What each choice here brought is in docs/prefill-kernel.md.
"""

from functools import lru_cache
from heapq import heapreplace
from itertools import pairwise
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from roofline.cost import ceil_div
from roofline.kernels.protocol import Inputs
from roofline.kernels.support import HOPPER, LOG2_E, prefill_support
from roofline.kernels.tiles import HIDDEN, can_describe, descriptor, head_span, window_of
from roofline.masks import Mask
from roofline.plan import HOPPER_GROUP_ROWS, HOPPER_LIGHT_PART, Plan, is_hopper_problem
from roofline.problem import Problem

SHARED_MEMORY_BYTES = 226 * 1024  # of a block, less the barriers
SWIZZLED_BYTES = 128  # of a row in shared memory, at most
# Weights are relative to the maximum of their row over its first kv tiles. Where those of a tile add up to this (2^15) in a
# thread, the maximum so far becomes the reference: fp16 holds twice as much.
LIMIT = "0f47000000"
TILE_OVERHEAD = 1  # of a q tile beside its kv tiles, in kv tiles
# Registers of a thread of a group, and of the loading warp, by the number of groups: 64 Ki in all, with four warps to load.
REGISTERS = {2: (240, 24), 3: (160, 32)}


@gluon.constexpr_function
def _weights_ptx(row, count, evens, odds, less):
    """PTX of the weights and their sum for one of two rows: 2 to the power of exponents, less something. ROUND is replaced."""
    lines = []
    for i in range(row, count, 2):
        for name, part, total in (("even", evens, f"own{row}"), ("odd", odds, f"more{row}")):
            exponent = f"${part + i}"
            if less:
                lines.append(f"sub.f32 {name}, {exponent}, {less};")
                exponent = name
            lines.append(f"ex2.approx.ftz.f32 {name}, {exponent};")
            lines.append(f"mov.f32 {total}, {name};" if i == row else f"add.f32 {total}, {total}, {name};")
        lines.append(f"ROUND ${i}, odd, even;")
    lines.append(f"add.f32 own{row}, own{row}, more{row};")
    return lines


@gluon.constexpr_function
def _weigh_ptx(count, instruction):
    """PTX of ``_weigh`` for the ``count`` pairs of columns of a thread, of its two rows in turn.

    Operands: pairs of weights and sums; sums in their place; even and odd exponents. There is a sum for each pair; the first
    of each row is used.
    """
    lines = [".reg .f32 even, odd, own0, own1, more0, more1;"]
    for row in (0, 1):
        lines += _weights_ptx(row, count, 3 * count, 4 * count, None)
        lines.append(f"add.f32 ${count + row}, ${count + row}, own{row};")
    return "\n".join(["{", *lines, "}"]).replace("ROUND", instruction)


@gluon.constexpr_function
def _weigh_or_rescale_ptx(count, instruction):
    """PTX of ``_weigh_or_rescale``: as ``_weigh_ptx``, with references and even and odd columns of O after the sums."""
    sums, shifts, even_columns, odd_columns, evens, odds = (part * count for part in (1, 2, 3, 4, 9, 10))
    lines = [".reg .pred grows, other;", ".reg .f32 most, next, kept, even, odd, own0, own1, more0, more1;"]
    for row in (0, 1):
        lines += _weights_ptx(row, count, evens, odds, None)
    lines += [f"setp.geu.f32 grows, own0, {LIMIT};", f"setp.geu.f32 other, own1, {LIMIT};", "or.pred grows, grows, other;"]
    lines += ["vote.sync.any.pred grows, grows, 0xffffffff;", "@!grows bra.uni STAY;"]
    for row in (0, 1):
        own = range(row, count, 2)
        scaled = [sums + row, *(part + i for part in (even_columns, odd_columns) for i in own)]
        lines.append("mov.f32 most, 0f00000000;")
        lines += [f"max.f32 most, most, ${part + i};" for i in own for part in (evens, odds)]
        for lane in (1, 2):
            lines += [f"shfl.sync.bfly.b32 next, most, {lane}, 31, 0xffffffff;", "max.f32 most, most, next;"]
        lines += [f"add.f32 ${shifts + row}, ${shifts + row}, most;", "neg.f32 next, most;", "ex2.approx.ftz.f32 kept, next;"]
        lines += [f"mul.f32 ${i}, ${i}, kept;" for i in scaled]
        lines += _weights_ptx(row, count, evens, odds, "most")
    lines += ["STAY:", *(f"add.f32 ${sums + row}, ${sums + row}, own{row};" for row in (0, 1))]
    return "\n".join(["{", *lines, "}"]).replace("ROUND", instruction)


@gluon.constexpr_function
def _constraints(count, in_place, more):
    """Constraints of pairs of weights, of results with an operand in the place of each, and of more operands."""
    results = ["=&r"] * count + ["=&f"] * (in_place * count)
    return ",".join(results + [str(count + i) for i in range(in_place * count)] + ["f"] * (more * count))


@gluon.constexpr_function
def _rounding(dtype):
    return "cvt.rn.bf16x2.f32" if dtype.is_bf16() else "cvt.rn.f16x2.f32"


@gluon.jit
def _kv_span(
    first_query, last_query, q_len, kv_len, window,
    KV_TILE: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Return ``first, whole_first, whole_last, last`` as ``tiles.kv_span`` does, but for the last key of the first query.

    Its tile is never a whole one, so that every row has a maximum when those come.
    """
    first = 0
    whole_first = 0
    if CAUSAL:
        offset = kv_len - q_len
        last = gl.cdiv(offset + last_query + 1, KV_TILE)
        whole_last = (offset + first_query) // KV_TILE
        if WINDOW:
            first = gl.maximum(offset + first_query + 1 - window, 0) // KV_TILE
            whole_first = gl.minimum(gl.cdiv(gl.maximum(offset + last_query + 1 - window, 0), KV_TILE), last)
            whole_last = gl.maximum(whole_first, whole_last)
    else:
        last = gl.cdiv(kv_len, KV_TILE)
        whole_last = kv_len // KV_TILE
    return first, whole_first, whole_last, last


@gluon.jit
def _load(
    q, k, v, filled, barriers, work, sizes, kv_heads,
    D: gl.constexpr, DV: gl.constexpr, GROUPS: gl.constexpr, KV_TILE: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """The warp that fills shared memory: K of the first kv tile, Q, then K of a tile before V of the one before it."""
    q_buffers, k_buffers, v_buffers = filled
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    work_width, q_tiles, q_heads, q_len, kv_len, window, _scale_log2 = sizes
    Q_TILE: gl.constexpr = GROUPS * 64
    Q_BYTES: gl.constexpr = 64 * D * q.dtype.primitive_bitwidth // 8
    K_BYTES: gl.constexpr = KV_TILE * D * k.dtype.primitive_bitwidth // 8
    V_BYTES: gl.constexpr = KV_TILE * DV * v.dtype.primitive_bitwidth // 8
    work += gl.program_id(0) * work_width
    step = 0
    item = gl.load(work + 1)
    for turn in range(gl.load(work)):
        head = item // q_tiles
        tile = item % q_tiles
        item = gl.load(work + 2 + turn)
        batch = head // q_heads
        head = head % q_heads
        kv_head = head // (q_heads // kv_heads)
        row = tile * Q_TILE
        last_query = gl.minimum(row + Q_TILE, q_len) - 1
        first, _, _, last = _kv_span(row, last_query, q_len, kv_len, window, KV_TILE, CAUSAL, WINDOW)
        _fetch(k, batch, kv_head, (last - 1) * KV_TILE, step, k_buffers, k_full, k_empty, STAGES, K_BYTES)
        for group in gl.static_range(GROUPS):
            mbarrier.wait(q_empty.index(group), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(group), Q_BYTES)
            tma.async_copy_global_to_shared(
                q, [batch, head, row + group * 64, 0], q_full.index(group), q_buffers.index(group)
            )  # fmt: skip
        for back in range(1, last - first):
            key = (last - back) * KV_TILE
            _fetch(k, batch, kv_head, key - KV_TILE, step + back, k_buffers, k_full, k_empty, STAGES, K_BYTES)
            _fetch(v, batch, kv_head, key, step + back - 1, v_buffers, v_full, v_empty, STAGES, V_BYTES)
        step += last - first
        _fetch(v, batch, kv_head, first * KV_TILE, step - 1, v_buffers, v_full, v_empty, STAGES, V_BYTES)


@gluon.jit
def _place(step, STAGES: gl.constexpr):
    """Return the slot of the ``step``-th kv tile, and the phase of its barriers."""
    step = step.to(gl.uint32)
    return (step % STAGES).to(gl.int32), (step // STAGES & 1).to(gl.int32)


@gluon.jit
def _fetch(
    source, batch, head, row, step, buffers, full, empty, STAGES: gl.constexpr, BYTES: gl.constexpr
):  # fmt: skip
    """Start to copy a kv tile into the slot of ``step``, once all groups are done with what it held."""
    slot, phase = _place(step, STAGES)
    mbarrier.wait(empty.index(slot), phase ^ 1)
    mbarrier.expect(full.index(slot), BYTES)
    tma.async_copy_global_to_shared(source, [batch, head, row, 0], full.index(slot), buffers.index(slot))


@gluon.constexpr_function
def _turn_ptx(action, group):
    """PTX of the turn of ``group``: a hardware barrier of 256 threads, numbered past Triton's own."""
    return f"bar.{action} {8 + group}, 256; mov.u32 $0, 0;"


@gluon.jit
def _wait_turn(GROUP: gl.constexpr):
    """Wait until the group before has issued its products."""
    gl.inline_asm_elementwise(_turn_ptx("sync", GROUP), "=r", [], gl.int32, False, 1)


@gluon.jit
def _pass_turn(NEXT: gl.constexpr):
    """Let the group ``NEXT`` issue its products."""
    gl.inline_asm_elementwise(_turn_ptx("arrive", NEXT), "=r", [], gl.int32, False, 1)


@gluon.jit
def _hide(
    scores, row, key, q_len, kv_len, window,
    KV_TILE: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Return ``scores`` with HIDDEN where the mask or the end of the keys hides the key.

    A thread holds two of every eight columns. Eights are compared as constants with what the place in them leaves of the limit.
    """
    eights = gl.reshape(scores, [64, KV_TILE // 8, 8])
    LAYOUT: gl.constexpr = eights.type.layout
    first = 8 * gl.arange(0, KV_TILE // 8, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :][:, :, None]
    place = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, :][:, None, :]
    if WINDOW:
        # Opaque, or what depends on the thread alone is computed at the start and spilled until here.
        place = gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [place], gl.int32, False, 1)
    if CAUSAL:
        rows = gl.arange(0, 64, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))[:, None][:, :, None]
        limit = rows + (row + kv_len - q_len - key) - place
        seen = first <= limit
        if WINDOW:
            seen = seen & (first > limit - window)
    else:
        seen = first < kv_len - key - place
    return gl.convert_layout(gl.reshape(gl.where(seen, eights, HIDDEN), [64, KV_TILE]), scores.type.layout, True)


@gluon.jit
def _unpacked(pairs, DTYPE: gl.constexpr, LAYOUT: gl.constexpr):
    """Return ``pairs`` of DTYPE, [64, keys / 8, 4], as the operand of a product, [64, keys]."""
    twice = gl.join(pairs, pairs)
    if DTYPE.is_bf16():
        values = gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [twice], gl.bfloat16, True, 2)
    else:
        values = gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [twice], gl.float16, True, 2)
    return gl.convert_layout(gl.reshape(values, [64, 8 * pairs.shape[1]]), LAYOUT)


@gluon.jit
def _skip(
    k_full, k_empty, v_full, v_empty, step, count,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Give back ``count`` kv tiles that only rows of other groups see, and the turns to multiply them."""
    for ahead in range(count):
        slot, phase = _place(step + ahead, STAGES)
        _wait_turn(GROUP)
        _pass_turn((GROUP + 1) % GROUPS)
        mbarrier.wait(k_full.index(slot), phase)
        mbarrier.arrive(k_empty.index(slot), count=1)
        mbarrier.wait(v_full.index(slot), phase)
        mbarrier.arrive(v_empty.index(slot), count=1)


@gluon.jit
def _parted(values):
    """Return ``values`` [64, n] as [64, n / 8, 4, 2]: a thread has dimensions 1 and 3 of two rows, one place of dimension 2."""
    return gl.reshape(values, [64, values.shape[1] // 8, 4, 2])


@gluon.jit
def _first(one, other):
    return one


@gluon.jit
def _own_first(values):
    """Return the first value that each thread has of a row: [64, 4]."""
    return gl.reduce(values, 1, _first)


@gluon.jit
def _own_max(parted):
    """Return the maximum of what each thread has of a row: [64, 4]."""
    return gl.max(gl.max(parted, 3), 1)


@gluon.jit
def _weigh(exponents, total, DTYPE: gl.constexpr):
    """Return the weights of ``exponents`` in pairs of DTYPE, and ``total`` with their sum."""
    COUNT: gl.constexpr = 2 * exponents.shape[1]
    even, odd = gl.split(exponents)
    pairs, total = gl.inline_asm_elementwise(
        _weigh_ptx(COUNT, _rounding(DTYPE)), _constraints(COUNT, 1, 2),
        [total[:, None, :], even, odd], (gl.int32, gl.float32), True, COUNT,
    )  # fmt: skip
    return pairs, _own_first(total)


@gluon.jit
def _weigh_or_rescale(exponents, total, shift, acc, DTYPE: gl.constexpr):
    """Return the weights of ``exponents`` in pairs of DTYPE, ``total`` with their sum, ``shift`` and ``acc``.

    Where a sum reaches LIMIT in a warp, the maxima of its rows become their references: ``shift`` grows, ``total``, ``acc`` and
    the weights shrink. That is rare after the first kv tiles of a row, and a branch around it costs less than maxima.
    """
    COUNT: gl.constexpr = 2 * exponents.shape[1]
    even, odd = gl.split(exponents)
    even_columns, odd_columns = gl.split(_parted(acc))
    pairs, total, shift, even_columns, odd_columns = gl.inline_asm_elementwise(
        _weigh_or_rescale_ptx(COUNT, _rounding(DTYPE)), _constraints(COUNT, 4, 2),
        [total[:, None, :], shift[:, None, :], even_columns, odd_columns, even, odd],
        (gl.int32, gl.float32, gl.float32, gl.float32, gl.float32), True, COUNT,
    )  # fmt: skip
    acc = gl.convert_layout(gl.reshape(gl.join(even_columns, odd_columns), acc.shape), acc.type.layout, True)
    return pairs, _own_first(total), _own_first(shift), acc


@gluon.jit
def _steps(
    acc, total, shift, pairs, queries, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty,
    step, row, start, stop, last, q_len, kv_len, window, scale_log2,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, KV_TILE: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, MASKED: gl.constexpr, DV: gl.constexpr, DTYPE: gl.constexpr,
    S_LAYOUT: gl.constexpr, P_LAYOUT: gl.constexpr,
):  # fmt: skip
    """Run the ``start``-th to ``stop``-th kv tile counted from the last one; ``pairs``: P of the one before."""
    for back in range(start, stop):
        weights = _unpacked(pairs, DTYPE, P_LAYOUT)
        slot, phase = _place(step + back, STAGES)
        mbarrier.wait(k_full.index(slot), phase)
        _wait_turn(GROUP)
        scores = gl.zeros([64, KV_TILE], gl.float32, S_LAYOUT)
        scores = warpgroup_mma(queries, k_buffers.index(slot).permute((1, 0)), scores, use_acc=False, is_async=True)
        before, phase = _place(step + back - 1, STAGES)
        mbarrier.wait(v_full.index(before), phase)
        acc = warpgroup_mma(weights, v_buffers.index(before), acc, is_async=True)
        _pass_turn((GROUP + 1) % GROUPS)
        scores = warpgroup_mma_wait(1, [scores])
        mbarrier.arrive(k_empty.index(slot), count=1)  # now, not after P V: of two slots, each is waited for
        acc, _ = warpgroup_mma_wait(0, [acc, weights])
        mbarrier.arrive(v_empty.index(before), count=1)
        if MASKED:
            scores = _hide(scores, row, (last - 1 - back) * KV_TILE, q_len, kv_len, window, KV_TILE, CAUSAL, WINDOW)
        parted = _parted(scores)
        if MASKED or KV_TILE != DV:
            higher = gl.maximum(shift, gl.max(_own_max(parted), 1)[:, None] * scale_log2)
            kept = gl.exp2(shift - higher)
            shift = higher
            pairs, total = _weigh(parted * scale_log2 - shift[:, None, :, None], total * kept, DTYPE)
            parts = _parted(acc)
            kept = gl.convert_layout(kept, gl.SliceLayout(1, gl.SliceLayout(3, parts.type.layout)), True)
            acc = gl.convert_layout(gl.reshape(parts * kept[:, None, :, None], acc.shape), acc.type.layout, True)
        else:
            exponents = parted * scale_log2 - shift[:, None, :, None]
            pairs, total, shift, acc = _weigh_or_rescale(exponents, total, shift, acc, DTYPE)
    return acc, total, shift, pairs


@gluon.jit
def _compute(
    o, kept, barriers, work, sizes,
    GROUP: gl.constexpr, DV: gl.constexpr, GROUPS: gl.constexpr, KV_TILE: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, WINDOW: gl.constexpr, WHOLE: gl.constexpr, Q_IN_REGISTERS: gl.constexpr, O_IN_Q: gl.constexpr,
):  # fmt: skip
    """A group of four warps: rows ``64 GROUP`` .. of each q tile.

    Q in registers frees its shared memory for the next q tile at once, and S = Q K^T reads half as much of it.
    """
    q_buffers, k_buffers, v_buffers, o_buffers, o_flat = kept
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    work_width, q_tiles, q_heads, q_len, kv_len, window, scale_log2 = sizes
    Q_TILE: gl.constexpr = GROUPS * 64
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KV_TILE, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DV, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    work += gl.program_id(0) * work_width
    result = o_buffers.index(GROUP)
    result_flat = o_flat.index(GROUP)
    if GROUP == GROUPS - 1:
        _pass_turn(0)
    step = 0
    item = gl.load(work + 1)
    for turn in range(gl.load(work)):
        head = item // q_tiles
        row = item % q_tiles * Q_TILE
        item = gl.load(work + 2 + turn)
        last_query = gl.minimum(row + Q_TILE, q_len) - 1
        first, _, _, last = _kv_span(row, last_query, q_len, kv_len, window, KV_TILE, CAUSAL, WINDOW)
        row += GROUP * 64
        last_query = gl.minimum(row + 64, q_len) - 1
        own_first, whole_first, whole_last, own_last = _kv_span(
            row, last_query, q_len, kv_len, window, KV_TILE, CAUSAL, WINDOW
        )  # fmt: skip
        if row >= q_len:  # rows past the end: one kv tile, whose O goes nowhere
            own_first = first
            own_last = first + 1
        _skip(k_full, k_empty, v_full, v_empty, step, last - own_last, GROUP, GROUPS, STAGES)
        step += last - own_last

        mbarrier.wait(q_full.index(GROUP), turn & 1)
        if Q_IN_REGISTERS:
            queries = q_buffers.index(GROUP).load(gl.DotOperandLayout(0, S_LAYOUT, 2))
            mbarrier.arrive(q_empty.index(GROUP), count=1)
        else:
            queries = q_buffers.index(GROUP)
        slot, phase = _place(step, STAGES)
        mbarrier.wait(k_full.index(slot), phase)
        scores = gl.zeros([64, KV_TILE], gl.float32, S_LAYOUT)
        scores = warpgroup_mma(queries, k_buffers.index(slot).permute((1, 0)), scores, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, [scores])
        mbarrier.arrive(k_empty.index(slot), count=1)
        if not WHOLE:
            scores = _hide(scores, row, (own_last - 1) * KV_TILE, q_len, kv_len, window, KV_TILE, CAUSAL, WINDOW)
        parted = _parted(scores)
        most = _own_max(parted)
        shift = gl.maximum(most, gl.max(most, 1)[:, None]) * scale_log2
        pairs, total = _weigh(parted * scale_log2 - shift[:, None, :, None], gl.zeros_like(shift), o.dtype)
        acc = gl.zeros([64, DV], gl.float32, O_LAYOUT)
        done = 1
        if CAUSAL:
            masked = gl.maximum(own_last - whole_last, 1)
            acc, total, shift, pairs = _steps(
                acc, total, shift, pairs, queries, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty,
                step, row, 1, masked, own_last, q_len, kv_len, window, scale_log2,
                GROUP, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW, True, DV, o.dtype, S_LAYOUT, P_LAYOUT,
            )  # fmt: skip
            done = masked
        acc, total, shift, pairs = _steps(
            acc, total, shift, pairs, queries, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty,
            step, row, done, own_last - whole_first, own_last, q_len, kv_len, window, scale_log2,
            GROUP, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW, False, DV, o.dtype, S_LAYOUT, P_LAYOUT,
        )  # fmt: skip
        if WINDOW:
            acc, total, shift, pairs = _steps(
                acc, total, shift, pairs, queries, k_buffers, v_buffers, k_full, k_empty, v_full, v_empty,
                step, row, gl.maximum(own_last - whole_first, done), own_last - own_first, own_last,
                q_len, kv_len, window, scale_log2,
                GROUP, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW, True, DV, o.dtype, S_LAYOUT, P_LAYOUT,
            )  # fmt: skip
        if not (Q_IN_REGISTERS or O_IN_Q):
            mbarrier.arrive(q_empty.index(GROUP), count=1)
        step += own_last - own_first
        slot, phase = _place(step - 1, STAGES)
        mbarrier.wait(v_full.index(slot), phase)
        weights = _unpacked(pairs, o.dtype, P_LAYOUT)
        acc = warpgroup_mma(weights, v_buffers.index(slot), acc, is_async=True)
        share = gl.convert_layout(1.0 / gl.sum(total, 1), gl.SliceLayout(1, O_LAYOUT))
        acc, _ = warpgroup_mma_wait(0, [acc, weights])
        mbarrier.arrive(v_empty.index(slot), count=1)
        if WINDOW:
            _skip(k_full, k_empty, v_full, v_empty, step, own_first - first, GROUP, GROUPS, STAGES)
            step += own_first - first
        if not O_IN_Q:
            tma.store_wait(0)
        result_flat.store((acc * share[:, None]).to(o.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(o, [head // q_heads, head % q_heads, row, 0], result)
        if O_IN_Q:
            tma.store_wait(0)
            mbarrier.arrive(q_empty.index(GROUP), count=1)
    tma.store_wait(0)


@gluon.jit(
    do_not_specialize=[
        "work_width", "q_tiles", "q_heads", "kv_heads", "q_len", "kv_len", "window", "scale_log2",
    ]
)  # fmt: skip
def flash_hopper_kernel(
    q, k, v, o, work, work_width, q_tiles, q_heads, kv_heads, q_len, kv_len, window, scale_log2,
    D: gl.constexpr, DV: gl.constexpr, GROUPS: gl.constexpr, KV_TILE: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, WINDOW: gl.constexpr, WHOLE: gl.constexpr, Q_IN_REGISTERS: gl.constexpr, O_IN_Q: gl.constexpr,
    LOADER_REGISTERS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Compute the q tiles that row ``program_id`` of ``work`` lists (see ``schedule``).

    Grid: [CTAs, at most the SMs]. ``WHOLE``: no mask, and kv_len is a multiple of the kv tile. ``O_IN_Q``: O leaves
    through the shared memory of Q.
    """
    q_buffers = gl.allocate_shared_memory(q.dtype, [GROUPS, 1, 1, 64, D], q.layout)
    k_buffers = gl.allocate_shared_memory(k.dtype, [STAGES, 1, 1, KV_TILE, D], k.layout)
    v_buffers = gl.allocate_shared_memory(v.dtype, [STAGES, 1, 1, KV_TILE, DV], v.layout)
    o_buffers = q_buffers if O_IN_Q else gl.allocate_shared_memory(o.dtype, [GROUPS, 1, 1, 64, DV], o.layout)
    FLAT: gl.constexpr = gl.NVMMASharedLayout(q.layout.swizzle_byte_width, q.layout.element_bitwidth, 2)
    q_full = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for group in gl.static_range(GROUPS):
        mbarrier.init(q_full.index(group), count=1)
        mbarrier.init(q_empty.index(group), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=GROUPS)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(v_empty.index(stage), count=GROUPS)
    fence_async_shared()
    q_flat = q_buffers._reinterpret(q.dtype, [GROUPS, 64, D], FLAT)
    k_flat = k_buffers._reinterpret(k.dtype, [STAGES, KV_TILE, D], FLAT)
    v_flat = v_buffers._reinterpret(v.dtype, [STAGES, KV_TILE, DV], FLAT)
    o_flat = o_buffers._reinterpret(o.dtype, [GROUPS, 64, DV], FLAT)
    kept = (q_flat, k_flat, v_flat, o_buffers, o_flat)
    filled = (q_buffers, k_buffers, v_buffers)
    barriers = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    sizes = (work_width, q_tiles, q_heads, q_len, kv_len, window, scale_log2)
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (_compute, (
                    o, kept, barriers, work, sizes, gl.constexpr(0), DV, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW, WHOLE,
                    Q_IN_REGISTERS, O_IN_Q,
                )),
                (_compute, (
                    o, kept, barriers, work, sizes, gl.constexpr(1), DV, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW, WHOLE,
                    Q_IN_REGISTERS, O_IN_Q,
                )),
                (_load, (
                    q, k, v, filled, barriers, work, sizes, kv_heads, D, DV, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW,
                )),
            ],
            [4, 1],
            [REGISTERS, LOADER_REGISTERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_compute, (
                    o, kept, barriers, work, sizes, gl.constexpr(0), DV, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW, WHOLE,
                    Q_IN_REGISTERS, O_IN_Q,
                )),
                (_compute, (
                    o, kept, barriers, work, sizes, gl.constexpr(1), DV, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW, WHOLE,
                    Q_IN_REGISTERS, O_IN_Q,
                )),
                (_compute, (
                    o, kept, barriers, work, sizes, gl.constexpr(2), DV, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW, WHOLE,
                    Q_IN_REGISTERS, O_IN_Q,
                )),
                (_load, (
                    q, k, v, filled, barriers, work, sizes, kv_heads, D, DV, GROUPS, KV_TILE, STAGES, CAUSAL, WINDOW,
                )),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, LOADER_REGISTERS],
        )  # fmt: skip


def supports(problem: Problem, device: torch.device, plan: Plan) -> str | None:
    """Return why ``problem`` cannot run in tiles of ``plan``, or ``None``."""
    if reason := prefill_support(problem, device, None):
        return reason
    if device.type != "cuda":
        return "Gluon kernels cannot be interpreted: the Hopper kernel needs a GPU"
    if torch.cuda.get_device_capability(device) != HOPPER:
        return "the Hopper kernel runs on compute capability 9.0 only"
    return tile_support(problem, plan)


def tile_support(problem: Problem, plan: Plan) -> str | None:
    """Return why the kernel does not cover ``problem`` in tiles of ``plan``, or ``None``; whatever the device."""
    if not is_hopper_problem(problem):
        return "the Hopper kernel takes equal 16-bit sequences of d 64, 128 or 256, under a mask no longer than their keys"
    if plan.q_tile % HOPPER_GROUP_ROWS or plan.q_tile // HOPPER_GROUP_ROWS not in REGISTERS:
        return f"tile {plan.q_tile}x{plan.kv_tile}: the Hopper kernel has 128 or 192 query rows"
    if plan.kv_tile not in (64, 128):
        return f"tile {plan.q_tile}x{plan.kv_tile}: the Hopper kernel has 64 or 128 keys"
    d = plan.head_dim_tile
    if (plan.q_tile + 2 * plan.stages * plan.kv_tile) * d * problem.dtype.bits // 8 > SHARED_MEMORY_BYTES:
        return f"tile {plan.q_tile}x{plan.kv_tile} with d {d} in {plan.stages} stages: more than the shared memory of a block"
    return None


def launch(inputs: Inputs, plan: Plan, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return softmax(Q K^T / sqrt(d), mask) V, [q_tokens, q_heads, d]."""
    problem, (q, k, v) = inputs.problem, (inputs.tensors[name] for name in "qkv")
    out = q.new_empty((*q.shape[:2], v.shape[-1])) if out is None else out
    if not can_describe(q, k, v, out):
        raise ValueError("the Hopper kernel needs tensors whose base and strides are multiples of 16 bytes")
    grid, arguments, constants = launch_arguments(problem, plan, q, k, v, out)
    flash_hopper_kernel[grid](*arguments, **constants, num_warps=4)
    return out


def launch_arguments(
    problem: Problem, plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor
) -> tuple[tuple[int], tuple[Any, ...], dict[str, Any]]:
    """Return the grid, the arguments and the compile-time constants of one launch."""
    q_len, kv_len, sequences = problem.lengths[0]
    d, dv, groups = q.shape[-1], v.shape[-1], plan.q_tile // HOPPER_GROUP_ROWS
    span = head_span(problem, k, v)
    ctas = torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else 1
    work = schedule(problem.mask, q_len, kv_len, sequences * problem.q_heads, plan.q_tile, plan.kv_tile, span, ctas, q.device)
    parts = ((q, HOPPER_GROUP_ROWS), (k, plan.kv_tile), (v, plan.kv_tile), (out, HOPPER_GROUP_ROWS))
    tensors = [_describe(tensor, sequences, rows) for tensor, rows in parts]
    sizes = (ceil_div(q_len, plan.q_tile), problem.q_heads, k.shape[1], q_len, kv_len, window_of(problem.mask, kv_len))
    is_full = problem.mask.is_full
    registers, loader_registers = REGISTERS[groups]
    constants = {
        "D": d, "DV": dv, "GROUPS": groups, "KV_TILE": plan.kv_tile, "STAGES": plan.stages,
        "CAUSAL": not is_full, "WINDOW": problem.mask.window is not None, "WHOLE": is_full and kv_len % plan.kv_tile == 0,
        # With d 128 the registers are full; d 256 has no shared memory left for O.
        "Q_IN_REGISTERS": d == 64, "O_IN_Q": d == 256,
        "LOADER_REGISTERS": loader_registers, "REGISTERS": registers,
    }  # fmt: skip
    return (work.shape[0],), (*tensors, work, work.shape[1], *sizes, d**-0.5 * LOG2_E), constants


def _describe(tensor: torch.Tensor, batch: int, rows: int) -> TensorDescriptor:
    """Return a descriptor of [tokens, heads, width] as [batch, heads, tokens, width]: a copy ends with its sequence."""
    plain = descriptor(tensor, batch, rows, tensor.shape[-1])
    layout = gl.NVMMASharedLayout(min(tensor.shape[-1] * tensor.element_size(), SWIZZLED_BYTES), tensor.element_size() * 8, 4)
    return TensorDescriptor(plain.base, plain.shape, plain.strides, plain.block_shape, layout)


@lru_cache(maxsize=256)
def schedule(
    mask: Mask,
    q_len: int,
    kv_len: int,
    heads: int,
    q_tile: int,
    kv_tile: int,
    span: int,
    ctas: int,
    device: torch.device,
) -> torch.Tensor:
    """Return the q tiles of each CTA, int32 [CTAs, 2 + most tiles of one]: how many, then head * q tiles + q tile of each.

    Tiles go, one after the other, to the CTA that would be done first: heavy ones first within each ``span`` heads, whose K and
    V fit L2 together, then the light ones of all heads. Under a full mask that is one in turn, a head after the other.
    """
    q_tiles = ceil_div(q_len, q_tile)
    ends = [min((tile + 1) * q_tile, q_len) - 1 for tile in range(q_tiles)]
    spans = [mask.span(q_len, kv_len, kv_tile, tile * q_tile, end) for tile, end in enumerate(ends)]
    weights = [kv_span.last - kv_span.first for kv_span in spans]
    heavy_first = sorted(range(q_tiles), key=lambda tile: -weights[tile])
    light = [tile for tile in heavy_first if weights[tile] * HOPPER_LIGHT_PART <= weights[heavy_first[0]]]
    heavy = heavy_first[: q_tiles - len(light)]
    parts = ceil_div(heads, span)
    cuts = [heads * part // parts for part in range(parts + 1)]
    order = [(head, tile) for start, stop in pairwise(cuts) for tile in heavy for head in range(start, stop)]
    order += [(head, tile) for tile in light for head in range(heads)]
    rows: list[list[int]] = [[] for _ in range(min(ctas, len(order)))]
    loads = [(0, cta) for cta in range(len(rows))]
    for head, tile in order:
        load, cta = loads[0]
        rows[cta].append(head * q_tiles + tile)
        heapreplace(loads, (load + weights[tile] + TILE_OVERHEAD, cta))
    most = max(map(len, rows))
    padded = [[len(tiles), *tiles, *[0] * (most + 1 - len(tiles))] for tiles in rows]
    return torch.tensor(padded, dtype=torch.int32).to(device)
