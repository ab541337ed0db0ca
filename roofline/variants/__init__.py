"""The variants: ways of moving bytes. Each module counts one, ``cost(problem, plan) -> Cost``."""

from collections.abc import Callable

from roofline.cost import Cost
from roofline.plan import Plan
from roofline.problem import Problem
from roofline.variants import chunked, flash, linear, mla, naive, paged, split_kv

VARIANTS: dict[str, Callable[[Problem, Plan], Cost]] = {
    "naive": naive.cost,
    "chunked": chunked.cost,
    "flash": flash.cost,
    "split-kv": split_kv.cost,
    "paged": paged.cost,
    "mla": mla.cost,
    "linear": linear.cost,
}
