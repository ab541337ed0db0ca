"""The program that ncu profiles: one range of calls in steady state for each case of a plan. Loads torch.

``python -m roofline.measure.worker.replay PLAN.json``, run by ``counters``. The number of calls depends on sizes alone, so that
every pass makes the same ranges.
"""

import gc
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from roofline.cost import ceil_div
from roofline.fields import plan_from, problem_from
from roofline.measure.worker import implementations
from roofline.measure.worker.points import make_inputs
from roofline.measure.worker.rotation import rotate

LEAST_CALLS = 8


def main(plan_path: str) -> None:
    """Replay the plan, and write beside it what each range holds."""
    plan = json.loads(Path(plan_path).read_text())
    with Path(plan["done"]).open("w") as done:
        for index, case in enumerate(plan["cases"]):
            try:
                line: dict[str, Any] = {"case": index, "calls": replay(case, plan["seed"], plan["l2_bytes"])}
            except Exception as error:
                line = {"case": index, "reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            done.write(json.dumps(line) + "\n")
            done.flush()
            gc.collect()
            torch.cuda.empty_cache()


def replay(case: Mapping[str, Any], seed: int, l2_bytes: int) -> int:
    """Run one case until the caches are in steady state, then a range of calls; return how many."""
    problem, plan = problem_from(case["problem"]), plan_from(case["plan"])
    module = implementations.load(case["implementation"])
    inputs = make_inputs(module, plan, problem, seed, torch.device("cuda"))
    out = module.launch(inputs, plan)
    rotation = rotate(module, plan, inputs, out, case["touched_bytes"], l2_bytes)
    sets = len(rotation.inputs)
    calls = sets * ceil_div(LEAST_CALLS, sets)
    for index in range(calls):
        rotation.call(index)
    torch.cuda.synchronize()
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    cudart.cudaProfilerStart()
    for index in range(calls):
        rotation.call(index)
    torch.cuda.synchronize()
    cudart.cudaProfilerStop()
    return calls


if __name__ == "__main__":
    main(sys.argv[1])
