"""Tables whose columns are matched with those of a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.cli.output import Output
from srflvm.data.sources import MOST_LISTED, ArrangedSource, ArraySource, NamedTable, places_of
from srflvm.data.tables.formats import open_table
from srflvm.data.tables.table import ReadOptions, Table, check_known
from srflvm.exceptions import DataError


@dataclass(frozen=True)
class ModelTable:
    """Table with the columns of a model among its own.

    `order` holds the positions of the model's columns in the table, and `names` their names in the model.
    """

    table: Table
    order: np.ndarray
    names: Sequence[str] | None = None

    @classmethod
    def open(cls, path: Path, model: Any, options: ReadOptions, output: Output) -> ModelTable:
        """Open a file; columns that the model does not know need not be numbers."""
        known = getattr(model, "feature_names_in_", None)
        table = open_table(path, replace(options, known=None if known is None else tuple(known)))
        for line in table.warnings:
            output.warn(line)
        return cls.match(table, model, output)

    @classmethod
    def match(cls, table: Table, model: Any, output: Output) -> ModelTable:
        """Find the columns of a model by name, if both have names, or in order; ignore others."""
        known, own = getattr(model, "feature_names_in_", None), table.columns
        if known is None or own is None:
            _check_number(model, table)
            if known is not None:
                output.note("The columns have no names: they are taken in the order of the model.")
            return cls(table, np.arange(table.shape[1]), known)
        check_known(known, [*own, *table.ignored])
        in_model = set(known)
        _warn_of_ignored([*table.ignored, *(name for name in own if name not in in_model)], output)
        order = places_of(known, own)
        if np.any(np.diff(order) < 0):
            output.note("The columns are in another order than in the fit: they are taken by name.")
        return cls(table, order, known)

    @property
    def data(self) -> Any:
        """Return the rows as the model takes them."""
        names = None if self.names is None else list(self.names)
        if isinstance(self.table.rows, ArraySource):
            values = self.table.rows.Y[:, self.order]
            return values if names is None else NamedTable(values, names)
        return ArrangedSource(self.table.rows, self.order, names)

    def count_observed(self) -> np.ndarray:
        """Count the observed entries of each row in the columns of the model."""
        return replace(self.table, rows=ArrangedSource(self.table.rows, self.order, None)).count_observed()

    def in_table_order(self, values: FloatArray) -> FloatArray:
        """Return columns of the model, (n, M), where they are in the table; NaN in the table's others."""
        placed = np.full((len(values), self.table.shape[1]), np.nan, values.dtype)
        placed[:, self.order] = values
        return placed


def _check_number(model: Any, table: Table) -> None:
    if table.shape[1] != model.n_features_in_:
        raise DataError(
            f"The table has {table.shape[1]} columns, but the model was fitted to {model.n_features_in_}."
        )


def _warn_of_ignored(names: Sequence[str], output: Output) -> None:
    if not names:
        return
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    output.warn(
        f"ignored {len(names)} column{'' if len(names) == 1 else 's'} that the model does not know: "
        f"{', '.join(name or '(no name)' for name in names[:MOST_LISTED])}{more}"
    )
