"""Columns: centring, one common scale, and compression onto their leading directions.

The evidence sees the data only through Y Y' (see `evidence`), so an N x M matrix is replaced by its
scores on R orthonormal directions. With R equal to the rank nothing is lost; with fewer the evidence
is a lower bound on the full one and the steps cost as much as if the data had R columns.

Rows are read in pieces. One pass gathers the columns' moments and the M x M Gram matrix, whose leading
eigenvectors are the directions; another makes the scores. Where there are fewer rows than columns the Gram
matrix is that of the rows, and where there are many of both it is only sketched (`nystrom`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srflvm import nystrom, parallel
from srflvm._types import FloatArray
from srflvm.column_moments import ColumnMoments, gather
from srflvm.dealing import own_range, pick
from srflvm.sources import ArraySource, Source, pieces

MOST_DIRECTIONS = 100

# Above this many rows and columns an exact decomposition costs more than the fit itself.
LARGEST_EXACT = 3000

# Singular values below this share of the largest are rounding noise of the squared matrix.
_SMALLEST_SINGULAR_VALUE = 1e-7

# Scores beyond this many are kept in the precision of the fit: 80 MB in float64.
MOST_DOUBLE_SCORES = 10_000_000

_SCORES_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class Columns:
    """How raw columns relate to compressed ones: raw = mean + scale * (scores @ directions' + rest)."""

    mean: FloatArray
    scale: float
    directions: FloatArray

    def standardise(self, Y: FloatArray) -> FloatArray:
        """Centred and scaled, in float64, all M columns kept."""
        return _standardise(Y, self.mean, self.scale)

    def scores(self, Y: FloatArray) -> FloatArray:
        """Raw rows to compressed rows (n, R)."""
        return self.standardise(Y) @ self.directions


@dataclass(frozen=True)
class Compressed:
    """Compressed training data. Scores are in float64 unless there are very many.

    Where rows are dealt out over processes, `scores` are those of this process, from row `start` of
    `n_all_rows` on; columns and `total_square` are those of all rows.
    """

    columns: Columns
    scores: FloatArray
    total_square: float
    start: int = 0
    n_all_rows: int | None = None

    @property
    def n_rows(self) -> int:
        return len(self.scores) if self.n_all_rows is None else self.n_all_rows

    @property
    def n_columns(self) -> int:
        return self.columns.mean.shape[0]

    def rows(self, index: np.ndarray) -> Compressed:
        """Some of the rows; what the directions miss is shared out evenly over the rows."""
        scores = np.asarray(pick(index, self.scores, self.start), np.float64)
        (kept,) = parallel.sum_over_processes(np.array(_sum_of_squares(self.scores)))
        missed = self.total_square - kept
        share = len(index) / self.n_rows
        return Compressed(self.columns, scores, float(np.sum(scores**2) + share * missed))


def compress(Y: FloatArray, n_directions: int | str) -> Compressed:
    """Centre, scale and compress an array. `n_directions` is a number, "auto" (at most 100) or "all"."""
    return compress_source(ArraySource(Y), n_directions)


def compress_source(
    source: Source, n_directions: int | str, dtype: np.dtype | type = np.float64
) -> Compressed:
    """Centre, scale and compress rows without holes. Very many scores are kept in `dtype`."""
    limit = min(source.n_rows, source.n_columns)
    if n_directions != "all":
        limit = min(limit, MOST_DIRECTIONS if n_directions == "auto" else int(n_directions))
    moments, directions = parallel.from_first(_leading_directions(source, limit))
    columns = Columns(moments.mean, moments.scale, directions)
    many = source.n_rows * directions.shape[1] > MOST_DOUBLE_SCORES
    scores, signs = _scores_and_signs(source, columns, np.dtype(dtype if many else np.float64))
    scores *= signs
    columns = Columns(moments.mean, moments.scale, directions * signs)
    start, _ = own_range(source.n_rows)
    return Compressed(columns, scores, moments.square / moments.scale**2, start, source.n_rows)


def _leading_directions(source: Source, limit: int) -> tuple[ColumnMoments, FloatArray]:
    n_rows, n_columns = source.n_rows, source.n_columns
    if min(n_rows, n_columns) > max(LARGEST_EXACT, nystrom.n_tests(limit)):
        tests = nystrom.draw_tests(n_columns, limit)
        moments = gather(source, tests)
        return moments, nystrom.leading_eigenvectors(moments.image / moments.scale**2, tests, limit)
    if n_columns <= n_rows:
        moments = gather(source, gram=True)
        return moments, _leading_eigenpairs(moments.image / moments.scale**2, limit)[1]
    if parallel.n_processes() > 1:
        raise ValueError(
            f"Several processes cannot keep {limit} directions of {n_columns} columns where there are only "
            f"{n_rows} rows: use compression='auto', or one process."
        )
    moments = gather(source)
    squares, left = _leading_eigenpairs(_gram_of_rows(source, moments), limit)
    return moments, _from_left(source, moments, left / np.sqrt(squares))


def _standardise(Y: FloatArray, mean: FloatArray, scale: float) -> FloatArray:
    centred = np.asarray(Y, dtype=np.float64) - mean
    centred /= scale
    return centred


def _gram_of_rows(source: Source, moments: ColumnMoments) -> FloatArray:
    """Inner products of all pairs of standardised rows (N, N), a pair of pieces at a time."""
    mean, scale = moments.mean, moments.scale
    gram = np.empty((source.n_rows, source.n_rows))
    for rows, piece in pieces(source):
        own = _standardise(piece, mean, scale)
        gram[rows, rows] = own @ own.T
        for others, other in pieces(source, rows.stop):
            products = own @ _standardise(other, mean, scale).T
            gram[rows, others], gram[others, rows] = products, products.T
    return gram


def _from_left(source: Source, moments: ColumnMoments, left: FloatArray) -> FloatArray:
    """Y'left (M, R) of the standardised rows: right singular vectors, from the left divided by the values."""
    directions = np.zeros((source.n_columns, left.shape[1]))
    for rows, piece in pieces(source):
        directions += _standardise(piece, moments.mean, moments.scale).T @ left[rows]
    return directions


def _scores_and_signs(source: Source, columns: Columns, dtype: np.dtype) -> tuple[FloatArray, FloatArray]:
    """Scores (N, R), and signs that make the largest of each column positive: they depend on the scores
    alone, so that rotating the columns of the data changes nothing."""
    n_directions = columns.directions.shape[1]
    start, stop = own_range(source.n_rows)
    scores, largest = np.empty((stop - start, n_directions), dtype), np.zeros((1, n_directions))
    for rows, piece in pieces(source, start, stop):
        part = columns.scores(piece)
        largest = _largest_of_columns(np.concatenate([largest, part]))
        scores[rows.start - start : rows.stop - start] = part
    return scores, np.sign(_largest_of_columns(parallel.gather_rows(largest)))[0]


def _largest_of_columns(values: FloatArray) -> FloatArray:
    """The entry of each column that is furthest from zero, the first of equals (1, R)."""
    return np.take_along_axis(values, np.argmax(np.abs(values), axis=0)[None], axis=0)


def _leading_eigenpairs(matrix: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = min(limit, int(np.sum(values > _SMALLEST_SINGULAR_VALUE**2 * values[0])))
    return values[:kept], vectors[:, :kept]


def _sum_of_squares(scores: FloatArray) -> float:
    """In float64, without a copy of all scores."""
    size = max(1, _SCORES_AT_ONCE // scores.shape[1])
    starts = range(0, len(scores), size)
    return float(sum(np.sum(np.square(scores[i : i + size], dtype=np.float64)) for i in starts))
