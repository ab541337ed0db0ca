import pytest

from roofline import dtypes
from roofline.errors import InputError


@pytest.mark.parametrize(
    ("name", "bits", "unit"),
    [
        ("fp32", 32, "vector"),
        ("tf32", 32, "tensor"),
        ("bf16", 16, "tensor"),
        ("fp16", 16, "tensor"),
        ("fp8", 8, "tensor"),
        ("int8", 8, "tensor"),
        ("int4", 4, "tensor"),
    ],
)
def test_every_dtype(name: str, bits: int, unit: str) -> None:
    assert (dtypes.DTYPES[name].bits, dtypes.DTYPES[name].matmul_unit) == (bits, unit)


def test_no_dtype_goes_untested() -> None:
    assert list(dtypes.DTYPES) == ["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "int4"]


@pytest.mark.parametrize("name", dtypes.COMPUTE_DTYPES)
def test_compute_dtypes_are_found(name: str) -> None:
    assert dtypes.compute_dtype(name).name == name


@pytest.mark.parametrize("name", dtypes.KV_DTYPES)
def test_kv_dtypes_are_found(name: str) -> None:
    assert dtypes.kv_dtype(name).name == name


@pytest.mark.parametrize("name", ["int8", "int4", "float16", "BF16", ""])
def test_other_compute_dtypes_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"^--dtype: unknown dtype .* expected one of fp32, tf32, bf16, fp16, fp8$"):
        dtypes.compute_dtype(name)


def test_other_kv_dtypes_are_refused() -> None:
    with pytest.raises(InputError, match=r"^--kv-dtype: unknown dtype 'fp4'"):
        dtypes.kv_dtype("fp4")
