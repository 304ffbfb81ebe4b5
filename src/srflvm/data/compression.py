"""Columns of training data: centring, one common scale, and compression onto their leading directions.

The evidence sees the data only through Y Y' (see `numerics.shared_regression`), so an N x M matrix is
replaced by its scores on R orthonormal directions. With R equal to the rank nothing is lost; with fewer the
evidence is a lower bound on the full one, and the steps cost as much as if the data had R columns.

Rows are read in pieces. One pass gathers the moments of the columns (`ColumnMoments`) with the M x M Gram
matrix, whose leading eigenvectors are the directions; another makes the scores. Where there are fewer rows
than columns the Gram matrix is that of the rows, and where there are many of both it is only sketched
(`numerics.nystrom`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.encoding import Columns, check_spread
from srflvm.data.sources import ArraySource, Source, pieces
from srflvm.exceptions import DataError
from srflvm.numerics.features import QUARTERS, chunk_shape
from srflvm.numerics.nystrom import Sketch
from srflvm.parallel.communicator import Communicator

MOST_DIRECTIONS = 100

# Above this many rows and columns an exact decomposition costs more than the fit itself.
LARGEST_EXACT = 3000

# Scores beyond this many are kept in the precision of the fit: 80 MB in float64.
MOST_DOUBLE_SCORES = 10_000_000

# Singular values below this share of the largest are rounding noise of the squared matrix.
_SMALLEST_SINGULAR_VALUE = 1e-7

_SCORES_AT_ONCE = 1_000_000


class ColumnMoments:
    """Gather means, squares and the Gram matrix of columns in one pass over the rows.

    Pieces of rows are centred on their own means and then merged: with n rows of mean m and squares S = C'C
    about it, and a piece of k rows with mean m + d and squares T,

        S + T + n k / (n + k) d d'   about the mean   m + k / (n + k) d

    (Chan, Golub and LeVeque 1979). Nothing large is ever subtracted, so columns far from zero lose no digits.

    Attributes are `mean` (M,), `square` = tr S, `image` = S @ tests for given `tests` (M, k), or S itself
    with `gram`, and `first_missing`, the row and column of a missing entry, after which nothing is added.
    """

    def __init__(self, n_columns: int, tests: FloatArray | None = None, *, gram: bool = False):
        self.tests, self._gram = tests, gram
        self.n_rows = 0
        self.mean = np.zeros(n_columns)
        self.square = 0.0
        width = n_columns if gram else 0 if tests is None else tests.shape[1]
        self.image = np.zeros((n_columns, width))
        self.first_missing: tuple[int, int] | None = None
        self._lowest, self._highest = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)

    @classmethod
    def of(
        cls, source: Source, n_directions: int | str = "auto", communicator: Communicator | None = None
    ) -> ColumnMoments:
        """Gather what compression onto so many directions needs of all rows; each process reads some.

        Many rows are merged in parts that are the same for one, two and four processes, and in their order:
        the result is the same to the last bit, and so is a start made from it.
        """
        communicator = communicator or Communicator()
        tests, gram = cls._tests_for(source, n_directions, communicator)
        own = communicator.together(
            lambda: [
                cls(source.n_columns, tests, gram=gram)._read(source, part)
                for part in _own_parts(source, communicator)
            ]
        )
        moments = cls(source.n_columns, tests, gram=gram)
        for parts in communicator.gather(own):
            for part in parts:
                moments.merge(part)
        return moments

    @staticmethod
    def _tests_for(
        source: Source, n_directions: int | str, communicator: Communicator
    ) -> tuple[FloatArray | None, bool]:
        """Return the test vectors of a sketch, if there are many rows and columns, and whether to form S."""
        n_rows, n_columns = source.n_rows, source.n_columns
        limit = _most_directions(source, n_directions)
        if min(n_rows, n_columns) > LARGEST_EXACT and min(n_rows, n_columns) > Sketch.n_tests(limit):
            return Sketch.draw(n_columns, limit).tests, False
        if n_columns > n_rows and communicator.n_processes > 1:
            raise ValueError(
                f"Several processes cannot keep {limit} directions of {n_columns} columns where there are "
                f"only {n_rows} rows: use compression='auto', or one process."
            )
        return None, n_columns <= n_rows

    def _read(self, source: Source, part: tuple[int, int]) -> ColumnMoments:
        for rows, piece in pieces(source, *part):
            self.add(rows, piece)
            if self.first_missing is not None:
                break
        return self

    def add(self, rows: slice, piece: FloatArray) -> None:
        """Merge a piece of rows, unless it has a missing entry, whose place is noted."""
        values = np.asarray(piece, dtype=np.float64)
        mean = values.mean(axis=0)
        if np.isnan(mean).any():
            row, column = (int(i) for i in np.argwhere(np.isnan(values))[0])
            self.first_missing = rows.start + row, column
            return
        self._widen(values.min(axis=0), values.max(axis=0))
        self._shift(mean, len(values))
        check_spread(self._largest, may_be_small=True)
        centred = values - mean
        self.square += float(np.sum(centred**2))
        if self._gram:
            self.image += centred.T @ centred
        elif self.tests is not None:
            self.image += centred.T @ (centred @ self.tests)

    def merge(self, other: ColumnMoments) -> None:
        """Add the moments of other rows, of the same columns and tests."""
        self.first_missing = self.first_missing or other.first_missing
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
        elif self.tests is not None:
            self.image += np.multiply.outer(weight * shift, shift @ self.tests)

    @property
    def scale(self) -> float:
        """Return the root mean square over all entries."""
        if np.array_equal(self._lowest, self._highest):
            raise DataError(
                "All rows of Y are equal, so there is nothing to explain: "
                "give at least two different rows (constant columns are fine among others)."
            )
        check_spread(self._largest)
        return float(np.sqrt(self.square / (self.n_rows * len(self.mean))))

    @property
    def _largest(self) -> float:
        return float(max(np.max(self._highest - self.mean), np.max(self.mean - self._lowest)))


def _own_parts(source: Source, communicator: Communicator) -> list[tuple[int, int]]:
    """Return the first rows, and those after the last, of the parts that this process reads.

    They are the quarters of its own rows, where all processes have whole ones.
    """
    n_chunks, size = chunk_shape(source.n_rows)
    start, stop = communicator.row_range(source.n_rows)
    if n_chunks % QUARTERS or QUARTERS % communicator.n_processes:
        return [(start, stop)]
    quarter = n_chunks // QUARTERS * size
    return [(first, min(first + quarter, stop)) for first in range(start, stop, quarter)]


def _most_directions(source: Source, n_directions: int | str) -> int:
    """Return how many directions are kept at most."""
    limit = min(source.n_rows, source.n_columns)
    if n_directions == "all":
        return limit
    return min(limit, MOST_DIRECTIONS if n_directions == "auto" else int(n_directions))


@dataclass(frozen=True)
class Compressed:
    """Hold compressed training data. Scores are in float64 unless there are very many.

    Where rows are shared out over processes, `scores` are those of this process, from row `start` of
    `n_all_rows` on; columns and `total_square` are those of all rows.
    """

    columns: Columns
    scores: FloatArray
    total_square: float
    start: int = 0
    n_all_rows: int | None = None

    @classmethod
    def of(
        cls,
        source: Source,
        moments: ColumnMoments,
        n_directions: int | str,
        dtype: np.dtype | type = np.float64,
        communicator: Communicator | None = None,
    ) -> Compressed:
        """Centre, scale and compress complete rows, given their moments; very many scores are in `dtype`."""
        communicator = communicator or Communicator()
        limit = _most_directions(source, n_directions)
        moments, directions = communicator.from_first((moments, _leading_directions(source, moments, limit)))
        columns = Columns(moments.mean, moments.scale, directions)
        many = source.n_rows * directions.shape[1] > MOST_DOUBLE_SCORES
        kind = np.dtype(dtype if many else np.float64)
        scores, signs = _scores_and_signs(source, columns, kind, communicator)
        scores *= signs
        columns = Columns(moments.mean, moments.scale, directions * signs)
        start, _ = communicator.row_range(source.n_rows)
        return cls(columns, scores, moments.square / moments.scale**2, start, source.n_rows)

    @property
    def n_rows(self) -> int:
        return len(self.scores) if self.n_all_rows is None else self.n_all_rows

    @property
    def n_columns(self) -> int:
        return self.columns.mean.shape[0]

    def rows(self, index: np.ndarray, communicator: Communicator | None = None) -> Compressed:
        """Return some of the rows; what the directions miss is shared out evenly over the rows."""
        communicator = communicator or Communicator()
        scores = np.asarray(communicator.take_rows(index, self.scores, self.start), np.float64)
        (kept,) = communicator.sum(np.array(_sum_of_squares(self.scores)))
        missed = self.total_square - kept
        share = len(index) / self.n_rows
        return Compressed(self.columns, scores, float(np.sum(scores**2) + share * missed))


def compress(Y: FloatArray, n_directions: int | str) -> Compressed:
    """Centre, scale and compress an array onto a number of directions, "auto" (at most 100) or "all"."""
    source = ArraySource(Y)
    return Compressed.of(source, ColumnMoments.of(source, n_directions), n_directions)


def _leading_directions(source: Source, moments: ColumnMoments, limit: int) -> FloatArray:
    if moments.tests is not None:
        return Sketch(moments.tests).leading_eigenvectors(moments.image / moments.scale**2, limit)
    if source.n_columns <= source.n_rows:
        return _leading_eigenpairs(moments.image / moments.scale**2, limit)[1]
    squares, left = _leading_eigenpairs(_gram_of_rows(source, moments), limit)
    return _from_left(source, moments, left / np.sqrt(squares))


def _undirected(moments: ColumnMoments) -> Columns:
    """Return columns that are centred and scaled, and not compressed."""
    return Columns(moments.mean, moments.scale, np.empty((len(moments.mean), 0)))


def _gram_of_rows(source: Source, moments: ColumnMoments) -> FloatArray:
    """Return the inner products of all pairs of standardised rows (N, N), a pair of pieces at a time."""
    columns = _undirected(moments)
    gram = np.empty((source.n_rows, source.n_rows))
    for rows, piece in pieces(source):
        own = columns.standardise(piece)
        gram[rows, rows] = own @ own.T
        for others, other in pieces(source, rows.stop):
            products = own @ columns.standardise(other).T
            gram[rows, others], gram[others, rows] = products, products.T
    return gram


def _from_left(source: Source, moments: ColumnMoments, left: FloatArray) -> FloatArray:
    """Return Y'left (M, R) of the standardised rows: right singular vectors from scaled left ones."""
    directions = np.zeros((source.n_columns, left.shape[1]))
    for rows, piece in pieces(source):
        directions += _undirected(moments).standardise(piece).T @ left[rows]
    return directions


def _scores_and_signs(
    source: Source, columns: Columns, dtype: np.dtype, communicator: Communicator
) -> tuple[FloatArray, FloatArray]:
    """Return scores (N, R), and signs that make the largest of each column positive.

    The signs depend on the scores alone, so that rotating the columns of the data changes nothing.
    """
    n_directions = columns.directions.shape[1]
    start, stop = communicator.row_range(source.n_rows)
    scores, largest = np.empty((stop - start, n_directions), dtype), np.zeros((1, n_directions))
    for rows, piece in pieces(source, start, stop):
        part = columns.scores(piece)
        largest = _largest_of_columns(np.concatenate([largest, part]))
        scores[rows.start - start : rows.stop - start] = part
    return scores, np.sign(_largest_of_columns(communicator.gather_rows(largest)))[0]


def _largest_of_columns(values: FloatArray) -> FloatArray:
    """Return the entry of each column that is furthest from zero, the first of equals (1, R)."""
    return np.take_along_axis(values, np.argmax(np.abs(values), axis=0)[None], axis=0)


def _leading_eigenpairs(matrix: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = min(limit, int(np.sum(values > _SMALLEST_SINGULAR_VALUE**2 * values[0])))
    return values[:kept], vectors[:, :kept]


def _sum_of_squares(scores: FloatArray) -> float:
    """Return the sum of squares in float64, without a copy of all scores."""
    size = max(1, _SCORES_AT_ONCE // scores.shape[1])
    starts = range(0, len(scores), size)
    return float(sum(np.sum(np.square(scores[i : i + size], dtype=np.float64)) for i in starts))
