"""A run as a table: one row a record, nested fields joined with dots, samples and launches left out."""

from typing import TYPE_CHECKING, Any

from roofline.records.files import Run

if TYPE_CHECKING:
    import pandas

_LEFT_OUT = ("prediction.launches", "measurement.time_s.samples", "problem.lengths")


def to_frame(run: Run) -> "pandas.DataFrame":
    """Return the records of ``run``; columns are called as in the file: ``measurement.time_s.median``, in seconds."""
    import pandas

    return pandas.DataFrame([_flat(record.model_dump()) for record in run.records])


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in fields.items():
        name = f"{prefix}{key}"
        if name in _LEFT_OUT:
            continue
        if isinstance(value, dict):
            flat.update(_flat(value, f"{name}."))
        else:
            flat[name] = "; ".join(map(str, value)) if isinstance(value, list) else value
    return flat
