"""Facts about training data that a fit has to know before it is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.compression import ColumnMoments
from srflvm.data.encoding import Layout
from srflvm.data.reading import read_sizes, row_log_sizes
from srflvm.data.sources import Source, pieces
from srflvm.exceptions import DataError
from srflvm.likelihoods.columns import Choice


@dataclass(frozen=True)
class TrainingData:
    """Hold the rows to fit: their source, the likelihoods of the columns, names of columns, sizes of rows.

    `sizes` (N,) are those that the user gave, or None; `size_factors` is the parameter of that name.
    """

    source: Source
    choice: Choice
    names: Sequence[str] | None = None
    sizes: Any = None
    size_factors: Any = "auto"

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    def check_sizes(self) -> None:
        """Refuse sizes that are not positive numbers, one for each row."""
        if self.sizes is not None:
            read_sizes(self.sizes, self.n_rows)

    def sizes_of(self, rows: Any) -> FloatArray | None:
        """Return the given sizes of some rows, an index or a slice."""
        return None if self.sizes is None else np.asarray(self.sizes)[rows]

    def log_sizes(self, Y: FloatArray, rows: Any, layout: Layout) -> FloatArray | None:
        """Return the logarithms of the sizes of the rows Y, which are `rows` (an index or a slice) of all."""
        return row_log_sizes(layout, Y, self.sizes_of(rows), self.size_factors)


@dataclass(frozen=True)
class DataFacts:
    """Hold what is known of training data: of their shape, and of their entries as far as they were read.

    `is_plain` says that all columns are Gaussian with one noise, `first_missing` where the first missing
    entry is. `moments` are kept from a pass over plain data, which compression goes on from.
    """

    n_rows: int
    n_columns: int
    in_memory: bool
    is_plain: bool
    first_missing: tuple[int, int] | None = None
    moments: ColumnMoments | None = None

    @classmethod
    def of(cls, data: TrainingData, moments: ColumnMoments | None = None) -> DataFacts:
        """Collect the facts about data, of which `moments` were gathered if the data are plain."""
        source: Any = data.source
        return cls(
            source.n_rows,
            source.n_columns,
            source.in_memory,
            data.choice.is_plain_gaussian,
            None if moments is None else moments.first_missing,
            moments,
        )


@dataclass(frozen=True)
class Survey:
    """Hold what one pass over all rows tells: the number of observed entries and the entries of each column.

    Of each column, `range` (2, M) has the smallest and the largest, `first_row` the first row that has one,
    -1 if none has, and `levels` all the different ones, for columns of levels.
    """

    n_observed: int
    range: FloatArray
    first_row: np.ndarray
    levels: dict[int, FloatArray]

    @classmethod
    def of(cls, data: TrainingData) -> Survey:
        """Pass over all rows, and check that their likelihoods can have produced them."""
        n_columns = data.source.n_columns
        smallest, largest = np.full(n_columns, np.nan), np.full(n_columns, np.nan)
        first_row, n_observed = np.full(n_columns, -1), 0
        with_levels = [columns for likelihood, columns in data.choice if likelihood.has_levels]
        levels: dict[int, FloatArray] = {int(c): np.zeros(0) for columns in with_levels for c in columns}
        for rows, Y in pieces(data.source):
            _check_piece(data, rows.start, Y)
            observed = ~np.isnan(Y)
            n_observed += int(observed.sum())
            smallest = np.fmin(smallest, np.min(np.where(observed, Y, np.inf), axis=0))
            largest = np.fmax(largest, np.max(np.where(observed, Y, -np.inf), axis=0))
            fresh = (first_row < 0) & observed.any(axis=0)
            first_row = np.where(fresh, rows.start + np.argmax(observed, axis=0), first_row)
            for column in levels:
                levels[column] = np.union1d(levels[column], Y[observed[:, column], column])
        return cls(n_observed, np.stack([smallest, largest]), first_row, levels)

    def resolved(self, choice: Choice) -> Choice:
        """Fill in what likelihoods take from all entries of their columns, such as the levels.

        What columns with units take from theirs, such as steps between values, rows that are drawn tell, and
        their extremes do not.
        """
        return Choice(
            (one if one.has_units else one.resolve(self._examples(columns)), columns)
            for one, columns in choice
        )

    def _examples(self, columns: np.ndarray) -> FloatArray:
        """Return the smallest and largest entries of columns, and below them all levels, padded with NaN."""
        levels = [self.levels.get(int(column), np.zeros(0)) for column in columns]
        padded = np.full((max(map(len, levels)), len(columns)), np.nan)
        for index, own in enumerate(levels):
            padded[: len(own), index] = own
        return np.concatenate([self.range[:, columns], padded])

    def draw_landmarks(
        self, data: TrainingData, n_landmarks: int, rng: np.random.RandomState
    ) -> tuple[np.ndarray, FloatArray]:
        """Draw a sorted index of random rows, and read the rows.

        For a column that none of them has an entry of, the first row that has one is among them.
        """
        index = np.sort(rng.permutation(data.n_rows)[:n_landmarks])
        Y = data.source.take(index)
        empty = np.isnan(Y).all(axis=0) & (self.first_row >= 0)
        if not empty.any():
            return index, Y
        index = np.union1d(index, self.first_row[empty])
        return index, data.source.take(index)


def _check_piece(data: TrainingData, start: int, Y: FloatArray) -> None:
    try:
        data.choice.check(Y, data.names)
    except DataError as error:
        if start == 0:
            raise
        raise DataError(f"In the rows from row {start} on, counted from there: {error}") from error
