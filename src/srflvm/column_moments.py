"""Means, squares and the Gram matrix of columns, in one pass over the rows.

Pieces of rows are centred on their own means and then merged: with n rows of mean m and squares S = C'C about
it, and a piece of k rows with mean m + d and squares T,

    S + T + n k / (n + k) d d'   about the mean   m + k / (n + k) d

(Chan, Golub and LeVeque 1979). Nothing large is ever subtracted, so columns far from zero lose no digits.
"""

from __future__ import annotations

import numpy as np

from srflvm import parallel
from srflvm._types import FloatArray
from srflvm.chunked import QUARTERS, chunk_shape
from srflvm.dealing import own_range
from srflvm.exceptions import DataError, MissingEntriesError
from srflvm.number_range import refuse_large_spread, refuse_small_spread
from srflvm.sources import Source, pieces


class ColumnMoments:
    """What is gathered: `mean` (M,), `square` = tr S, and if `tests` (M, k) are given `image` = S @ tests, or
    `image` = S with `gram`."""

    def __init__(self, n_columns: int, tests: FloatArray | None = None, *, gram: bool = False):
        self._tests, self._gram = tests, gram
        self.n_rows = 0
        self.mean = np.zeros(n_columns)
        self.square = 0.0
        width = n_columns if gram else 0 if tests is None else tests.shape[1]
        self.image = np.zeros((n_columns, width))
        self._lowest, self._highest = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)

    def add(self, rows: slice, piece: FloatArray) -> None:
        """Merge a piece of rows without holes."""
        values = np.asarray(piece, dtype=np.float64)
        mean = values.mean(axis=0)
        if np.isnan(mean).any():
            _refuse_hole(rows, values)
        self._widen(values.min(axis=0), values.max(axis=0))
        self._shift(mean, len(values))
        refuse_large_spread(self._largest)
        centred = values - mean
        self.square += float(np.sum(centred**2))
        if self._gram:
            self.image += centred.T @ centred
        elif self._tests is not None:
            self.image += centred.T @ (centred @ self._tests)

    def merge(self, other: ColumnMoments) -> None:
        """Take in the moments of other rows, of the same columns and tests."""
        if other.n_rows == 0:
            return
        self._widen(other._lowest, other._highest)
        self._shift(other.mean, other.n_rows)
        self.square += other.square
        self.image += other.image

    def _widen(self, lowest: FloatArray, highest: FloatArray) -> None:
        self._lowest, self._highest = np.minimum(self._lowest, lowest), np.maximum(self._highest, highest)

    def _shift(self, mean: FloatArray, n_more: int) -> None:
        """Move to the mean with `n_more` rows of another mean, and add what their distance adds."""
        if self.n_rows == 0:
            self.mean = mean
        shift, n_rows = mean - self.mean, self.n_rows + n_more
        weight = self.n_rows * n_more / n_rows
        self.mean = self.mean + n_more / n_rows * shift
        self.n_rows = n_rows
        self.square += float(weight * np.sum(shift**2))
        if self._gram:
            self.image += np.multiply.outer(weight * shift, shift)
        elif self._tests is not None:
            self.image += np.multiply.outer(weight * shift, shift @ self._tests)

    @property
    def scale(self) -> float:
        """Root mean square over all entries."""
        if np.array_equal(self._lowest, self._highest):
            raise DataError(
                "All rows of Y are equal, so there is nothing to explain: "
                "give at least two different rows (constant columns are fine among others)."
            )
        refuse_small_spread(self._largest)
        return float(np.sqrt(self.square / (self.n_rows * len(self.mean))))

    @property
    def _largest(self) -> float:
        return float(max(np.max(self._highest - self.mean), np.max(self.mean - self._lowest)))


def gather(source: Source, tests: FloatArray | None = None, *, gram: bool = False) -> ColumnMoments:
    """The moments of all rows of a source, of which each process reads some.

    Many rows are merged in parts that are the same for one, two and four processes, and in their order: the
    result is the same to the last bit, and so is a start made from it.
    """
    own = parallel.together(lambda: [_moments(source, part, tests, gram) for part in _own_parts(source)])
    moments = ColumnMoments(source.n_columns, tests, gram=gram)
    for parts in parallel.gather(own):
        for part in parts:
            moments.merge(part)
    return moments


def _own_parts(source: Source) -> list[tuple[int, int]]:
    """First rows, and those after the last, of the parts that this process reads: the quarters of its own
    rows, where all processes have whole ones."""
    n_chunks, size = chunk_shape(source.n_rows)
    start, stop = own_range(source.n_rows)
    if n_chunks % QUARTERS or QUARTERS % parallel.n_processes():
        return [(start, stop)]
    quarter = n_chunks // QUARTERS * size
    return [(first, min(first + quarter, stop)) for first in range(start, stop, quarter)]


def _moments(source: Source, part: tuple[int, int], tests: FloatArray | None, gram: bool) -> ColumnMoments:
    moments = ColumnMoments(source.n_columns, tests, gram=gram)
    for rows, piece in pieces(source, *part):
        moments.add(rows, piece)
    return moments


def _refuse_hole(rows: slice, values: FloatArray) -> None:
    row, column = (int(i) for i in np.argwhere(np.isnan(values))[0])
    raise MissingEntriesError(f"Y has a missing entry at row {rows.start + row}, column {column}.")
