"""Collapsed Bayesian linear regression: log p(Y | features) with the weights integrated out.

Every column of Y is a linear regression on the same features, h_m ~ N(0, amplitude I),
y_m = Phi h_m + noise. With sigma^2 the noise variance, ratio = sigma^2 / amplitude and

    G = Phi'Phi + ratio I,   B = Phi'Y,   H = G^-1 B   (L x M),

    log p(Y | Phi) = -1/2 { M [N log sigma^2 - L log ratio + log|G|]
                            + (|Y|^2 - <B, H>) / sigma^2 + M N log 2 pi },

    d/dPhi = (Y H' - Phi H H') / sigma^2 - M Phi G^-1.

So value and gradient cost the products Phi'Phi, Phi'Y, Y H' and Phi (...), and algebra of size L x L;
nothing of size N x N, and no differentiation through a factorisation.

Only Y Y' enters. Y may therefore be replaced by its N x R scores on R orthonormal directions of its
columns, keeping |Y|^2 whole: exact when R is the rank, and otherwise still a lower bound, because
each dropped direction could only have added to <B, H>.

`Solution` and `predict_and_evidence` are for compiled programs. `Statistics` solves the same regression
outside of them, in float64, and finds its best noise and amplitude: with the eigendecomposition
Phi'Phi = U diag(d) U' and b_j^2 = |(U'Phi'Y)_j|^2, the evidence at a given ratio is highest at
noise = (|Y|^2 - sum_j b_j^2 / (d_j + ratio)) / (M N), which leaves a search in one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from scipy import linalg
from scipy.optimize import minimize_scalar

from srflvm._typing import FloatArray

# Noise below this share of the variance of the data is lost in the rounding of the sums.
_SMALLEST_NOISE = 1e-9

_COLUMNS_AT_ONCE = 1000


def smallest_ratio(n_rows: int, dtype: jnp.dtype) -> float:
    """Return the floor of noise / amplitude that keeps G positive definite whatever the features are.

    Phi'Phi has trace N, and exactly collinear features make its rounding error largest: measured in
    float32, its smallest eigenvalue is down to -14 N eps at N = 60 000 and falls a little faster than N
    beyond. A little more than twice that is kept as a floor.
    """
    growth = max(1.0, (n_rows / 60_000.0) ** 0.5)
    return 32.0 * growth * n_rows * float(jnp.finfo(dtype).eps)


# ---- in compiled programs -------------------------------------------------------------------------


class Targets(NamedTuple):
    """Scores (N, R) of the data, |Y|^2 and the number of columns M."""

    scores: Array
    total_square: Array
    n_columns: Array

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return self.scores.shape[0]


class _Gradient(NamedTuple):
    """Gradient d/dphi_n = y_n slope - phi_n pull, slope (R, L) and pull (L, L), d/dnoise and d/dratio."""

    slope: Array
    pull: Array
    noise: Array
    ratio: Array


class Solution(NamedTuple):
    """Solved regression in float64: C (L, L) with G = C C', C^-1 B (L, R), <B, H> and the log evidence."""

    cholesky: Array
    half: Array
    explained: Array
    log_evidence: Array

    @classmethod
    def of(cls, gram: Array, cross: Array, targets: Any, noise: Array, ratio: Array) -> Solution:
        """Solve the regression from its sufficient statistics Phi'Phi and Phi'Y, in float64.

        Of the targets only |Y|^2 and the numbers of rows and columns are used.
        """
        size, n_rows = gram.shape[0], targets.n_rows
        system = gram.astype(jnp.float64) + ratio * jnp.eye(size, dtype=jnp.float64)
        cross = cross.astype(jnp.float64)
        cholesky = jnp.linalg.cholesky(system)
        half = solve_triangular(cholesky, cross, lower=True)
        explained = jnp.sum(half**2)
        log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(cholesky)))
        n_columns = targets.n_columns
        value = -0.5 * (
            n_columns * (n_rows * jnp.log(2.0 * jnp.pi * noise) - size * jnp.log(ratio) + log_det)
            + (targets.total_square - explained) / noise
        )
        return cls(cholesky, half, explained, value)

    def weights_and_root(self, dtype: Any) -> tuple[Array, Array]:
        """Return H = C^-T (C^-1 B) and C^-1.

        Single precision is enough for them once C and C^-1 B are exact: the evidence does not need them, and
        its gradient is stochastic.
        """
        cholesky = self.cholesky.astype(dtype)
        root = solve_triangular(cholesky, jnp.eye(len(cholesky), dtype=dtype), lower=True)
        return root.T @ self.half.astype(dtype), root

    def gradient(self, noise: Array, ratio: Array, targets: Any, cotangent: Array, dtype: Any) -> _Gradient:
        """Return the gradient of the log evidence times the cotangent, in `dtype` for the rows.

        It has slope = H' / sigma^2 and pull = H H' / sigma^2 + M G^-1. For the ratio,
        d<B,H>/dratio = -|H|^2 and d log|G| / dratio = tr G^-1 = |C^-1|^2.
        """
        size = len(self.cholesky)
        weights, root = self.weights_and_root(dtype)
        scale = (cotangent / noise).astype(dtype)
        columns = (cotangent * targets.n_columns).astype(dtype)
        pull = scale * (weights @ weights.T) + columns * (root.T @ root)
        trace, square = (jnp.sum(matrix**2, dtype=jnp.float64) for matrix in (root, weights))
        residual = targets.total_square - self.explained
        d_noise = -0.5 * (targets.n_columns * targets.n_rows / noise - residual / noise**2)
        d_ratio = -0.5 * (targets.n_columns * (trace - size / ratio) + square / noise)
        return _Gradient((scale * weights).T, pull, cotangent * d_noise, cotangent * d_ratio)


@jax.custom_vjp
def predict_and_evidence(
    features: Array, noise: Array, ratio: Array, targets: Targets
) -> tuple[Array, Array]:
    """Return log p(Y | features) and the posterior mean Phi H of the scores.

    The evidence is differentiable in features, noise and ratio (not in the data); the mean has no gradient.
    `features` and `targets.scores` share a dtype (float32 or float64); `noise`, `ratio` and the evidence are
    float64. If the evidence is not finite, the features or the noise are not. `model.chunked_evidence` has
    the same evidence for many rows.
    """
    return _forward(features, noise, ratio, targets)[0]


def _forward(features, noise, ratio, targets):
    gram, cross = features.T @ features, features.T @ targets.scores
    solution = Solution.of(gram, cross, targets, noise, ratio)
    weights, _ = solution.weights_and_root(features.dtype)
    return (solution.log_evidence, features @ weights), (features, noise, ratio, targets, solution)


def _backward(residuals, cotangents):
    cotangent, _ = cotangents
    features, noise, ratio, targets, solution = residuals
    gradient = solution.gradient(noise, ratio, targets, cotangent, features.dtype)
    d_features = targets.scores @ gradient.slope - features @ gradient.pull
    return d_features, gradient.noise, gradient.ratio, None


predict_and_evidence.defvjp(_forward, _backward)


# ---- outside of compiled programs -----------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """Best noise variance and noise / amplitude, with the log evidence that they reach."""

    noise: float
    ratio: float
    log_evidence: float


@dataclass(frozen=True)
class Statistics:
    """Sufficient statistics of the regression: Phi'Phi, Phi'Y, |Y|^2, and the shape N, M of Y."""

    gram: FloatArray
    cross: FloatArray
    total_square: float
    n_rows: float
    n_columns: int

    def best_noise(self, smallest_ratio: float) -> Fit:
        """Maximise the evidence over noise and amplitude."""
        values, vectors = np.linalg.eigh(self.gram)
        values = np.maximum(values, 0.0)
        projected = np.sum((vectors.T @ self.cross) ** 2, axis=1)

        def profile(log_ratio: float) -> Fit:
            return self._profile_evidence(values, projected, float(np.exp(log_ratio)))

        low, high = np.log(smallest_ratio), np.log(max(self.n_rows, 1.0) * 1e3)
        grid = np.linspace(low, high, 25)
        peak = int(np.argmax([profile(point).log_evidence for point in grid]))
        bounds = (grid[max(peak - 1, 0)], grid[min(peak + 1, len(grid) - 1)])
        found: Any = minimize_scalar(
            lambda point: -profile(point).log_evidence, bounds=bounds, method="bounded"
        )
        return max((profile(found.x), profile(grid[peak])), key=lambda fit: fit.log_evidence)

    def _profile_evidence(self, values: FloatArray, projected: FloatArray, ratio: float) -> Fit:
        """Return the best noise at a ratio, from the eigenvalues d and the b^2."""
        n_entries = self.n_rows * self.n_columns
        residual = self.total_square - np.sum(projected / (values + ratio))
        noise = max(residual / n_entries, _SMALLEST_NOISE * self.total_square / n_entries)
        log_det = np.sum(np.log1p(values / ratio))
        evidence = n_entries * np.log(2.0 * np.pi * noise) + self.n_columns * log_det + residual / noise
        return Fit(float(noise), ratio, float(-0.5 * evidence))

    def log_evidence(self, noise: float, ratio: float) -> float:
        """Return the log evidence at given noise and ratio, by one factorisation."""
        cholesky = np.linalg.cholesky(self.gram + ratio * np.eye(len(self.gram)))
        half = linalg.solve_triangular(cholesky, self.cross, lower=True)
        log_det = 2.0 * np.sum(np.log(np.diagonal(cholesky))) - len(cholesky) * np.log(ratio)
        residual = self.total_square - np.sum(half**2)
        n_entries = self.n_rows * self.n_columns
        evidence = n_entries * np.log(2.0 * np.pi * noise) + self.n_columns * log_det + residual / noise
        return float(-0.5 * evidence)


def posterior_weights(gram: FloatArray, cross: FloatArray, ratio: float) -> tuple[FloatArray, FloatArray]:
    """Return mean (L, M) and covariance per unit of noise (L, L) of the weights: G^-1 B and G^-1."""
    factor = linalg.cho_factor(gram + ratio * np.eye(len(gram)), lower=True)
    inverse = _solve(factor, np.eye(len(gram)))
    return _solve(factor, cross), 0.5 * (inverse + inverse.T)


def posterior_covariance(gram: FloatArray, ratio: float) -> FloatArray:
    """Return the covariance per unit of noise (L, L) of the weights, G^-1."""
    return posterior_weights(gram, gram[:, :0], ratio)[1]


def _solve(factor: tuple[FloatArray, bool], right: FloatArray) -> FloatArray:
    """Return G^-1 `right`, computed some columns at a time.

    SciPy lets no other thread run meanwhile, and the watchdog of a process that is silent for long would be
    taken for dead.
    """
    parts = [
        linalg.cho_solve(factor, right[:, first : first + _COLUMNS_AT_ONCE])
        for first in range(0, max(right.shape[1], 1), _COLUMNS_AT_ONCE)
    ]
    return parts[0] if len(parts) == 1 else np.hstack(parts)
