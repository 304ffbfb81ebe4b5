"""What is kept after fitting: frozen frequencies, q(H) in float64, and what can be computed from them.

Everything here is deterministic NumPy in float64, in the standardised columns of the fit unless a
name says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from srflvm._types import FloatArray
from srflvm.compression import Columns
from srflvm.features import fourier_features

# Rows decoded at a time: bounds memory to a few times CHUNK * max(L, M) numbers.
CHUNK = 2048


@dataclass(frozen=True)
class Decoded:
    """A decoded mean (n, M) with its variances told apart, all in the units of the data.

    `latent_variance` (n, M) comes from not knowing the latent, `weight_variance` (n, 1) from not knowing
    the function, `noise_variance` (a number) from the noise of an observation.
    """

    mean: FloatArray
    latent_variance: FloatArray
    weight_variance: FloatArray
    noise_variance: float

    @property
    def variance(self) -> FloatArray:
        """The predictive variance: the sum of the three."""
        return self.latent_variance + self.weight_variance + self.noise_variance


@dataclass(frozen=True)
class Posterior:
    """The fitted model. Shapes: frequencies (L/2, Q), weights (L, M), weight_covariance (L, L) per unit
    of noise. Anchors are training rows kept as starting points for new ones: latents (A, Q) and
    compressed scores (A, R)."""

    columns: Columns
    frequencies: FloatArray
    weights: FloatArray
    weight_covariance: FloatArray
    noise: float
    ratio: float
    anchors: FloatArray
    anchor_scores: FloatArray

    def features(self, latents: FloatArray) -> FloatArray:
        """Random Fourier features (n, L)."""
        return fourier_features(latents, self.frequencies)

    def weight_variance(self, features: FloatArray) -> FloatArray:
        """noise * phi' V phi for each row of features, the same for all columns."""
        return self.noise * np.sum((features @ self.weight_covariance) * features, axis=1)

    def decode(self, latents: FloatArray, cholesky: FloatArray | None = None) -> Decoded:
        """Mean and variances of Y at the latents, or at N(latents_n, C_n C_n')."""
        parts = [
            self._decode_chunk(latents[rows], None if cholesky is None else cholesky[rows])
            for rows in row_chunks(len(latents))
        ]
        mean, latent, weight = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        square = self.columns.scale**2
        return Decoded(
            mean=self.columns.mean + self.columns.scale * mean,
            latent_variance=square * latent,
            weight_variance=square * weight[:, None],
            noise_variance=square * self.noise,
        )

    def _decode_chunk(self, latents: FloatArray, cholesky: FloatArray | None):
        if cholesky is None:
            features = self.features(latents)
            mean = features @ self.weights
            return mean, np.zeros_like(mean), self.weight_variance(features)
        features = [self.features(points) for points in cubature_points(latents, cholesky)]
        means = np.stack([phi @ self.weights for phi in features])
        weight = np.mean([self.weight_variance(phi) for phi in features], axis=0)
        return means.mean(axis=0), means.var(axis=0), weight


def row_chunks(n_rows: int) -> Iterator[slice]:
    """Slices of at most CHUNK rows that cover them all."""
    for start in range(0, n_rows, CHUNK):
        yield slice(start, min(start + CHUNK, n_rows))


def cubature_points(mean: FloatArray, cholesky: FloatArray) -> FloatArray:
    """Points (2Q, n, Q) whose equal-weight average is E[g(x)], x ~ N(mean_n, C_n C_n'), for every
    polynomial g up to degree three: mean_n plus and minus sqrt(Q) times each column of C_n."""
    steps = np.sqrt(mean.shape[-1]) * np.moveaxis(cholesky, -1, 0)
    return np.concatenate([mean + steps, mean - steps])
