"""Calibration: kernels that each press one ceiling of the device and nothing else, with the count of what they move or do.

A probe is a ``Probe``: ``run()`` launches it once on the current stream, ``amount`` says how much of ``unit`` that was. Memory
probes use 16-byte accesses over a persistent grid; what is in flight per SM is ``ctas_per_sm * block * 4`` bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from roofline.errors import InputError

WORD_BYTES = 4  # memory is read and written as int32, four words a thread and access
EXPONENTIALS_IN_FLIGHT = 8  # independent chains a thread
UNLIKELY = -(2**31) + 1  # a value that words from 0 never fold to: keeps the loads alive without a store


@dataclass(frozen=True, slots=True)
class Probe:
    """One launch: ``run`` does it, ``amount`` of ``unit`` (byte, FLOP, exp or launch) is what it moves or does."""

    name: str
    run: Callable[[], object]
    amount: int
    unit: str


def read(source: torch.Tensor, ctas: int, block: int = 8192, warps: int = 8, passes: int = 1) -> Probe:
    """Read all of an int32 tensor ``passes`` times, ``block`` words at a time; one that fits L2 is read from there."""
    _check_words(source, block)
    sink = torch.zeros(1, dtype=torch.int32, device=source.device)

    def run() -> None:
        read_words[(ctas,)](source, sink, source.numel(), passes, UNLIKELY, BLOCK=block, num_warps=warps)

    return Probe("read", run, passes * source.numel() * WORD_BYTES, "byte")


def copy(source: torch.Tensor, target: torch.Tensor, ctas: int, block: int = 8192, warps: int = 8) -> Probe:
    """Copy an int32 tensor: reads and writes are both counted."""
    _check_words(source, block)

    def run() -> None:
        copy_words[(ctas,)](source, target, source.numel(), BLOCK=block, num_warps=warps)

    return Probe("copy", run, 2 * source.numel() * WORD_BYTES, "byte")


def write(target: torch.Tensor, ctas: int, block: int = 8192, warps: int = 8) -> Probe:
    """Write all of an int32 tensor."""
    _check_words(target, block)

    def run() -> None:
        write_words[(ctas,)](target, target.numel(), 1, BLOCK=block, num_warps=warps)

    return Probe("write", run, target.numel() * WORD_BYTES, "byte")


def matmul(size: int, dtype: str, device: torch.device) -> Probe:
    """Multiply two square matrices in ``dtype`` with fp32 accumulation (int8: int32), by the vendor's library."""
    flops = 2 * size**3
    generator = torch.Generator(device).manual_seed(size)
    a, b = (torch.randn(size, size, generator=generator, device=device) for _ in range(2))
    if dtype == "fp8":
        left, right = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).T
        one = torch.ones((), device=device)
        scaled_mm = torch._scaled_mm
        return Probe("matmul fp8", lambda: scaled_mm(left, right, one, one, out_dtype=torch.bfloat16), flops, "FLOP")
    if dtype == "int8":
        first, second = a.mul(30).to(torch.int8), b.mul(30).to(torch.int8).T
        return Probe("matmul int8", lambda: torch._int_mm(first, second), flops, "FLOP")
    if dtype in ("bf16", "fp16"):
        kind = torch.bfloat16 if dtype == "bf16" else torch.float16
        x, y = a.to(kind), b.to(kind)
        return Probe(f"matmul {dtype}", lambda: x @ y, flops, "FLOP")
    if dtype in ("fp32", "tf32"):
        return Probe(f"matmul {dtype}", lambda: _fp32_matmul(a, b, dtype == "tf32"), flops, "FLOP")
    raise InputError(f"no matmul probe for {dtype}")


def exponentials(ctas: int, device: torch.device, rounds: int = 1024, warps: int = 8) -> Probe:
    """Take base-2 exponentials, ``EXPONENTIALS_IN_FLIGHT`` independent chains a thread, ``rounds`` deep."""
    block = warps * 32 * EXPONENTIALS_IN_FLIGHT
    out = torch.empty(ctas * block, dtype=torch.float32, device=device)

    def run() -> None:
        exponentiate[(ctas,)](out, rounds, BLOCK=block, num_warps=warps)

    return Probe("exponentials", run, ctas * block * rounds, "exp")


def empty(device: torch.device) -> Probe:
    """Launch a kernel that does nothing."""
    word = torch.zeros(1, dtype=torch.int32, device=device)
    return Probe("empty", lambda: do_nothing[(1,)](word, num_warps=1), 1, "launch")


def _fp32_matmul(a: torch.Tensor, b: torch.Tensor, tf32: bool) -> torch.Tensor:
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


def _check_words(tensor: torch.Tensor, block: int) -> None:
    if tensor.dtype != torch.int32 or not tensor.is_contiguous() or tensor.numel() % block:
        raise InputError(f"a memory probe needs a contiguous int32 tensor of a multiple of {block} words")


@triton.jit
def read_words(source, sink, words, passes, unlikely, BLOCK: tl.constexpr):
    """Fold the words of every ``programs``-th block by OR; the result is stored only if it is ``unlikely``."""
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.int32)
    blocks = words // BLOCK
    for _ in range(0, passes):
        for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
            start = tl.cast(block, tl.int64) * BLOCK
            # .cg: past L1, which would serve the second pass over a small buffer
            total = total | tl.load(source + start + lanes, cache_modifier=".cg")
    folded = tl.max(total, 0)
    if folded == unlikely:
        tl.store(sink, folded)


@triton.jit
def copy_words(source, target, words, BLOCK: tl.constexpr):
    """Copy every ``programs``-th block."""
    lanes = tl.arange(0, BLOCK)
    for block in range(tl.program_id(0), words // BLOCK, tl.num_programs(0)):
        start = tl.cast(block, tl.int64) * BLOCK
        tl.store(target + start + lanes, tl.load(source + start + lanes, cache_modifier=".cg"))


@triton.jit
def write_words(target, words, value, BLOCK: tl.constexpr):
    """Write every ``programs``-th block."""
    lanes = tl.arange(0, BLOCK)
    for block in range(tl.program_id(0), words // BLOCK, tl.num_programs(0)):
        start = tl.cast(block, tl.int64) * BLOCK
        tl.store(target + start + lanes, lanes + value)


@triton.jit
def exponentiate(out, rounds, BLOCK: tl.constexpr):
    """Iterate x -> 2^-x, which stays between 0 and 1; every result is stored."""
    lanes = tl.arange(0, BLOCK)
    value = lanes.to(tl.float32) / BLOCK
    for _ in range(0, rounds):
        value = tl.exp2(-value)
    tl.store(out + tl.program_id(0) * BLOCK + lanes, value)


@triton.jit
def do_nothing(word):
    """Return at once."""
    return
