"""The profile in the header of a run: everything a report draws a roof from, and back to a ``Profile``."""

from dataclasses import fields
from typing import Any

from roofline.profiles.profile import Ceiling, Profile
from roofline.records.schema import ProfileFields


def profile_fields(profile: Profile) -> ProfileFields:
    """Return ``profile`` as a run's header holds it."""
    return ProfileFields.model_validate(
        {
            **{field.name: _plain(getattr(profile, field.name)) for field in fields(profile)},
            "datasheet": {key: ceiling._asdict() for key, ceiling in profile.datasheet.items()},
            "measured": {key: ceiling._asdict() for key, ceiling in profile.measured.items()},
        }
    )


def profile_from(stored: ProfileFields) -> Profile:
    """Return the profile that a header holds; fields that this version does not know are left out."""
    values: dict[str, Any] = stored.model_dump()
    known = {field.name for field in fields(Profile)}
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items() if key in known}
    for roof in ("datasheet", "measured"):
        values[roof] = {key: Ceiling(**ceiling) for key, ceiling in values[roof].items()}
    return Profile(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if hasattr(value, "items") else value
