"""The variants: ways of moving bytes. Each module counts one, ``cost(problem, plan) -> Cost``."""

from collections.abc import Callable

from roofline.cost import Cost
from roofline.plan import Plan
from roofline.problem import Problem
from roofline.variants import flash

VARIANTS: dict[str, Callable[[Problem, Plan], Cost]] = {
    "flash": flash.cost,
}
