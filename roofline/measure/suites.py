"""What ``roofline measure`` runs when it is given no problem: named suites, as visible lists of requests.

A suite grows from left to right: ``default`` holds ``quick``, ``full`` holds ``default``.
"""

from collections.abc import Mapping

from roofline.configurations import Configuration, Request, configurations
from roofline.errors import InputError

QUICK: tuple[Request, ...] = (Request(n=2048),)

DEFAULT: tuple[Request, ...] = (
    *QUICK,
    Request(n=4096, kv_heads=8, causal=True, variants=("flash",), phase="prefill"),
    Request(n=4096, kv_heads=32, d=64, variants=("flash",), phase="prefill"),
    Request(n=8192, kv_heads=8, batch=32, variants=("split-kv", "paged"), phase="decode"),
    Request(n=131072, kv_heads=8, variants=("split-kv",), phase="decode"),
    Request(n=4096, batch=128, heads=128, variants=("mla",), phase="decode"),
)

FULL: tuple[Request, ...] = (
    *DEFAULT,
    # 16k tokens, 2048 columns of heads, as FlashAttention's benchmarks count: many short sequences to one long one
    *(
        Request(n=n, batch=16384 // n, heads=h, kv_heads=h, d=2048 // h, causal=causal, variants=("flash",), phase="prefill")
        for h in (32, 16)
        for causal in (False, True)
        for n in (1024, 2048, 4096, 16384)
    ),
    # chains through the L2: S far below to far above it
    *(Request(n=2048, d=64, heads=h, kv_heads=h, variants=("naive",), phase="prefill") for h in (1, 2, 4, 8, 16, 64)),
    Request(n=8192, window=1024, variants=("flash",), phase="prefill"),
    Request(n=32768, heads=4, kv_heads=4, variants=("flash",), phase="prefill"),
    Request(n=65536, heads=4, kv_heads=4, variants=("flash",), phase="prefill"),
    Request(n=8192, d=256, heads=16, kv_heads=4, variants=("flash",), phase="prefill"),
    Request(kv_lens=(512, 2048, 8192), variants=("flash", "split-kv", "paged")),
    # decode: small to large caches
    Request(n=8192, batch=8, heads=64, kv_heads=8, variants=("split-kv", "paged"), phase="decode"),
    Request(n=2048, batch=64, kv_heads=32, variants=("split-kv", "paged"), phase="decode"),
    Request(n=2048, batch=16, kv_heads=8, variants=("split-kv", "paged"), phase="decode"),
    *(Request(n=8192, batch=32, page_size=p, variants=("paged",), phase="decode") for p in (1, 64, 256)),
    *(Request(n=8192, batch=32, kv_dtype=dtype, variants=("split-kv",), phase="decode") for dtype in ("fp8", "int8")),
    Request(n=8192, batch=16, q_len=4, variants=("split-kv",)),
    Request(n=8192, batch=64, heads=128, variants=("mla",), phase="decode"),
    Request(n=4096, batch=128, heads=16, variants=("mla",), phase="decode"),
    Request(n=8192, batch=32, heads=64, variants=("mla",), phase="decode"),
    Request(n=8192, variants=("linear/chunked", "linear/parallel"), phase="prefill"),
    Request(n=2048, batch=64, variants=("linear/recurrent",), phase="decode"),
)

SUITES: Mapping[str, tuple[Request, ...]] = {"quick": QUICK, "default": DEFAULT, "full": FULL}


def suite(name: str) -> list[Configuration]:
    """Return the configurations of a suite, equal ones once; raise ``InputError`` for an unknown name."""
    if name not in SUITES:
        raise InputError(f"--suite: unknown suite {name!r}; expected one of {', '.join(SUITES)}")
    found: list[Configuration] = []
    for request in SUITES[name]:
        found += [configuration for configuration in configurations(request) if configuration not in found]
    return found
