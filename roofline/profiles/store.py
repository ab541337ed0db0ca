"""Measured ceilings, kept per GPU in the user's data folder and laid over the profile of its data sheet.

One TOML file a GPU, named by its UUID. Shipped profiles are never written, and data-sheet values never enter an overlay.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofline.errors import InputError, RooflineError
from roofline.profiles.document import IDENTITY, decode, parse_partial, to_document
from roofline.profiles.load import read_bytes
from roofline.profiles.profile import CEILING_UNITS, Ceiling, Profile

DATA_DIR_VARIABLE = "ROOFLINE_DATA_DIR"
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]+(/[0-9]+/[0-9]+)?")
_ADVICE = "delete it, then run `roofline calibrate` again"


def data_dir() -> Path:
    """Return the folder of the user's overlays: ``$ROOFLINE_DATA_DIR``, or the platform's user data folder."""
    override = os.environ.get(DATA_DIR_VARIABLE)
    if override:
        return Path(override)
    import platformdirs  # only when an overlay is looked for

    return Path(platformdirs.user_data_dir("roofline", appauthor=False))


def overlay_path(uuid: str) -> Path:
    """Return where the overlay of the GPU ``uuid`` is kept; raise ``InputError`` if that is no GPU's UUID."""
    if not _UUID.fullmatch(uuid):
        raise InputError(f"--gpu: {uuid!r} is no GPU UUID; expected one such as GPU-5d2a2d4e-1b2c-4f6a-9a43-0f6c3a1f7a10")
    return data_dir() / "gpus" / f"{uuid.replace('/', '_')}.toml"


def read(uuid: str) -> Profile | None:
    """Return what was measured on the GPU ``uuid`` as a profile without data sheet, or ``None`` if nothing was.

    Raises ``InputError`` that names the file when it is no valid overlay.
    """
    path = overlay_path(uuid)
    if not path.exists():
        return None
    document = decode(read_bytes(path), str(path))
    if document.pop("uuid", None) != uuid:
        raise InputError(f"{path}: expected measurements of {uuid}; {_ADVICE}")
    if "datasheet" in document:
        raise InputError(f"{path}: expected measured ceilings only, got [datasheet]; {_ADVICE}")
    try:
        return parse_partial(document, str(path))
    except InputError as error:
        raise InputError(f"{error}; {_ADVICE}") from None


def with_measured(profile: Profile, uuid: str) -> Profile:
    """Return ``profile`` with the ceilings measured on the GPU ``uuid``, if any; its data sheet stays as it is."""
    overlay = read(uuid)
    return profile if overlay is None else replace(profile, measured={**profile.measured, **overlay.measured})


def save(profile: Profile, uuid: str, measured: Mapping[str, Ceiling]) -> Path:
    """Add ``measured`` ceilings (SI base units) to the overlay of the GPU ``uuid`` and return its path.

    Ceilings measured earlier and not again are kept. The file is replaced in one step: an interrupted run leaves the old one.
    For a profile without data sheet its hardware is kept too, so that it can be read back whole. Raises ``InputError`` for a
    ceiling that is unknown, not marked measured or not plausible, and ``RooflineError`` if the file cannot be written.
    """
    path = overlay_path(uuid)
    for key, ceiling in measured.items():
        if key not in CEILING_UNITS or ceiling.kind != "measured":
            raise InputError(f"{path}: {key}: expected a measured ceiling, one of {', '.join(CEILING_UNITS)}")
    overlay = read(uuid)
    earlier = {} if overlay is None else overlay.measured
    document = to_document(replace(profile, datasheet={}, measured={**earlier, **measured}))
    if profile.datasheet:
        document = {key: value for key, value in document.items() if key in IDENTITY or key == "measured"}
    parse_partial(document, str(path))  # what could not be read back is not written
    _write(path, {"uuid": uuid, **document})
    return path


def _write(path: Path, document: Mapping[str, Any]) -> None:
    import tempfile  # only when something is written

    import tomli_w

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                tomli_w.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RooflineError(f"{path}: cannot write the measured ceilings: {error.strerror or error}") from None
