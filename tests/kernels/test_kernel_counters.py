"""What an H200 counted of each kernel, launch by launch, against the cost of its problem and plan.

``tests/data/h200/kernel_counters.jsonl`` is written by ``benchmarks/counters.py``; no GPU is needed to read it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.counters import configuration_of
from roofline.configurations import Configuration
from roofline.cost import Cost
from roofline.plan import Plan
from roofline.problem import GroupedKV, LatentKV, Problem
from roofline.variants import VARIANTS
from roofline.variants.flash import box_overhang_bytes

COUNTED = Path(__file__).parents[1] / "data" / "h200" / "kernel_counters.jsonl"
THROUGH_L1 = 1e-3  # allowed to reads that L1 may serve: statistics, page tables, scales, lists of tiles
ON_VECTOR_UNITS = 0.05  # an inner product of n terms is 2n - 1 operations; the softmax and addresses add some
LANE_SUMS = 24  # of an output value of a recurrent step: eight lanes add up in three rounds, each for itself
DESCRIPTOR_ALIGNMENT = 16  # bytes of a row that TMA takes


@dataclass(frozen=True)
class Case:
    """One line of the file."""

    configuration: Configuration
    plan: Plan
    kernels: list[dict[str, Any]]

    @property
    def problem(self) -> Problem:
        return self.configuration.problem

    @property
    def cost(self) -> Cost:
        return VARIANTS[self.configuration.variant](self.problem, self.plan)

    def counted(self, name: str) -> int:
        return sum(kernel[name] for kernel in self.kernels)


def read() -> list[Case]:
    lines = [json.loads(line) for line in COUNTED.read_text().splitlines()]
    return [Case(configuration_of(line["request"]), Plan(**line["plan"]), line["kernels"]) for line in lines]


def params() -> list[Any]:
    return [pytest.param(case, id=f"{number} {case.configuration.name}") for number, case in enumerate(read())]


def uses_tensor_cores(case: Case) -> bool:
    return case.plan.form != "recurrent" and case.problem.dtype.matmul_unit == "tensor"


def overhang(case: Case) -> int:
    """Bytes past the tensors of flash attention by TMA: equal sequences in rows of whole 16 bytes."""
    problem, kv = case.problem, case.problem.kv
    if case.configuration.variant not in ("flash", "mla") or case.plan.packed or len(problem.lengths) > 1:
        return 0
    if isinstance(kv, LatentKV):
        kv = GroupedKV(problem.q_heads, kv.head_dim + kv.rope_dim, kv.v_head_dim)
    rows = (problem.row_bytes(kv.head_dim), problem.row_bytes(kv.v_head_dim))
    by_tma = problem.dtype.matmul_unit == "tensor" and not any(row % DESCRIPTOR_ALIGNMENT for row in rows)
    return box_overhang_bytes(problem, case.plan, kv) if by_tma else 0


def goes_through_l1(case: Case) -> bool:
    tensors = {traffic.tensor for launch in case.cost.launches for traffic in launch.traffic}
    small = {"block_statistics", "block_table", "page_table", "K_scale", "V_scale", "latent_KV_scale"}
    lists = len(case.problem.lengths) > 1 or case.plan.kernel == "hopper"
    return bool(tensors & small) or case.configuration.variant == "paged" or lists


@pytest.mark.parametrize("case", params())
def test_tensor_flops_are_those_of_the_tiles_run(case: Case) -> None:
    assert case.counted("tensor_flops") == (case.cost.flops_executed if uses_tensor_cores(case) else 0)


@pytest.mark.parametrize("case", params())
def test_sm_reads_are_what_the_tiles_ask_for(case: Case) -> None:
    predicted = sum(traffic.sm_read_bytes for launch in case.cost.launches for traffic in launch.traffic) + overhang(case)
    allowed = THROUGH_L1 * predicted if goes_through_l1(case) else 0
    assert abs(case.counted("sm_read_bytes") - predicted) <= allowed


@pytest.mark.parametrize("case", params())
def test_vector_units_run_what_the_tensor_cores_do_not(case: Case) -> None:
    if uses_tensor_cores(case) or "ffma" not in case.kernels[0]:
        return
    operations = 2 * case.counted("ffma") + case.counted("fadd") + case.counted("fmul")
    expected = case.cost.flops_executed
    if case.plan.form == "recurrent":
        problem = case.problem
        expected += LANE_SUMS * problem.q_tokens * problem.q_heads * problem.kv.v_head_dim
    assert operations == pytest.approx(expected, rel=ON_VECTOR_UNITS)
