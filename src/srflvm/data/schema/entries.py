"""Entries of a column in a form that does not depend on the library of its frame.

They are numbers (`_Numbers`), or places in a list of values (`_Labels`). Both tell what the entries say of
their column: its kind, its levels, and the codes of its levels. What cannot be used is refused here, by a
message that names the column (`_Label`).
"""

from __future__ import annotations

import datetime
import decimal
import numbers
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError

# Whole numbers with so many values, without gaps, are taken as ordered levels: ratings and grades.
_MOST_ORDINAL = 10

_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


@dataclass(frozen=True)
class _Label:
    """Name a column in messages."""

    place: int
    name: Any

    def __str__(self) -> str:
        return f"Column {self.place} ({self.name!r})"


@dataclass(frozen=True)
class _Numbers:
    """Hold the entries of a column of numbers, NaN where missing; `form` is "truth", "integer" or "float"."""

    values: FloatArray
    form: str
    has_texts = False

    def is_missing(self) -> np.ndarray:
        return np.isnan(self.values)

    def refuse_mixture(self, label: _Label) -> None:
        """Refuse nothing: these are numbers only."""

    def kind(self) -> str:
        """Return what the column is taken as."""
        if self.form == "truth":
            return "binary"
        observed = self.values[~np.isnan(self.values)]
        if len(np.unique(observed[:1000])) > _MOST_ORDINAL:
            return "continuous"  # without sorting all entries
        found = np.unique(observed)
        if len(found) == 2:
            return "binary"
        has_no_gaps = np.all(found == np.rint(found)) and found[-1] - found[0] + 1 == len(found)
        return "ordinal" if 3 <= len(found) <= _MOST_ORDINAL and has_no_gaps else "continuous"

    def levels(self) -> tuple[Any, ...]:
        """Return the values that occur, as Python scalars, in order; both truth values."""
        if self.form == "truth":
            return (False, True)
        found = np.unique(self.values[~np.isnan(self.values)]) + 0.0  # 0 and not -0
        return tuple(int(value) if self.form == "integer" else float(value) for value in found)

    def codes(self, levels: tuple[Any, ...]) -> FloatArray:
        """Return the codes of levels, NaN where missing and -1 where an entry is none of them."""
        known = [(float(level), code) for code, level in enumerate(levels) if not isinstance(level, str)]
        missing = self.is_missing()
        if not known:
            return np.where(missing, np.nan, -1.0)
        ordered, codes = map(np.array, zip(*sorted(known), strict=True))
        places = np.minimum(np.searchsorted(ordered, self.values), len(ordered) - 1)
        found = np.where(ordered[places] == self.values, codes[places], -1.0)
        return np.where(missing, np.nan, found)

    def numbers(self, label: _Label) -> FloatArray:
        """Return the entries as numbers."""
        return self.values

    def entry(self, row: int) -> Any:
        """Return an entry as a Python scalar."""
        value = float(self.values[row])
        return {"truth": bool, "integer": int}.get(self.form, float)(value)


@dataclass(frozen=True)
class _Labels:
    """Hold the entries of a column as places in `values`, -1 where missing.

    `form` is "text" or "category", and "empty" for a type that holds nothing but missing entries, or for
    objects that are all missing.
    """

    places: np.ndarray
    values: tuple[Any, ...]
    form: str
    is_ordered: bool = False

    @property
    def has_texts(self) -> bool:
        return self.form == "text" or any(isinstance(value, str) for value in self.values)

    def is_missing(self) -> np.ndarray:
        return self.places < 0

    def refuse_mixture(self, label: _Label) -> None:
        """Refuse a column with numbers and texts."""
        texts = self._are_texts()
        if not self._occurs()[~texts].any():
            return
        row = self._first_text(texts)
        if row is not None:
            raise DataError(
                f"{label} has numbers and texts: {reprlib.repr(self.entry(row))} at row {row} is not a "
                "number. Put a missing entry in its place if it stands for one; otherwise give all "
                "entries of the column one type."
            )

    def kind(self) -> str:
        """Return what the column is taken as."""
        n_levels = len(self.levels())
        if n_levels == 2:
            return "binary"
        return "ordinal" if self.is_ordered and n_levels > 2 else "categorical"

    def levels(self) -> tuple[Any, ...]:
        """Return the values that occur: texts sorted, categories in their order."""
        found = [self.values[place] for place in np.flatnonzero(self._occurs())]
        return tuple(sorted(set(found)) if self.form == "text" else dict.fromkeys(found))

    def codes(self, levels: tuple[Any, ...]) -> FloatArray:
        """Return the codes of levels, NaN where missing and -1 where an entry is none of them."""
        code = {level: float(place) for place, level in enumerate(levels)}
        return self._looked_up([code.get(value, -1.0) for value in self.values])

    def numbers(self, label: _Label) -> FloatArray:
        """Return the entries as numbers, or refuse the first text."""
        texts = self._are_texts()
        row = self._first_text(texts)
        if row is not None:
            raise DataError(
                f"{label} holds text: {reprlib.repr(self.entry(row))} at row {row} is not a number. Put a "
                "missing entry in its place if it stands for one; otherwise give the column numbers, or one "
                "of the likelihoods 'bernoulli', 'ordinal' and 'categorical'."
            )
        return self._looked_up([np.nan if text else v for v, text in zip(self.values, texts, strict=True)])

    def entry(self, row: int) -> Any:
        """Return an entry as a Python scalar."""
        return self.values[self.places[row]]

    def _are_texts(self) -> np.ndarray:
        """Tell of each value whether it is a text."""
        return np.array([isinstance(value, str) for value in self.values], dtype=bool)

    def _first_text(self, texts: np.ndarray) -> int | None:
        """Return the row of the first text, or None; `texts` tells which values are."""
        found = np.append(texts, False)[self.places]
        return int(found.argmax()) if found.any() else None

    def _occurs(self) -> np.ndarray:
        """Tell of each value whether it occurs."""
        return np.bincount(self.places + 1, minlength=len(self.values) + 1)[1:] > 0

    def _looked_up(self, table: list[float]) -> FloatArray:
        """Return the number of each entry's value, NaN where it is missing."""
        return np.array([*table, np.nan], dtype=np.float64)[self.places]


_Entries = _Numbers | _Labels


def _of_objects(places: np.ndarray, values: Sequence[Any], label: _Label) -> _Entries:
    """Return entries of any type, given as places in a list of different values, -1 where missing."""
    types = {type(value) for value in values}
    _refuse_times(label, any(issubclass(kind, _TIMES) for kind in types))
    other = [kind for kind in types if not issubclass(kind, str) and not _is_real(kind)]
    if other:
        raise _other_type(label, other[0].__name__)
    if not types:
        return _Labels(places, (), "empty")
    if any(issubclass(kind, str) for kind in types):
        return _Labels(places, tuple(map(_plain, values)), "text")
    table = np.array([*(float(value) for value in values), np.nan])
    return _finite(table[places], _form_of_numbers(types), label)


def _is_real(kind: type) -> bool:
    return issubclass(kind, numbers.Real | np.bool_ | decimal.Decimal)


def _form_of_numbers(types: set[type]) -> str:
    if all(issubclass(kind, bool | np.bool_) for kind in types):
        return "truth"
    return "integer" if all(issubclass(kind, numbers.Integral) for kind in types) else "float"


def _finite(values: FloatArray, form: str, label: _Label) -> _Numbers:
    """Return numbers, none of which may be infinite."""
    infinite = np.isinf(values)
    if infinite.any():
        raise DataError(
            f"{label} holds infinity at row {int(infinite.argmax())}; {int(infinite.sum())} of its entries "
            "are infinite. Use NaN for entries that were not observed."
        )
    return _Numbers(values, form)


def _of_categories(places: np.ndarray, values: Sequence[Any], ordered: bool, label: _Label) -> _Labels:
    """Return entries that are categories; what is neither text nor number is taken by its text."""
    _refuse_times(label, any(isinstance(value, _TIMES) for value in values))
    plain = tuple(_plain(value) for value in values)
    if len(set(plain)) < len(set(values)):
        raise DataError(f"{label} has different categories with the same text. Give them other names.")
    return _Labels(places, plain, "category", ordered)


def _refuse_times(label: _Label, found: bool) -> None:
    if found:
        raise DataError(
            f"{label} holds dates or times. Turn them into numbers first, such as days since a date, or "
            "drop the column."
        )


def _other_type(label: _Label, dtype: str) -> DataError:
    return DataError(
        f"{label} holds values of type {dtype}, which are neither real numbers, texts nor truth values. Turn "
        "them into one of these, or drop the column."
    )


def _plain(value: Any) -> Any:
    """Return a level as a Python scalar: bool, int, float or str; the text of what is none of these."""
    value = value.item() if isinstance(value, np.generic) else value
    if type(value) in (bool, int, float, str):
        return value
    return float(value) if _is_real(type(value)) else str(value)


def _objects(values: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
