"""Read the fields of a configuration: checked types and ranges, aliases, documented defaults, and a list of what was inferred.

Every message is one line that names the file and the field. A bool is not a number here, and ``null`` is a value only where
the family documents a meaning for it.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from roofline.errors import InputError
from roofline.models.spec import Inferred

MAX_SIZE = 2**20  # widths, heads, ranks
MAX_VOCAB = 2**24
MAX_LAYERS = 4096
MAX_EXPERTS = 2**16
MAX_TOKENS = 2**40  # windows, chunks

T = TypeVar("T")


def shown(value: object) -> str:
    """A value from a file as a message shows it: one line, cut."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Fields:
    """The fields of one JSON object, read one by one; what is missing is recorded in ``inferred``.

    ``where`` names the file, and the object inside it, in messages; ``owner`` names the configuration class whose defaults
    are taken.
    """

    def __init__(self, data: Mapping[str, object], where: str, owner: str, inferred: list[Inferred] | None = None) -> None:
        """Read ``data``; nested objects share the list of inferred values."""
        self.data = data
        self.where = where
        self.owner = owner
        self.inferred: list[Inferred] = [] if inferred is None else inferred
        self.notes: list[str] = []
        self._seen: set[tuple[str, str]] = set()

    def error(self, message: str) -> InputError:
        """An error that names the file."""
        return InputError(f"{self.where}: {message}")

    def infer(self, name: str, value: T, reason: str) -> T:
        """Record that ``value`` was taken for a field that the file does not give."""
        if (name, reason) not in self._seen:
            self._seen.add((name, reason))
            self.inferred.append(Inferred(name, value, reason))
        return value

    def has(self, name: str) -> bool:
        """Whether the file gives the field, ``null`` included."""
        return name in self.data

    def is_null(self, *names: str) -> bool:
        """Whether the first of ``names`` that the file gives is ``null``."""
        name = self._find(names)
        return name is not None and self.data[name] is None

    def size(self, *names: str, default: int, most: int = MAX_SIZE, least: int = 1) -> int:
        """A whole number from ``least`` to ``most``; missing: the family's default. ``names`` after the first are aliases."""
        name = self._find(names)
        if name is None:
            return self.infer(names[0], default, f"default of {self.owner}")
        return self._whole(name, self.data[name], least, most)

    def optional_size(self, *names: str, default: int | None = None, most: int = MAX_SIZE) -> int | None:
        """A whole number, or ``None`` where the field is ``null``; missing: the family's default, recorded."""
        name = self._find(names)
        if name is None:
            return self.infer(names[0], default, f"default of {self.owner}")
        return None if self.data[name] is None else self._whole(name, self.data[name], 1, most)

    def size_or(self, *names: str, derived: int, rule: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """A whole number; missing or ``null``: ``derived`` by ``rule``, or ``default`` where only a missing field has one."""
        name = self._find(names)
        if name is None and default is not None:
            return self.infer(names[0], default, f"default of {self.owner}")
        if name is None or self.data[name] is None:
            return self.infer(names[0], derived, rule)
        return self._whole(name, self.data[name], 1, most)

    def flag(self, *names: str, default: bool) -> bool:
        """True or false; missing: the family's default."""
        name = self._find(names)
        if name is None:
            return self.infer(names[0], default, f"default of {self.owner}")
        value = self.data[name]
        if not isinstance(value, bool):
            raise self.error(f"{name}: expected true or false, got {shown(value)}")
        return value

    def text(self, name: str, default: str) -> str:
        """A text; missing: the family's default."""
        if name not in self.data:
            return self.infer(name, default, f"default of {self.owner}")
        value = self.data[name]
        if not isinstance(value, str):
            raise self.error(f"{name}: expected a text, got {shown(value)}")
        return value

    def child(self, name: str, owner: str) -> "Fields":
        """The object in field ``name``; missing or ``null``: an empty one, whose every field is inferred."""
        value = self.data.get(name)
        if value is None:
            self.infer(name, None, f"default of {self.owner}")
            value = {}
        if not isinstance(value, dict):
            raise self.error(f"{name}: expected an object, got {shown(value)}")
        return Fields(value, f"{self.where}: {name}", owner, self.inferred)

    def sequence(self, name: str, length: int) -> Sequence[object] | None:
        """A list with one value a layer, or ``None`` where the field is missing or ``null``."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.error(f"{name}: expected a list, got {shown(value)}")
        if len(value) != length:
            raise self.error(f"{name}: expected one value for each of the {length} layers, got {len(value)}")
        return value

    def kinds(self, name: str, length: int, allowed: Mapping[str, T]) -> tuple[T, ...] | None:
        """A list with one of the words ``allowed`` a layer, translated; ``None`` where the field is missing or ``null``."""
        values = self.sequence(name, length)
        if values is None:
            return None
        for value in values:
            if not isinstance(value, str) or value not in allowed:
                raise self.error(f"{name}: unknown kind of layer {shown(value)}; expected one of {', '.join(allowed)}")
        return tuple(allowed[str(value)] for value in values)

    def numbers(self, name: str, length: int, *, least: int = 0, most: int = MAX_SIZE) -> tuple[int, ...] | None:
        """A list with one whole number a layer; ``None`` where the field is missing or ``null``."""
        values = self.sequence(name, length)
        return None if values is None else tuple(self._whole(name, value, least, most) for value in values)

    def indices(self, name: str, length: int) -> frozenset[int] | None:
        """A list of layer numbers below ``length``; ``None`` where the field is missing or ``null``."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.error(f"{name}: expected a list of layer numbers, got {shown(value)}")
        numbers = [self._whole(name, item, 0, length - 1) for item in value]
        if len(set(numbers)) != len(numbers):
            raise self.error(f"{name}: names a layer twice")
        return frozenset(numbers)

    def _find(self, names: tuple[str, ...]) -> str | None:
        given = [name for name in names if name in self.data]
        for other in given[1:]:
            if self.data[other] != self.data[given[0]]:
                first, second = shown(self.data[given[0]]), shown(self.data[other])
                raise self.error(f"{given[0]} is {first} and {other}, its other name, is {second}")
        return given[0] if given else None

    def _whole(self, name: str, value: object, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(f"{name}: expected a whole number from {least} to {most}, got {shown(value)}")
        return value
