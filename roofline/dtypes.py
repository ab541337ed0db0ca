"""The element types attention runs in, with their storage bits and the unit that multiplies them."""

from typing import Literal, NamedTuple

from roofline.errors import InputError


class DType(NamedTuple):
    """An element type: ``bits`` stored per element, and the unit that runs its matrix products."""

    name: str
    bits: int
    matmul_unit: Literal["tensor", "vector"]


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("fp32", 32, "vector"),  # IEEE fp32 runs on the vector units
        DType("tf32", 32, "tensor"),  # stored as fp32, multiplied on the tensor cores with 10 mantissa bits
        DType("bf16", 16, "tensor"),
        DType("fp16", 16, "tensor"),
        DType("fp8", 8, "tensor"),  # e4m3
        DType("int8", 8, "tensor"),
        DType("int4", 4, "tensor"),
    )
}
COMPUTE_DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8")
KV_DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "int4")


def compute_dtype(name: str) -> DType:
    """Return the dtype that attention computes in; raise ``InputError`` for an unknown one."""
    return _lookup(name, COMPUTE_DTYPES, "--dtype")


def kv_dtype(name: str) -> DType:
    """Return the dtype that K and V are stored in; raise ``InputError`` for an unknown one."""
    return _lookup(name, KV_DTYPES, "--kv-dtype")


def _lookup(name: str, allowed: tuple[str, ...], option: str) -> DType:
    if name not in allowed:
        raise InputError(f"{option}: unknown dtype {name!r}; expected one of {', '.join(allowed)}")
    return DTYPES[name]
