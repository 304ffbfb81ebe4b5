"""What is kept after fitting by sites: for every channel a Gaussian over its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm import pairs
from srflvm._types import FloatArray
from srflvm.computing import in_float64
from srflvm.cubature import cubature_points
from srflvm.embedding import Embedding
from srflvm.layers import with_constant
from srflvm.likelihoods import Categorical, Likelihood
from srflvm.likelihoods._base import gauss_hermite
from srflvm.observations import Encoded, Layout
from srflvm.posterior import Decoded, Posterior
from srflvm.rowwise import Frozen, chunk_size, padded_chunks

_CHANNELS_AT_ONCE = 256


@dataclass(frozen=True)
class SitePosterior(Posterior):
    """Weights (L, C) with the constant's last, their packed covariances (C, P), levels and amplitudes (C,),
    and the learned parameters of each group."""

    table: Layout
    weights: FloatArray
    packed_covariance: FloatArray
    level: FloatArray
    amplitude: FloatArray
    parameters: tuple[dict[str, FloatArray], ...]

    @property
    def layout(self) -> Layout:
        return self.table

    @property
    def frozen(self) -> Frozen:
        weights, covariance = self.weights, self.packed_covariance
        return Frozen(self.frequencies, weights, self.level, self.parameters, covariance)  # pyright: ignore

    def function_moments(self, latents: FloatArray) -> tuple[FloatArray, FloatArray]:
        features = with_constant(self.features(latents))
        variance = pairs.products(features) @ self.packed_covariance.T.astype(np.float64)
        return features @ self.weights + self.level, np.maximum(variance, 0.0)

    def decode(
        self, latents: FloatArray, cholesky: FloatArray | None = None, log_sizes: FloatArray | None = None
    ) -> Decoded:
        unknown = np.full((len(latents), self.layout.n_columns), np.nan)
        return self.decode_rows(latents, cholesky, self.layout.encode(unknown, log_sizes))

    def decode_data(self, placed: Embedding, Y: FloatArray, log_sizes: FloatArray | None) -> Decoded:
        return self.decode_rows(placed.mean, placed.cholesky, self.layout.encode(Y, log_sizes))

    def decode_rows(
        self, latents: FloatArray, cholesky: FloatArray | None, encoded: tuple[Encoded, ...]
    ) -> Decoded:
        """`decode` for rows whose constants and offsets are given."""
        return Decoded(*self._by_chunks(self._decode_chunk, latents, cholesky, encoded))

    def category_probabilities(
        self, latents: FloatArray, cholesky: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        groups = [group for group in self.layout.groups if isinstance(group.likelihood, Categorical)]
        if not groups:
            return {}

        def tables(points: FloatArray, known: Any) -> tuple[FloatArray, ...]:
            means = self._channel_moments(points, known)[0]
            return tuple(
                table
                for group in groups
                for table in cast(Categorical, group.likelihood).probabilities(means[:, :, group.channels])
            )

        encoded = self.layout.encode(np.full((len(latents), self.layout.n_columns), np.nan))
        found = self._by_chunks(tables, latents, cholesky, encoded)
        columns = np.concatenate([group.columns for group in groups]).tolist()
        return dict(zip(columns, found, strict=True))

    def _by_chunks(
        self,
        answer: Callable[[FloatArray, Any], tuple[FloatArray, ...]],
        latents: FloatArray,
        cholesky: FloatArray | None,
        encoded: tuple[Encoded, ...],
    ) -> list[FloatArray]:
        """What `answer` says of some rows at a time, from points (K, n, Q) of their latents and their
        constants and offsets, put together."""
        points = latents[None] if cholesky is None else cubature_points(latents, cholesky)
        size = chunk_size(len(latents), points.shape[0] * self.packed_covariance.shape[1])
        known = tuple((rows.constants, rows.offset) for rows in encoded)
        parts = []
        with in_float64():
            for rows, some in padded_chunks((np.moveaxis(points, 0, 1), known), len(latents), size):
                parts.append(answer(np.moveaxis(np.asarray(rows), 1, 0), some))
        return [np.concatenate(a)[: len(latents)] for a in zip(*parts, strict=True)]

    @property
    def _plan(self) -> tuple[tuple[Likelihood, int, int], ...]:
        """Of each group its likelihood and the first and last channel: what a compiled program depends on."""
        return tuple((g.likelihood, g.channels.start, g.channels.stop) for g in self.layout.groups)

    def _channel_moments(self, points: FloatArray, known: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E[E(y | f)], Var[E(y | f)] and E[Var(y | f)] of channels at points (K, n, Q), (K, n, C) each."""
        outputs = []
        for point in points:
            mean, variance = self.function_moments(point)
            moments = _output_moments(self._plan, self.frozen.parameters, known, mean, variance)
            outputs.append([np.asarray(part) for part in moments])
        means, weight, noise = (np.stack(part) for part in zip(*outputs, strict=True))
        return means, weight, noise

    def _decode_chunk(self, points: FloatArray, known: Any) -> tuple[FloatArray, ...]:
        """Mean, latent, weight and noise variance of columns (n, M) at points (K, n, Q)."""
        channels = self._channel_moments(points, known)
        mean, latent, weight, noise = (np.zeros((points.shape[1], self.layout.n_columns)) for _ in range(4))
        for group, (constants, _) in zip(self.layout.groups, known, strict=True):
            means, of_weights, of_noise = (part[:, :, group.channels] for part in channels)
            if _recodes(group.likelihood):
                parts = group.likelihood.columns_from_moments(means, of_weights, constants)
            else:
                parts = (
                    means.mean(axis=0),
                    means.var(axis=0),
                    of_weights.mean(axis=0),
                    of_noise.mean(axis=0),
                )
            square = group.units.scale**2
            mean[:, group.columns] = group.units.location + group.units.scale * parts[0]
            for target, part in zip((latent, weight, noise), parts[1:], strict=True):
                target[:, group.columns] = square * part
        return mean, latent, weight, noise

    def draw(
        self, latents: FloatArray, rng: np.random.RandomState, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        unknown = np.full((len(latents), self.layout.n_columns), np.nan)
        return self.draw_data(latents, rng, unknown, log_sizes)

    def draw_data(
        self, latents: FloatArray, rng: np.random.RandomState, Y: FloatArray, log_sizes: FloatArray | None
    ) -> FloatArray:
        encoded = self.layout.encode(Y, log_sizes)
        f = with_constant(self.features(latents)) @ self._drawn_weights(rng) + self.level
        return self.observe(f, encoded, rng)

    def _drawn_weights(self, rng: np.random.RandomState) -> FloatArray:
        """One draw of all weights, (L, C)."""
        size, n_channels = self.weights.shape
        noise = rng.standard_normal((n_channels, size))
        wiggles = []
        for start in range(0, n_channels, _CHANNELS_AT_ONCE):
            some = slice(start, start + _CHANNELS_AT_ONCE)
            covariance = pairs.unpack_form(self.packed_covariance[some].astype(np.float64), size)
            # the packed covariance is in single precision
            jitter = 1e-6 * np.trace(covariance, axis1=1, axis2=2) / size
            root = np.linalg.cholesky(covariance + jitter[:, None, None] * np.eye(size))
            wiggles.append(np.einsum("cij,cj->ic", root, noise[some]))
        return self.weights + np.concatenate(wiggles, axis=1)


def _recodes(likelihood: Likelihood) -> bool:
    return type(likelihood).columns_from_moments is not Likelihood.columns_from_moments


@partial(jax.jit, static_argnames="plan")
def _output_moments(plan, parameters, known, mean: Array, variance: Array) -> tuple[Array, ...]:
    """E[E(y | f)], Var[E(y | f)] and E[Var(y | f)] over f ~ N(mean, variance), (n, C) each."""
    parts = []
    for (likelihood, start, stop), learned, (constants, offset) in zip(plan, parameters, known, strict=True):
        arguments = {**constants, **learned}

        def outputs(f: Array, likelihood=likelihood, arguments=arguments) -> tuple[Array, Array, Array]:
            given = likelihood.moments(f, arguments)
            return given.mean, given.mean**2, given.variance

        first, second, noise = gauss_hermite(outputs, mean[:, start:stop] + offset, variance[:, start:stop])
        parts.append((first, jnp.maximum(second - first**2, 0.0), noise))
    return tuple(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))
