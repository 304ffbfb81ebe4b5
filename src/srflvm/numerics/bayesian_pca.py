"""Bayesian principal component analysis with a noise for every column and exact missing entries.

The model is y_nm = a_m'x_n + noise, with x_n ~ N(0, I), a_mq ~ N(0, relevance_q) and a noise variance for
each column. Inference is variational, q(x_n) and q(a_m) Gaussian in turn, over the observed entries alone;
noises and relevances are at their optima. After each round the latents are rotated and scaled to mean square
one and the loadings to orthogonal directions, which leaves the likelihood as it is and lowers the divergences
from the priors, so that few rounds are needed and relevances can be read off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srflvm._typing import FloatArray
from srflvm.numerics.low_rank_fill import leading_directions

# Loadings are found from so many rows at most; the others are then placed by them.
_MOST_ROWS = 5000
_MOST_ROUNDS = 60

# With more dimensions than this a round is costly: fewer are made, in single precision.
_MOST_IN_DOUBLE = 32
_ROUNDS_IF_LARGE = 12
_TOLERANCE = 1e-3
_SMALLEST_NOISE = 1e-4
_SMALLEST_RELEVANCE = 1e-10


@dataclass(frozen=True)
class LinearFactors:
    """Hold latents and loadings: means (N, Q) and covariances (N, Q, Q) of x_n, and of the columns the
    loadings (M, Q) with covariances (M, Q, Q) and noises (M,). `relevance` (Q,) is the mean of E a_mq^2."""

    latents: FloatArray
    latent_covariances: FloatArray
    loadings: FloatArray
    loading_covariances: FloatArray
    noise: FloatArray

    @classmethod
    def fit(cls, Y: FloatArray, n_components: int, rng: np.random.RandomState) -> LinearFactors:
        """Fit centred columns Y (N, M), NaN where not observed."""
        index = np.sort(rng.permutation(len(Y))[:_MOST_ROWS])
        is_large = n_components > _MOST_IN_DOUBLE
        some = Y[index].astype(np.float32 if is_large else np.float64)
        observed = ~np.isnan(some)
        weights, filled = observed.astype(some.dtype), np.where(observed, some, 0.0)
        square = np.maximum(np.mean(filled**2, axis=0) / np.maximum(weights.mean(axis=0), 1e-12), 1e-12)
        n_columns = Y.shape[1]
        loadings = np.zeros((n_columns, n_components), some.dtype)
        directions, spread = leading_directions(some, n_components)
        loadings[:, : directions.shape[1]] = directions * spread
        loadings += 1e-3 * np.sqrt(square)[:, None] * rng.standard_normal(loadings.shape)
        factors = cls(
            np.zeros((len(some), n_components), some.dtype),
            np.zeros((len(some), n_components, n_components), some.dtype),
            loadings,
            np.zeros((n_columns, n_components, n_components), some.dtype),
            0.5 * square,
        )
        relevance = np.maximum(np.mean(loadings**2, axis=0), _SMALLEST_RELEVANCE)
        for _ in range(_ROUNDS_IF_LARGE if is_large else _MOST_ROUNDS):
            before = factors.noise
            factors = factors.placed(weights, filled)._with_loadings(weights, filled, relevance, square)
            factors = factors._rotated()
            relevance = factors.relevance
            if np.max(np.abs(np.log(factors.noise / before))) < _TOLERANCE:
                break
        observed = ~np.isnan(Y)
        return factors.placed(observed.astype(some.dtype), np.where(observed, Y, 0.0).astype(some.dtype))

    @property
    def relevance(self) -> FloatArray:
        """Return the mean over columns of E a_mq^2, (Q,)."""
        variances = np.diagonal(self.loading_covariances, axis1=1, axis2=2)
        return np.maximum(np.mean(self.loadings**2 + variances, axis=0), _SMALLEST_RELEVANCE)

    def placed(self, weights: FloatArray, filled: FloatArray) -> LinearFactors:
        """Return the factors with the latents of given rows: 1 in `weights` where an entry is observed."""
        size = self.loadings.shape[1]
        precision = _second_moments(weights / self.noise, self.loadings, self.loading_covariances)
        covariances = np.linalg.inv(precision + np.eye(size, dtype=precision.dtype))
        shift = filled @ (self.loadings / self.noise[:, None])
        latents = np.einsum("nqr,nr->nq", covariances, shift)
        return LinearFactors(latents, covariances, self.loadings, self.loading_covariances, self.noise)

    def _with_loadings(
        self, weights: FloatArray, filled: FloatArray, relevance: FloatArray, square: FloatArray
    ) -> LinearFactors:
        """Return the factors with the best loadings and noises for the latents."""
        sums = _second_moments(weights.T, self.latents, self.latent_covariances)
        precision = sums / self.noise[:, None, None] + np.diag(1.0 / relevance).astype(sums.dtype)
        covariances = np.linalg.inv(precision)
        cross = filled.T @ self.latents
        loadings = np.einsum("mqr,mr->mq", covariances, cross / self.noise[:, None])
        explained = np.einsum("mqr,mqr->m", sums, _outer(loadings) + covariances)
        residual = np.sum(filled**2, axis=0) - 2.0 * np.sum(loadings * cross, axis=1) + explained
        number = np.maximum(weights.sum(axis=0), 1.0)
        noise = np.maximum(residual / number, _SMALLEST_NOISE * square)
        return LinearFactors(self.latents, self.latent_covariances, loadings, covariances, noise)

    def _rotated(self) -> LinearFactors:
        """Return the same function with latents of mean square one and orthogonal loadings."""
        second = np.mean(_outer(self.latents) + self.latent_covariances, axis=0)
        root = np.linalg.cholesky(second + 1e-12 * np.trace(second) * np.eye(len(second)))
        loadings = self.loadings @ root
        spread = np.einsum("qi,mqr,rj->ij", root, self.loading_covariances, root, optimize=True)
        _, axes = np.linalg.eigh(loadings.T @ loadings + spread)
        turn = root @ axes[:, ::-1]
        back = np.linalg.inv(turn)
        return LinearFactors(
            self.latents @ back.T,
            np.einsum("iq,nqr,jr->nij", back, self.latent_covariances, back, optimize=True),
            self.loadings @ turn,
            np.einsum("qi,mqr,rj->mij", turn, self.loading_covariances, turn, optimize=True),
            self.noise,
        )


def _second_moments(weights: FloatArray, means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Return sums of E v v' over vectors v, with weights (A, B) and B vectors: (A, Q, Q).

    They are symmetric, and half of their entries are summed.
    """
    size = means.shape[1]
    rows, columns = np.triu_indices(size)
    packed = weights @ (means[:, rows] * means[:, columns] + covariances[:, rows, columns])
    sums = np.empty((len(packed), size, size), packed.dtype)
    sums[:, rows, columns] = packed
    sums[:, columns, rows] = packed
    return sums


def _outer(vectors: FloatArray) -> FloatArray:
    return vectors[:, :, None] * vectors[:, None, :]
