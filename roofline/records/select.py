"""Which records stand for what, where several could."""

from collections.abc import Iterable

from roofline.records.files import point_key
from roofline.records.schema import Record

OURS = "roofline"


def fastest_backends(records: Iterable[Record]) -> list[Record]:
    """Return the timed ``records`` with only the fastest backend of each peer a problem: all of ours stay.

    Of ``torch/flash``, ``torch/cudnn`` and ``torch/math`` on one problem, one is what a user of torch would choose.
    """
    best: dict[str, Record] = {}
    for record in records:
        if record.measurement is None:
            continue
        fields = record.model_dump(include={"configuration", "variant", "implementation", "problem", "plan"})
        peer = (record.implementation or "").partition("/")[0]
        if peer != OURS:
            fields |= {"implementation": peer, "configuration": "", "variant": "", "plan": None}
        key = point_key(fields)
        there = best.get(key)
        if there is None or there.measurement is None or record.measurement.time_s.median < there.measurement.time_s.median:
            best[key] = record
    return list(best.values())
