"""The program that ncu profiles: one range of calls for each case of a plan, in steady state or one alone. Loads torch.

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

LEAST_CALLS, MOST_CALLS = 8, 1000
# A range holds about 0.5 MB of writes that are not the kernel's: enough calls make that small, in a range of bounded length.
WRITTEN_BYTES, MOST_BYTES = 50e6, 64e9


def main(plan_path: str) -> None:
    """Replay the plan, and write beside it what each range holds."""
    plan = json.loads(Path(plan_path).read_text())
    with Path(plan["done"]).open("w") as done:
        for index, case in enumerate(plan["cases"]):
            try:
                line: dict[str, Any] = {"case": index, "calls": replay(case, plan)}
            except Exception as error:
                line = {"case": index, "reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            done.write(json.dumps(line) + "\n")
            done.flush()
            gc.collect()
            torch.cuda.empty_cache()


def replay(case: Mapping[str, Any], run: Mapping[str, Any]) -> int:
    """Run one case until the caches are in steady state, then a range of calls (one in a cold run); return how many."""
    problem, plan = problem_from(case["problem"]), plan_from(case["plan"])
    module = implementations.load(case["implementation"])
    inputs = make_inputs(module, plan, problem, run["seed"], torch.device("cuda"))
    out = module.launch(inputs, plan)
    is_cold = run["mode"] == "cold"
    rotation = rotate(module, plan, inputs, out, case["touched_bytes"], run["l2_bytes"], "warm" if is_cold else "cold")
    sets = len(rotation.inputs)
    calls = 1 if is_cold else sets * ceil_div(least_calls(case), sets)
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


def least_calls(case: Mapping[str, Any]) -> int:
    """Calls of a range, from the bytes of one call."""
    wanted = min(WRITTEN_BYTES / max(case["written_bytes"], 1), MOST_BYTES / max(case["touched_bytes"], 1))
    return max(LEAST_CALLS, min(int(wanted), MOST_CALLS))


if __name__ == "__main__":
    main(sys.argv[1])
