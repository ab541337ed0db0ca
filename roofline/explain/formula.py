"""Formulas that a reader can redo by hand: sums of products of named whole numbers. The text is made from the numbers.

``Formula.value`` multiplies the factors out, so that a formula cannot say one thing and count another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple


class Factor(NamedTuple):
    """A number and what it counts: ``2048 keys seen``."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Term:
    """A product of factors, divided by ``divided_by`` without remainder; ``subtracted`` from the sum that it is part of."""

    factors: tuple[Factor, ...]
    divided_by: int = 1
    subtracted: bool = False

    @property
    def value(self) -> int:
        """The product, negative where it is subtracted."""
        product = prod(factor.value for factor in self.factors) // self.divided_by
        return -product if self.subtracted else product

    def pieces(self) -> list[str]:
        """The product as text, one piece a factor, so that lines break between factors. Factors of one are left out."""
        shown = [f for f in self.factors if f.value != 1] or list(self.factors[-1:])
        texts = [f"{factor.value:,} {factor.name}".strip() for factor in shown]
        if self.divided_by != 1:
            texts[-1] += f" / {self.divided_by}"
        return [texts[0], *(f"× {text}" for text in texts[1:])]


@dataclass(frozen=True, slots=True)
class Formula:
    """A sum of products."""

    terms: tuple[Term, ...]

    @property
    def value(self) -> int:
        """The sum."""
        return sum(term.value for term in self.terms)

    def __add__(self, other: "Formula") -> "Formula":
        """The terms of both, one after the other."""
        return Formula(self.terms + other.terms)

    def times(self, *factors: Factor) -> "Formula":
        """Every term with more factors."""
        return Formula(tuple(replace(term, factors=(*term.factors, *factors)) for term in self.terms))

    def of(self, other: "Formula") -> "Formula":
        """This product, which is one term, of every term of ``other``."""
        (own,) = self.terms
        return Formula(tuple(replace(term, factors=own.factors + term.factors) for term in other.terms))

    def pieces(self) -> list[str]:
        """The sum as text, in pieces between which a line may break."""
        shown = [term for term in self.terms if term.value] or list(self.terms[:1])
        if not shown:
            return ["0"]
        pieces = shown[0].pieces()
        for term in shown[1:]:
            first, *rest = term.pieces()
            pieces += [f"{'-' if term.subtracted else '+'} {first}", *rest]
        return pieces

    def text(self) -> str:
        """The sum in one line."""
        return " ".join(self.pieces())

    def to_dict(self) -> dict[str, Any]:
        """Terms, text and value, as the document holds them."""
        return {
            "terms": [
                {
                    "factors": [[factor.name, factor.value] for factor in term.factors],
                    "divided_by": term.divided_by,
                    "subtracted": term.subtracted,
                }
                for term in self.terms
            ],
            "formula": self.text(),
            "value": self.value,
        }


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that several lines use: its ``symbol`` is the name of the factor there, ``formula`` says where it is from."""

    symbol: str
    meaning: str
    formula: Formula

    @property
    def factor(self) -> Factor:
        """The quantity as a factor of another formula."""
        return Factor(self.symbol, self.formula.value)


def product(*factors: Factor | tuple[str, int], divided_by: int = 1) -> Formula:
    """One product."""
    return Formula((Term(tuple(Factor(*factor) for factor in factors), divided_by),))


def minus(formula: Formula) -> Formula:
    """The formula, subtracted."""
    return Formula(tuple(replace(term, subtracted=not term.subtracted) for term in formula.terms))


def larger(*formulas: Formula) -> Formula:
    """The formula with the largest value, the first of equal ones."""
    return max(formulas, key=lambda formula: formula.value)


def total(formulas: Iterable[Formula]) -> Formula:
    """The sum of formulas."""
    return Formula(tuple(term for formula in formulas for term in formula.terms))


def arithmetic_runs(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Cut ``values`` into runs of equal steps, each as (how many, first, last)."""
    runs: list[tuple[int, int, int]] = []
    start = 0
    while start < len(values):
        end = start + 1
        if end < len(values):
            step = values[end] - values[start]
            while end < len(values) and values[end] - values[end - 1] == step:
                end += 1
        runs.append((end - start, values[start], values[end - 1]))
        start = end
    return runs
