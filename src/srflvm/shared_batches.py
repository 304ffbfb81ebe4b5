"""Batches of complete Gaussian rows: sums that are sufficient for the shared regression.

Given q(X) the bound depends on the data through E[Phi'Phi], E[Phi]'Y and |Y|^2 alone, and its maximum over
q(H), noise and amplitude is known (see `regression`). A natural-gradient step of length rho on q(H), whose
natural parameters are (E[Phi'Phi] + ratio I) / noise and E[Phi]'Y / noise, is a step of length rho of these
sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from srflvm._types import FloatArray
from srflvm.batches import Gathered, Model, divergence_of_latents
from srflvm.embedding import Embedding
from srflvm.freezing import frozen_statistics, smallest_frozen_ratio
from srflvm.gaussian_posterior import GaussianPosterior
from srflvm.regression import Statistics, best_noise, posterior_weights


class SharedSums(NamedTuple):
    """E[Phi'Phi] (L, L), E[Phi]'Y (L, M) and |Y|^2 of standardised rows."""

    gram: FloatArray
    cross: FloatArray
    total_square: FloatArray


@dataclass(frozen=True)
class SharedKind:
    """One noise, and one covariance of the weights, for all columns."""

    def gather(
        self, posterior: GaussianPosterior, Y: FloatArray, log_sizes: FloatArray | None = None
    ) -> Gathered:
        placed = posterior.place(Y)
        sums = statistics_of(posterior, Y, placed)
        bound = _expected_log_density(posterior, sums, len(Y)) - divergence_of_latents(placed)
        return Gathered(sums, bound - Y.size * np.log(posterior.columns.scale), placed)

    def refresh(self, posterior: GaussianPosterior, totals: SharedSums, n_rows: float) -> Model:
        """The best q(H), noise and amplitude for the sums."""
        n_columns = totals.cross.shape[1]
        statistics = Statistics(totals.gram, totals.cross, float(totals.total_square), n_rows, n_columns)
        fit = best_noise(statistics, smallest_frozen_ratio(n_rows))
        weights, covariance = posterior_weights(totals.gram, totals.cross, fit.ratio)
        posterior = replace(
            posterior, weights=weights, weight_covariance=covariance, noise=fit.noise, ratio=fit.ratio
        )
        return Model(posterior, divergence(posterior))


def statistics_of(posterior: GaussianPosterior, Y: FloatArray, placed: Embedding) -> SharedSums:
    """The sums over rows whose q(x_n) is given."""
    standard = posterior.columns.standardise(Y)
    gram, cross = frozen_statistics(posterior.frequencies, placed, standard)
    return SharedSums(gram, cross, np.asarray(np.sum(standard**2)))


def sums_behind(posterior: GaussianPosterior, n_rows: int) -> SharedSums:
    """The sums that a posterior of so many rows follows from: with q(H) = N(W, noise V), the Gram matrix is
    V^-1 - ratio I, the cross products are V^-1 W, and the noise is (|Y|^2 - <cross, W>) / (N M)."""
    precision = np.linalg.inv(posterior.weight_covariance)
    precision = 0.5 * (precision + precision.T)
    cross = precision @ posterior.weights
    square = posterior.noise * n_rows * cross.shape[1] + np.sum(cross * posterior.weights)
    gram = precision - posterior.ratio * np.eye(len(precision))
    return SharedSums(gram, cross, np.asarray(square))


def _expected_log_density(posterior: GaussianPosterior, sums: SharedSums, n_rows: int) -> float:
    """sum_n E log p(y_n | x_n, H) over q(X) q(H), in standardised units.

    E|Y - Phi H|^2 = |Y|^2 - 2 <E[Phi]'Y, W> + <E[Phi'Phi], W W' + M noise V> for q(H) = N(W, noise V).
    """
    weights, noise = posterior.weights, posterior.noise
    n_columns = weights.shape[1]
    second = weights @ weights.T + n_columns * noise * posterior.weight_covariance
    residual = sums.total_square - 2.0 * np.sum(sums.cross * weights) + np.sum(sums.gram * second)
    return float(-0.5 * (n_rows * n_columns * np.log(2.0 * np.pi * noise) + residual / noise))


def divergence(posterior: GaussianPosterior) -> float:
    """KL(q(H) || p(H)), with q(h_m) = N(w_m, noise V) and p(h_m) = N(0, noise / ratio I)."""
    size, n_columns = posterior.weights.shape
    ratio, covariance = posterior.ratio, posterior.weight_covariance
    log_determinant = np.linalg.slogdet(ratio * covariance)[1]
    spread = n_columns * (ratio * np.trace(covariance) - size - log_determinant)
    return float(0.5 * (spread + ratio / posterior.noise * np.sum(posterior.weights**2)))
