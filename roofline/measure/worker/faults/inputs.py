"""What the injected faults share: inputs and reference of a dense problem, and support for every GPU."""

from roofline.kernels.flash import make_inputs, reference
from roofline.plan import Plan
from roofline.problem import Problem

__all__ = ["make_inputs", "reference", "supports"]


def supports(problem: Problem, device: object, plan: Plan | None = None) -> str | None:
    """Return ``None``: a fault runs anywhere."""
    return None
