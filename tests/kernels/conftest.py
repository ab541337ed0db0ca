"""Kernels run on the GPU if there is one, else in Triton's interpreter, which has to be chosen before triton is imported."""

import os
import secrets
from collections.abc import Callable

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # decorators read it at import

from roofline.kernels import reference  # noqa: E402
from roofline.kernels.protocol import Inputs, Kernel  # noqa: E402
from roofline.plan import Plan  # noqa: E402
from roofline.problem import Problem  # noqa: E402

DEVICE = torch.device("cuda" if HAS_GPU else "cpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAS_GPU:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture
def device() -> torch.device:
    return DEVICE


@pytest.fixture
def seed() -> int:
    """A new seed in every run, printed where a test fails."""
    value = secrets.randbits(31)
    print(f"seed {value}")  # noqa: T201 -- pytest shows it with the failure
    return value


@pytest.fixture
def agrees(seed: int) -> Callable[..., None]:
    """Check a kernel against its float64 reference, with a tolerance from plain attention over the same values.

    ``dense`` turns the kernel's own inputs into packed q, k and v (and a scale) for plain attention; by default they are those.
    """

    def check(kernel: Kernel, problem: Problem, plan: Plan, dense: Callable[[Inputs], tuple] | None = None) -> None:
        assert kernel.supports(problem, DEVICE, plan) is None
        inputs = kernel.make_inputs(problem, seed, DEVICE)
        expected = kernel.reference(inputs)
        tensors = dense(inputs) if dense else tuple(inputs.tensors[name] for name in "qkv")
        q, k, v, *scale = tensors
        allowed = reference.tolerance(reference.plain(q, k, v, problem, *scale), expected, problem)
        out = torch.full(expected.shape, torch.nan, dtype=q.dtype, device=DEVICE)
        assert kernel.launch(inputs, plan, out) is out
        assert not out.isnan().any(), "unwritten or NaN outputs"
        error = reference.relative_error(out, expected)
        assert error <= allowed, f"relative error {error:.3g}, allowed {allowed:.3g}, seed {seed}"

    return check
