"""Entries, columns and rows that cannot be used, named by where they are."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from srflvm import _likelihood_choice as choosing
from srflvm._types import FloatArray
from srflvm.exceptions import DataError

_MOST_ROWS_LISTED = 5


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
    if len(rows):
        listed = ", ".join(str(row) for row in rows[:_MOST_ROWS_LISTED])
        more = ", ..." if len(rows) > _MOST_ROWS_LISTED else ""
        warnings.warn(
            f"{len(rows)} rows of Y have no observed entry (rows {listed}{more}): their latents keep the "
            "prior, and what is said of their entries is what is said of an average row.",
            UserWarning,
            stacklevel=5,
        )
