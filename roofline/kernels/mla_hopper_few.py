"""Absorbed MLA on Hopper for up to 32 (query, head) rows, in Gluon: latents are the rows of each product, not queries.

A product of the tensor cores has at least 64 rows, of which 16 heads would fill a quarter. So the operands change places: the
scores are C Q^T [latents, rows] and the values C^T P^T [columns, rows], both with C from the tile in shared memory as it was
loaded. O^T is small (512 x 16 values), so one group of four warps holds all of it, and two groups take turns: one has the even
tiles, one the odd ones, each with a maximum and a sum of its own. They meet once, at the end, when each takes half of the
columns. Nothing else waits for anything but the loads, which HBM limits.

One warp loads. The ring is made of parts of 64 latents by 192 columns, three a tile, since Q leaves room for 2 2/3 tiles.
docs/mla-kernel.md has what was tried.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

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

BOXES = gl.constexpr(3)  # of a part of a tile, which has one barrier
PARTS = gl.constexpr(3)  # of a tile
TILES = gl.constexpr(4)  # with barriers of their own: more than the ring holds, and even, so that a group meets its own again
RING_PARTS = {16: 8, 32: 7}  # that fit shared memory beside Q, by rows

# Barriers: Q is there; a group has left its maximum and sum; a group has left the columns that the other writes.
Q_FULL, SUMS, COLUMNS = (gl.constexpr(i) for i in (0, 1, 3))


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
    rows = plan.tile_rows(q_len * problem.q_heads)
    absorbed[(batch * plan.splits,)](
        describe_boxes(q, batch, q_len * problem.q_heads, rows),
        describe_boxes(cache, batch, kv_len, KEYS.value),
        out if partial is None else partial,
        lse,
        q_len,
        kv_len,
        problem.q_heads,
        plan.splits,
        lse.shape[1] if lse is not None else 0,
        scale,
        ROWS=rows,
        LATENT=kv.latent_dim,
        RING=RING_PARTS[rows],
        CAUSAL=problem.mask.causal,
        SPLIT=plan.splits > 1,
        num_warps=4,
    )


@gluon.jit(do_not_specialize=["q_len", "kv_len", "heads", "splits", "lse_stride"])
def absorbed(
    q_boxes, cache_boxes, target, lse, q_len, kv_len, heads, splits, lse_stride, scale,
    ROWS: gl.constexpr, LATENT: gl.constexpr, RING: gl.constexpr, CAUSAL: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """One CTA: the (query, head) rows of one sequence over one split of its latents. All sequences are equal."""
    sequence = gl.program_id(0) // splits
    split = gl.program_id(0) % splits
    whole = kv_len  # every row sees the keys before this one
    if CAUSAL:
        whole = kv_len - q_len + 1
    first = 0
    end = gl.cdiv(kv_len, KEYS)  # of the last query, which sees all
    if SPLIT:
        first, end = share_of_split(split, splits, end)
        if first >= end:
            return

    barriers: gl.constexpr = mbarrier.MBarrierLayout()
    swizzled: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    narrow: gl.constexpr = gl.NVMMASharedLayout(2 * ROWS, 16, 2)
    q = gl.allocate_shared_memory(cache_boxes.dtype, [PARTS * BOXES, ROWS, BOX], swizzled)
    ring = gl.allocate_shared_memory(cache_boxes.dtype, [RING * BOXES, KEYS, BOX], swizzled)
    weights = gl.allocate_shared_memory(cache_boxes.dtype, [2, KEYS, ROWS], narrow)
    vectors = gl.allocate_shared_memory(gl.float32, [4, ROWS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [TILES * PARTS, 1], barriers)
    free = gl.allocate_shared_memory(gl.int64, [RING, 1], barriers)
    ready = gl.allocate_shared_memory(gl.int64, [5, 1], barriers)
    for i in gl.static_range(TILES * PARTS):
        mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(RING):
        mbarrier.init(free.index(i), count=1)
    for i in gl.static_range(5):
        mbarrier.init(ready.index(i), count=1)
    fence_async_shared()

    shared = (q, ring, weights, vectors, full, free, ready)
    place = (sequence, split, first, end, whole)
    sizes = (q_len, kv_len, heads, splits, lse_stride, scale)
    gl.warp_specialize(
        [
            (_multiply, (shared, place, sizes, target, lse, 0, ROWS, LATENT, RING, CAUSAL, SPLIT)),
            (_multiply, (shared, place, sizes, target, lse, 1, ROWS, LATENT, RING, CAUSAL, SPLIT)),
            (_load, (shared, place, q_boxes, cache_boxes, ROWS, RING)),
        ],
        [4, 1],
        [GROUP_REGISTERS, LOADER_REGISTERS],
    )


@gluon.jit
def _load(shared, place, q_boxes, cache_boxes, ROWS: gl.constexpr, RING: gl.constexpr):
    """Load Q once, then each part of a tile as soon as its slot in the ring is free."""
    q, ring, _weights, _vectors, full, free, ready = shared
    sequence, _split, first, end, _whole = place
    mbarrier.expect(ready.index(Q_FULL), PARTS * BOXES * ROWS * BOX * 2)
    for box in gl.static_range(PARTS * BOXES):
        copy_box(q_boxes, sequence, 0, box * BOX, ready.index(Q_FULL), q.index(box))
    step = 0
    for tile in range(first, end):
        for part in gl.static_range(PARTS):
            slot = step % RING
            mbarrier.wait(free.index(slot), (step // RING & 1) ^ 1)
            barrier = full.index((tile - first) % TILES * PARTS + part)
            mbarrier.expect(barrier, BOXES * KEYS * BOX * 2)
            for i in gl.static_range(BOXES):
                column = (part * BOXES + i) * BOX
                copy_box(cache_boxes, sequence, tile * KEYS, column, barrier, ring.index(slot * BOXES + i))
            step += 1


@gluon.jit
def _seen(scores, tile, whole, sizes, CAUSAL: gl.constexpr):
    """Return ``scores`` [keys, rows] with -inf for the keys that a row does not see; most tiles are seen whole."""
    q_len, kv_len, heads, _splits, _lse_stride, _scale = sizes
    layout: gl.constexpr = scores.type.layout
    if (tile + 1) * KEYS > whole:
        keys = tile * KEYS + gl.arange(0, KEYS, layout=gl.SliceLayout(1, layout))
        if CAUSAL:
            rows = gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, layout))
            ends = gl.minimum(kv_len - q_len + rows // heads + 1, kv_len)
            scores = gl.where(keys[:, None] < ends[None, :], scores, float("-inf"))
        else:
            scores = gl.where((keys < kv_len)[:, None], scores, float("-inf"))
    return scores


@gluon.jit
def _scaled(boxes, factor):
    """Return each of ``boxes`` with its columns times their ``factor``."""
    result = boxes[:0]
    for i in gl.static_range(len(boxes)):
        result = result + (boxes[i] * factor[None, :],)  # noqa: RUF005 (Triton has no unpacking)
    return result


@gluon.jit
def _score(q, ring, full, turn, zero, RING: gl.constexpr, LAYOUT: gl.constexpr, ROWS: gl.constexpr):
    """Return the scores of the ``turn``-th tile [keys, rows], as its parts arrive.

    ``zero`` is 0, which the compiler cannot know: it would keep the descriptors of all boxes of Q in registers, and spill.
    """
    scores = warpgroup_mma_init(gl.zeros([KEYS, ROWS], gl.float32, layout=LAYOUT))
    for part in gl.static_range(PARTS):
        slot = (turn * PARTS + part) % RING
        mbarrier.wait(full.index(turn % TILES * PARTS + part), turn // TILES & 1)
        for i in gl.static_range(BOXES):
            queries = q.index(part * BOXES + i + zero).permute((1, 0))
            scores = warpgroup_mma(ring.index(slot * BOXES + i), queries, scores, use_acc=part + i > 0, is_async=True)
    return warpgroup_mma_wait(0, deps=[scores])


@gluon.jit
def _accumulate(ring, weights, boxes, step, RING: gl.constexpr):
    """Return ``boxes`` of O^T with the values of a tile times ``weights`` added."""
    issued = boxes[:0]
    for i in gl.static_range(len(boxes)):
        slot = (step + i // BOXES) % RING
        values = ring.index(slot * BOXES + i % BOXES).permute((1, 0))
        issued = issued + (warpgroup_mma(values, weights, boxes[i], is_async=True),)  # noqa: RUF005
    return warpgroup_mma_wait(0, deps=issued)


@gluon.jit
def _multiply(
    shared, place, sizes, target, lse,
    ODD: gl.constexpr, ROWS: gl.constexpr, LATENT: gl.constexpr, RING: gl.constexpr,
    CAUSAL: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Attend to every other tile, then write half of the columns."""
    q, ring, weights, vectors, full, free, ready = shared
    _sequence, _split, first, end, whole = place
    scale = sizes[5]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    ROW: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    peak = gl.full([ROWS], float("-inf"), gl.float32, layout=ROW)
    total = gl.zeros([KEYS, ROWS], gl.float32, layout=LAYOUT)
    boxes = (gl.zeros([BOX, ROWS], gl.float32, layout=LAYOUT),) * (LATENT // BOX)
    mbarrier.wait(ready.index(Q_FULL), 0)
    for tile in range(first + ODD, end, 2):
        turn = tile - first
        step = turn * PARTS
        scores = _score(q, ring, full, turn, tile >> 30, RING, LAYOUT, ROWS)
        scores = _seen(scores, tile, whole, sizes, CAUSAL)
        raised = gl.maximum(peak, gl.max(scores, 0) * scale)
        finite = as_finite(raised)
        shares = gl.exp2(scores * scale - finite[None, :])
        weights.index(ODD).store(shares.to(q.dtype))
        fence_async_shared()
        rescale = gl.exp2(peak - finite)
        peak = raised
        total = total * rescale[None, :] + shares
        boxes = _accumulate(ring, weights.index(ODD), _scaled(boxes, rescale), step, RING)
        for part in gl.static_range(PARTS):
            mbarrier.arrive(free.index((step + part) % RING))

    sums = gl.sum(total, 0)
    vectors.index(2 * ODD).store(peak)
    vectors.index(2 * ODD + 1).store(sums)
    mbarrier.arrive(ready.index(SUMS + ODD))
    mbarrier.wait(ready.index(SUMS + 1 - ODD), 0)  # from here on the ring is free
    other_peak = vectors.index(2 - 2 * ODD).load(ROW)
    common = gl.maximum(peak, other_peak)
    finite = as_finite(common)
    mine = gl.exp2(peak - finite)
    sums = sums * mine + vectors.index(3 - 2 * ODD).load(ROW) * gl.exp2(other_peak - finite)
    if SPLIT and ODD == 0:
        _write_exponent(common + gl.log2(gl.where(sums > 0.0, sums, 1.0)), place, sizes, lse)
    boxes = _scaled(boxes, mine / gl.where(sums > 0.0, sums, 1.0))  # a row without keys gives 0
    _write(boxes, ring, ready, place, sizes, target, ODD, ROWS, LATENT, SPLIT)


@gluon.jit
def _write_exponent(exponent, place, sizes, lse):
    """Write the log-sum-exp of each row."""
    sequence, split, _first, _end, _whole = place
    q_len, _kv_len, heads, _splits, lse_stride, _scale = sizes
    rows = gl.arange(0, exponent.shape[0], layout=exponent.type.layout)
    out_rows = sequence.to(gl.int64) * (q_len * heads) + rows
    gl.store(lse + out_rows * lse_stride + split, exponent, mask=rows < q_len * heads)


@gluon.jit
def _write(
    boxes, ring, ready, place, sizes, target,
    ODD: gl.constexpr, ROWS: gl.constexpr, LATENT: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Add the halves of both groups, each its half of the columns, and write them in whole sectors."""
    sequence, split, _first, _end, _whole = place
    q_len, _kv_len, heads, splits, _lse_stride, _scale = sizes
    HALF: gl.constexpr = LATENT // BOX // 2
    LAYOUT: gl.constexpr = boxes[0].type.layout
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    turned: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 8, [1, 0])
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    handed = ring._reinterpret(gl.float32, [4 * HALF, BOX, ROWS], plain)
    staged = ring._reinterpret(gl.float32, [4 * HALF, ROWS, BOX], turned)
    for i in gl.static_range(HALF):
        handed.index(ODD * HALF + i).store(boxes[(1 - ODD) * HALF + i])
    mbarrier.arrive(ready.index(COLUMNS + ODD))
    mbarrier.wait(ready.index(COLUMNS + 1 - ODD), 0)
    for i in gl.static_range(HALF):
        box = boxes[ODD * HALF + i] + handed.index((1 - ODD) * HALF + i).load(LAYOUT)
        staged.index((2 + ODD) * HALF + i).permute((1, 0)).store(box)
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, blocked))
    columns = gl.arange(0, BOX, layout=gl.SliceLayout(0, blocked))
    out_rows = sequence.to(gl.int64) * (q_len * heads) + rows
    if SPLIT:
        out_rows = out_rows * splits + split
    inside = (rows < q_len * heads)[:, None]
    for i in gl.static_range(HALF):
        box = staged.index((2 + ODD) * HALF + i).load(blocked)
        places = target + (out_rows * LATENT)[:, None] + (ODD * HALF + i) * BOX + columns[None, :]
        gl.store(places, box.to(target.dtype.element_ty), mask=inside)
