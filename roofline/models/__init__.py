"""Whole models: read a ``config.json``, count every layer, and set each part of the forward pass under the device's roof.

In a notebook::

    from roofline.models import analyze_model, load_model, to_frame
    from roofline.profiles import load

    result = analyze_model(load_model("llama-3-8b"), load("h100-sxm5-80gb"), n=2048)
    result.prefill.floor_s, result.decode.tokens_per_s, result.capacity.sequences
    to_frame(result)
"""

from roofline.models.analysis import ModelAnalysis, analyze_model, sweep_model
from roofline.models.document import SWEEP_COLUMNS, document, model_dict, rows, sweep_rows, to_frame
from roofline.models.load import load_model, shipped_models
from roofline.models.spec import ModelSpec

__all__ = [
    "SWEEP_COLUMNS",
    "ModelAnalysis",
    "ModelSpec",
    "analyze_model",
    "document",
    "load_model",
    "model_dict",
    "rows",
    "shipped_models",
    "sweep_model",
    "sweep_rows",
    "to_frame",
]
