import pytest

torch = pytest.importorskip("torch")
references = pytest.importorskip("roofline.kernels.reference")

from roofline.configurations import Request, configurations  # noqa: E402
from roofline.kernels.protocol import Inputs  # noqa: E402
from roofline.measure.worker import correctness  # noqa: E402
from roofline.peers.inputs import dense_reference, make_dense  # noqa: E402

pytestmark = pytest.mark.kernels
CPU = torch.device("cpu")
REQUEST = Request(n=48, d=16, heads=4, causal=True, dtype="fp32", variants=("flash",), phase="prefill")
PROBLEM = configurations(REQUEST)[0].problem


class Module:
    """A kernel module as far as it is checked."""

    reference = staticmethod(dense_reference)


@pytest.fixture
def inputs() -> Inputs:
    return make_dense(PROBLEM, 3, CPU)


def check(inputs: Inputs, out: "torch.Tensor", variant: str = "flash") -> correctness.Check:
    return correctness.check(Module, variant, inputs, out)


def test_the_reference_rounded_to_the_dtype_passes(inputs: Inputs) -> None:
    checked = check(inputs, dense_reference(inputs).float())
    assert checked.problem is None
    assert 0 < checked.error <= checked.tolerance < 1e-5


def test_one_element_that_was_not_written_fails(inputs: Inputs) -> None:
    out = dense_reference(inputs).float()
    out[5, 1, 3] = float("nan")
    assert check(inputs, out).problem == f"1 of {out.numel()} elements are not finite or were not written"


@pytest.mark.parametrize("spoil", [lambda out: out * 1.001, lambda out: out.roll(1, 0), lambda out: out.half().float() * 1.01])
def test_a_wrong_output_fails(inputs: Inputs, spoil) -> None:
    assert "allowed" in check(inputs, spoil(dense_reference(inputs).float())).problem


def test_a_wrong_shape_fails(inputs: Inputs) -> None:
    assert "expected (48, 4, 16)" in check(inputs, dense_reference(inputs).float()[:40]).problem


def test_the_tolerance_comes_from_plain_attention_in_the_dtype(inputs: Inputs) -> None:
    half = Inputs(PROBLEM, {name: tensor.half() for name, tensor in inputs.tensors.items()})
    reference = dense_reference(half)
    assert 1e-4 < correctness.tolerance(Module, "flash", half, reference) < 5e-3


def test_linear_attention_is_allowed_some_roundings(inputs: Inputs) -> None:
    reference = dense_reference(inputs)
    assert correctness.tolerance(Module, "linear", inputs, reference) == 8 * references.UNIT_ROUNDOFF["fp32"]


def test_a_module_says_what_its_tensors_stand_for(inputs: Inputs) -> None:
    class Latent(Module):
        @staticmethod
        def dense(inputs: Inputs):
            return (*(inputs.tensors[f"own_{name}"] for name in "qkv"), 0.25)

    renamed = Inputs(PROBLEM, {f"own_{name}": tensor for name, tensor in inputs.tensors.items()})
    assert correctness.tolerance(Latent, "mla", renamed, dense_reference(inputs)) > 0
