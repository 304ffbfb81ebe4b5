"""Rows of a file as a fitted model takes them: the columns of the fit, in its order."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.commands.speaking import Speaker
from srflvm.exceptions import DataError
from srflvm.named import NamedTable, listed
from srflvm.sources import ArraySource, Source, pieces
from srflvm.tables import Reading, Table, open_table


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


def open_rows(data: Path, how: Reading, speaker: Speaker) -> Table:
    """The table in a file, with a word on what may have been taken wrongly."""
    table = open_table(data, how)
    for line in table.warnings:
        speaker.warn(line)
    return table


def order_of_columns(model: Any, table: Table, note: Callable[[str], None]) -> np.ndarray:
    """Where in the table the columns of the model are, by name if both have names."""
    known, own = getattr(model, "feature_names_in_", None), table.columns
    if known is None or own is None:
        _check_number(model, table)
        if known is not None:
            note("The columns have no names: they are taken in the order of the model.")
        return np.arange(table.shape[1])
    _check_names(list(known), list(own))
    places = {name: place for place, name in enumerate(own)}
    order = np.array([places[name] for name in known])
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
    placed = np.full_like(values, np.nan)
    placed[:, order] = values
    return placed


def n_observed(rows: Source) -> np.ndarray:
    """How many entries of each row are observed."""
    return np.concatenate([np.isfinite(piece).sum(axis=1) for _, piece in pieces(rows)])


def _check_number(model: Any, table: Table) -> None:
    if table.shape[1] != model.n_features_in_:
        raise DataError(
            f"The table has {table.shape[1]} columns, but the model was fitted to {model.n_features_in_}."
        )


def _check_names(known: list[str], own: list[str]) -> None:
    in_model, in_table = set(known), set(own)
    missing = [name for name in known if name not in in_table]
    surplus = [name for name in own if name not in in_model]
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
