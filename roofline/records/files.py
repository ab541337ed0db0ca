"""Run files: JSON Lines, a header and then one record a line, each on the disk before the next one is measured.

A line is written with one call, and taken back if the disk is full, so a file holds whole records up to its last line. A run
holds a lock on its file: a second one gets another name or an error, never the same file.
"""

import errno
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from roofline.errors import InputError, RooflineError
from roofline.records.schema import SCHEMA, SCHEMA_VERSION, Header, Record

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline; a terminal would obey them

try:
    import fcntl
except ImportError:  # Windows reads run files, but measures nothing
    fcntl = None  # type: ignore[assignment]

POINT_FIELDS = {"configuration", "variant", "implementation", "problem", "plan"}


@dataclass(frozen=True, slots=True)
class Run:
    """One run file as read. ``torn``: its last line was cut off, and left out."""

    path: Path
    header: Header
    records: tuple[Record, ...]
    torn: bool = False


def read(path: Path) -> Run:
    """Return the run in ``path``; of several records of one point the last counts, since counters are added after timing.

    Raises ``InputError`` for a file that is missing, no run file, or written in a newer format; a torn last line is left out.
    """
    lines, torn = _lines(path)
    if not lines:
        raise InputError(f"{path}: expected a run file of roofline, got {'a torn header' if torn else 'an empty file'}")
    header = _header(lines[0], path)
    points: dict[str, Record] = {}
    for number, line in enumerate(lines[1:], start=2):
        record = _record(line, path, number)
        points[point_key(record.model_dump(include=POINT_FIELDS))] = record
    return Run(path, header, tuple(points.values()), torn)


def _lines(path: Path) -> tuple[list[bytes], bool]:
    """Return the whole lines of ``path``, and whether a cut-off one follows them."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read the run file: {error.strerror}") from None
    *lines, tail = data.split(b"\n")
    if tail and _is_object(tail):  # whole, but for the newline
        return [*lines, tail], False
    return lines, bool(tail)


def _is_object(line: bytes) -> bool:
    return isinstance(_parsed(line), dict)


def _parsed(line: bytes) -> Any:
    """Return what ``line`` holds, or ``None`` if it is no JSON; control characters are replaced, so that text stays text."""
    try:
        return _without_controls(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _without_controls(value: Any) -> Any:
    if isinstance(value, str):
        return CONTROLS.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_controls(each) for each in value]
    if isinstance(value, dict):
        return {_without_controls(key): _without_controls(each) for key, each in value.items()}
    return value


def _header(line: bytes, path: Path) -> Header:
    fields = _parsed(line)
    name = str(fields.get("schema", "")) if isinstance(fields, dict) else ""
    prefix, _, version = name.rpartition("/")
    if prefix != SCHEMA.rpartition("/")[0] or not version.isdigit():
        raise InputError(f"{path}: expected a run file of roofline ({SCHEMA}), got another kind of file")
    if int(version) > SCHEMA_VERSION:
        raise InputError(f"{path}: written as {name}, this roofline reads up to {SCHEMA}; use a newer roofline")
    try:
        return Header.model_validate(fields)
    except ValidationError as error:
        raise InputError(f"{path}:1: {_first(error)}") from None


def _record(line: bytes, path: Path, number: int) -> Record:
    fields = _parsed(line)
    if not isinstance(fields, dict):
        raise InputError(f"{path}:{number}: expected a point of a run as a JSON object")
    try:
        return Record.model_validate(fields)
    except ValidationError as error:
        raise InputError(f"{path}:{number}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    at = ".".join(map(str, first["loc"]))
    return f"{at}: {first['msg']}" if at else str(first["msg"])


class Writer:
    """Appends records to one run file, and owns it until closed."""

    def __init__(self, path: Path, descriptor: int, written: int) -> None:
        """Take over an open, locked ``descriptor``; use ``create`` or ``resume``."""
        self.path = path
        self.written = written  # records
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path, header: Header, *, force: bool = False) -> Self:
        """Start the file ``path``; raise ``InputError`` if it exists (unless ``force``) or another run is writing it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (0 if force else os.O_EXCL)
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileExistsError:
            raise InputError(f"{path} exists; expected another name, --resume {path} or --force") from None
        except OSError as error:
            raise InputError(f"{path}: cannot write the run file: {error.strerror}") from None
        _lock(descriptor, path)
        with suppress(OSError):  # a device such as /dev/full has no length
            os.ftruncate(descriptor, 0)
        writer = cls(path, descriptor, 0)
        try:
            writer._write(header)
        except RooflineError:
            writer.close()
            raise
        return writer

    @classmethod
    def unique(cls, path: Path, header: Header) -> Self:
        """Start ``path``, or ``path`` with -2, -3, ... where that file exists: two runs of one second do not collide."""
        for number in range(1, 1000):
            candidate = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
            with suppress(InputError):
                if not candidate.exists():
                    return cls.create(candidate, header)
        return cls.create(path, header)

    @classmethod
    def resume(cls, path: Path) -> tuple[Self, Run]:
        """Open the file of an earlier run to go on, a torn last line cut off, and return what it holds."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise InputError(f"--resume {path}: cannot open the run file: {error.strerror}") from None
        _lock(descriptor, path)
        try:
            run = read(path)
        except InputError:
            os.close(descriptor)
            raise
        data = path.read_bytes()
        if run.torn:
            os.ftruncate(descriptor, data.rfind(b"\n") + 1)
        elif not data.endswith(b"\n"):
            os.write(descriptor, b"\n")
        return cls(path, descriptor, len(run.records)), run

    def append(self, record: Record) -> None:
        """Write one record and wait until it is on the disk; raise ``RooflineError`` when it cannot be."""
        self._write(record)
        self.written += 1

    def close(self) -> None:
        """Give the file back. Closing twice does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the file."""
        self.close()

    def _write(self, model: BaseModel) -> None:
        line = model.model_dump_json(by_alias=True, exclude_none=False).encode() + b"\n"
        before = os.fstat(self._descriptor).st_size
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            _sync(self._descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, before)
            reason = "no space left" if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) else error.strerror
            raise RooflineError(f"{self.path}: {reason}; the {self.written} points before are saved") from None


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a pipe or a device cannot be synchronised
            raise


def _lock(descriptor: int, path: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(f"{path}: another run is writing this file; expected another name") from None
    except OSError:  # a file system without locks: O_EXCL and O_APPEND still keep two new runs apart
        pass


def point_key(fields: Mapping[str, Any]) -> str:
    """Return what makes two records the same point of a run: configuration, variant, plan form, implementation, problem."""
    names = ("configuration", "variant", "implementation", "problem")
    form = (fields.get("plan") or {}).get("form")
    return json.dumps([form, *(fields[name] for name in names)], sort_keys=True)
