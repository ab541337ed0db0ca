"""``measure --model``: one layer of each kind of attention that a model has, as configurations."""

import os
from collections.abc import Iterable
from pathlib import Path

from roofline.configurations import Configuration
from roofline.dtypes import compute_dtype
from roofline.dtypes import kv_dtype as kv_dtype_named
from roofline.errors import InputError
from roofline.models.attention import Phase, attention_problems
from roofline.models.mixers import Attention
from roofline.models.spec import ModelSpec
from roofline.plan import Choices
from roofline.problem import MAX_BATCH, MAX_LENGTH


def model_configurations(
    spec: ModelSpec,
    n: int,
    batch: int = 1,
    *,
    phases: Iterable[Phase] = ("prefill", "decode"),
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    page_size: int = 16,
) -> list[Configuration]:
    """Return the attention problems of ``spec`` as ``analyze --model`` predicts them, named ``llama-3-8b/full/flash``.

    Raises ``InputError`` for sizes and dtypes that do not fit, and where no layer has softmax attention.
    """
    for option, value, most in (("--n", n, MAX_LENGTH), ("--batch", batch, MAX_BATCH), ("--page-size", page_size, MAX_LENGTH)):
        if not 0 < value <= most:
            raise InputError(f"{option} {value}: expected a whole number from 1 to {most}")
    compute = compute_dtype(dtype)
    stored = compute if kv_dtype is None else kv_dtype_named(kv_dtype)
    label = _label(spec)
    found = [
        Configuration(
            f"{label}/{each.kind}/{each.variant}", each.variant, phase, each.problem, Choices(decode=phase == "decode")
        )
        for phase in phases
        for each in attention_problems(spec, phase, n, batch, compute, stored, page_size)
    ]
    if not found:
        held = ", ".join(dict.fromkeys(mixer.kind for mixer, _ in spec.mixers)) or "none that mixes tokens"
        raise InputError(f"--model {spec.name}: no layer has attention that a kernel here runs (its layers: {held})")
    return found


def _label(spec: ModelSpec) -> str:
    """The model's name, or the last folder of a path: runs are sent around, and where a file lies is nobody's business."""
    path = Path(os.path.abspath(spec.name))
    return (path.parent if path.suffix == ".json" else path).name or spec.model_type


def layers_note(spec: ModelSpec) -> str:
    """Say which layers of ``spec`` are measured, and which are left out."""
    measured = [f"{layers} × {mixer.kind}" for mixer, layers in spec.mixers if isinstance(mixer, Attention)]
    left_out = [f"{layers} × {mixer.kind}" for mixer, layers in spec.mixers if not isinstance(mixer, Attention)]
    rest = f"; not measured: {', '.join(left_out)}" if left_out else ""
    return f"{spec.name}: times are of one layer of each kind ({', '.join(measured)}){rest}"
