"""The figures of a whole configuration: the four byte counts as sums of the lines, work, cache and workspace."""

from dataclasses import replace

from roofline.analysis import Conventions, Result
from roofline.cost import Launch, Role, Traffic
from roofline.explain.counts import FLOPS, pairs
from roofline.explain.formula import Formula, Quantity, Term, product, total
from roofline.explain.kv_cache import cache_quantities
from roofline.explain.launches import Formulas
from roofline.masks import FULL


def totals(result: Result, formulas: Formulas, conventions: Conventions) -> list[Quantity]:
    """Every figure that is a whole number, named as in ``analyze --json``."""
    cost, configuration = result.cost, result.configuration
    found = [
        Quantity("flops_exact", "useful matrix FLOPs, masked pairs left out", _over_launches(cost.launches, "flops")),
        Quantity(
            "flops_executed", "FLOPs of the whole tiles run, with padding", _over_launches(cost.launches, "flops_executed")
        ),
        Quantity("exp_ops", "exponentials", _over_launches(cost.launches, "exp_ops")),
        Quantity("vector_ops", "other softmax work", _over_launches(cost.launches, "vector_ops")),
        Quantity("hbm_bytes_min", "each input and output once: an infinite cache", _least(cost.launches)),
        Quantity("hbm_bytes_cold", "each launch from a cold cache", _moved(cost.launches, "read_bytes_min", "write_bytes_min")),
        Quantity("hbm_bytes", "predicted from the L2 of the device", _predicted(result)),
        Quantity("sm_bytes", "what the SMs request, re-reads too", _moved(cost.launches, "sm_read_bytes", "sm_write_bytes")),
        *cache_quantities(configuration.variant, configuration.problem),
        Quantity("workspace_bytes", "scratch memory", formulas.workspace),
    ]
    if conventions.flops == "exact":
        found[0] = replace(found[0], symbol="flops")
    else:
        found.insert(1, _reported(result, conventions))
    return found


def _over_launches(launches: tuple[Launch, ...], figure: str) -> Formula:
    return total(product((launch.name, getattr(launch, figure))) for launch in launches if getattr(launch, figure))


def _moved(launches: tuple[Launch, ...], *figures: str) -> Formula:
    """Reads and writes of each tensor and launch."""
    sizes = [(t.tensor, sum(getattr(t, figure) for figure in figures)) for launch in launches for t in launch.traffic]
    return _sum(sizes)


def _predicted(result: Result) -> Formula:
    return _sum(
        [
            (traffic.tensor, entry.read_bytes + entry.write_bytes)
            for launch, entries in zip(result.cost.launches, result.prediction.hbm.launches, strict=True)
            for traffic, entry in zip(launch.traffic, entries, strict=True)
        ]
    )


def _least(launches: tuple[Launch, ...]) -> Formula:
    """Inputs and outputs, one that several launches read once: as the launch that reads most of it."""
    once: dict[tuple[str, Role], int] = {}
    for launch in launches:
        for t in launch.traffic:
            if t.role != "intermediate":
                once[t.tensor, t.role] = max(once.get((t.tensor, t.role), 0), _distinct(t))
    return _sum([(tensor, size) for (tensor, _), size in once.items()])


def _distinct(traffic: Traffic) -> int:
    return traffic.read_bytes_min + traffic.write_bytes_min if traffic.tensor_bytes is None else traffic.tensor_bytes


def _sum(sizes: list[tuple[str, int]]) -> Formula:
    return total(product(size) for size in sizes if size[1])


def _reported(result: Result, conventions: Conventions) -> Quantity:
    """``flops`` by a convention that ignores the mask or halves a causal square; where it says nothing, the exact sum."""
    launches, problem = result.cost.launches, result.configuration.problem
    exact = _over_launches(launches, "flops")
    meaning = f"reported FLOPs by --flop-convention {conventions.flops}"
    if result.flops == exact.value:
        return Quantity("flops", meaning, exact)
    projected = total(product((each.name, each.flops)) for each in launches if each.name in ("W_UK", "W_UV"))
    unmasked = pairs(replace(problem, mask=FULL)).factor._replace(name="pairs without a mask")
    full = product(FLOPS, unmasked, ("query heads", problem.q_heads), ("(d_qk + d_v)", _width(result)))
    if conventions.flops == "half":
        full = Formula(tuple(Term(term.factors, 2) for term in full.terms))
    return Quantity("flops", meaning, projected + full)


def _width(result: Result) -> int:
    """d_qk + d_v of the attention, from its own FLOPs: 2 P (d_qk + d_v) per query head."""
    problem, launches = result.configuration.problem, result.cost.launches
    attention = sum(launch.flops for launch in launches if launch.name not in ("W_UK", "W_UV"))
    return attention // (2 * problem.pairs * problem.q_heads)
