"""Compile kernels for a GPU that is not here, through their own ``launch``.

Usage: ``python tests/kernels/compiling.py 90 [case ...]``.

Nothing is launched: Triton's driver is replaced by one that only names the target, and every launch of a kernel ends once it
is compiled, with the very arguments and constants that it would run with. Prints one JSON line a kernel. A process of its own,
because whether a kernel is compiled or interpreted is fixed when its module is imported.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from roofline.dtypes import DTYPES
from roofline.kernels import load
from roofline.masks import CAUSAL, FULL, Mask
from roofline.plan import Choices, Plan, choose
from roofline.problem import GroupedKV, Lengths, Problem, ragged, uniform
from roofline.profiles.profile import Profile

LOAD_BITS = 128  # of one load instruction
BLOCKED = re.compile(r"^(#\w+) = #ttg\.blocked<\{sizePerThread = \[([\d, ]+)\].*order = \[(\d+)", re.MULTILINE)
PAST_L1 = re.compile(
    r"= (?:tt\.load|ttg\.async_copy_global_to_local) .*cacheModifier = cg.*!tt\.ptr<[a-zA-Z]+(\d+)\w*>, (#\w+)>"
)
RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+)")


class Case(NamedTuple):
    """A problem of a variant whose launches are compiled with the plan of each architecture."""

    variant: str
    problem: Problem
    choices: Choices = Choices()


def grouped(d: int, mask: Mask = FULL, dtype: str = "bf16", lengths: tuple[Lengths, ...] = uniform(1, 256, 256)) -> Problem:
    """Grouped-query attention of four heads over two."""
    return Problem(4, GroupedKV(2, d, d), lengths, mask, DTYPES[dtype], DTYPES[dtype])


WINDOW = Mask(True, 100)
RAGGED = ragged([(200, 256), (1, 7)])
CASES = {
    "flash d64": Case("flash", grouped(64, CAUSAL)),
    "flash d64 full": Case("flash", grouped(64)),
    "flash d64 window": Case("flash", grouped(64, WINDOW, "fp16")),
    "flash d128 full": Case("flash", grouped(128)),
    "flash d128 cut tile": Case("flash", grouped(128, lengths=uniform(1, 250, 250))),
    "flash d128 ragged": Case("flash", grouped(128, CAUSAL, lengths=RAGGED)),
    "flash d128 causal": Case("flash", grouped(128, CAUSAL)),
    "flash d128 window": Case("flash", grouped(128, WINDOW, "fp16")),
    "flash d256": Case("flash", grouped(256, CAUSAL)),
    "flash d256 window": Case("flash", grouped(256, WINDOW)),
    "flash portable d64": Case("flash", grouped(64, CAUSAL), Choices(portable=True)),
    "flash portable d64 full": Case("flash", grouped(64), Choices(portable=True)),
    "flash portable d64 window": Case("flash", grouped(64, WINDOW, "fp16"), Choices(portable=True)),
    "flash portable d128 full": Case("flash", grouped(128), Choices(portable=True)),
    "flash portable d128 cut tile": Case("flash", grouped(128, lengths=uniform(1, 250, 250)), Choices(portable=True)),
    "flash portable d128 causal": Case("flash", grouped(128, CAUSAL), Choices(portable=True)),
    "flash portable d128 window": Case("flash", grouped(128, WINDOW, "fp16"), Choices(portable=True)),
    "flash portable d256": Case("flash", grouped(256, CAUSAL), Choices(portable=True)),
    "flash d96 ragged": Case("flash", grouped(96, CAUSAL, lengths=RAGGED)),
    "flash fp32": Case("flash", grouped(128, CAUSAL, "fp32")),
    "flash tf32": Case("flash", grouped(128, CAUSAL, "tf32")),
    "flash decode": Case("flash", grouped(128, lengths=uniform(1, 1, 256))),
    "naive d128 window": Case("naive", grouped(128, WINDOW)),
    "naive six passes ragged": Case("naive", grouped(128, CAUSAL, lengths=RAGGED), Choices(passes=6)),
    "chunked d64": Case("chunked", grouped(64), Choices(chunk=(256, 128))),
    "chunked d128": Case("chunked", grouped(128), Choices(chunk=(256, 128))),
}


class NamedTarget:
    """A Triton driver that knows its target and nothing else."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


def compile_case(case: Case, capability: int) -> list[tuple[Plan, Any]]:
    """Return the compiled kernels of one ``launch`` for ``capability``, in order, with the plan."""
    compiled: list[Any] = []
    run = JITFunction.run

    def compile_only(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        compiled.append(run(self, *args, grid=grid, warmup=True, **kwargs))

    profile = Profile("target", "target", "nvidia", "", f"{capability // 10}.{capability % 10}", sm_count=128)
    kernel = load(case.variant)
    plan = choose(case.variant, f"roofline/{case.variant}", case.problem, profile, case.choices)
    inputs = kernel.make_inputs(case.problem, 0, torch.device("cpu"))
    triton.runtime.driver.set_active(NamedTarget(capability))
    JITFunction.run = compile_only
    try:
        kernel.launch(inputs, plan)
    finally:
        JITFunction.run = run
    return [(plan, kernel) for kernel in compiled]


def resources(kernel: Any) -> dict[str, Any]:
    """Return registers a thread, spilled and shared bytes, and which of wgmma, tcgen05 and TMA the kernel uses."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(kernel.asm["cubin"])
        cubin.flush()
        report = subprocess.run([tool, "-res-usage", cubin.name], capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, RESOURCES.search(report).groups())
    ptx = kernel.asm["ptx"]
    return {
        "kernel": kernel.metadata.name,
        "registers": registers,
        "spilled_bytes": stack,
        "shared_bytes": kernel.metadata.shared,
        "wgmma": "wgmma.mma_async" in ptx,
        "tcgen05": "tcgen05.mma" in ptx,
        "split_sectors": split_sectors(kernel.asm["ttgir"]),
        "tma": "cp.async.bulk.tensor" in ptx,
    }


def split_sectors(ttgir: str) -> list[str]:
    """Return the loads past L1 in which a thread takes more than 16 consecutive bytes, and so asks for each sector twice."""
    widths = {name: int(sizes.split(", ")[int(order)]) for name, sizes, order in BLOCKED.findall(ttgir)}
    return [
        f"{bits} bits x {widths[name]}" for bits, name in PAST_L1.findall(ttgir) if int(bits) * widths.get(name, 1) > LOAD_BITS
    ]


def main(capability: int, names: list[str]) -> None:
    """Print the resources of every kernel of the cases ``names`` (all by default)."""
    for name in names or CASES:
        for plan, kernel in compile_case(CASES[name], capability):
            tile = f"{plan.q_tile}x{plan.kv_tile} w{plan.warps} s{plan.stages}"
            print(json.dumps({"case": name, "capability": capability, "tile": tile, **resources(kernel)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
