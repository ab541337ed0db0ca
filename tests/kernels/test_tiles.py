"""The tiles that kernels run are those that the cost functions count."""

import random
from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from roofline.kernels import chunked, flash
from roofline.kernels.tiles import kv_span, work_items
from roofline.masks import Mask
from roofline.plan import Choices, choose
from roofline.problem import ragged, uniform
from tests.kernels.shapes import MASKS, PROFILE, grouped

pytestmark = pytest.mark.kernels


@triton.jit
def spans_kernel(
    out, q_len, kv_len, window,
    Q_TILE: tl.constexpr, KV_TILE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * Q_TILE
    last_query = tl.minimum(row + Q_TILE, q_len) - 1
    first, whole_first, whole_last, last = kv_span(row, last_query, q_len, kv_len, window, KV_TILE, CAUSAL, WINDOW)
    target = out + tl.program_id(0) * 4
    tl.store(target, first)
    tl.store(target + 1, whole_first)
    tl.store(target + 2, whole_last)
    tl.store(target + 3, last)


@pytest.mark.parametrize("kind", MASKS)
def test_spans_are_those_of_the_mask(seed: int, device: torch.device, kind: str) -> None:
    draw = random.Random(seed)
    for _ in range(12):
        q_len, kv_len, q_tile, kv_tile = draw.randint(1, 90), draw.randint(1, 90), *draw.choices([16, 32, 64], k=2)
        mask = Mask(True, draw.randint(1, 100)) if kind == "window" else MASKS[kind]
        counted = mask.tile_count(q_len, kv_len, q_tile, kv_tile)
        out = torch.full((counted.q_tiles, 4), -1, dtype=torch.int32, device=device)
        window = 0 if mask.window is None else mask.window
        spans_kernel[(counted.q_tiles,)](
            out, q_len, kv_len, window, Q_TILE=q_tile, KV_TILE=kv_tile, CAUSAL=not mask.is_full, WINDOW=window > 0
        )
        for tile, (first, whole_first, whole_last, last) in enumerate(out.tolist()):
            queries = range(tile * q_tile, min((tile + 1) * q_tile, q_len))
            assert (first, last) == mask.span(q_len, kv_len, kv_tile, queries[0], queries[-1])
            assert first <= whole_first <= whole_last <= last or first == last
            for step in range(first, last):
                keys = range(step * kv_tile, (step + 1) * kv_tile)
                hidden = any(
                    key >= kv_len
                    or (not mask.is_full and key > kv_len - q_len + query)
                    or (window > 0 and key <= kv_len - q_len + query - window)
                    for query in (queries[0], queries[-1])
                    for key in (keys[0], keys[-1])
                )
                assert (whole_first <= step < whole_last) == (not hidden)
        assert int((out[:, 3] - out[:, 0]).sum()) == counted.tiles


@pytest.mark.parametrize("variant", ["flash", "chunked"])
def test_hidden_keys_are_not_touched(seed: int, device: torch.device, variant: str) -> None:
    """NaN in every tile (or block) that the window hides from all queries."""
    kernel = {"flash": flash, "chunked": chunked}[variant]
    problem = replace(grouped(uniform(1, 32, 160)), mask=Mask(True, 33))  # queries 0-31 see keys 96-159
    inputs = kernel.make_inputs(problem, seed, device)
    for name in "kv":
        inputs.tensors[name][:96] = torch.nan
    plan = choose(variant, f"roofline/{variant}", problem, PROFILE, Choices(tile=(32, 32), chunk=(32, 32)))
    assert not kernel.launch(inputs, plan).isnan().any()


def test_work_of_a_ragged_batch() -> None:
    lengths = ragged([(40, 50), (3, 0), (20, 7)])
    light_first = work_items(lengths, 16, False, torch.device("cpu")).tolist()
    assert light_first == [
        [0, 40, 0, 50, 0, 0],
        [0, 40, 0, 50, 1, 0],
        [0, 40, 0, 50, 2, 0],
        [40, 3, 50, 0, 0, 2000],
        [43, 20, 50, 7, 0, 2000],
        [43, 20, 50, 7, 1, 2000],
    ]
    heavy_first = work_items(lengths, 16, True, torch.device("cpu")).tolist()
    assert [row[4] for row in heavy_first] == [2, 1, 0, 0, 1, 0]
