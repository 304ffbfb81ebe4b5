"""What is kept after fitting Gaussian data: one covariance of the weights for all columns.

Weights and latents are in the standardised columns of the fit, decoded values in the units of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srflvm._types import FloatArray
from srflvm.cubature import cubature_points
from srflvm.embedding import Embedding, embed
from srflvm.likelihoods import Gaussian, Units
from srflvm.observations import Encoded, Group, Layout
from srflvm.posterior import Decoded, Posterior, row_chunks
from srflvm.rowwise import Frozen
from srflvm.scoring import complete_log_density


@dataclass(frozen=True)
class GaussianPosterior(Posterior):
    """Weights (L, M), and weight_covariance (L, L) per unit of noise."""

    weights: FloatArray
    weight_covariance: FloatArray
    noise: float
    ratio: float

    @property
    def layout(self) -> Layout:
        mean, scale = self.columns.mean, self.columns.scale
        n_columns = len(mean)
        units = Units(mean, np.full(n_columns, scale))
        group = Group(Gaussian(), np.arange(n_columns), units, slice(0, n_columns))
        return Layout((group,), np.zeros(n_columns))

    @property
    def frozen(self) -> Frozen:
        n_columns = self.weights.shape[1]
        weights = np.concatenate([self.weights, np.zeros((1, n_columns))])
        parameters = {"log_noise": np.array([np.log(self.noise)])}
        return Frozen(self.frequencies, weights, np.zeros(n_columns), (parameters,))  # pyright: ignore

    def function_moments(self, latents: FloatArray) -> tuple[FloatArray, FloatArray]:
        features = self.features(latents)
        return features @ self.weights, self.weight_variance(features)[:, None]

    def place(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> Embedding:
        """Embed raw rows; complete ones by their compressed scores alone."""
        holey = np.isnan(Y).any(axis=1)
        parts = []
        if not holey.all():
            parts.append((~holey, embed(self, self.columns.scores(Y[~holey]))))
        if holey.any():
            parts.append((holey, super().place(Y[holey], log_sizes)))
        n_latent = self.frequencies.shape[1]
        mean, cholesky = np.empty((len(Y), n_latent)), np.empty((len(Y), n_latent, n_latent))
        for rows, placed in parts:
            mean[rows], cholesky[rows] = placed.mean, placed.cholesky
        return Embedding(mean, cholesky)

    def standardised(self, encoded: tuple[Encoded, ...]) -> FloatArray:
        """The channels, whose units are those of the columns."""
        return encoded[0].y

    def log_density(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> FloatArray:
        holey = np.isnan(Y).any(axis=1)
        density = np.empty(len(Y))
        if holey.any():
            density[holey] = super().log_density(Y[holey], log_sizes)
        if not holey.all():
            density[~holey] = complete_log_density(self, Y[~holey])
        return density

    def draw(
        self, latents: FloatArray, rng: np.random.RandomState, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        phi = self.features(latents)
        root = np.linalg.cholesky(self.weight_covariance + 1e-12 * np.eye(phi.shape[1]))
        wiggle = np.sqrt(self.noise) * root @ rng.standard_normal(self.weights.shape)
        f = phi @ (self.weights + wiggle)
        noisy = f + np.sqrt(self.noise) * rng.standard_normal(f.shape)
        return self.columns.mean + self.columns.scale * noisy

    def weight_variance(self, features: FloatArray) -> FloatArray:
        """noise * phi' V phi for each row of features, the same for all columns."""
        return self.noise * np.sum((features @ self.weight_covariance) * features, axis=1)

    def decode(
        self, latents: FloatArray, cholesky: FloatArray | None = None, log_sizes: FloatArray | None = None
    ) -> Decoded:
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
        features = self.features(latents)
        centre = features @ self.weights
        if cholesky is None:
            return centre, np.zeros_like(centre), self.weight_variance(features)
        first, second, weight = np.zeros_like(centre), np.zeros_like(centre), np.zeros(len(latents))
        points = cubature_points(latents, cholesky)
        for point in points:
            features = self.features(point)
            deviation = features @ self.weights - centre
            first += deviation / len(points)
            second += deviation**2 / len(points)
            weight += self.weight_variance(features) / len(points)
        return centre + first, np.maximum(second - first**2, 0.0), weight
