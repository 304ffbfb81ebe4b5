"""Bayesian factors of a wide matrix with exact missing entries, such as images with missing pixels.

The model is y_nm = offset_m + a_m'x_n + noise, with x_n ~ N(0, I) and a_mq ~ N(0, variance). One prior
variance serves all dimensions: the maximum of such a posterior is the matrix of least squares with a penalty
on the sum of its singular values. A variance for every dimension, as in `bayesian_pca`, finds few dimensions
better but drives those to zero that are weak one by one and tell much together, as in photographs.

Inference is variational, q(x_n) and q(a_m) Gaussian in turn over the observed entries alone:

    q(x_n) = N(S_n sum_m r_nm E a_m / noise_m, S_n),    S_n^-1 = I + sum_m E[a_m a_m'] / noise_m,
    q(a_m) = N(V_m sum_n r_nm E x_n / noise_m, V_m),    V_m^-1 = I / variance + sum_n E[x_n x_n'] / noise_m,

with r_nm = y_nm - offset_m; sums are over the observed entries of a row or of a column. All matrices of one
kind are one product of the 0-1 matrix of what is observed with packed second moments. Noises, offsets and the
prior variance are at their optima.

After each round the function stays as it is while x is replaced by R x and a by R^-T a, with the R that
lowers the divergences most: it makes the sums of E x x' and E a a' diagonal, say N u and e / u, where u
minimises

    N u - N log u + e / (variance u) + M log u,   so that   N u^2 - (N - M) u - e / variance = 0.

A dimension whose loadings are mostly uncertainty is dropped: it explains nothing, and would count in the
prior variance of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs

from srflvm._typing import FloatArray

# Share of the second moments of a dimension's loadings that their means must have.
_SMALLEST_CERTAINTY = 0.1
_SMALLEST_NOISE = 1e-4
_BALANCING_STEPS = 20

# Dimensions that a fit begins with: it drops those that tell nothing. A round of it takes this many products
# at most, and below the fewest dimensions it is not worth its time. The start takes the eigenvectors of the
# covariances of all columns.
_MOST_COMPONENTS = 200
_FEWEST = 32
_PRODUCTS_OF_ROUND = 1e11
_MOST_COLUMNS = 3000

# Numbers of the matrices that are held at a time, of rows or of columns.
_MOST_NUMBERS = 20_000_000

# Added to a matrix relative to its trace where rounding leaves it not positive definite.
_RIDGE = 1e-6


class _Moments(NamedTuple):
    """Posterior of the latents: means (N, Q), packed second moments (N, P), their sum (Q, Q), and the sum of
    the log determinants of the covariances."""

    means: FloatArray
    packed: FloatArray
    second: FloatArray
    log_determinant: float


class _Matrix(NamedTuple):
    """Entries (N, M) with zeros where none is observed, and ones (N, M) where one is."""

    values: FloatArray
    observed: FloatArray

    @classmethod
    def of(cls, Y: FloatArray, dtype: Any) -> _Matrix:
        """Return the entries of Y, NaN where not observed."""
        observed = ~np.isnan(Y)
        return cls(np.where(observed, Y, 0.0).astype(dtype), observed.astype(dtype))


@dataclass(frozen=True)
class MatrixFactors:
    """Hold what is common to all rows: of the columns the loadings (M, Q) with covariances (M, Q, Q), the
    offsets with their variances, and the noises, (M,); and the prior variance of loadings."""

    loadings: FloatArray
    covariances: FloatArray
    offset: FloatArray
    offset_variance: FloatArray
    noise: FloatArray
    variance: float

    @classmethod
    def fit(
        cls,
        Y: FloatArray,
        n_components: int,
        n_rounds: int,
        tol: float,
        *,
        one_noise: bool = False,
        dtype: Any = np.float32,
        tell: Callable[[float], bool] = lambda bound: False,
    ) -> tuple[MatrixFactors, list[float], bool, bool]:
        """Fit the columns Y (N, M), NaN where not observed, with at most so many dimensions.

        Rounds end when the bound rises by less than `tol` for each observed entry, or when `tell`, which is
        told the bound after each of them, says so, or at an interrupt after the first.

        Returns
        -------
        factors : MatrixFactors
        bounds : list of float
            Lower bounds on log p(Y) given the offsets, after each round.
        converged, interrupted : bool
        """
        matrix = _Matrix.of(Y, dtype)
        n_observed, bounds = float(matrix.observed.sum(dtype=np.float64)), []
        factors = cls.begin(matrix, n_components)
        for _ in range(n_rounds):
            try:
                latents = factors.place(matrix)
                improved, bound = factors.improve(matrix, latents, one_noise=one_noise)
                factors = improved.balanced(latents)
                bounds.append(bound)
                if tell(bound):
                    break
            except KeyboardInterrupt:
                if not bounds:
                    raise
                return factors, bounds, False, True
            if len(bounds) > 1 and abs(bounds[-1] - bounds[-2]) < tol * n_observed:
                return factors, bounds, True, False
        return factors, bounds, False, False

    @staticmethod
    def affordable_components(n_rows: int, n_columns: int) -> int:
        """Return with how many dimensions to begin, or 0 if a fit of an array of this shape costs too much.

        A round makes N M Q^2 products for the second moments, and (N + M) Q^3 for their inverses.
        """
        most = min(_MOST_COMPONENTS, 3 * min(n_rows, n_columns) // 4)
        sizes = np.arange(1, most + 1, dtype=np.float64)
        products = sizes**2 * n_rows * n_columns + sizes**3 * (n_rows + n_columns)
        affordable = int(np.sum(products <= _PRODUCTS_OF_ROUND))
        return affordable if n_columns <= _MOST_COLUMNS and affordable >= min(most, _FEWEST) else 0

    @classmethod
    def begin(cls, matrix: _Matrix, n_components: int) -> MatrixFactors:
        """Return first factors, from the covariances of columns over the rows that have both."""
        values, observed = matrix
        n_columns, dtype = values.shape[1], values.dtype
        number = np.maximum(observed.sum(axis=0), 1.0)
        offset = values.sum(axis=0) / number
        centred = (values - offset) * observed
        pairs = (centred.T @ centred / np.maximum(observed.T @ observed, 1.0)).astype(np.float64)
        spread, directions = np.linalg.eigh(pairs)
        spread, directions = spread[::-1][:n_components], directions[:, ::-1][:, :n_components]
        total = max(float(np.trace(pairs)), np.finfo(np.float32).tiny)
        noise = max((total - float(np.sum(np.maximum(spread, 0.0)))) / n_columns, 1e-2 * total / n_columns)
        loadings = (directions * np.sqrt(np.maximum(spread, 1e-3 * noise))).astype(dtype)
        shape = (n_columns, loadings.shape[1], loadings.shape[1])
        variance = float(np.mean(loadings.astype(np.float64) ** 2))
        covariances, noises = np.zeros(shape, dtype), np.full(n_columns, noise, dtype)
        return cls(loadings, covariances, offset, noises / number, noises, variance)

    def place(self, matrix: _Matrix) -> _Moments:
        """Return the posterior of the latents of the rows."""
        values, observed = matrix
        size, dtype = self.loadings.shape[1], values.dtype
        moments = _packed(self.loadings, self.covariances)
        shift = ((values - self.offset * observed) / self.noise) @ self.loadings
        means, packed = np.empty((len(values), size), dtype), np.empty((len(values), len(moments[0])), dtype)
        second, log_determinant = np.zeros((size, size)), 0.0
        for some in _pieces(len(values), size):
            precisions = _unpacked((observed[some] / self.noise) @ moments, size)
            precisions[:, range(size), range(size)] += 1.0
            log_determinant -= _invert(precisions)
            means[some] = np.matmul(precisions, shift[some, :, None])[..., 0]
            packed[some] = _packed(means[some], precisions)
            second += precisions.sum(axis=0, dtype=np.float64)
        return _Moments(means, packed, second + means.T @ means, log_determinant)

    def improve(
        self, matrix: _Matrix, latents: _Moments, *, one_noise: bool = False
    ) -> tuple[MatrixFactors, float]:
        """Return better factors for latents of the rows, and the bound at their loadings and noises.

        The noise is one of each column, or one of all.
        """
        values, observed = matrix
        n_columns, size = self.loadings.shape
        centred = values - self.offset * observed
        cross, number = centred.T @ latents.means, np.maximum(observed.sum(axis=0, dtype=np.float64), 1.0)
        loadings, covariances = np.empty_like(self.loadings), np.empty_like(self.covariances)
        explained, log_determinant = np.empty(n_columns), 0.0
        for some in _pieces(n_columns, size):
            sums = _unpacked(np.ascontiguousarray(observed[:, some].T) @ latents.packed, size)
            precisions = sums / self.noise[some, None, None]
            precisions[:, range(size), range(size)] += 1.0 / self.variance
            log_determinant -= _invert(precisions)
            means = np.matmul(precisions, cross[some, :, None])[..., 0] / self.noise[some, None]
            both = _packed(means, precisions).astype(np.float64)
            explained[some] = np.einsum("mp,mp->m", both, _doubled(sums))
            loadings[some], covariances[some] = means, precisions
        squares = np.sum(centred.astype(np.float64) ** 2, axis=0)
        residual = np.maximum(squares - 2.0 * np.sum(loadings * cross, axis=1) + explained, 0.0)
        smallest = _SMALLEST_NOISE * float(squares.sum() / number.sum()) + np.finfo(np.float32).tiny
        noise = np.full(n_columns, residual.sum() / number.sum()) if one_noise else residual / number
        noise = np.maximum(noise, smallest)
        rest = np.sum(values - (latents.means @ loadings.T) * observed, axis=0, dtype=np.float64)
        better = MatrixFactors(
            loadings,
            covariances,
            (rest / number).astype(values.dtype),
            (noise / number).astype(values.dtype),
            noise.astype(values.dtype),
            self.variance,
        )
        bound = -0.5 * float(np.sum(number * np.log(2.0 * np.pi * noise) + residual / noise))
        bound -= 0.5 * (np.trace(latents.second) - len(values) * size - latents.log_determinant)
        ends = np.trace(better._second) / self.variance + n_columns * size * (np.log(self.variance) - 1.0)
        return better, bound - 0.5 * float(ends - log_determinant)

    @property
    def _second(self) -> FloatArray:
        """Return the sum over columns of E a a', (Q, Q), in float64."""
        loadings = self.loadings.astype(np.float64)
        return loadings.T @ loadings + self.covariances.sum(axis=0, dtype=np.float64)

    def balanced(self, latents: _Moments) -> MatrixFactors:
        """Return the same function with the best prior variance and scales, without idle dimensions."""
        n_rows, n_columns = len(latents.means), len(self.loadings)
        second = latents.second / n_rows
        root = np.linalg.cholesky(second + 1e-12 * np.trace(second) * np.eye(len(second)))
        squares, axes = np.linalg.eigh(root.T @ self._second @ root)
        turn = root @ axes[:, ::-1]
        squares = np.maximum(squares[::-1], np.finfo(np.float64).tiny)
        certain = np.sum((self.loadings @ turn) ** 2, axis=0) / squares >= _SMALLEST_CERTAINTY
        # one dimension is always kept
        certain[0] = True
        turn, squares = turn[:, certain], squares[certain]
        variance, half = self.variance, 0.5 * (1.0 - n_columns / n_rows)
        scale = np.ones(len(squares))
        for _ in range(_BALANCING_STEPS):
            scale = np.maximum(half + np.sqrt(half**2 + squares / (n_rows * variance)), 1e-12)
            variance = max(float(np.mean(squares / scale)) / n_columns, np.finfo(np.float32).tiny)
        turn = (turn / np.sqrt(scale)).astype(self.loadings.dtype)
        covariances = np.empty((n_columns, turn.shape[1], turn.shape[1]), turn.dtype)
        for some in _pieces(n_columns, len(turn)):
            covariances[some] = turn.T @ self.covariances[some] @ turn
        return replace(self, loadings=self.loadings @ turn, covariances=covariances, variance=variance)


def _pieces(number: int, size: int) -> list[slice]:
    """Return slices of so many matrices (size, size) that bound the memory they take."""
    step = max(1, _MOST_NUMBERS // size**2)
    return [slice(start, min(start + step, number)) for start in range(0, number, step)]


def _positions(size: int) -> np.ndarray:
    """Return where the lower triangle of a matrix stands among all its entries."""
    rows, columns = np.tril_indices(size)
    return rows * size + columns


def _packed(means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Return the lower triangles (n, P) of E v v'."""
    size = means.shape[1]
    places = _positions(size)
    packed = np.empty((len(means), len(places)), means.dtype)
    for mean, covariance, row in zip(means, covariances, packed, strict=True):
        np.take((np.multiply.outer(mean, mean) + covariance).ravel(), places, out=row)
    return packed


def _unpacked(packed: FloatArray, size: int) -> FloatArray:
    """Return matrices (n, size, size) with these lower triangles, and zeros above them."""
    matrices = np.zeros((len(packed), size * size), packed.dtype)
    places = _positions(size)
    for row, matrix in zip(packed, matrices, strict=True):
        matrix[places] = row
    return matrices.reshape(-1, size, size)


def _doubled(matrices: FloatArray) -> FloatArray:
    """Return the lower triangles (n, P) with what stands below the diagonal doubled."""
    size = matrices.shape[1]
    rows, columns = np.tril_indices(size)
    packed = matrices.reshape(-1, size * size)[:, _positions(size)].astype(np.float64)
    return packed * np.where(rows == columns, 1.0, 2.0)


def _invert(matrices: FloatArray) -> float:
    """Put inverses (n, Q, Q) in the place of symmetric matrices, given by their lower triangles.

    Returns the sum of the log determinants of the matrices.
    """
    factorise, finish = get_lapack_funcs(("potrf", "potri"), (matrices,))
    total = 0.0
    for matrix in matrices:
        # the transpose is what LAPACK takes without a copy, and its upper triangle is given
        factor, failed = factorise(matrix.T, lower=0, clean=0)
        if failed:
            total += _invert_ridged(matrix)
            continue
        total += 2.0 * float(np.sum(np.log(np.diagonal(factor)), dtype=np.float64))
        inverse, _ = finish(factor, lower=0, overwrite_c=1)
        upper = np.triu(inverse, 1)
        matrix[:] = upper + upper.T
        np.fill_diagonal(matrix, np.diagonal(inverse))
    return total


def _invert_ridged(matrix: FloatArray) -> float:
    """Invert a matrix that rounding has left not positive definite, in double precision."""
    lower = np.tril(matrix).astype(np.float64)
    whole = lower + np.tril(lower, -1).T
    values, vectors = np.linalg.eigh(whole)
    values = np.maximum(values, _RIDGE * np.mean(np.abs(values)))
    matrix[:] = (vectors / values) @ vectors.T
    return float(np.sum(np.log(values)))
