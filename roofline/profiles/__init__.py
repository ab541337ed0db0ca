"""Devices: their data-sheet ceilings with sources, and what was measured on the GPUs of this user."""

from roofline.profiles.load import load, names
from roofline.profiles.local import Gpu, choose, gpus
from roofline.profiles.match import match
from roofline.profiles.profile import CEILING_UNITS, Ceiling, Profile, Roof
from roofline.profiles.resolve import DEFAULT_DEVICE, profile_of, resolve
from roofline.profiles.store import save, with_measured

__all__ = [
    "CEILING_UNITS",
    "DEFAULT_DEVICE",
    "Ceiling",
    "Gpu",
    "Profile",
    "Roof",
    "choose",
    "gpus",
    "load",
    "match",
    "names",
    "profile_of",
    "resolve",
    "save",
    "with_measured",
]
