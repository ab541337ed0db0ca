"""The formulas of a configuration, launch by launch, in the shape of ``Cost``: work by unit, and bytes by tensor and figure."""

from dataclasses import dataclass
from typing import NamedTuple

from roofline.cost import sectors
from roofline.explain.counts import row_bytes, row_sectors
from roofline.explain.formula import Factor, Formula, Quantity, larger, product
from roofline.problem import Problem

NOTHING = Formula(())
Figures = dict[str, Formula]  # by the names of the fields of Traffic or Launch


class LaunchFormulas(NamedTuple):
    """Formulas of one launch; a figure that is left out is zero."""

    name: str
    work: Figures
    tensors: dict[str, Figures]


@dataclass(frozen=True, slots=True)
class Formulas:
    """Formulas of one configuration: the quantities they use, the launches in order, and the workspace."""

    quantities: tuple[Quantity, ...]
    launches: tuple[LaunchFormulas, ...]
    workspace: Formula = NOTHING


def read(rows: tuple[Factor, ...], num_bytes: int, requested: tuple[Factor, ...] | None = None) -> Figures:
    """Reads of ``rows`` of ``num_bytes`` each, on the SM side ``requested`` of them."""
    sm_rows = rows if requested is None else requested
    return {"read_bytes_min": product(*rows, row_bytes(num_bytes)), "sm_read_bytes": product(*sm_rows, row_sectors(num_bytes))}


def write(rows: tuple[Factor, ...], num_bytes: int) -> Figures:
    """Writes of ``rows`` of ``num_bytes`` each, once."""
    return {"write_bytes_min": product(*rows, row_bytes(num_bytes)), "sm_write_bytes": product(*rows, row_sectors(num_bytes))}


def most(*rows: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """The rows that are most."""
    return larger(*(product(*each) for each in rows)).terms[0].factors


def cached(
    problem: Problem,
    tensor: str,
    width: int,
    distinct: tuple[Factor, ...],
    loaded: tuple[Factor, ...],
    ctas: tuple[Factor, ...],
) -> dict[str, Figures]:
    """Reads of a tensor of the KV cache, and of its scales where the KV dtype has any."""
    scale, per_tensor = problem.scale_row_bytes(width), problem.scale_tensor_bytes
    tensors = {tensor: read(distinct, problem.kv_row_bytes(width), loaded)}
    if scale or per_tensor:
        least = scales(distinct, scale, per_tensor)
        requested = scales(loaded, scale) if scale else product(*ctas, ("B, the scale in a sector", sectors(per_tensor)))
        tensors[f"{tensor}_scale"] = {"read_bytes_min": least, "sm_read_bytes": larger(requested, least)}
    return tensors


def scales(rows: tuple[Factor, ...], scale: int, per_tensor: int = 0) -> Formula:
    """Bytes of the scales of ``rows``, or the one of a whole tensor."""
    return product(("B, one scale of the tensor", per_tensor)) if per_tensor else product(*rows, ("B of scales", scale))
