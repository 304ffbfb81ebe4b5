"""Data frames, lists and arrays of objects as numbers, with errors that name the column and the entry."""

from __future__ import annotations

import datetime
import reprlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srflvm.exceptions import DataError

_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


@dataclass(frozen=True)
class _Column:
    """A column that may hold other things than numbers: `values` are its entries, None for dates."""

    place: int
    name: Any
    values: np.ndarray | None

    def __str__(self) -> str:
        return f"Column {self.place}" if self.name is None else f"Column {self.place} ({self.name!r})"


def numeric(Y: Any, names: Sequence[str] | None = None, *, fitting: bool = True) -> Any:
    """Return Y if it can become numbers, with NaN for NA in columns of objects of a pandas frame.

    Parameters
    ----------
    Y : array-like of shape (n, M)
    names : sequence of str, default=None
        Names of the columns, if Y itself has none.
    fitting : bool, default=True
        Whether a model is to be fitted to Y, so that a column may be left out.

    Raises
    ------
    DataError
        A column holds texts, or dates, which would become numbers of days or nanoseconds.
    TypeError
        An entry is neither a number nor a text.
    """
    for column in _doubtful_columns(Y, names):
        _refuse_dates(column, column.values is None)
        _refuse_texts(column, fitting)
    return _without_na(Y) if _is_frame(Y, "pandas") else Y


def _is_frame(Y: Any, library: str) -> bool:
    return isinstance(Y, getattr(sys.modules.get(library), "DataFrame", ()))


def _doubtful_columns(Y: Any, names: Sequence[str] | None) -> Iterator[_Column]:
    """Yield the columns whose type does not say that they hold numbers."""
    if _is_frame(Y, "pandas"):
        for place, (name, dtype) in enumerate(zip(Y.columns, Y.dtypes, strict=True)):
            if dtype.kind in "mM":
                yield _Column(place, name, None)
            elif dtype.kind == "O":
                yield _Column(place, name, _with_none(Y.iloc[:, place]))
    elif _is_frame(Y, "polars"):
        for place, series in enumerate(Y.get_columns()):
            if series.dtype.is_temporal():
                yield _Column(place, series.name, None)
            elif not series.dtype.is_numeric():
                yield _Column(place, series.name, _objects(series.to_list()))
    else:
        array = _array(Y)
        for place in range(array.shape[1] if array.ndim == 2 else 0):
            values = None if array.dtype.kind in "mM" else array[:, place]
            yield _Column(place, None if names is None else names[place], values)


def _array(Y: Any) -> np.ndarray:
    """Return an array or a list as an array, empty if its type says that it holds numbers."""
    if isinstance(Y, list | tuple):
        try:
            np.asarray(Y, dtype=np.float64)
        except (TypeError, ValueError):
            return np.array(Y, dtype=object)
    return Y if isinstance(Y, np.ndarray) and Y.dtype.kind in "OUSmM" else np.empty(0)


def _with_none(column: Any) -> np.ndarray:
    """Return the entries of a pandas column, None where one is missing."""
    values = np.array(column, dtype=object)
    values[np.asarray(column.isna())] = None
    return values


def _objects(values: Sequence[Any]) -> np.ndarray:
    """Return an array of one dimension, also if the values are sequences."""
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _refuse_dates(column: _Column, found: bool) -> None:
    if found:
        raise DataError(
            f"{column} holds dates or times. Turn them into numbers first, such as days since a date, or "
            "drop the column."
        )


def _refuse_texts(column: _Column, fitting: bool) -> None:
    """Refuse the first entry of a column that is no number."""
    values: Any = column.values
    try:
        np.asarray(values, dtype=np.float64)
        return
    except (TypeError, ValueError):
        wrong = ((row, value) for row, value in enumerate(values) if _fault(value) is not None)
    row, value = next(wrong)
    _refuse_dates(column, isinstance(value, _TIMES))
    place = f"{reprlib.repr(str(value) if isinstance(value, str) else value)} at row {row}"
    if not isinstance(value, str | bytes):
        raise TypeError(
            f"{column} holds {place}, which is no number: {_fault(value)}. Use NaN for entries that were not "
            "observed."
        )
    some_numbers = any(other is not None and _fault(other) is None for other in values)
    hint = "Put NaN in its place if it stands for a missing entry; otherwise: " if some_numbers else ""
    raise DataError(f"{column} holds text: {place} is not a number. {hint}{_remedy(column, fitting)}")


def _fault(value: Any) -> str | None:
    """Return why an entry is no number, or None; None itself is a missing entry."""
    try:
        float("nan" if value is None else value)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def _remedy(column: _Column, fitting: bool) -> str:
    if not fitting:
        return "Give the column the numbers or codes that it had in the fit."
    # names that are no texts are not kept, and columns are then told by their place
    key = column.name if isinstance(column.name, str) else column.place
    return (
        "Drop the column, or encode its values as codes 0, 1, 2, ... and name it in "
        f"likelihood={{{key!r}: 'categorical', ...}}, with a likelihood for each of the other columns, too."
    )


def _without_na(Y: Any) -> Any:
    """Return a pandas frame with NaN for NA in columns of objects, which would not become numbers."""
    objects = [place for place, dtype in enumerate(Y.dtypes) if dtype.kind == "O"]
    if any(Y.iloc[:, place].isna().any() for place in objects):
        Y = Y.copy()
        for place in objects:
            column = Y.iloc[:, place]
            Y.isetitem(place, column.where(column.notna(), np.nan))
    return Y
