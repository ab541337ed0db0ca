"""Text for terminals that cannot show all of it: what a stream's encoding lacks is folded to plain letters."""

import codecs
from typing import TextIO

# The symbols the program prints, in ASCII; whatever else a stream cannot show becomes a question mark.
FOLDED = {"µ": "u", "×": "x", "≥": ">=", "≤": "<=", "±": "+-", "·": "*", "–": "-", "→": "->", "…": "..."}
BOX = {"│": "|", "─": "-", "┤": "+", "├": "+", "└": "+", "┘": "+", "┌": "+", "┐": "+", "┬": "+", "┴": "+", "┼": "+"}


def fold_unknown(stream: TextIO | None) -> None:
    """Let ``stream`` fold what its encoding lacks instead of failing on it."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and stream is not None and (stream.encoding or "").lower().replace("-", "") != "utf8":
        codecs.register_error("roofline-fold", _fold)
        reconfigure(errors="roofline-fold")


def _fold(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(FOLDED.get(letter) or BOX.get(letter) or _point(letter) for letter in letters), error.end


def _point(letter: str) -> str:
    return "." if "\u2800" <= letter <= "\u28ff" else "?"  # braille draws the roof
