"""The combine of split-KV decode: O = sum_s w_s O_s, with w_s = 2^(lse_s - max) normalised over the splits that hold keys.

A launch of its own with one CTA a row, or (``combine_tile``) the end of the last CTA of each row tile. A row reads ``used *
dv`` partial values and ``used`` log-sum-exps. Workspace in the order of O's rows (token, query head): partial O [rows, splits,
dv] and log-sum-exp in base 2 [rows, stride], both fp32, ``stride`` being ``splits`` rounded up to a sector, so that one row's
read of either is whole sectors. Where every row has as many partials, and few, a thread asks for its values of all of them at
once and needs no other thread.
"""

import torch
import triton
import triton.language as tl

from roofline.kernels import packed
from roofline.plan import Plan, next_power_of_two
from roofline.problem import Problem

LSE_ALIGNMENT = 8  # fp32 values in a sector
OLDEST_OVERLAP = 90  # compute capability times ten
MOST_VALUES = 8192  # partial values that a CTA holds at once: 64 registers a thread with 4 warps
MOST_WHOLE = 48  # partials of a row that a thread has at once, with as many log-sum-exps
WHOLE_REGISTERS = 128  # without a bound the compiler aims for more CTAs on an SM, and loads in two rounds


def workspace(problem: Problem, plan: Plan, v_width: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the partial outputs [rows, splits, v_width] and the log-sum-exps [rows, splits rounded up to a sector]."""
    rows = problem.q_tokens * problem.q_heads
    stride = -(-plan.splits // LSE_ALIGNMENT) * LSE_ALIGNMENT
    partial = torch.empty((rows, plan.splits, v_width), dtype=torch.float32, device=device)
    return partial, torch.empty((rows, stride), dtype=torch.float32, device=device)


def overlaps() -> bool:
    """Whether the combine starts while the launch before it runs, and waits there (programmatic dependent launch)."""
    if triton.knobs.runtime.interpret:
        return False
    target = triton.runtime.driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= OLDEST_OVERLAP)


def launch(problem: Problem, plan: Plan, partial: torch.Tensor, lse: torch.Tensor, out: torch.Tensor) -> None:
    """Write O [q_tokens, q_heads, dv] from the partials of the splits that hold keys."""
    tiles = packed.row_tiles(problem, plan, out.device)
    v_width = out.shape[-1]
    v_tile = next_power_of_two(v_width)
    split_tile = max(min(next_power_of_two(plan.splits), MOST_VALUES // v_tile), 1)
    whole = packed.whole_splits(problem, plan)
    if whole > MOST_WHOLE or whole * v_tile > MOST_VALUES:
        whole = 0
    # Without other threads to reduce with, one thread a value: more would ask for each of them more than once.
    warps = min(max(v_tile // 32, 1), 4) if whole else 4 if v_tile * split_tile >= 1024 else 1
    overlapped = overlaps()
    _combine[(tiles.ctas * problem.kv_heads * tiles.tile_rows,)](
        partial,
        lse,
        out,
        tiles.entries,
        tiles.q_len,
        tiles.kv_len,
        tiles.q_tiles,
        plan.splits,
        lse.shape[1],
        problem.mask.window or 0,
        ROWS=tiles.tile_rows,
        KV_HEADS=problem.kv_heads,
        GROUP=problem.group,
        DV=v_width,
        DV_TILE=v_tile,
        SPLIT_TILE=split_tile,
        WHOLE=whole,
        Q_TILE=plan.q_tile,
        KV_TILE=plan.kv_tile,
        MASK=packed.mask_code(problem),
        FIELDS=packed.FIELDS,
        EQUAL=tiles.entries is None,
        DEPENDENT=overlapped,
        num_warps=warps,
        maxnreg=WHOLE_REGISTERS if whole else None,
        launch_pdl=overlapped,
    )


@triton.jit
def _combine(
    partial, lse, out, entries, q_len, kv_len, q_tiles, splits, lse_stride, window,
    ROWS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DV: tl.constexpr, DV_TILE: tl.constexpr,
    SPLIT_TILE: tl.constexpr, WHOLE: tl.constexpr, Q_TILE: tl.constexpr, KV_TILE: tl.constexpr, MASK: tl.constexpr,
    FIELDS: tl.constexpr, EQUAL: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    row_in_tile = program % ROWS
    kv_head = program // ROWS % KV_HEADS
    slot = program // (ROWS * KV_HEADS)
    q_start, q_len, _, kv_len, first_row, _, _ = packed.locate(slot, entries, q_len, kv_len, q_tiles, 1, Q_TILE, FIELDS, EQUAL)
    row_in_sequence = first_row + row_in_tile
    if row_in_sequence >= q_len * GROUP:
        return
    used = 0
    if WHOLE == 0:
        first, end = packed.kv_span(q_len, kv_len, first_row, window, Q_TILE, KV_TILE, GROUP, MASK)
        if end > first:
            used = tl.cdiv(end - first, tl.cdiv(end - first, splits))

    row = (q_start + row_in_sequence // GROUP) * (KV_HEADS * GROUP) + kv_head * GROUP + row_in_sequence % GROUP
    dims = tl.arange(0, DV_TILE)
    values = partial + row * splits * DV + dims
    sums = lse + row * lse_stride
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
    if WHOLE > 0:
        acc, total = _whole_row(values, sums, dims < DV, DV, DV_TILE, WHOLE)
    else:
        acc, total = _row(values, sums, dims < DV, used, DV, DV_TILE, SPLIT_TILE)
    acc *= 1.0 / tl.where(total > 0.0, total, 1.0)
    tl.store(out + row * DV + dims, acc.to(out.dtype.element_ty), mask=dims < DV)


@triton.jit
def _whole_row(values, sums, inside, DV: tl.constexpr, DV_TILE: tl.constexpr, SPLITS: tl.constexpr):
    """Return the weighted sum of all ``SPLITS`` partials of a row, and the sum of their weights."""
    peak = float("-inf")
    for split in tl.static_range(SPLITS):
        peak = tl.maximum(peak, tl.load(sums + split))
    finite = tl.where(peak == float("-inf"), 0.0, peak)
    acc = tl.zeros([DV_TILE], tl.float32)
    total = 0.0
    for split in tl.static_range(SPLITS):
        weight = tl.exp2(tl.load(sums + split) - finite)  # loaded once, says the compiler
        acc += weight * tl.load(values + split * DV, mask=inside, other=0.0, cache_modifier=".cg")
        total += weight
    return acc, total


@triton.jit
def _row(values, sums, inside, used, DV: tl.constexpr, DV_TILE: tl.constexpr, SPLIT_TILE: tl.constexpr):
    """Return the weighted sum of the first ``used`` partials of a row, and the sum of their weights."""
    parts = tl.arange(0, SPLIT_TILE)
    peak = float("-inf")
    total = 0.0
    acc = tl.zeros([DV_TILE], tl.float32)
    for start in range(0, used, SPLIT_TILE):
        held = start + parts < used
        places = values[None, :] + (start + parts)[:, None] * DV
        outputs = tl.load(places, mask=held[:, None] & inside[None, :], other=0.0, cache_modifier=".cg")
        exponents = tl.load(sums + start + parts, mask=held, other=float("-inf"))
        raised = tl.maximum(peak, tl.max(exponents, 0))
        finite = tl.where(raised == float("-inf"), 0.0, raised)
        weights = tl.exp2(exponents - finite)
        rescale = tl.exp2(peak - finite)
        acc = acc * rescale + tl.sum(outputs * weights[:, None], 0)
        total = total * rescale + tl.sum(weights, 0)
        peak = raised
    return acc, total


@triton.jit
def combine_tile(
    partial, lse, out, q_start, first_row, q_len, kv_head, used, splits, lse_stride,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DV: tl.constexpr, DV_TILE: tl.constexpr, ROWS: tl.constexpr,
    SPLIT_TILE: tl.constexpr,
):  # fmt: skip
    """Write the ``ROWS`` rows of one tile from the ``used`` partials of each."""
    row = first_row + tl.arange(0, ROWS)
    inside_rows = row < q_len * GROUP
    out_rows = (q_start + row // GROUP) * (KV_HEADS * GROUP) + kv_head * GROUP + row % GROUP
    dims = tl.arange(0, DV_TILE)
    parts = tl.arange(0, SPLIT_TILE)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DV_TILE], tl.float32)
    for start in range(0, used, SPLIT_TILE):
        inside = inside_rows[:, None] & (start + parts < used)[None, :]
        values = partial + ((out_rows * splits + start)[:, None] + parts[None, :])[:, :, None] * DV + dims[None, None, :]
        outputs = tl.load(values, mask=inside[:, :, None] & (dims < DV)[None, None, :], other=0.0)
        sums = lse + (out_rows * lse_stride + start)[:, None] + parts[None, :]
        exponents = tl.load(sums, mask=inside, other=float("-inf"))
        raised = tl.maximum(peak, tl.max(exponents, 1))
        finite = tl.where(raised == float("-inf"), 0.0, raised)
        weights = tl.exp2(exponents - finite[:, None])
        rescale = tl.exp2(peak - finite)
        acc = acc * rescale[:, None] + tl.sum(outputs * weights[:, :, None], 1)
        total = total * rescale + tl.sum(weights, 1)
        peak = raised
    acc *= (1.0 / tl.where(total > 0.0, total, 1.0))[:, None]
    mask = inside_rows[:, None] & (dims < DV)[None, :]
    tl.store(out + out_rows[:, None] * DV + dims[None, :], acc.to(out.dtype.element_ty), mask=mask)
