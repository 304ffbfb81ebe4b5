"""Entries, columns and rows that cannot be used, named by where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from srflvm import _likelihood_choice as choosing
from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.warning_location import warn_caller

# Whether the user has been told, or need not be told, of rows without an observed entry.
_EMPTY_ROWS_ARE_KNOWN: ContextVar[bool] = ContextVar("empty rows are known", default=False)


def refuse_infinity(values: FloatArray, names: Any, rows: np.ndarray | None = None) -> None:
    """`rows` are the numbers of the rows, if they are some of Y and not all."""
    bad = np.isinf(values)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        place = f"row {row if rows is None else rows[row]}, {choosing.describe(column, names)}"
        among = f"its {values.size} entries" if rows is None else f"the {values.size} entries read with it"
        raise DataError(
            f"Y contains infinity at {place}; {int(bad.sum())} of {among} are infinite. "
            "Use NaN for entries that were not observed."
        )


def refuse_empty_columns(is_empty: np.ndarray, names: Any) -> None:
    """Nothing can be learned about a column without an observed entry."""
    empty = np.flatnonzero(is_empty)
    if empty.size:
        raise DataError(
            f"Y has no observed entry in {choosing.describe(int(empty[0]), names)} "
            f"({empty.size} such columns). Drop it: nothing can be learned about it."
        )


def warn_of_empty_rows(rows: Sequence[int]) -> None:
    """`rows` are the numbers of those without an observed entry."""
    if not len(rows) or _EMPTY_ROWS_ARE_KNOWN.get():
        return
    if len(rows) == 1:
        found, them, their = f"1 row of Y has no observed entry: row {rows[0]}", "it", "its"
    else:
        found = f"{len(rows)} rows of Y have no observed entry, the first is row {rows[0]}"
        them, their = "them", "their"
    warn_caller(
        f"{found}. The model places {them} at the prior, so that {their} imputed values are those of an "
        "average row."
    )


@contextmanager
def empty_rows_are_known() -> Iterator[None]:
    """Warn of no empty rows: a method that calls others has done so, or they are no rows of the user's Y."""
    token = _EMPTY_ROWS_ARE_KNOWN.set(True)
    try:
        yield
    finally:
        _EMPTY_ROWS_ARE_KNOWN.reset(token)
