"""Moving tiles between global memory and a CTA, for kernels over packed [tokens, heads, width] tensors.

A tile is ``ROWS`` tokens of one head. Where the batch is uniform and the tensor is aligned it moves by TMA, through a 4-d
descriptor [batch, heads, tokens, width], so that rows beyond the sequence are neither fetched nor written. Elsewhere it moves
through pointers, with ``.cg`` where rows are whole sectors: that bypasses L1, so that either way a byte is counted as often as
it is asked for. Rows that share sectors go through L1, which asks for a sector once.
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from roofline.cost import ceil_div
from roofline.masks import Mask
from roofline.plan import HEADS_L2_PART
from roofline.problem import Lengths, Problem

DESCRIPTOR_ALIGNMENT = 16  # bytes, of the base and of every stride
# Score of a masked pair: finite, so that a row that has seen no key yet needs no care (what it sums is dropped with its first
# key), and a row whose maximum is still below UNSEEN at the end has none. A power of two, because scores * scale - maximum
# becomes one fused multiply-add: the product must be exact, or what its rounding left in the maximum, 2^-24 of something huge,
# is the exponent of such a row.
HIDDEN = tl.constexpr(-(2.0**100))
L2_BYTES = 32 * 2**20  # assumed where the device does not say
WORK_FIELDS = 6  # q_start, q_len, kv_start, kv_len, tile, pair_start


@triton.jit
def load_tile(
    source, batch, head, start, row, length, heads,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, WIDTH_TILE: tl.constexpr, HEAD_STRIDE: tl.constexpr,
    CHECK_ROWS: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Return rows ``row`` .. of a sequence as [ROWS, WIDTH_TILE], 0 beyond ``length`` and ``WIDTH``.

    ``start``: the sequence's first token (int64). Without ``CHECK_ROWS`` the caller knows that all rows exist.
    """
    if TMA:
        value = source.load([batch, head, row, 0]).reshape([ROWS, WIDTH_TILE])
    else:
        rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH_TILE)
        stride = heads * HEAD_STRIDE
        pointers = source + (start + row) * stride + head * HEAD_STRIDE + rows[:, None] * stride + columns[None, :]
        CACHE: tl.constexpr = ".cg" if HEAD_STRIDE * source.dtype.element_ty.primitive_bitwidth % 256 == 0 else ""
        if CHECK_ROWS and WIDTH < WIDTH_TILE:
            inside = (row + rows < length)[:, None] & (columns < WIDTH)[None, :]
            value = tl.load(pointers, inside, 0.0, cache_modifier=CACHE)
        elif CHECK_ROWS:
            value = tl.load(pointers, (row + rows < length)[:, None], 0.0, cache_modifier=CACHE)
        elif WIDTH < WIDTH_TILE:
            value = tl.load(pointers, (columns < WIDTH)[None, :], 0.0, cache_modifier=CACHE)
        else:
            value = tl.load(pointers, cache_modifier=CACHE)
    return value


@triton.jit
def load_fp32_rows(source, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, WIDTH_TILE: tl.constexpr):
    """Return the first ``count`` fp32 rows at ``source``, WIDTH apart, as [ROWS, WIDTH_TILE]; 0 beyond ``count`` and ``WIDTH``.

    Read along one axis: Triton lays all loads of one shape out alike, so in two dimensions, beside loads of 16-bit elements, a
    thread would get 32 consecutive bytes and ask for them in two halves: each sector twice, where L1 is bypassed.
    """
    index = tl.arange(0, ROWS * WIDTH_TILE)
    row, column = index // WIDTH_TILE, index % WIDTH_TILE
    value = tl.load(source + row * WIDTH + column, (row < count) & (column < WIDTH), 0.0, cache_modifier=".cg")
    return value.reshape([ROWS, WIDTH_TILE])


@triton.jit
def store_tile(
    target, value, batch, head, start, row, length, heads,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, WIDTH_TILE: tl.constexpr, HEAD_STRIDE: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Write [ROWS, WIDTH_TILE] to rows ``row`` .. of a sequence; what lies beyond ``length`` and ``WIDTH`` is left out."""
    if TMA:
        target.store([batch, head, row, 0], value.reshape([1, 1, ROWS, WIDTH_TILE]))
    else:
        rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH_TILE)
        stride = heads * HEAD_STRIDE
        pointers = target + (start + row) * stride + head * HEAD_STRIDE + rows[:, None] * stride + columns[None, :]
        tl.store(pointers, value, (row + rows < length)[:, None] & (columns < WIDTH)[None, :])


@triton.jit
def locate(work, index, batch, tile, q_len, kv_len, pairs, RAGGED: tl.constexpr):
    """Return q_start, q_len, kv_start, kv_len, tile and pair_start of a piece of work.

    Uniform: from its sequence ``batch`` and ``tile``, without a memory access. Ragged: row ``index`` of ``work`` (int64, see
    ``work_items``). The starts are int64: they are multiplied by strides.
    """
    if RAGGED:
        fields = work + index.to(tl.int64) * 6
        q_start, kv_start, pair_start = tl.load(fields), tl.load(fields + 2), tl.load(fields + 5)
        q_len, kv_len = tl.load(fields + 1).to(tl.int32), tl.load(fields + 3).to(tl.int32)
        tile = tl.load(fields + 4).to(tl.int32)
    else:
        sequence = tl.cast(batch, tl.int64)
        q_start, kv_start, pair_start = sequence * q_len, sequence * kv_len, sequence * pairs
    return q_start, q_len, kv_start, kv_len, tile, pair_start


@triton.jit
def kv_span(
    first_query, last_query, q_len, kv_len, window,
    KV_TILE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Return ``first, whole_first, whole_last, last``: the kv tiles that queries ``first_query`` .. ``last_query`` run.

    ``first`` to ``last`` is ``masks.Mask.span``; in ``whole_first`` to ``whole_last`` no pair is masked and no key is missing.
    """
    first, whole_first = 0, 0
    if CAUSAL:
        offset = kv_len - q_len
        last = tl.cdiv(tl.maximum(offset + last_query + 1, 0), KV_TILE)
        whole_last = tl.maximum(offset + first_query + 1, 0) // KV_TILE
        if WINDOW:
            first = tl.maximum(offset + first_query + 1 - window, 0) // KV_TILE
            whole_first = tl.minimum(tl.cdiv(tl.maximum(offset + last_query + 1 - window, 0), KV_TILE), last)
            whole_last = tl.maximum(whole_first, whole_last)
    else:
        whole_last, last = kv_len // KV_TILE, tl.cdiv(kv_len, KV_TILE)
    return first, whole_first, whole_last, last


@triton.jit
def visible(queries, key, keys, q_len, kv_len, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Return which pairs of ``queries`` [M] and ``key + keys`` [N] the mask leaves, as a boolean [M, N] (or [1, N])."""
    if CAUSAL:
        last_key = (queries + (kv_len - q_len - key))[:, None]
        seen = keys[None, :] <= last_key
        if WINDOW:
            seen = seen & (keys[None, :] > last_key - window)
    else:
        seen = (keys < kv_len - key)[None, :]
    return seen


@lru_cache(maxsize=64)
def work_items(lengths: tuple[Lengths, ...], q_tile: int, heavy_first: bool, device: torch.device) -> torch.Tensor:
    """Return the q tiles of a ragged batch, int64 [q tiles, WORK_FIELDS], in the order of the sequences.

    A row: first query token, q_len, first key token, kv_len, q tile within the sequence, (query, key) pairs of one head before
    the sequence. ``heavy_first`` puts the last q tile of a sequence, which sees most keys under a causal mask, first.
    """
    rows, q_start, kv_start, pairs = [], 0, 0, 0
    for q_len, kv_len, count in lengths:
        tiles = ceil_div(q_len, q_tile)
        for _ in range(count):
            order = range(tiles - 1, -1, -1) if heavy_first else range(tiles)
            rows += [(q_start, q_len, kv_start, kv_len, tile, pairs) for tile in order]
            q_start, kv_start, pairs = q_start + q_len, kv_start + kv_len, pairs + q_len * kv_len
    return torch.tensor(rows, dtype=torch.int64).to(device)


def descriptor(tensor: torch.Tensor, batch: int, rows: int, width_tile: int) -> TensorDescriptor:
    """Return a descriptor of [tokens, heads, width] (the last may be a slice) as [batch, heads, tokens, width].

    One load moves ``rows`` tokens of one head.
    """
    tokens, heads, width = tensor.shape
    token_stride, head_stride, _ = tensor.stride()
    length = tokens // batch
    return TensorDescriptor(
        tensor, [batch, heads, length, width], [length * token_stride, head_stride, token_stride, 1], [1, 1, rows, width_tile]
    )


def can_describe(*tensors: torch.Tensor) -> bool:
    """Whether TMA can move tiles of these [tokens, heads, width] tensors: Hopper or later, every stride and base aligned."""
    return _has_tma() and all(
        tensor.numel() > 0
        and tensor.data_ptr() % DESCRIPTOR_ALIGNMENT == 0
        and tensor.stride(-1) == 1
        and all(stride * tensor.element_size() % DESCRIPTOR_ALIGNMENT == 0 for stride in tensor.stride()[:-1])
        for tensor in tensors
    )


def _has_tma() -> bool:
    """Whether the kernels that are launched now run, or are compiled, for a device with TMA; the interpreter imitates it."""
    if triton.knobs.runtime.interpret:
        return True
    return bool(triton.runtime.driver.active.get_current_target().arch >= 90)


def window_of(mask: Mask, longest: int) -> int:
    """Return the window as a kernel takes it: no longer than the longest sequence, and 0 where there is none."""
    return 0 if mask.window is None else min(mask.window, longest)


def head_span(problem: Problem, k: torch.Tensor, v: torch.Tensor) -> int:
    """Query heads whose q tiles are ordered together, heavy first: as many as have K and V in L2 at once."""
    _, kv_len, sequences = problem.lengths[0]
    if problem.mask.is_full or problem.mask.forgets(kv_len):
        return 1  # all tiles weigh the same
    l2_bytes = torch.cuda.get_device_properties(k.device).L2_cache_size if k.is_cuda else L2_BYTES
    kv_bytes = kv_len * (k.shape[-1] + v.shape[-1]) * k.element_size()
    fitting = int(l2_bytes * HEADS_L2_PART / max(kv_bytes, 1)) * (problem.q_heads // k.shape[1])
    return min(max(fitting, 1), sequences * problem.q_heads)
