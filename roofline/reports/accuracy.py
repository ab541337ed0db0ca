"""How good the predicted bytes were: errors against hardware counters, by variant, next to those of simpler counts. Pure."""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

from roofline.reports.points import Point

ALL = "all"
# Points by how many bytes were counted over the minimum: near it every model is right, beyond it the L2 decides.
STREAMING, REREADING = "streaming", "re-reading"
STREAMING_AT_MOST, REREADING_ABOVE = 1.03, 1.05


class ErrorRow(NamedTuple):
    """Errors |estimate / count - 1| over the counted points of a variant; ``worst`` keeps its sign."""

    variant: str
    estimate: str
    counter: str
    points: int
    median: float
    p90: float
    worst: float
    worst_point: str


# What is compared: the name of the estimate, its field, and the counter it is held against. The first four all try to say
# how many bytes HBM moves; the last two check counts that should be exact.
ESTIMATES = (
    ("prediction", "hbm_bytes", "HBM bytes", "hbm_counted"),
    ("minimum", "hbm_bytes_min", "HBM bytes", "hbm_counted"),
    ("cold launches", "hbm_bytes_cold", "HBM bytes", "hbm_counted"),
    ("SM side", "sm_bytes", "HBM bytes", "hbm_counted"),
    ("SM side", "sm_bytes", "SM bytes", "sm_counted"),
    ("executed FLOPs", "flops_executed", "tensor FLOPs", "tensor_flops_counted"),
)


def error_table(points: Sequence[Point]) -> tuple[ErrorRow, ...]:
    """Return the errors of every estimate by variant, of streaming and re-reading points, and of all; empty without counts."""
    counted = [point for point in points if point.is_ours and point.status == "ok"]
    variants = list(dict.fromkeys(point.variant for point in counted))
    groups = [(name, [point for point in counted if point.variant == name]) for name in variants]
    strata = [(name, [point for point in counted if _stratum(point) == name]) for name in (STREAMING, REREADING)]
    groups += strata if all(found for _, found in strata) else []
    if len(variants) > 1:
        groups.append((ALL, counted))
    return tuple(row for name, group in groups for estimate in ESTIMATES if (row := _row(name, group, *estimate)))


class Accuracy(NamedTuple):
    """One line of the error table of a variant; ``None`` where a counter was not read."""

    variant: str
    points: int
    median: float
    p90: float
    worst: float
    worst_point: str
    minimum: float | None
    cold: float | None
    sm_side: float | None
    sm_bytes: float | None
    flops: float | None


def by_variant(rows: Iterable[ErrorRow]) -> list[Accuracy]:
    """Return one line a variant: errors of the prediction, medians of the simpler counts, the worst of the exact ones."""
    groups: dict[str, dict[tuple[str, str], ErrorRow]] = {}
    for row in rows:
        groups.setdefault(row.variant, {})[row.estimate, row.counter] = row
    lines = []
    for variant, found in groups.items():
        best = found.get(("prediction", "HBM bytes"))
        if best is None:
            continue
        simple = [found.get((name, "HBM bytes")) for name in ("minimum", "cold launches", "SM side")]
        exact = [found.get(pair) for pair in (("SM side", "SM bytes"), ("executed FLOPs", "tensor FLOPs"))]
        figures = [None if row is None else row.median for row in simple] + [
            None if row is None else row.worst for row in exact
        ]
        lines.append(Accuracy(variant, best.points, best.median, best.p90, best.worst, best.worst_point, *figures))
    return lines


def _stratum(point: Point) -> str | None:
    if not point.hbm_counted or not point.hbm_bytes_min:
        return None
    times = point.hbm_counted / point.hbm_bytes_min
    return STREAMING if times <= STREAMING_AT_MOST else REREADING if times > REREADING_ABOVE else None


def _row(variant: str, points: Sequence[Point], name: str, field: str, counter: str, counted: str) -> ErrorRow | None:
    errors = []
    for point in points:
        estimate, count = getattr(point, field), getattr(point, counted)
        if estimate is not None and count:
            errors.append((estimate / count - 1, f"{point.configuration}, {point.problem}"))
    if not errors:
        return None
    sizes = sorted(abs(error) for error, _ in errors)
    worst, where = max(errors, key=lambda error: abs(error[0]))
    return ErrorRow(variant, name, counter, len(sizes), _median(sizes), sizes[ceil(0.9 * len(sizes)) - 1], worst, where)


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
