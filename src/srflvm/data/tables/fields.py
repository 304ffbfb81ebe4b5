"""Fields of text tables: numbers, the ways to write them, and texts for missing entries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from srflvm.data.tables.table import parse_numbers
from srflvm.exceptions import DataError

# Ways to say that an entry is missing, in small letters.
_MISSING = frozenset(
    ("", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "?", "-", "--", ".")
)

# Those that need not be pointed out to a reader.
_USUAL = frozenset(("", "na", "n/a", "nan", "null"))

# A level in a column of texts, as pandas has it, where None stands for a missing entry.
_LEVEL_IN_TEXTS = "none"

_WHOLE_NUMBERS_BELOW = 1e15

_POWER = r"([eE][+-]?\d+)?"


def _number_with(decimal: str, thousands: str) -> re.Pattern[str]:
    """Return the form of numbers with these signs."""
    point, mark = re.escape(decimal), re.escape(thousands)
    return re.compile(rf"[+-]?((\d+|[1-9]\d{{0,2}}({mark}\d{{3}})+)({point}\d*)?|{point}\d+){_POWER}")


_OTHER_SIGN = {".": ",", ",": "."}
_NUMBERS = {decimal: _number_with(decimal, other) for decimal, other in _OTHER_SIGN.items()}

# 1.234 is a thousand where the comma is the decimal sign: without another number nobody can tell.
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")


@dataclass(frozen=True)
class Notation:
    """Say how the numbers of a file are written, and which texts mean that an entry is missing.

    With `groups` numbers may have separators of thousands: the sign that is not the decimal one. `marks` are
    further texts for missing entries.
    """

    decimal: str = "."
    groups: bool = False
    marks: frozenset[str] = frozenset()

    def is_missing(self, text: str) -> bool:
        """Tell whether a field of numbers is missing."""
        stripped = text.strip()
        return stripped.lower() in _MISSING or stripped in self.marks

    def is_number(self, text: str) -> bool:
        """Tell whether a field is a number and not missing."""
        number = self.number(text)
        return number is not None and number == number

    def number(self, text: str) -> float | None:
        """Return the number of a field, NaN if it is missing and None if it is a text."""
        if self.is_missing(text):
            return np.nan
        try:
            return parse_numbers([self._with_point(text)])[0]
        except ValueError:
            return None

    def numbers(self, texts: Sequence[str]) -> list[float]:
        """Return the numbers of fields, or raise a ValueError where one of them is missing or a text."""
        if self == _PLAIN:
            return parse_numbers(texts)
        if any(text.strip() in self.marks for text in texts):
            raise ValueError("An entry is missing.")
        return parse_numbers([self._with_point(text) for text in texts])

    def missing_texts(self, texts: Iterable[str]) -> set[str]:
        """Return those of the different texts of a column that mean missing.

        A minus stands for a level where there is a plus.
        """
        different = set(texts)
        levels = {_LEVEL_IN_TEXTS, *("-" for _ in different & {"+"})} - self.marks
        return {text for text in different if self.is_missing(text)} - levels

    def is_unusual(self, text: str) -> bool:
        """Tell whether a reader may not expect that a text means a missing entry."""
        return text.strip().lower() not in _USUAL and text.strip() not in self.marks

    def write(self, value: float | np.floating) -> str:
        """Return the shortest text that is this number, and no text for NaN."""
        if np.isnan(value):
            return ""
        if value.is_integer() and abs(value) < _WHOLE_NUMBERS_BELOW:
            return str(int(value))
        return str(value).replace(".", self.decimal)

    def _with_point(self, text: str) -> str:
        """Return a number as Python writes it, and anything else as it is."""
        if self.decimal == "." and not (self.groups and "," in text):
            return text
        stripped = text.strip()
        if not _NUMBERS[self.decimal].fullmatch(stripped):
            if "." in stripped:
                raise ValueError("A point does not stand where thousands end.")
            return stripped
        return stripped.replace(_OTHER_SIGN[self.decimal], "").replace(self.decimal, ".")


_PLAIN = Notation()


def looks_like_number(text: str) -> bool:
    """Tell whether a field is an observed number, with whatever decimal sign."""
    return _PLAIN.is_number(text) or any(form.fullmatch(text.strip()) for form in _NUMBERS.values())


def has_decimal_comma(text: str) -> bool:
    """Tell whether a field is a number with a comma in it, for the point or between thousands."""
    return "," in text and looks_like_number(text)


def find_notation(
    columns: Iterable[Sequence[str]], decimal: str | None, marks: frozenset[str], what: str, by_comma: bool
) -> Notation:
    """Return how numbers are written in a file, of which some entries of each column are given.

    `decimal` is what the user says, None if nothing. `by_comma` tells that a comma separates neither fields
    nor thousands, as where semicolons are used.
    """
    if decimal is not None:
        return Notation(decimal, groups=True, marks=marks)
    found = {".": False, ",": False}
    unclear: dict[str, str] = {}
    for column in columns:
        observed = [text.strip() for text in column if not Notation(marks=marks).is_missing(text)]
        if all(map(looks_like_number, observed)):
            for text in observed:
                _weigh(text, found, unclear)
    if found["."] or not (found[","] or "," in unclear):
        return Notation(marks=marks)
    if "." in unclear or not (found[","] or by_comma):
        example = unclear.get(".", unclear.get(",", ""))
        raise DataError(
            f"{what} has the number {example!r}, whose {'point' if '.' in example else 'comma'} may separate "
            "thousands or decimals. Say which sign begins the decimals: --decimal . or --decimal ,"
        )
    return Notation(",", groups=True, marks=marks)


def _weigh(text: str, found: dict[str, bool], unclear: dict[str, str]) -> None:
    """Note which decimal sign a number has, if it has one."""
    if _EITHER.fullmatch(text):
        unclear.setdefault("." if "." in text else ",", text)
        return
    for decimal, form in _NUMBERS.items():
        other = _OTHER_SIGN[decimal]
        if form.fullmatch(text) and (decimal in text or other in text):
            found[decimal] = True
