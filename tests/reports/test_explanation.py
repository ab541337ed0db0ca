"""What `explain` prints: golden text at 80 columns, and that nothing is wider, cut or coloured off a terminal."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from roofline.analysis import Conventions
from roofline.configurations import Request
from roofline.explain import explain_all
from roofline.profiles import resolve
from roofline.reports.explanation import render_explanation

GOLDEN = Path(__file__).parent.parent / "golden"
REQUESTS = {
    "naive": Request(n=2048, variants=("naive",), naive_passes=6),
    "chunked": Request(n=9000, causal=True, variants=("chunked",)),
    "flash": Request(n=131072, d=80, dtype="fp32", variants=("flash",)),
    "split-kv": Request(kv_lens=(100, 70000, 7), kv_dtype="int4", variants=("split-kv",), phase="decode"),
    "paged": Request(kv_lens=(100, 2000, 2000), shared_prefix=64, kv_dtype="int8", variants=("paged",), window=999),
    "mla": Request(n=4096, mla_projections=True, kv_dtype="fp8", variants=("mla",)),
    "linear": Request(n=4096, causal=True, variants=("linear/chunked", "linear/parallel", "linear/recurrent")),
    "huge": Request(n=2**36, heads=1024, batch=4096, causal=True, variants=("flash",), phase="prefill"),
}


def rendered(request: Request, device: str = "h200-sxm-141gb", width: int = 80, flop_convention: str = "exact") -> str:
    document = explain_all(request, resolve(device)[0], Conventions(flop_convention))  # type: ignore[arg-type]
    stream = io.StringIO()
    render_explanation(document, Console(file=stream, width=width, soft_wrap=True))
    return stream.getvalue()


@pytest.mark.parametrize("name", REQUESTS)
def test_fits_80_columns(name: str) -> None:
    lines = rendered(REQUESTS[name]).splitlines()
    assert max(map(len, lines)) <= 80 or name == "huge"
    assert not any("…" in line or "\x1b" in line or line != line.rstrip() for line in lines)


def test_a_wide_terminal_has_one_line_a_formula() -> None:
    text = rendered(Request(n=2048, d=64, causal=True, variants=("flash",), phase="prefill"), width=140)
    assert "2 FLOPs × 2,098,176 pairs × 32 query heads × 128 (d + dv)" in text


def test_reported_flops_are_explained_where_they_are_not_exact() -> None:
    text = rendered(Request(n=2048, causal=True, variants=("flash",), phase="prefill"), flop_convention="half")
    assert "34,359,738,368  34.4 GFLOP" in text


def test_golden_flash() -> None:
    command = [sys.executable, "-m", "roofline", "explain", "flash", "--n", "2048", "--d", "64", "--causal"]
    command += ["--device", "h100-sxm5-80gb"]
    text = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    path = GOLDEN / "explain-flash.txt"
    if os.environ.get("ROOFLINE_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_start_up_does_not_load_explain() -> None:
    code = "import sys, roofline.cli; sys.exit(any(name.startswith('roofline.explain') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
