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
from srflvm.number_range import LARGEST
from srflvm.observations import Group
from srflvm.warning_location import warn_caller

# Whether the user has been told, or need not be told, of rows without an observed entry.
_EMPTY_ROWS_ARE_KNOWN: ContextVar[bool] = ContextVar("empty rows are known", default=False)


def refuse_extremes(values: FloatArray, names: Any, rows: np.ndarray | None = None) -> None:
    """Refuse infinity, and numbers whose squares overflow. `rows` are the numbers of the rows, if they are
    some of Y and not all."""
    if not values.size or -LARGEST <= np.fmin.reduce(values, None) <= np.fmax.reduce(values, None) <= LARGEST:
        return
    among = f"its {values.size} entries" if rows is None else f"the {values.size} entries read with it"
    infinite = np.isinf(values)
    if infinite.any():
        raise DataError(
            f"Y contains infinity at {_first_place(infinite, names, rows)}; {int(infinite.sum())} of {among} "
            "are infinite. Use NaN for entries that were not observed."
        )
    bad = np.abs(values) > LARGEST
    if bad.any():
        raise DataError(
            f"Y has {values[bad][0]:g} at {_first_place(bad, names, rows)}: squares of numbers beyond "
            f"{LARGEST:.0e} overflow ({int(bad.sum())} of {among}). Rescale Y: divide it by a larger unit. "
            "Use NaN for entries that were not observed."
        )


def _first_place(bad: np.ndarray, names: Any, rows: np.ndarray | None) -> str:
    row, column = (int(i) for i in np.argwhere(bad)[0])
    return f"row {row if rows is None else rows[row]}, {choosing.describe(column, names)}"


def refuse_far_entries(values: FloatArray, groups: Sequence[Group], names: Any, first_row: int = 0) -> None:
    """Refuse entries so far from the training data, in units of their spread, that squares overflow; `values`
    are the rows from `first_row` on."""
    for group in groups:
        units = group.units
        bad = np.abs(values[:, group.columns] - units.location) / units.scale > LARGEST
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            at = int(group.columns[column])
            raise DataError(
                f"Y has {values[row, at]:g} at row {first_row + row}, {choosing.describe(at, names)}: that "
                f"is more than {LARGEST:.0e} times the spread of the training data "
                f"({units.scale[column]:.1g}) away from their centre, and its square overflows. "
                "Give Y in the units of the training data."
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
