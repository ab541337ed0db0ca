"""Packed decode: which CTA runs which rows and keys. The query heads of a KV head are the rows of one tile.

Row = query * group + head of the group; a row tile holds ``plan.tile_rows`` rows, and its own kv tiles are cut into
``plan.splits`` runs of ``ceil(tiles / splits)``. A batch of equal sequences is located by arithmetic; an unequal one by a list
with one entry a CTA and KV head, which names only splits that have keys and starts with the longest sequences.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl

from roofline.cost import ceil_div
from roofline.plan import MMA_ROWS, Plan, next_power_of_two
from roofline.problem import Problem
from roofline.variants.split_kv import split_tiles, working_splits

FIELDS = 8  # int64 values of a list entry, two sectors: q_start, q_len, kv_start, kv_len, first row, split, sequence, row tile
MOST_SEQUENCES = 2**16 - 1  # of a grid's third dimension
WARPGROUP_ROWS = 64  # from this height on Triton gives warps rows of their own
MASK_FULL, MASK_CAUSAL, MASK_WINDOW = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Work:
    """The CTAs of one launch: ``ctas`` per KV head, tiles of ``tile_rows`` rows, ``q_tiles`` of them a sequence (if equal).

    ``entries`` [ctas, FIELDS] is ``None`` where all sequences are equal; then ``q_len`` and ``kv_len`` are theirs.
    """

    tile_rows: int
    ctas: int
    q_len: int
    kv_len: int
    q_tiles: int
    entries: torch.Tensor | None


@lru_cache(maxsize=128)
def work(problem: Problem, plan: Plan, device: torch.device) -> tuple[Work, ...]:
    """Return the launches that cover ``problem``: one, or one for each tile height where query lengths differ."""
    if len(problem.lengths) == 1 and problem.batch <= MOST_SEQUENCES:
        q_len, kv_len, count = problem.lengths[0]
        q_tiles = ceil_div(q_len * problem.group, plan.q_tile)
        return (Work(plan.tile_rows(q_len * problem.group), count * q_tiles * plan.splits, q_len, kv_len, q_tiles, None),)
    by_height: dict[int, list[tuple[int, ...]]] = {}
    for entry in _row_tiles(problem, plan):
        q_len, kv_len, first_row = entry[1], entry[3], entry[4]
        splits = max(used_splits(problem, plan, q_len, kv_len, first_row), 1)  # one CTA writes the zeros of a row without keys
        entries = by_height.setdefault(plan.tile_rows(q_len * problem.group), [])
        entries += [(*entry[:5], split, *entry[6:]) for split in range(splits)]
    launches = []
    for tile_rows, entries in sorted(by_height.items()):
        entries.sort(key=lambda entry: -entry[3])  # stable: the row tiles of a sequence stay together and share its keys
        launches.append(Work(tile_rows, len(entries), 0, 0, 1, torch.tensor(entries, dtype=torch.int64, device=device)))
    return tuple(launches)


@lru_cache(maxsize=128)
def row_tiles(problem: Problem, plan: Plan, device: torch.device) -> Work:
    """Return every row tile once, for the combine: as ``work`` with one split."""
    q_len, kv_len, count = problem.lengths[0]
    if len(problem.lengths) == 1:
        q_tiles = ceil_div(q_len * problem.group, plan.q_tile)
        return Work(min(plan.q_tile, q_len * problem.group), count * q_tiles, q_len, kv_len, q_tiles, None)
    entries = torch.tensor(_row_tiles(problem, plan), dtype=torch.int64, device=device)
    rows = min(plan.q_tile, max(lengths.q_len for lengths in problem.lengths) * problem.group)
    return Work(rows, len(entries), 0, 0, 1, entries)


def used_splits(problem: Problem, plan: Plan, q_len: int, kv_len: int, first_row: int) -> int:
    """Return how many splits of a row tile hold keys."""
    last_row = min(first_row + plan.q_tile, q_len * problem.group) - 1
    span = problem.mask.span(q_len, kv_len, plan.kv_tile, first_row // problem.group, last_row // problem.group)
    return working_splits(max(span.last - span.first, 0), plan.splits, split_tiles(problem, plan))


@lru_cache(maxsize=128)
def whole_splits(problem: Problem, plan: Plan) -> int:
    """Return how many splits hold keys if that is so for every row tile of equal sequences, else 0."""
    if len(problem.lengths) > 1:
        return 0
    q_len, kv_len, _ = problem.lengths[0]
    used = {used_splits(problem, plan, q_len, kv_len, row) for row in range(0, q_len * problem.group, plan.q_tile)}
    return used.pop() if len(used) == 1 else 0


def mask_code(problem: Problem) -> int:
    """Return the mask as the kernels take it."""
    if problem.mask.is_full:
        return MASK_FULL
    return MASK_CAUSAL if problem.mask.window is None else MASK_WINDOW


def must_spread(plan: Plan, tile_rows: int) -> bool:
    """Whether a tile has fewer rows than the warps of ``plan`` would take if each took 16 of its own."""
    return MMA_ROWS * plan.warps > tile_rows >= WARPGROUP_ROWS


def unsupported_tiles(plan: Plan) -> str | None:
    """Return why a packed kernel cannot run the tiles of ``plan``, or ``None``."""
    if not plan.packed:
        return "the kernel packs the query heads of a KV head into one tile, and the plan does not"
    for name, size in (("query", plan.q_tile), ("key", plan.kv_tile)):
        if size < MMA_ROWS or next_power_of_two(size) != size:
            return f"a {name} tile of {size}: expected a power of two, at least {MMA_ROWS}"
    return None


def _row_tiles(problem: Problem, plan: Plan) -> list[tuple[int, ...]]:
    tiles: list[tuple[int, ...]] = []
    q_start = kv_start = sequence = 0
    for q_len, kv_len, count in problem.lengths:
        for _ in range(count):
            for first_row in range(0, q_len * problem.group, plan.q_tile):
                tiles.append((q_start, q_len, kv_start, kv_len, first_row, 0, sequence, len(tiles)))
            q_start, kv_start, sequence = q_start + q_len, kv_start + kv_len, sequence + 1
    return tiles


@triton.jit
def locate(slot, entries, q_len, kv_len, q_tiles, splits, Q_TILE: tl.constexpr, FIELDS: tl.constexpr, EQUAL: tl.constexpr):
    """Return (q_start, q_len, kv_start, kv_len, first_row, split, sequence) of a CTA; starts are 64-bit token indices."""
    if EQUAL:
        sequence = slot // (q_tiles * splits)
        return (
            sequence.to(tl.int64) * q_len,
            q_len,
            sequence.to(tl.int64) * kv_len,
            kv_len,
            slot % q_tiles * Q_TILE,
            slot // q_tiles % splits,
            sequence,
        )
    else:
        entry = entries + slot.to(tl.int64) * FIELDS
        return (
            tl.load(entry),
            tl.load(entry + 1).to(tl.int32),
            tl.load(entry + 2),
            tl.load(entry + 3).to(tl.int32),
            tl.load(entry + 4).to(tl.int32),
            tl.load(entry + 5).to(tl.int32),
            tl.load(entry + 6).to(tl.int32),
        )


@triton.jit
def kv_span(
    q_len, kv_len, first_row, window, Q_TILE: tl.constexpr, KV_TILE: tl.constexpr, GROUP: tl.constexpr, MASK: tl.constexpr
):
    """Return the kv tiles [first, end) of a row tile, as ``Mask.span`` counts them."""
    first = 0
    keys_end = kv_len
    if MASK != 0:
        last_query = (tl.minimum(first_row + Q_TILE, q_len * GROUP) - 1) // GROUP
        keys_end = tl.maximum(kv_len - q_len + last_query + 1, 0)
    if MASK == 2:
        first = tl.maximum(kv_len - q_len + first_row // GROUP + 1 - window, 0) // KV_TILE
    return first, tl.cdiv(keys_end, KV_TILE)


@triton.jit
def visible(keys, queries, q_len, kv_len, window, MASK: tl.constexpr):
    """Return which keys each query sees: [rows, keys]."""
    last = (kv_len - q_len + queries)[:, None]
    seen = (keys < kv_len)[None, :] & (queries >= 0)[:, None]
    if MASK != 0:
        seen = seen & (keys[None, :] <= last)
    if MASK == 2:
        seen = seen & (keys[None, :] > last - window)
    return seen


@triton.jit
def scaled_product(left, right, scale, always, SPREAD: tl.constexpr, PRECISION: tl.constexpr):
    """Return left right times ``scale``, a number or [rows, 1].

    Triton lays a product that feeds another product along its rows only. With more warps than rows / 16 (``SPREAD``) it would
    run more than once, so a branch that is ``always`` taken hides what it feeds. Both sides are products, lest one be moved.
    """
    if SPREAD:
        if always:
            product = tl.dot(left, right, input_precision=PRECISION) * scale
        else:
            product = tl.dot(left, right, input_precision=PRECISION)
    else:
        product = tl.dot(left, right, input_precision=PRECISION) * scale
    return product


@triton.jit
def half_range(queries):
    """Return ``queries`` in fp16, divided by the largest size in their row, and those sizes [rows].

    fp8 widens to fp16 in one instruction and to bf16 in three; the division keeps any bf16 query inside the range of fp16.
    """
    sizes = tl.max(tl.abs(queries.to(tl.float32)), 1)
    sizes = tl.where(sizes > 0.0, sizes, 1.0)
    return (queries.to(tl.float32) / sizes[:, None]).to(tl.float16), sizes


@triton.jit
def online_softmax(scores, seen, peak, total):
    """Return (weights, rescale, peak, total) after one more tile of base-2 scores; rows that saw nothing keep -inf and 0."""
    weights, rescale, peak = tile_softmax(scores, seen, peak)
    return weights, rescale, peak, total * rescale + tl.sum(weights, 1)


@triton.jit
def tile_softmax(scores, seen, peak):
    """Return (weights, rescale, peak) after one more tile of base-2 scores."""
    scores = tl.where(seen, scores, float("-inf"))
    raised = tl.maximum(peak, tl.max(scores, 1))
    finite = tl.where(raised == float("-inf"), 0.0, raised)  # -inf - -inf is NaN
    return tl.exp2(scores - finite[:, None]), tl.exp2(peak - finite), raised
