"""Find and load device profiles, shipped ones by name and others by path. Only the files that are asked for are parsed."""

import os
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from roofline.errors import InputError
from roofline.profiles.document import MAX_FILE_BYTES, decode, parse
from roofline.profiles.profile import Profile

DATA = Path(__file__).parent / "data"


class Header(NamedTuple):
    """The top of a shipped profile: what it can be called."""

    id: str
    name: str
    driver_names: tuple[str, ...]


@cache
def names() -> tuple[str, ...]:
    """Return the ids of the shipped profiles, sorted."""
    return tuple(sorted(path.stem for path in DATA.glob("*.toml")))


def load(name_or_path: str | Path) -> Profile:
    """Return the profile of a device called by id, name or driver name (any case), or the one in a TOML file.

    A ``Path``, and a text with a slash or ending in ``.toml``, is a file. Raises ``InputError`` for an unknown device (it lists
    near names) and for a file that is missing or no valid profile.
    """
    if isinstance(name_or_path, Path) or _is_path(name_or_path):
        return load_file(Path(name_or_path))
    wanted = _folded(name_or_path)
    if wanted in names():
        return load_file(DATA / f"{wanted}.toml")
    found = [header.id for header in headers() if wanted in map(_folded, (header.name, *header.driver_names))]
    if len(found) == 1:
        return load_file(DATA / f"{found[0]}.toml")
    if found:
        raise InputError(f"--device: {name_or_path!r} is ambiguous; expected one of {', '.join(found)}")
    raise InputError(f"--device: unknown device {name_or_path!r}; {near(name_or_path)}")


def load_file(path: Path) -> Profile:
    """Return the profile in the TOML file at ``path``; raise ``InputError`` if it cannot be read or is no valid profile."""
    return parse(decode(read_bytes(path), str(path)), str(path))


def read_bytes(path: Path) -> bytes:
    """Return the content of ``path``, at most a little over the largest profile; raise ``InputError`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        raise InputError(f"{path}: expected a device profile in TOML, got a directory") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected a device profile in TOML") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot read the device profile: {reason}") from None


@cache
def headers() -> tuple[Header, ...]:
    """Return the headers of all shipped profiles, without parsing the rest of their files."""
    return tuple(_header(DATA / f"{stem}.toml") for stem in names())


def near(name: str) -> str:
    """Return advice on an unknown device name: the shipped devices whose names contain its words, else those spelt like it."""
    words = re.findall(r"[a-z]+|[0-9]+", name.casefold())
    called = {header.id: [_folded(text) for text in (header.id, header.name, *header.driver_names)] for header in headers()}
    hits = [stem for stem, texts in called.items() if words and any(all(word in text for word in words) for text in texts)]
    if not hits:
        spellings = {text: stem for stem, texts in called.items() for text in texts}
        import difflib

        close = difflib.get_close_matches(_folded(name), spellings, n=5, cutoff=0.5)
        hits = list(dict.fromkeys(spellings[text] for text in close))
    if not hits:
        return "expected a device listed by `roofline devices`, or a profile file"
    return f"near names: {', '.join(hits[:8])}; `roofline devices` lists all"


def _header(path: Path) -> Header:
    # TOML's top-level keys stand before the first table, so the larger rest of the file need not be parsed.
    text = path.read_text(encoding="utf-8")
    top = tomllib.loads(re.split(r"^\[", text, maxsplit=1, flags=re.MULTILINE)[0])
    return Header(top["id"], top["name"], tuple(top.get("driver_names", ())))  # a test keeps shipped files in this shape


def _is_path(text: str) -> bool:
    return text.endswith(".toml") or os.sep in text or "/" in text


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
