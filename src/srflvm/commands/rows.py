"""Rows of a file as a fitted model takes them: the columns of the fit, in its order."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.named import NamedTable, listed
from srflvm.sources import ArraySource, Source
from srflvm.tables import Table


@dataclass(frozen=True)
class ArrangedSource:
    """A source with its columns in another order, and their names."""

    source: Source
    order: np.ndarray
    names: Sequence[str] | None

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def n_columns(self) -> int:
        return len(self.order)

    def read(self, start: int, stop: int) -> FloatArray:
        return self.source.read(start, stop)[:, self.order]

    def take(self, index: np.ndarray) -> FloatArray:
        return self.source.take(index)[:, self.order]


def order_of_columns(model: Any, table: Table, note: Callable[[str], None]) -> np.ndarray:
    """Where in the table the columns of the model are, by name if both have names."""
    known, own = getattr(model, "feature_names_in_", None), table.columns
    if known is None or own is None:
        _check_number(model, table)
        if known is not None:
            note("The columns have no names: they are taken in the order of the model.")
        return np.arange(table.shape[1])
    _check_names(list(known), list(own))
    order = np.array([list(own).index(name) for name in known])
    if np.any(np.diff(order) < 0):
        note("The columns are in another order than in the fit: they are taken by name.")
    return order


def arranged(model: Any, table: Table, order: np.ndarray) -> Any:
    """The rows as the model takes them."""
    names = getattr(model, "feature_names_in_", None)
    if isinstance(table.rows, ArraySource):
        values = table.rows.Y[:, order]
        return values if names is None else NamedTable(values, list(names))
    return ArrangedSource(table.rows, order, None if names is None else list(names))


def back_in_order(values: FloatArray, order: np.ndarray) -> FloatArray:
    """Columns of the model, (n, M), in the order that they have in the table."""
    placed = np.empty_like(values)
    placed[:, order] = values
    return placed


def _check_number(model: Any, table: Table) -> None:
    if table.shape[1] != model.n_features_in_:
        raise DataError(
            f"The table has {table.shape[1]} columns, but the model was fitted to {model.n_features_in_}."
        )


def _check_names(known: list[str], own: list[str]) -> None:
    missing = [name for name in known if name not in set(own)]
    surplus = [name for name in own if name not in set(known)]
    if missing:
        raise DataError(
            f"The table has no column {listed(missing)}, which the model was fitted to"
            f"{like(missing[0], surplus)}. Leave its entries empty if they were not observed."
        )
    if surplus:
        raise DataError(
            f"The model does not know the column {listed(surplus)}. Leave it out with --leave-out, or name "
            "the column of row ids with --id-column."
        )


def like(name: str, others: Sequence[str]) -> str:
    """A hint at a name that may have been meant."""
    lower = {other.lower(): other for other in others}
    close = difflib.get_close_matches(name.lower(), lower, 1)
    return f" (there is {lower[close[0]]!r})" if close else ""
