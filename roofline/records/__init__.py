"""Runs as saved: the record format (``schema``), run files (``files``), the profile in a header, and tables (``frame``).

This is the only package that imports pydantic; ``roofline.cli`` imports it inside the commands that need it.
"""

from roofline.records.files import Run, Writer, point_key, read
from roofline.records.frame import to_frame
from roofline.records.profile import profile_fields, profile_from
from roofline.records.schema import SCHEMA, Counters, Header, Measurement, Prediction, ProfileFields, Record, Status, Times

__all__ = [
    "SCHEMA",
    "Counters",
    "Header",
    "Measurement",
    "Prediction",
    "ProfileFields",
    "Record",
    "Run",
    "Status",
    "Times",
    "Writer",
    "point_key",
    "profile_fields",
    "profile_from",
    "read",
    "to_frame",
]
