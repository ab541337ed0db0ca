"""The formulas of each variant, beside ``roofline.variants.VARIANTS``."""

from collections.abc import Callable

from roofline.explain import chunked, flash, linear, mla, naive, paged, split_kv
from roofline.explain.launches import Formulas
from roofline.plan import Plan
from roofline.problem import Problem

FORMULAS: dict[str, Callable[[Problem, Plan], Formulas]] = {
    "naive": naive.formulas,
    "chunked": chunked.formulas,
    "flash": flash.formulas,
    "split-kv": split_kv.formulas,
    "paged": paged.formulas,
    "mla": mla.formulas,
    "linear": linear.formulas,
}
