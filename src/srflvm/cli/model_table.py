"""Tables whose columns are those of a model: of one that is fitted, or of one that is to be fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.cli.columns import column_lines
from srflvm.cli.output import Output
from srflvm.data.reading import automatic_likelihoods
from srflvm.data.schema import Column, Schema
from srflvm.data.sources import MOST_LISTED, ArrangedSource, ArraySource, NamedTable, places_of
from srflvm.data.tables.formats import open_table
from srflvm.data.tables.frame import Frame
from srflvm.data.tables.table import ReadOptions, Table, check_known
from srflvm.exceptions import DataError
from srflvm.likelihoods.columns import AUTO, choose


@dataclass(frozen=True)
class ModelTable:
    """Table with the columns of a model among its own.

    `order` holds the positions of the model's columns in the table, and `names` their names in the model.
    `schema` says what the columns are, if the model is one of a frame.
    """

    table: Table
    order: np.ndarray
    names: Sequence[str] | None = None
    schema: Schema | None = None
    unknown_levels: str = "error"

    @classmethod
    def open(
        cls,
        path: Path,
        model: Any,
        options: ReadOptions,
        output: Output,
        unknown_levels: str | None = None,
    ) -> ModelTable:
        """Open a file; columns that the model does not know need not be numbers."""
        known = getattr(model, "feature_names_in_", None)
        options = replace(options, known=None if known is None else tuple(known), **_reading(model))
        table = open_table(path, options)
        for line in table.warnings:
            output.warn(line)
        found = cls.match(table, model, output)
        return replace(found, unknown_levels=unknown_levels or getattr(model, "unknown_levels", "error"))

    @classmethod
    def match(cls, table: Table, model: Any, output: Output) -> ModelTable:
        """Find the columns of a model by name, if both have names, or in order; ignore others."""
        known, own = getattr(model, "feature_names_in_", None), table.columns
        schema = getattr(model, "columns_", None)
        if known is None or own is None:
            _check_number(model, table)
            if known is not None:
                output.note("The columns have no names: they are taken in the order of the model.")
            return cls(table, np.arange(table.shape[1]), known, schema)
        check_known(known, [*own, *table.ignored])
        in_model = set(known)
        _warn_of_ignored([*table.ignored, *(name for name in own if name not in in_model)], output)
        order = places_of(known, own)
        if np.any(np.diff(order) < 0):
            output.note("The columns are in another order than in the fit: they are taken by name.")
        return cls(table, order, known, schema)

    @classmethod
    def to_fit(cls, table: Table, likelihood: Any) -> ModelTable:
        """Return a table to which a model with this parameter `likelihood` is to be fitted."""
        order, schema = np.arange(table.shape[1]), None
        if table.frame is not None:
            single = {} if likelihood == AUTO else {tuple(range(len(order))): likelihood}
            schema = Schema.of(table.frame, likelihood if isinstance(likelihood, Mapping) else single)
        return cls(table, order, table.columns, schema)

    def likelihood_of_each(self, likelihood: Any) -> Any:
        """Return the parameter `likelihood` with what each column of a frame is taken as."""
        if self.schema is None:
            return likelihood
        automatic = automatic_likelihoods(SimpleNamespace(columns_=self.schema), self.table.rows)
        chosen = choose(likelihood, len(self.order), self.names, automatic)
        return {tuple(columns.tolist()): one for one, columns in chosen}

    def announce(self, output: Output) -> None:
        """Print what the model takes each column as."""
        if self.schema is not None:
            n_rows, n_columns = self.table.shape[0], len(self.order)
            output.note(f"{n_rows} rows, {n_columns} columns, which the model takes as:")
            for line in column_lines(self.schema):
                output.note(f"  {line}")

    @property
    def data(self) -> Any:
        """Return the rows as the model takes them: codes in the place of levels."""
        names = None if self.names is None else list(self.names)
        if self._frame is None and not isinstance(self.table.rows, ArraySource):
            return ArrangedSource(self.table.rows, self.order, names)
        return self.values if names is None else NamedTable(self.values, names)

    @cached_property
    def values(self) -> FloatArray:
        """Return the entries as numbers of the model (n, M)."""
        if self._frame is not None and self.schema is not None:
            return self.schema.encode(self._frame, unknown_levels=self.unknown_levels)
        return self.table.values[:, self.order]

    @cached_property
    def _frame(self) -> Frame | None:
        """Return the columns of the model in its order, with its names, None if the table is a matrix."""
        if self.schema is None or self.table.frame is None:
            return None
        return self.table.frame.select(self.order.tolist(), [column.name for column in self.schema.columns])

    def count_missing(self) -> int:
        """Count the missing entries in the columns of the model."""
        missing = np.isnan(self.values) if self._frame is None else self._frame.is_missing()
        return int(missing.sum())

    def count_observed(self) -> np.ndarray:
        """Count the observed entries of each row in the columns of the model."""
        if self._frame is not None:
            return np.isfinite(self.values).sum(axis=1)
        return replace(self.table, rows=ArrangedSource(self.table.rows, self.order, None)).count_observed()

    def filled(self, values: FloatArray) -> FloatArray | Frame:
        """Return the entries of the table, missing ones of the model's columns from `values` (n, M)."""
        if self._frame is None or self.schema is None or self.table.frame is None:
            own, placed = self.table.values, self.in_table_order(values)
            return np.where(np.isnan(own), placed.astype(own.dtype), own)
        parts = self.schema.decode(values, self._frame).parts
        return self.table.frame.with_parts(dict(zip(self.order.tolist(), parts, strict=True)))

    def in_table_order(self, values: FloatArray) -> FloatArray:
        """Return columns of the model, (n, M), where they are in the table; NaN in the table's others."""
        placed = np.full((len(values), self.table.shape[1]), np.nan, values.dtype)
        placed[:, self.order] = values
        return placed

    def refuse_results(self, *, std: bool, proba: bool) -> None:
        """Refuse standard deviations without columns of numbers, and probabilities without levels."""
        if self.schema is None:
            return
        if std and all(_step(column) is None for column in self.schema.columns):
            raise DataError("No column holds numbers, so there are no standard deviations. Leave out --std.")
        if proba and all(column.kind == "continuous" for column in self.schema.columns):
            raise DataError("No column has levels, so there are no probabilities. Leave out --proba.")

    def deviations(self, values: FloatArray) -> Table:
        """Return the standard deviations (n, M) of the columns of numbers, in the order of the table."""
        places = [int(place) for place in np.argsort(self.order) if self._step(int(place)) is not None]
        steps = np.array([self._step(place) for place in places], values.dtype)
        own = self.table.columns
        names = None if own is None else [own[int(self.order[place])] for place in places]
        return Table.of(values[:, places] * steps, names, self.table)

    def probabilities(self, tables: Mapping[Any, FloatArray]) -> Table:
        """Return the probabilities of levels by the names or the indices of columns, as one table."""
        names, parts = [], []
        for key, table in tables.items():
            column = None if self.schema is None else self.schema.columns[self._place(key)]
            levels = () if column is None else column.level_names
            levels = levels or tuple(map(str, range(table.shape[1])))
            names.extend(f"{key}={level}" for level in levels)
            parts.append(table[:, : len(levels)])
        return Table.of(np.hstack(parts), names, self.table)

    def _place(self, key: Any) -> int:
        return key if self.names is None else list(self.names).index(key)

    def _step(self, place: int) -> float | None:
        """Return what one step from level to level means in a column of numbers, None for other columns."""
        return 1.0 if self.schema is None else _step(self.schema.columns[place])


def _reading(model: Any) -> dict[str, Any]:
    """Return how a table for a fitted model is read."""
    schema: Schema | None = getattr(model, "columns_", None)
    if schema is None:
        return {"frames": "none"}
    has_levels = any(column.levels is not None for column in schema.columns)
    return {
        "frames": "all" if has_levels else "small",
        "levels": tuple(_text_levels(column) for column in schema.columns),
    }


def _text_levels(column: Column) -> frozenset[str] | None:
    """Return the texts that are levels, none for truth values, None for numbers."""
    levels = column.levels or ()
    if column.has_texts or (levels and all(isinstance(level, bool) for level in levels)):
        return frozenset(level for level in levels if isinstance(level, str))
    return None


def _step(column: Column) -> float | None:
    if column.levels is None:
        return 1.0
    if column.kind == "categorical" or any(isinstance(level, str | bool) for level in column.levels):
        return None
    return float(column.levels[-1] - column.levels[0]) / max(1, len(column.levels) - 1)


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
