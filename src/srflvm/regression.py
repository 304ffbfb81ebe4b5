"""The regression solved outside the compiled loop: its best noise and amplitude, and q(H), in float64.

With the eigendecomposition Phi'Phi = U diag(d) U' and b_j^2 = |(U'Phi'Y)_j|^2, the evidence at a given
ratio = noise / amplitude is highest at noise = (|Y|^2 - sum_j b_j^2 / (d_j + ratio)) / (M N), which leaves
a search in one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize_scalar

from srflvm._types import FloatArray

# Noise below this share of the data's variance is not resolved by rounding in what comes before.
SMALLEST_NOISE = 1e-9

_COLUMNS_AT_ONCE = 1000


@dataclass(frozen=True)
class Statistics:
    """Sufficient statistics of the regression: Phi'Phi, Phi'Y, |Y|^2, and the shape N, M of Y."""

    gram: FloatArray
    cross: FloatArray
    total_square: float
    n_rows: float
    n_columns: int


@dataclass(frozen=True)
class Fit:
    """The best noise variance and noise / amplitude, with the log evidence they reach."""

    noise: float
    ratio: float
    log_evidence: float


def best_noise(statistics: Statistics, smallest_ratio: float) -> Fit:
    """Maximise the evidence over noise and amplitude."""
    values, vectors = np.linalg.eigh(statistics.gram)
    values = np.maximum(values, 0.0)
    projected = np.sum((vectors.T @ statistics.cross) ** 2, axis=1)

    def profile(log_ratio: float) -> Fit:
        return _profile_evidence(values, projected, statistics, float(np.exp(log_ratio)))

    low, high = np.log(smallest_ratio), np.log(max(statistics.n_rows, 1.0) * 1e3)
    grid = np.linspace(low, high, 25)
    peak = int(np.argmax([profile(point).log_evidence for point in grid]))
    bounds = (grid[max(peak - 1, 0)], grid[min(peak + 1, len(grid) - 1)])
    found: Any = minimize_scalar(lambda point: -profile(point).log_evidence, bounds=bounds, method="bounded")
    return max((profile(found.x), profile(grid[peak])), key=lambda fit: fit.log_evidence)


def _profile_evidence(values: FloatArray, projected: FloatArray, s: Statistics, ratio: float) -> Fit:
    n_entries = s.n_rows * s.n_columns
    residual = s.total_square - np.sum(projected / (values + ratio))
    noise = max(residual / n_entries, SMALLEST_NOISE * s.total_square / n_entries)
    log_det = np.sum(np.log1p(values / ratio))
    evidence = -0.5 * (n_entries * np.log(2.0 * np.pi * noise) + s.n_columns * log_det + residual / noise)
    return Fit(float(noise), ratio, float(evidence))


def log_evidence(s: Statistics, noise: float, ratio: float) -> float:
    """The log evidence at given noise and ratio, by one factorisation: see `evidence`."""
    cholesky = np.linalg.cholesky(s.gram + ratio * np.eye(len(s.gram)))
    half = solve_triangular(cholesky, s.cross, lower=True)
    log_det = 2.0 * np.sum(np.log(np.diagonal(cholesky))) - len(cholesky) * np.log(ratio)
    residual = s.total_square - np.sum(half**2)
    n_entries = s.n_rows * s.n_columns
    return float(-0.5 * (n_entries * np.log(2.0 * np.pi * noise) + s.n_columns * log_det + residual / noise))


def posterior_weights(gram: FloatArray, cross: FloatArray, ratio: float) -> tuple[FloatArray, FloatArray]:
    """Mean (L, M) and covariance per unit of noise (L, L) of the weights: G^-1 B and G^-1."""
    factor = cho_factor(gram + ratio * np.eye(len(gram)), lower=True)
    inverse = _solve(factor, np.eye(len(gram)))
    return _solve(factor, cross), 0.5 * (inverse + inverse.T)


def _solve(factor: tuple[FloatArray, bool], right: FloatArray) -> FloatArray:
    """G^-1 `right`, some columns at a time: SciPy lets no other thread run meanwhile, and the watchdog of a
    process that is silent for long would be taken for dead."""
    parts = [
        cho_solve(factor, right[:, first : first + _COLUMNS_AT_ONCE])
        for first in range(0, max(right.shape[1], 1), _COLUMNS_AT_ONCE)
    ]
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def posterior_covariance(gram: FloatArray, ratio: float) -> FloatArray:
    """G^-1 alone."""
    return posterior_weights(gram, gram[:, :0], ratio)[1]
