"""Whole models: read a ``config.json``, count every layer, and set each part of the forward pass under the device's roof."""

from roofline.models.load import load_model, shipped_models
from roofline.models.spec import ModelSpec

__all__ = ["ModelSpec", "load_model", "shipped_models"]
