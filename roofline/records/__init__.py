"""Runs as saved: the record format (``schema``), run files (``files``), the profile in a header, tables (``frame``), and
which record stands for a peer (``select``).

This is the only package that imports pydantic; ``roofline.cli`` imports it inside the commands that need it.
"""

from roofline.records.files import Run, Writer, point_key, read
from roofline.records.frame import to_frame
from roofline.records.profile import profile_fields, profile_from
from roofline.records.schema import SCHEMA, Counters, Header, Measurement, Prediction, ProfileFields, Record, Status, Times
from roofline.records.select import fastest_backends

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
    "fastest_backends",
    "point_key",
    "profile_fields",
    "profile_from",
    "read",
    "to_frame",
]
