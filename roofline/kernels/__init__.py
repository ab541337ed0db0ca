"""Triton kernels of this project, one module a variant, with the stems of ``roofline.variants``.

Each module has the functions of ``protocol.Kernel``. Importing a module loads torch and triton, so this package imports none.
"""

from importlib import import_module
from typing import cast

from roofline.errors import InputError
from roofline.kernels.protocol import Kernel

KERNELS: dict[str, str] = {
    "naive": "roofline.kernels.naive",
    "chunked": "roofline.kernels.chunked",
    "flash": "roofline.kernels.flash",
    "split-kv": "roofline.kernels.split_kv",
    "paged": "roofline.kernels.paged",
    "mla": "roofline.kernels.mla",
    "linear": "roofline.kernels.linear",
}


def load(variant: str) -> Kernel:
    """Import and return the kernel module of ``variant``; raise ``InputError`` for a variant that has none."""
    if variant not in KERNELS:
        raise InputError(f"no kernel for variant {variant!r}; expected one of {', '.join(KERNELS)}")
    return cast(Kernel, import_module(KERNELS[variant]))
