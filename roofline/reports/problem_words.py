"""A problem of a record in a line of words: ``n 4k, batch 1, 32 heads, 8 KV, d 128, causal, bf16``. Pure, and lenient."""

from collections.abc import Mapping
from typing import Any

from roofline.units import format_count

USUAL_PAGE_SIZE = 16  # of problems that were asked for without --page-size


def problem_words(problem: Mapping[str, Any], phase: str) -> str:
    """Return a problem in a line: lengths, heads, head size, batch, mask, dtypes."""
    parts = [_length_words(problem, phase), f"batch {problem.get('batch')}", f"{problem.get('q_heads')} heads"]
    if problem.get("kv_heads") is not None:
        parts.append(f"{problem['kv_heads']} KV")
    if problem.get("latent_dim") is not None:
        parts.append(f"latent {problem['latent_dim']}+{problem.get('rope_dim')}")
    head, value = problem.get("head_dim"), problem.get("v_head_dim")
    parts.append(f"d {head}" if head == value else f"d {head}/{value}")
    mask = problem.get("mask")
    parts += [f"window {problem.get('window')}" if mask == "window" else str(mask)] if mask != "full" else []
    pages = problem.get("page_size")
    parts += [f"pages of {pages}"] if pages not in (None, USUAL_PAGE_SIZE) else []
    prefix = problem.get("shared_prefix")
    parts += [f"shared prefix {prefix}"] if prefix else []
    dtype, stored = problem.get("dtype"), problem.get("kv_dtype")
    parts.append(f"{dtype}" if stored == dtype else f"{dtype}, KV {stored}")
    return ", ".join(part for part in parts if part)


def heading(configuration: str, phase: str, problem: str) -> str:
    """Return what stands over the points of one problem: ``gqa prefill, n 4k, ...``; ``problem`` is in words already."""
    return ", ".join(word for word in (f"{configuration.partition('/')[0]} {phase}".strip(), problem) if word)


def _length_words(problem: Mapping[str, Any], phase: str) -> str:
    if problem.get("lengths"):
        runs = problem["lengths"]
        return "n " + "+".join(_count(run[1]) for run in runs[:4]) + ("+..." if len(runs) > 4 else "")
    queries, keys = problem.get("q_len"), problem.get("kv_len")
    if keys is None:
        return ""
    if queries == keys or queries is None or (phase == "decode" and queries == 1):
        return f"n {_count(keys)}"
    return f"{_count(queries)} queries, n {_count(keys)}"


def _count(value: Any) -> str:
    return format_count(value) if isinstance(value, int) and value > 0 else str(value)


def tokens(problem: Mapping[str, Any]) -> int | None:
    """Return the keys of a sequence; none where sequences differ."""
    keys = problem.get("kv_len")
    return keys if isinstance(keys, int) and not problem.get("lengths") else None
