"""roofline: FLOPs, memory traffic and rooflines of attention, predicted and measured.

``roofline.api`` documents what is offered here; it is imported when the first of its names is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofline.api import Analysis, analyze, analyze_model, document, load_model, shipped_models, sweep_model, to_frame

__version__ = "0.1.0"
__all__ = [
    "Analysis", "analyze", "analyze_model", "document", "load_model", "shipped_models", "sweep_model", "to_frame",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'roofline' has no attribute {name!r}")
    from roofline import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
