"""Axes of sizes and the grid over their product."""

import itertools

import pytest

from roofline.analysis import Conventions
from roofline.configurations import Request
from roofline.errors import InputError
from roofline.profiles import load
from roofline.sweep import COLUMNS, axis, row, sweep

H100 = load("h100-sxm5-80gb")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("512", (512,)),
        ("512,1k", (512, 1024)),
        ("1k:8k:x2", (1024, 2048, 4096, 8192)),
        ("1k:7k:x2", (1024, 2048, 4096)),
        ("1k:2k:+512", (1024, 1536, 2048)),
        ("1:10:+4", (1, 5, 9)),
        ("5:5:x2", (5,)),
        ("64,1k:4k:x2,64,9", (64, 1024, 2048, 4096, 9)),
        ("1:1m:x1k", (1, 1024, 1048576)),
    ],
)
def test_an_axis(text: str, sizes: tuple[int, ...]) -> None:
    assert axis("--n", text) == sizes


@pytest.mark.parametrize(
    "text",
    ["", ",", "1,", "1:2", "1:2:3", "1:2:x", "1:2:x1", "1:2:x0", "1:2:+0", "2:1:x2", "0:4:x2", "0:4:+1", "1:2:-1", "a:b:x2",
     "1:2:x2:3", "1:900000000000000:+1", "-1:4:x2", "1.5:4:x2"],
)  # fmt: skip
def test_an_axis_that_holds_nothing_or_never_ends_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--n: "):
        axis("--n", text)


def test_the_last_axis_runs_fastest() -> None:
    base = Request(phase="prefill", variants=("naive",))
    rows = [dict(zip(COLUMNS, row(r), strict=True)) for r in sweep(base, {"n": (64, 128), "d": (32, 64)}, H100, Conventions())]
    assert [(r["kv_len"], r["head_dim"]) for r in rows] == [(64, 32), (64, 64), (128, 32), (128, 64)]
    assert rows[-1]["flops"] == 4 * 32 * 128 * 128 * 64


def test_without_axes_a_sweep_is_one_analysis() -> None:
    results = list(sweep(Request(phase="decode"), {}, H100, Conventions()))
    assert len(results) == 9


def test_results_come_one_at_a_time() -> None:
    """A grid of ten million problems yields its first rows at once."""
    endless = sweep(
        Request(phase="prefill", variants=("naive",)),
        {"n": tuple(range(1, 2000)), "d": tuple(range(1, 5001))},
        H100,
        Conventions(),
    )
    assert len(list(itertools.islice(endless, 3))) == 3


SWEEPABLE = {
    "n": (64, 128), "d": (32, 64), "dv": (32, 64), "heads": (8, 16), "kv_heads": (1, 2), "batch": (1, 2), "window": (8, 16),
    "page_size": (8, 16), "max_len": (4096, 8192), "shared_prefix": (16, 32), "latent_dim": (256, 512), "rope_dim": (32, 64),
    "splits": (1, 2), "naive_passes": (3, 6), "layers": (1, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", SWEEPABLE)
def test_rows_of_a_sweep_show_the_size_that_was_swept(name: str) -> None:
    """Two sizes on an axis give rows that a reader can tell apart by problem and plan alone, figures left out."""
    variant = {"latent_dim": "mla", "rope_dim": "mla", "naive_passes": "naive", "splits": "split-kv"}.get(name, "paged")
    base = Request(phase="decode", variants=(variant,))
    identity = COLUMNS[: COLUMNS.index("flops")]
    rows = [row(result)[: len(identity)] for result in sweep(base, {name: SWEEPABLE[name]}, H100, Conventions())]
    assert len(rows) >= 2
    assert len(set(rows)) == len(rows)


def test_a_row_has_a_value_for_every_column() -> None:
    for result in sweep(Request(), {}, H100, Conventions()):
        assert len(row(result)) == len(COLUMNS) == len(set(COLUMNS))
