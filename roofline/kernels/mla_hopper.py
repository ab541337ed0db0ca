"""Absorbed MLA on Hopper, in Gluon: two groups of four warps share 64 rows, each with half of their values in registers.

64 rows by 512 values of O do not fit the registers of one group, so the groups split O by columns. They split scores by keys:
the left group scores the even tiles, the right group the odd ones. Each hands its weights to the other through shared memory,
and both multiply both tiles with their own half of the columns, even tile first. So the products of one group run under the
softmax of the other. The running maximum travels with the weights, left to right within a pair of tiles and right to left from
pair to pair.

Two tiles and Q are all that shared memory holds. One warp more loads each half of a tile, by one instruction, as soon as it
has been multiplied. The weights of a tile lie where its RoPE columns lay, which only its scores need; those of Q are kept in
registers, as shared memory is read for almost as long as the products take. docs/mla-kernel.md has what was tried.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from roofline.cost import ceil_div
from roofline.kernels.latent_boxes import (
    BOX,
    GROUP_REGISTERS,
    KEYS,
    LOADER_REGISTERS,
    as_finite,
    copy_box,
    describe_boxes,
    share_of_split,
)
from roofline.plan import Plan
from roofline.problem import LatentKV, Problem

ROWS = gl.constexpr(64)
BOXES = gl.constexpr(4)  # of one load and its barrier: half of a tile, but for its RoPE columns
PRODUCTS = gl.constexpr(2)  # of weights and half a tile: while the first runs, the sums of the next are scaled

# Barriers: a half of a tile is free; what the groups wait for.
EVEN_LEFT, EVEN_RIGHT, ODD_LEFT, ODD_RIGHT = (gl.constexpr(i) for i in range(4))
WEIGHTS_LEFT, WEIGHTS_RIGHT, TOTAL_LEFT, TOTAL_RIGHT, Q_FULL = (gl.constexpr(i) for i in range(5))


def launch(
    problem: Problem,
    plan: Plan,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    partial: torch.Tensor | None,
    lse: torch.Tensor | None,
    scale: float,
) -> None:
    """Attend from q to the cache (``tensors``: q, cache, out), in splits into ``partial`` and ``lse``.

    ``scale`` turns scores into exponents of two.
    """
    q, cache, out = tensors
    kv = problem.kv
    assert isinstance(kv, LatentKV)
    q_len, kv_len, batch = problem.lengths[0]
    rows = q_len * problem.q_heads
    q_tiles = ceil_div(rows, plan.q_tile)
    absorbed[(batch * q_tiles * plan.splits,)](
        describe_boxes(q, batch, rows, ROWS.value),
        _wide_boxes(cache, batch, kv_len),
        describe_boxes(cache, batch, kv_len, KEYS.value),
        describe_boxes(out, batch, rows, ROWS.value),
        partial,
        lse,
        q_len,
        kv_len,
        problem.q_heads,
        q_tiles,
        plan.splits,
        lse.shape[1] if lse is not None else 0,
        scale,
        LATENT=kv.latent_dim,
        ROPE=kv.rope_dim,
        CAUSAL=problem.mask.causal,
        SPLIT=plan.splits > 1,
        num_warps=4,
    )


def _wide_boxes(cache: torch.Tensor, batch: int, rows: int) -> TensorDescriptor:
    """Describe [tokens, width] as [batch, boxes in a row, rows, columns of a box], so that one load brings several boxes."""
    width = cache.shape[-1]
    layout = gl.NVMMASharedLayout(128, 16, 4)
    shape, strides = [batch, width // BOX.value, rows, BOX.value], [rows * width, BOX.value, width, 1]
    return TensorDescriptor(cache, shape, strides, [1, BOXES.value, KEYS.value, BOX.value], layout)


@gluon.jit(do_not_specialize=["q_len", "kv_len", "heads", "q_tiles", "splits", "lse_stride"])
def absorbed(
    q_boxes, latent_boxes, rope_boxes, out_boxes, partial, lse, q_len, kv_len, heads, q_tiles, splits, lse_stride, scale,
    LATENT: gl.constexpr, ROPE: gl.constexpr, CAUSAL: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """One CTA: 64 (query, head) rows of one sequence over one split of its latents. All sequences are equal."""
    slot = gl.program_id(0)
    sequence = slot // (q_tiles * splits)
    first_row = slot % q_tiles * ROWS
    split = slot // q_tiles % splits
    keys_end = kv_len
    whole = kv_len  # every row sees the keys before this one
    if CAUSAL:
        last_query = (gl.minimum(first_row + ROWS, q_len * heads) - 1) // heads
        keys_end = gl.maximum(kv_len - q_len + last_query + 1, 0)
        whole = kv_len - q_len + first_row // heads + 1
    first = 0
    end = gl.cdiv(keys_end, KEYS)
    if SPLIT:
        first, end = share_of_split(split, splits, end)
        if first >= end:
            return

    BOXES_IN_ROW: gl.constexpr = LATENT // BOX
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    barriers: gl.constexpr = mbarrier.MBarrierLayout()
    q = gl.allocate_shared_memory(q_boxes.dtype, [BOXES_IN_ROW, ROWS, BOX], layout)
    q_rope = gl.allocate_shared_memory(q_boxes.dtype, [ROWS, BOX], layout)
    latent = gl.allocate_shared_memory(q_boxes.dtype, [2 * BOXES_IN_ROW, KEYS, BOX], layout)
    rope = gl.allocate_shared_memory(q_boxes.dtype, [2, KEYS, BOX], layout)
    vectors = gl.allocate_shared_memory(gl.float32, [4, ROWS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [6, 1], barriers)
    free = gl.allocate_shared_memory(gl.int64, [4, 1], barriers)
    ready = gl.allocate_shared_memory(gl.int64, [5, 1], barriers)
    for i in gl.static_range(6):
        mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(4):
        mbarrier.init(free.index(i), count=1)
    for i in gl.static_range(5):
        mbarrier.init(ready.index(i), count=1)
    fence_async_shared()

    shared = (q, q_rope, latent, rope, vectors, full, free, ready)
    place = (sequence, first_row, split, first, end, whole)
    sizes = (q_len, kv_len, heads, splits, lse_stride, scale)
    gl.warp_specialize(
        [
            (_left, (shared, place, sizes, out_boxes, partial, lse, LATENT, CAUSAL, SPLIT)),
            (_right, (shared, place, sizes, out_boxes, partial, lse, LATENT, CAUSAL, SPLIT)),
            (_load, (shared, place, q_boxes, latent_boxes, rope_boxes, LATENT, ROPE)),
        ],
        [4, 1],
        [GROUP_REGISTERS, LOADER_REGISTERS],
    )


@gluon.jit
def _load(shared, place, q_boxes, latent_boxes, rope_boxes, LATENT: gl.constexpr, ROPE: gl.constexpr):
    """Load Q once, then each half of a tile as soon as it is free; the RoPE columns come with the half that is freed last."""
    q, q_rope, latent, rope, _vectors, full, free, ready = shared
    sequence, first_row, _split, first, end, _whole = place
    BOXES_IN_ROW: gl.constexpr = LATENT // BOX
    mbarrier.expect(ready.index(Q_FULL), (LATENT + ROPE) * ROWS * 2)
    for box in gl.static_range(BOXES_IN_ROW):
        copy_box(q_boxes, sequence, first_row, box * BOX, ready.index(Q_FULL), q.index(box))
    copy_box(q_boxes, sequence, first_row, LATENT, ready.index(Q_FULL), q_rope)
    pairs = (end - first) // 2
    row = first * KEYS
    for pair in range(pairs):
        _load_tile(latent_boxes, rope_boxes, sequence, row, full, free, latent, rope, pair, 0, LATENT)
        _load_tile(latent_boxes, rope_boxes, sequence, row + KEYS, full, free, latent, rope, pair, 1, LATENT)
        row += 2 * KEYS
    if (end - first) % 2 == 1:
        _load_tile(latent_boxes, rope_boxes, sequence, row, full, free, latent, rope, pairs, 0, LATENT)


@gluon.jit
def _load_tile(
    latent_boxes, rope_boxes, sequence, row, full, free, latent, rope, pair, ODD: gl.constexpr, LATENT: gl.constexpr
):  # fmt: skip
    """Load a tile, first the half that is free first."""
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 4)
    halves = latent._reinterpret(latent.dtype, [4, 1, BOXES, KEYS, BOX], layout)
    for turn in gl.static_range(2):
        half = (turn + ODD) % 2
        mbarrier.wait(free.index(2 * ODD + half), (pair & 1) ^ 1)
        barrier = full.index(3 * ODD + half)
        mbarrier.expect(barrier, BOXES * KEYS * BOX * 2)
        tma.async_copy_global_to_shared(latent_boxes, [sequence, half * BOXES, row, 0], barrier, halves.index(2 * ODD + half))
    barrier = full.index(3 * ODD + 2)
    mbarrier.expect(barrier, KEYS * BOX * 2)
    copy_box(rope_boxes, sequence, row, LATENT, barrier, rope.index(ODD))


@gluon.jit
def _score(q, q_rope, latent, rope, full, phase, zero, ODD: gl.constexpr, LAYOUT: gl.constexpr):
    """Return the scores of a tile, as its columns arrive: first the half that was free first.

    ``zero`` is 0, which the compiler cannot know: it would keep the descriptors of all boxes in registers, and spill.
    """
    WIDTH: gl.constexpr = BOXES * BOX
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    queries = q._reinterpret(q.dtype, [2, ROWS, WIDTH], layout)
    keys = latent._reinterpret(q.dtype, [4, KEYS, WIDTH], layout)
    scores = warpgroup_mma_init(gl.zeros([ROWS, KEYS], gl.float32, layout=LAYOUT))
    for turn in gl.static_range(2):
        half = (turn + ODD) % 2
        mbarrier.wait(full.index(3 * ODD + half), phase)
        transposed = keys.index(2 * ODD + half + zero).permute((1, 0))
        scores = warpgroup_mma(queries.index(half + zero), transposed, scores, use_acc=turn > 0, is_async=True)
    mbarrier.wait(full.index(3 * ODD + 2), phase)
    scores = warpgroup_mma(q_rope, rope.index(ODD).permute((1, 0)), scores, is_async=True)
    return warpgroup_mma_wait(0, deps=[scores])


@gluon.jit
def _seen(scores, tile, place, sizes, CAUSAL: gl.constexpr):
    """Return ``scores`` with -inf for the keys that a row does not see; most tiles are seen whole."""
    _sequence, first_row, _split, _first, _end, whole = place
    q_len, kv_len, heads, _splits, _lse_stride, _scale = sizes
    layout: gl.constexpr = scores.type.layout
    if (tile + 1) * KEYS > whole:
        keys = tile * KEYS + gl.arange(0, KEYS, layout=gl.SliceLayout(0, layout))
        if CAUSAL:
            rows = first_row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
            ends = gl.minimum(kv_len - q_len + rows // heads + 1, kv_len)
            scores = gl.where(keys[None, :] < ends[:, None], scores, float("-inf"))
        else:
            scores = gl.where((keys < kv_len)[None, :], scores, float("-inf"))
    return scores


@gluon.jit
def _scaled(acc, factor):
    """Return all parts of ``acc`` with each row times its ``factor``."""
    factor = gl.convert_layout(factor, gl.SliceLayout(1, acc[0].type.layout))[:, None]
    result = acc[:0]
    for i in gl.static_range(PRODUCTS):
        result = result + (acc[i] * factor,)  # noqa: RUF005 (Triton has no unpacking)
    return result


@gluon.jit
def _values(latent, tile: gl.constexpr, part: gl.constexpr):
    """Return the columns of one product as [KEYS, columns]; ``latent`` holds two tiles."""
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    PARTS: gl.constexpr = 2 * PRODUCTS
    WIDTH: gl.constexpr = latent.shape[0] // (2 * PARTS) * BOX
    return latent._reinterpret(latent.dtype, [2 * PARTS, KEYS, WIDTH], layout).index(tile * PARTS + part)


@gluon.jit
def _multiplied(weights, latent, acc, ODD: gl.constexpr, RIGHT: gl.constexpr):
    """Issue the products of ``weights`` with half the columns of a tile and add them to ``acc``."""
    issued = acc[:0]
    for i in gl.static_range(PRODUCTS):
        values = _values(latent, ODD, RIGHT * PRODUCTS + i)
        issued = issued + (warpgroup_mma(weights, values, acc[i], is_async=True),)  # noqa: RUF005
    return issued


@gluon.jit
def _operand(weights, acc):
    """Return ``weights`` as an operand in registers."""
    return gl.convert_layout(weights, gl.DotOperandLayout(0, acc[0].type.layout, 2))


@gluon.jit
def _left(
    shared, place, sizes, out_boxes, partial, lse,
    LATENT: gl.constexpr, CAUSAL: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Scores of the even tiles; left half of O."""
    q, q_rope, latent, rope, vectors, full, free, ready = shared
    sequence, first_row, split, first, end, _whole = place
    q_len, _kv_len, heads, splits, lse_stride, scale = sizes
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, LATENT // 2 // PRODUCTS, 16])  # noqa: E741
    ROW: gl.constexpr = gl.SliceLayout(1, S)
    peak = gl.full([ROWS], float("-inf"), gl.float32, layout=ROW)
    total = gl.zeros([ROWS], gl.float32, layout=ROW)
    acc = (gl.zeros([ROWS, LATENT // 2 // PRODUCTS], gl.float32, layout=O),) * PRODUCTS
    pairs = (end - first) // 2
    mbarrier.wait(ready.index(Q_FULL), 0)
    q_rope = q_rope.load(gl.DotOperandLayout(0, S, 2))
    for pair in range(pairs):
        phase = pair & 1
        scores = _score(q, q_rope, latent, rope, full, phase, pair >> 30, 0, S)
        scores = _seen(scores, first + 2 * pair, place, sizes, CAUSAL)
        raised = gl.maximum(peak, gl.max(scores, 1) * scale)
        finite = as_finite(raised)
        weights = gl.exp2(scores * scale - finite[:, None])
        narrow = weights.to(q.dtype)
        vectors.index(WEIGHTS_LEFT).store(raised)
        rope.index(0).store(narrow)
        fence_async_shared()
        mbarrier.arrive(ready.index(WEIGHTS_LEFT))
        rescale = gl.exp2(peak - finite)
        total = total * rescale + gl.sum(weights, 1)
        acc = _scaled(acc, rescale)
        acc = warpgroup_mma_wait(0, deps=_multiplied(_operand(narrow, acc), latent, acc, 0, 0))
        mbarrier.arrive(free.index(EVEN_LEFT))

        mbarrier.wait(ready.index(WEIGHTS_RIGHT), phase)
        peak = vectors.index(WEIGHTS_RIGHT).load(ROW)
        rescale = gl.exp2(raised - as_finite(peak))
        total *= rescale
        acc = _scaled(acc, rescale)
        acc = warpgroup_mma_wait(0, deps=_multiplied(rope.index(1), latent, acc, 1, 0))
        mbarrier.arrive(free.index(ODD_LEFT))

    if (end - first) % 2 == 1:
        scores = _score(q, q_rope, latent, rope, full, pairs & 1, 0, 0, S)
        scores = _seen(scores, end - 1, place, sizes, CAUSAL)
        raised = gl.maximum(peak, gl.max(scores, 1) * scale)
        finite = as_finite(raised)
        weights = gl.exp2(scores * scale - finite[:, None])
        vectors.index(WEIGHTS_LEFT).store(raised)
        rope.index(0).store(weights.to(q.dtype))
        fence_async_shared()
        mbarrier.arrive(ready.index(WEIGHTS_LEFT))
        rescale = gl.exp2(peak - finite)
        total = total * rescale + gl.sum(weights, 1)
        acc = warpgroup_mma_wait(0, deps=_multiplied(rope.index(0), latent, _scaled(acc, rescale), 0, 0))
        peak = raised

    vectors.index(TOTAL_LEFT).store(total)
    mbarrier.arrive(ready.index(TOTAL_LEFT))
    mbarrier.wait(ready.index(TOTAL_RIGHT), 0)
    total += vectors.index(TOTAL_RIGHT).load(ROW)
    if SPLIT:
        rows = first_row + gl.arange(0, ROWS, layout=ROW)
        out_rows = sequence.to(gl.int64) * (q_len * heads) + rows
        exponent = peak + gl.log2(gl.where(total > 0.0, total, 1.0))
        gl.store(lse + out_rows * lse_stride + split, exponent, mask=rows < q_len * heads)
    _write(acc, total, latent, place, q_len * heads, splits, out_boxes, partial, 0, LATENT, SPLIT)


@gluon.jit
def _right(
    shared, place, sizes, out_boxes, partial, lse,
    LATENT: gl.constexpr, CAUSAL: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Scores of the odd tiles; right half of O."""
    q, q_rope, latent, rope, vectors, full, free, ready = shared
    _sequence, _first_row, _split, first, end, _whole = place
    q_len, _kv_len, heads, splits, _lse_stride, scale = sizes
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, LATENT // 2 // PRODUCTS, 16])  # noqa: E741
    ROW: gl.constexpr = gl.SliceLayout(1, S)
    peak = gl.full([ROWS], float("-inf"), gl.float32, layout=ROW)
    total = gl.zeros([ROWS], gl.float32, layout=ROW)
    acc = (gl.zeros([ROWS, LATENT // 2 // PRODUCTS], gl.float32, layout=O),) * PRODUCTS
    pairs = (end - first) // 2
    mbarrier.wait(ready.index(Q_FULL), 0)
    q_rope = q_rope.load(gl.DotOperandLayout(0, S, 2))
    for pair in range(pairs):
        phase = pair & 1
        scores = _score(q, q_rope, latent, rope, full, phase, pair >> 30, 1, S)
        scores = _seen(scores, first + 2 * pair + 1, place, sizes, CAUSAL)
        highest = gl.max(scores, 1) * scale
        mbarrier.wait(ready.index(WEIGHTS_LEFT), phase)
        left = vectors.index(WEIGHTS_LEFT).load(ROW)
        rescale = gl.exp2(peak - as_finite(left))
        total *= rescale
        products = _multiplied(rope.index(0), latent, _scaled(acc, rescale), 0, 1)

        peak = gl.maximum(left, highest)
        finite = as_finite(peak)
        weights = gl.exp2(scores * scale - finite[:, None])
        narrow = weights.to(q.dtype)
        vectors.index(WEIGHTS_RIGHT).store(peak)
        rope.index(1).store(narrow)
        fence_async_shared()
        mbarrier.arrive(ready.index(WEIGHTS_RIGHT))
        rescale = gl.exp2(left - finite)
        total = total * rescale + gl.sum(weights, 1)
        acc = warpgroup_mma_wait(0, deps=products)
        mbarrier.arrive(free.index(EVEN_RIGHT))
        acc = _scaled(acc, rescale)
        acc = warpgroup_mma_wait(0, deps=_multiplied(_operand(narrow, acc), latent, acc, 1, 1))
        mbarrier.arrive(free.index(ODD_RIGHT))

    if (end - first) % 2 == 1:
        mbarrier.wait(ready.index(WEIGHTS_LEFT), pairs & 1)
        rescale = gl.exp2(peak - as_finite(vectors.index(WEIGHTS_LEFT).load(ROW)))
        total *= rescale
        acc = warpgroup_mma_wait(0, deps=_multiplied(rope.index(0), latent, _scaled(acc, rescale), 0, 1))

    vectors.index(TOTAL_RIGHT).store(total)
    mbarrier.arrive(ready.index(TOTAL_RIGHT))
    mbarrier.wait(ready.index(TOTAL_LEFT), 0)
    total += vectors.index(TOTAL_LEFT).load(ROW)
    _write(acc, total, latent, place, q_len * heads, splits, out_boxes, partial, 1, LATENT, SPLIT)


@gluon.jit
def _write(
    acc, total, latent, place, rows_end, splits, out_boxes, partial,
    RIGHT: gl.constexpr, LATENT: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Write a half of O: a partial one directly, in whole sectors, a final one through a half tile that is its own."""
    sequence, first_row, split, _first, _end, _whole = place
    HALF: gl.constexpr = LATENT // 2 // BOX
    layout: gl.constexpr = acc[0].type.layout
    acc = _scaled(acc, 1.0 / gl.where(total > 0.0, total, 1.0))  # a row without keys gives 0
    WIDTH: gl.constexpr = LATENT // 2 // PRODUCTS
    if SPLIT:
        rows = first_row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
        columns = RIGHT * (LATENT // 2) + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
        part_rows = (sequence.to(gl.int64) * rows_end + rows) * splits + split
        for i in gl.static_range(PRODUCTS):
            places = partial + (part_rows * LATENT)[:, None] + i * WIDTH + columns[None, :]
            gl.store(places, acc[i], mask=(rows < rows_end)[:, None])
    else:
        box_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 3)
        for i in gl.static_range(PRODUCTS):
            _values(latent, RIGHT, RIGHT * PRODUCTS + i).store(acc[i].to(latent.dtype))
        fence_async_shared()
        for i in gl.static_range(HALF):
            box = latent.index(3 * RIGHT * HALF + i)._reinterpret(latent.dtype, [1, ROWS, BOX], box_layout)
            tma.async_copy_shared_to_global(out_boxes, [sequence, first_row, (RIGHT * HALF + i) * BOX], box)
        tma.store_wait(0)
