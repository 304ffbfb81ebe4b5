"""The rows of a source with their sizes, and what has to be known of all of them before a fit of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from srflvm import _likelihood_choice as choosing
from srflvm._inputs import read_sizes
from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.likelihoods import Ordinal
from srflvm.observations import Layout
from srflvm.posing import log_sizes
from srflvm.sources import Source, pieces


@dataclass(frozen=True)
class RowTable:
    """Rows of a source; `sizes` (N,) are those that the user gave, or None."""

    estimator: Any
    source: Source
    sizes: FloatArray | None = None

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    def check_sizes(self) -> None:
        if self.sizes is not None:
            read_sizes(self.sizes, self.n_rows)

    def sizes_of(self, rows: Any) -> FloatArray | None:
        return None if self.sizes is None else np.asarray(self.sizes)[rows]

    def log_sizes(self, Y: FloatArray, rows: Any, layout: Layout) -> FloatArray | None:
        """Logarithms of the sizes of the rows Y, which are `rows` (an index or a slice) of the source."""
        return log_sizes(self.estimator, Y, layout, self.sizes_of(rows))


@dataclass(frozen=True)
class Survey:
    """The number of observed entries, and of each column the smallest and largest of them (2, M), the first
    row that has one, -1 if none has, and for columns of levels all the different entries."""

    n_observed: int
    range: FloatArray
    first_row: np.ndarray
    levels: dict[int, FloatArray]

    def resolved(self, choice: choosing.Choice) -> choosing.Choice:
        """Fill in all that likelihoods take from their columns, such as the levels."""
        return [(likelihood.resolve(self._examples(columns)), columns) for likelihood, columns in choice]

    def _examples(self, columns: np.ndarray) -> FloatArray:
        """Return the smallest and largest entries of columns, and below them all levels, padded with NaN."""
        levels = [self.levels.get(int(column), np.zeros(0)) for column in columns]
        padded = np.full((max(map(len, levels)), len(columns)), np.nan)
        for index, own in enumerate(levels):
            padded[: len(own), index] = own
        return np.concatenate([self.range[:, columns], padded])


def survey(table: RowTable, choice: choosing.Choice) -> Survey:
    """One pass over all rows, which also checks that their likelihoods can have produced them."""
    n_columns = table.source.n_columns
    smallest, largest = np.full(n_columns, np.nan), np.full(n_columns, np.nan)
    first_row, n_observed = np.full(n_columns, -1), 0
    ordinal = [columns for likelihood, columns in choice if isinstance(likelihood, Ordinal)]
    levels: dict[int, FloatArray] = {int(column): np.zeros(0) for columns in ordinal for column in columns}
    for rows, Y in pieces(table.source):
        _check_piece(table, choice, rows.start, Y)
        observed = ~np.isnan(Y)
        n_observed += int(observed.sum())
        smallest = np.fmin(smallest, np.min(np.where(observed, Y, np.inf), axis=0))
        largest = np.fmax(largest, np.max(np.where(observed, Y, -np.inf), axis=0))
        fresh = (first_row < 0) & observed.any(axis=0)
        first_row = np.where(fresh, rows.start + np.argmax(observed, axis=0), first_row)
        for column in levels:
            levels[column] = np.union1d(levels[column], Y[observed[:, column], column])
    return Survey(n_observed, np.stack([smallest, largest]), first_row, levels)


def _check_piece(table: RowTable, choice: choosing.Choice, start: int, Y: FloatArray) -> None:
    try:
        choosing.check_columns(choice, Y, getattr(table.estimator, "feature_names_in_", None))
    except DataError as error:
        if start == 0:
            raise
        raise DataError(f"In the rows from row {start} on, counted from there: {error}") from error


def draw_landmarks(
    table: RowTable, found: Survey, n_landmarks: int, rng: np.random.RandomState
) -> tuple[np.ndarray, FloatArray]:
    """A sorted index of random rows, and the rows. For a column that none of them has an entry of, the first
    row that has one is among them."""
    index = np.sort(rng.permutation(table.n_rows)[:n_landmarks])
    Y = table.source.take(index)
    empty = np.isnan(Y).all(axis=0) & (found.first_row >= 0)
    if not empty.any():
        return index, Y
    index = np.union1d(index, found.first_row[empty])
    return index, table.source.take(index)
