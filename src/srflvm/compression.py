"""Columns: centring, one common scale, and compression onto their leading directions.

The evidence sees the data only through Y Y' (see `evidence`), so an N x M matrix is replaced by its
scores on R orthonormal directions. With R equal to the rank nothing is lost; with fewer the evidence
is a lower bound on the full one and the steps cost as much as if the data had R columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import randomized_svd

from srflvm._types import FloatArray
from srflvm.exceptions import DataError

MOST_DIRECTIONS = 100

# Above this many rows and columns an exact decomposition costs more than the fit itself.
_LARGEST_EXACT = 3000

# Scales whose squares, and those of single entries, stay far inside float64.
_SCALES = (1e-100, 1e100)

# Singular values below this share of the largest are rounding noise of the squared matrix.
_SMALLEST_SINGULAR_VALUE = 1e-7


@dataclass(frozen=True)
class Columns:
    """How raw columns relate to compressed ones: raw = mean + scale * (scores @ directions' + rest)."""

    mean: FloatArray
    scale: float
    directions: FloatArray

    def standardise(self, Y: FloatArray) -> FloatArray:
        """Centred and scaled, in float64, all M columns kept."""
        return (np.asarray(Y, dtype=np.float64) - self.mean) / self.scale

    def scores(self, Y: FloatArray) -> FloatArray:
        """Raw rows to compressed rows (n, R)."""
        return self.standardise(Y) @ self.directions


@dataclass(frozen=True)
class Compressed:
    """Compressed training data, in float64."""

    columns: Columns
    scores: FloatArray
    total_square: float

    @property
    def n_columns(self) -> int:
        return self.columns.mean.shape[0]

    def rows(self, index: np.ndarray) -> Compressed:
        """Some of the rows; what the directions miss is shared out evenly over the rows."""
        scores = self.scores[index]
        missed = self.total_square - np.sum(self.scores**2)
        share = len(index) / len(self.scores)
        return Compressed(self.columns, scores, float(np.sum(scores**2) + share * missed))


def compress(Y: FloatArray, n_directions: int | str) -> Compressed:
    """Centre, scale and compress. `n_directions` is a number, "auto" (at most 100) or "all"."""
    centred = np.array(Y, dtype=np.float64)
    mean = centred.mean(axis=0)
    centred -= mean
    scale = _common_scale(centred)
    centred /= scale
    limit = min(centred.shape)
    if n_directions != "all":
        limit = min(limit, MOST_DIRECTIONS if n_directions == "auto" else int(n_directions))
    scores, directions = _leading_scores(centred, limit)
    return Compressed(Columns(mean, scale, directions), scores, float(np.sum(centred**2)))


def _common_scale(centred: FloatArray) -> float:
    """Root mean square over all entries."""
    largest = np.max(np.abs(centred))
    if largest == 0.0:
        raise DataError(
            "All rows of Y are equal, so there is nothing to explain: "
            "give at least two different rows (constant columns are fine among others)."
        )
    if not _SCALES[0] < largest < _SCALES[1]:
        raise DataError(
            f"Entries of Y differ from their column means by up to {largest:.1g}, out of the range "
            f"{_SCALES[0]:.0e} to {_SCALES[1]:.0e} that can be squared safely. Rescale Y."
        )
    return float(largest * np.sqrt(np.mean((centred / largest) ** 2)))


def _leading_scores(centred: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
    n_rows, n_columns = centred.shape
    if min(n_rows, n_columns) > _LARGEST_EXACT:
        left, singular, right = randomized_svd(centred, limit, random_state=0)
        scores, directions = left * singular, right.T
    elif n_columns <= n_rows:
        _, directions = _leading_eigenpairs(centred.T @ centred, limit)
        scores = centred @ directions
    else:
        squares, left = _leading_eigenpairs(centred @ centred.T, limit)
        scores = left * np.sqrt(squares)
        directions = centred.T @ (left / np.sqrt(squares))
    # a sign that depends on the scores alone, so that rotating the columns changes nothing
    signs = np.sign(scores[np.argmax(np.abs(scores), axis=0), np.arange(scores.shape[1])])
    return scores * signs, directions * signs


def _leading_eigenpairs(matrix: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = min(limit, int(np.sum(values > _SMALLEST_SINGULAR_VALUE**2 * values[0])))
    return values[:kept], vectors[:, :kept]
