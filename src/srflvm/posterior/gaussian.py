"""Posterior of Gaussian data with one noise: one covariance of the weights serves all columns.

Weights and latents are in the standardised columns of the fit, decoded values in the units of the data.

Complete rows are embedded by their compressed scores alone. With the weights at their posterior mean, the log
density of a row y and its latent x is, up to a constant,

    -1/2 { |y - H'phi(x)|^2 / noise + |x|^2 },

a nonlinear least-squares problem in a few unknowns. It is solved by Levenberg-Marquardt steps (see `newton`)
from a good starting point: of the training rows most similar to y, the latent that explains y best. The
covariance is the inverse Gauss-Newton Hessian at the end.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import ThreadpoolController

from srflvm._typing import FloatArray
from srflvm.data.encoding import Group, GroupRows, Layout
from srflvm.likelihoods.base import Units
from srflvm.likelihoods.gaussian import Gaussian
from srflvm.numerics import packed_symmetric
from srflvm.numerics.features import cubature_points, fourier_features, jacobian
from srflvm.numerics.jit import in_float64, quickly_compiled
from srflvm.numerics.newton import MOST_STEPS, Search, inverse_root
from srflvm.numerics.weight_covariances import PackedCovariances
from srflvm.posterior.base import N_NEIGHBOURS, Decoded, Posterior
from srflvm.posterior.chunks import Embedding, PaddedChunks, row_chunks
from srflvm.posterior.embedding import FrozenFunction
from srflvm.posterior.scoring import ImportanceSample

# Rows whose targets and neighbours are held at a time.
_ROWS_AT_ONCE = 16_384
_ROWS_SCORED_AT_ONCE = 64

# Up to so many rows are compared with the anchors by one thread.
_FEW_ROWS = 64

# Most rows take few steps. After so many, those that have not ended go on among themselves.
_STEPS_TOGETHER = 8


@dataclass(frozen=True)
class GaussianPosterior(Posterior):
    """Posterior with weights (L, M), and `weight_covariance` (L, L) per unit of noise for all of them."""

    weights: FloatArray
    weight_covariance: FloatArray
    noise: float
    ratio: float

    shares_covariance = True

    def _build_layout(self) -> Layout:
        """Return one group of all columns."""
        mean, scale = self.columns.mean, self.columns.scale
        n_columns = len(mean)
        units = Units(mean, np.full(n_columns, scale))
        group = Group(Gaussian(), np.arange(n_columns), units, slice(0, n_columns))
        return Layout((group,), np.zeros(n_columns))

    def _build_function(self) -> FrozenFunction:
        """Return the function at the weights' mean, with no weight for the constant."""
        n_columns = self.weights.shape[1]
        weights = np.concatenate([self.weights, np.zeros((1, n_columns))])
        parameters = {"log_noise": np.array([np.log(self.noise)])}
        affine, level = np.zeros(0), np.zeros(n_columns)
        return FrozenFunction(self.frequencies, affine, weights, level, (parameters,))

    @property
    def covariances(self) -> PackedCovariances:
        """Return the covariance that the weights of all columns share, with zeros for the constant."""
        size = len(self.weight_covariance)
        whole: Any = np.zeros((1, size + 1, size + 1))
        whole[0, :size, :size] = self.noise * self.weight_covariance
        return PackedCovariances(np.asarray(packed_symmetric.pack_form(whole)))

    @property
    def mean_amplitude(self) -> float:
        """Return the prior variance of the function, in squared units of Y."""
        return float(self.columns.scale**2 * self.noise / self.ratio)

    @property
    def noise_variance(self) -> float:
        """Return the noise variance in squared units of Y."""
        return float(self.columns.scale**2 * self.noise)

    def learned_parameters(self) -> dict[str, FloatArray]:
        """Return the learned parameters of columns: none besides the noise."""
        return {}

    def state_entries(self) -> dict[str, Any]:
        """Return the logarithms of noise and ratio."""
        return {"log_noise": np.array(np.log(self.noise)), "log_ratio": np.array(np.log(self.ratio))}

    def function_moments(self, latents: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute mean (n, M) and variance (n, 1) of f."""
        features = self.features(latents)
        return features @ self.weights, self.weight_variance(features)[:, None]

    def weight_variance(self, features: FloatArray) -> FloatArray:
        """Compute noise * phi' V phi for each row of features, the same for all columns."""
        return self.noise * np.sum((features @ self.weight_covariance) * features, axis=1)

    def weight_divergence(self) -> float:
        """Compute KL(q(H) || p(H)), with q(h_m) = N(w_m, noise V) and p(h_m) = N(0, noise / ratio I)."""
        size, n_columns = self.weights.shape
        ratio, covariance = self.ratio, self.weight_covariance
        log_determinant = np.linalg.slogdet(ratio * covariance)[1]
        spread = n_columns * (ratio * np.trace(covariance) - size - log_determinant)
        return float(0.5 * (spread + ratio / self.noise * np.sum(self.weights**2)))

    def unknown_share(self, latents: FloatArray) -> FloatArray:
        """Compute the share of the function's prior variance that is left, (n,)."""
        return self.decode(latents).weight_variance[:, 0] / self.mean_amplitude

    def relative_variance_form(self) -> FloatArray:
        """Return the packed form (P,) of the function's variance as a share of its prior variance."""
        return self.covariances.packed[0] * self.ratio / self.noise

    # ---- embedding --------------------------------------------------------------------------------

    def embed(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> Embedding:
        """Embed raw rows; complete ones by their compressed scores alone."""
        incomplete = np.isnan(Y).any(axis=1)
        parts = []
        if not incomplete.all():
            parts.append((~incomplete, self.embed_scores(self.columns.scores(Y[~incomplete]))))
        if incomplete.any():
            parts.append((incomplete, super().embed(Y[incomplete], log_sizes)))
        n_latent = self.frequencies.shape[1]
        mean, cholesky = np.empty((len(Y), n_latent)), np.empty((len(Y), n_latent, n_latent))
        for rows, part in parts:
            mean[rows], cholesky[rows] = part.mean, part.cholesky
        return Embedding(mean, cholesky)

    def embed_scores(self, scores: FloatArray) -> Embedding:
        """Embed complete rows given by their compressed scores (see `Columns.scores`)."""
        n_features, n_latent = len(self.weights), self.frequencies.shape[1]
        mean, cholesky = np.empty((len(scores), n_latent)), np.empty((len(scores), n_latent, n_latent))
        size = PaddedChunks.for_rows(len(scores), n_latent * n_features).size
        for start in range(0, len(scores), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            mean[rows], cholesky[rows] = self._embed_some(scores[rows], size)
        return Embedding(mean, cholesky)

    def standardise(self, encoded: tuple[GroupRows, ...]) -> FloatArray:
        """Return the channels, whose units are those of the columns."""
        return encoded[0].y

    def _embed_some(self, scores: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
        values = np.asarray(scores, np.float64)
        targets = values / np.sqrt(self.noise)
        found = Search.begin(self._starting_latents(values, targets))
        n_rows, n_latent = found.latents.shape
        cholesky, left, n_steps = np.empty((n_rows, n_latent, n_latent)), np.arange(n_rows), 0
        while len(left) and n_steps < MOST_STEPS:
            more = _STEPS_TOGETHER if len(left) > size else MOST_STEPS - n_steps
            begun = Search(*(array[left] for array in found))
            chunks = PaddedChunks(len(left), size)
            with in_float64():
                parts = [
                    _solve_rows(self._score_map, *chunk, more) for chunk in chunks.cut((targets[left], begun))
                ]
                ended, cholesky[left] = chunks.join(parts)
            for array, new in zip(found, ended, strict=True):
                array[left] = new
            left, n_steps = left[ended.active], n_steps + more
        return found.latents, cholesky

    def _starting_latents(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return of the anchors most similar to each row the latent that explains the row best."""
        with _search_threads(len(scores)):
            similar = np.asarray(self._score_index.kneighbors(scores, return_distance=False))
        anchors, outputs = self.anchors, self._anchor_outputs
        losses = np.stack(
            [
                np.sum((targets - outputs[at]) ** 2, axis=1) + np.sum(anchors[at] ** 2, axis=1)
                for at in similar.T
            ]
        )
        return anchors[similar[np.arange(len(similar)), np.argmin(losses, axis=0)]]

    @cached_property
    def _score_index(self) -> NearestNeighbors:
        n_neighbours = min(N_NEIGHBOURS, len(self.anchors))
        return NearestNeighbors(n_neighbors=n_neighbours, algorithm="brute").fit(self.anchor_scores)

    @cached_property
    def _loadings(self) -> FloatArray:
        """Return the weights of the scores in units of the noise, (L, R)."""
        return self.weights @ self.columns.directions / np.sqrt(self.noise)

    @cached_property
    def _anchor_outputs(self) -> FloatArray:
        """Return the decoded scores of the anchors in units of the noise, (A, R)."""
        return self.features(self.anchors) @ self._loadings

    @cached_property
    def _score_map(self) -> _ScoreMap:
        with in_float64():
            return _ScoreMap(jnp.asarray(self._loadings), jnp.asarray(self.frequencies))

    # ---- log densities ----------------------------------------------------------------------------

    def log_density(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> FloatArray:
        """Estimate log p(y) of each raw row, over its observed entries, by importance sampling."""
        incomplete = np.isnan(Y).any(axis=1)
        density = np.empty(len(Y))
        if incomplete.any():
            density[incomplete] = super().log_density(Y[incomplete], log_sizes)
        if not incomplete.all():
            density[~incomplete] = self._complete_log_density(Y[~incomplete])
        return density

    def _complete_log_density(self, Y: FloatArray) -> FloatArray:
        standardised = self.columns.standardise(Y)
        embedding = self.embed_scores(standardised @ self.columns.directions)
        second = self.weights @ self.weights.T
        parts = []
        for start in range(0, len(Y), _ROWS_SCORED_AT_ONCE):
            rows = slice(start, start + _ROWS_SCORED_AT_ONCE)
            sample = ImportanceSample(Embedding(embedding.mean[rows], embedding.cholesky[rows]))
            log_likelihood = self._log_likelihood(second, standardised[rows], sample.latents)
            parts.append(sample.log_density(log_likelihood))
        return np.concatenate(parts) - Y.shape[1] * np.log(self.columns.scale)

    def _log_likelihood(self, second: FloatArray, Y: FloatArray, latents: FloatArray) -> FloatArray:
        """Compute log p(y | x) (n, T) of standardised rows at latents (n, T, Q)."""
        n_rows, n_draws, n_latent = latents.shape
        phi = self.features(latents.reshape(-1, n_latent))
        # |y - H'phi|^2 = |y|^2 - 2 phi'Hy + phi'HH'phi without forming n_rows * n_draws rows of M columns
        cross = np.einsum("ntl,nl->nt", phi.reshape(n_rows, n_draws, -1), Y @ self.weights.T)
        own = np.sum((phi @ second) * phi, axis=1).reshape(n_rows, n_draws)
        distance = np.maximum(np.sum(Y**2, axis=1)[:, None] - 2.0 * cross + own, 0.0)
        variance = self.noise + self.weight_variance(phi).reshape(n_rows, n_draws)
        return -0.5 * (Y.shape[1] * np.log(2.0 * np.pi * variance) + distance / variance)

    # ---- decoding and draws -----------------------------------------------------------------------

    def decode(
        self, latents: FloatArray, cholesky: FloatArray | None = None, log_sizes: FloatArray | None = None
    ) -> Decoded:
        """Compute mean and variances of Y at the latents, or at N(latents_n, C_n C_n')."""
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

    def _decode_chunk(self, latents: FloatArray, cholesky: FloatArray | None) -> tuple[FloatArray, ...]:
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

    def draw(
        self, latents: FloatArray, rng: np.random.RandomState, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        """Draw rows at given latents: the whole function once, then an observation of each entry."""
        phi = self.features(latents)
        root = np.linalg.cholesky(self.weight_covariance + 1e-12 * np.eye(phi.shape[1]))
        wiggle = np.sqrt(self.noise) * root @ rng.standard_normal(self.weights.shape)
        f = phi @ (self.weights + wiggle)
        noisy = f + np.sqrt(self.noise) * rng.standard_normal(f.shape)
        return self.columns.mean + self.columns.scale * noisy


def _search_threads(n_rows: int) -> AbstractContextManager[object]:
    """Limit OpenMP to one thread while a few rows are compared with the anchors.

    On a machine with other work to do, threads of a team that waits for its last one delay an answer of less
    than a millisecond by hundreds.
    """
    return _openmp_pools().limit(limits=1) if n_rows <= _FEW_ROWS else nullcontext()


@lru_cache(maxsize=1)
def _openmp_pools() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")


class _ScoreMap(NamedTuple):
    """Map from latents to scores in units of the noise, by loadings (L, R) and frequencies."""

    loadings: Array
    frequencies: Array

    def values(self, latents: Array) -> Array:
        return fourier_features(latents, self.frequencies) @ self.loadings


@quickly_compiled
def _solve_rows(score_map: _ScoreMap, targets: Array, search: Search, n_steps: Array) -> tuple[Search, Array]:
    """Return the searches after some steps more, and the roots of the covariances."""
    evaluate, hessian = partial(_evaluate, score_map, targets), partial(_hessian, score_map)
    ended, curvature = search.advance(evaluate, hessian, n_steps)
    return ended, inverse_root(curvature)


def _evaluate(score_map: _ScoreMap, targets: Array, latents: Array) -> tuple[Array, Array]:
    output, pull = jax.vjp(score_map.values, latents)
    residual = output - targets
    loss = 0.5 * (jnp.sum(residual**2, axis=1) + jnp.sum(latents**2, axis=1))
    return loss, pull(residual)[0] + latents


def _hessian(score_map: _ScoreMap, latents: Array) -> Array:
    slopes = jacobian(score_map.frequencies, score_map.loadings, latents)
    identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
    return identity + jnp.einsum("nqp,nrp->nqr", slopes, slopes)
