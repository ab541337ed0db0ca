"""Ours and the peers that ran the same problem, said of each beside the other. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from roofline.reports.points import Point
from roofline.units import format_number

Key = tuple[int, str, str, str]


def beside(points: Iterable[Point]) -> list[Point]:
    """Return ``points`` with a sentence in the verdict of each timed one: a peer's speed over ours, our fastest peer's name."""
    listed = list(points)
    groups: dict[Key, list[Point]] = {}
    for point in listed:
        if point.measured_s:
            groups.setdefault(_key(point), []).append(point)
    return [_told(point, groups.get(_key(point), [])) for point in listed]


def _key(point: Point) -> Key:
    return point.run, point.variant, point.phase, point.problem


def _told(point: Point, group: list[Point]) -> Point:
    peers = [other for other in group if not other.is_ours]
    ours = [other for other in group if other.is_ours]
    others = peers if point.is_ours else ours
    if not others or not point.measured_s:
        return point
    other = min(others, key=lambda each: each.measured_s or 0.0)
    ratio = (other.measured_s or 0.0) / point.measured_s
    of = f"its fastest peer, {other.implementation}" if point.is_ours else other.implementation
    return replace(point, verdict=f"{point.verdict}. {format_number(ratio)}x as fast as {of}")
