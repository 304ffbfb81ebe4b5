"""What is kept after fitting, and what can be computed from it for rows with any holes.

A posterior holds frozen frequencies and q(H). Everything is deterministic and in float64. `GaussianPosterior`
and `SitePosterior` say what f is at given latents; the rest is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from srflvm import row_scoring
from srflvm._types import FloatArray
from srflvm.compression import Columns
from srflvm.embedding import N_NEIGHBOURS, Embedding
from srflvm.features import fourier_features
from srflvm.likelihoods import Likelihood
from srflvm.observations import Encoded, Layout
from srflvm.row_embedding import embed_rows, similar_anchors
from srflvm.rowwise import Frozen, rows_of

# Rows decoded at a time: bounds memory to a few times CHUNK * max(L, M) numbers.
CHUNK = 2048


@dataclass(frozen=True)
class Decoded:
    """A decoded mean (n, M) with its variances told apart, all in the units of the data.

    `latent_variance` comes from not knowing the latent, `weight_variance` from not knowing the function,
    `noise_variance` is that of an observation given the function: arrays that broadcast to (n, M).
    """

    mean: FloatArray
    latent_variance: FloatArray
    weight_variance: FloatArray
    noise_variance: FloatArray | float

    @property
    def variance(self) -> FloatArray:
        """The predictive variance: the sum of the three."""
        return self.latent_variance + self.weight_variance + self.noise_variance


@dataclass(frozen=True)
class Posterior:
    """The fitted model. `columns` compress the working data. Anchors are training rows kept as starting
    points for new ones: latents (A, Q) and compressed scores (A, R)."""

    columns: Columns
    frequencies: FloatArray
    anchors: FloatArray
    anchor_scores: FloatArray

    # ---- what the two kinds say -------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        raise NotImplementedError

    @property
    def frozen(self) -> Frozen:
        """The function at the weights' mean, with their covariances if channels differ in them, for the
        compiled programs."""
        raise NotImplementedError

    def function_moments(self, latents: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (n, C) and variance (n, C) or (n, 1) of f, without offsets."""
        raise NotImplementedError

    def decode(
        self, latents: FloatArray, cholesky: FloatArray | None = None, log_sizes: FloatArray | None = None
    ) -> Decoded:
        """Mean and variances of Y at the latents, or at N(latents_n, C_n C_n')."""
        raise NotImplementedError

    def decode_data(self, placed: Embedding, Y: FloatArray, log_sizes: FloatArray | None) -> Decoded:
        """`decode` at the embedding of raw rows, with the constants (such as totals) of those rows."""
        return self.decode(placed.mean, placed.cholesky, log_sizes)

    def draw(
        self, latents: FloatArray, rng: np.random.RandomState, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        """Rows at given latents: one draw of the whole function, then an observation of each entry."""
        raise NotImplementedError

    def draw_independently(
        self, latents: FloatArray, rng: np.random.RandomState, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        """Draw a row at each latent from its predictive distribution, with a function of its own."""
        parts = []
        for rows in row_chunks(len(latents)):
            mean, variance = self.function_moments(latents[rows])
            f = mean + np.sqrt(variance) * rng.standard_normal(mean.shape)
            unknown = np.full((len(f), self.layout.n_columns), np.nan)
            encoded = self.layout.encode(unknown, None if log_sizes is None else log_sizes[rows])
            parts.append(self.observe(f, encoded, rng))
        return np.concatenate(parts)

    def observe(self, f: FloatArray, encoded: tuple[Encoded, ...], rng: np.random.RandomState) -> FloatArray:
        """Draw rows (n, M) given the function's values (n, C) and the constants and offsets of `encoded`."""
        drawn = np.empty((len(f), self.layout.n_columns))
        for group, rows, learned in zip(self.layout.groups, encoded, self.frozen.parameters, strict=True):
            parameters = {**rows.constants, **learned}
            y = group.likelihood.sample(f[:, group.channels] + rows.offset, parameters, rng)
            columns = group.likelihood.columns_from_draws(y, rows.constants)
            drawn[:, group.columns] = group.units.location + group.units.scale * columns
        return drawn

    def draw_data(
        self, latents: FloatArray, rng: np.random.RandomState, Y: FloatArray, log_sizes: FloatArray | None
    ) -> FloatArray:
        """`draw` of rows that might have been in the place of raw ones, with their constants."""
        return self.draw(latents, rng, log_sizes)

    def category_probabilities(
        self, latents: FloatArray, cholesky: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        """For each categorical column the probabilities (n, C) of its codes at the latents, or at
        N(latents_n, C_n C_n')."""
        return {}

    # ---- what follows -----------------------------------------------------------------------------

    @property
    def likelihoods(self) -> tuple[Likelihood, ...]:
        return tuple(group.likelihood for group in self.layout.groups)

    def features(self, latents: FloatArray) -> FloatArray:
        """Random Fourier features (n, L)."""
        return fourier_features(latents, self.frequencies)

    def place(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> Embedding:
        """Embed raw rows (n, M), NaN where not observed."""
        return self.place_encoded(self.layout.encode(Y, log_sizes))

    def place_encoded(self, encoded: tuple[Encoded, ...]) -> Embedding:
        """Embed rows given by their channels."""
        standard = self.standardised(encoded)
        anchors = self.anchor_scores @ self.columns.directions.T
        similar = similar_anchors(standard, anchors, N_NEIGHBOURS)
        return embed_rows(self.likelihoods, self.frozen, rows_of(encoded), self.anchors[similar])

    def standardised(self, encoded: tuple[Encoded, ...]) -> FloatArray:
        """Rows given by their channels on the scale of the anchors' scores, NaN where not observed."""
        return self.columns.standardise(self.layout.working(encoded))

    def log_density(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> FloatArray:
        """An importance-weighted estimate of log p(y) of each raw row, over its observed entries."""
        placed = self.place(Y, log_sizes)
        encoded = self.layout.encode(Y, log_sizes)
        estimate = row_scoring.log_density(self, placed, encoded)
        return estimate - self.log_scales(Y)

    def log_scales(self, Y: FloatArray) -> FloatArray:
        """Of each raw row, the sum of log scale over its observed entries."""
        groups = self.layout.groups
        return np.sum([self.layout.row_log_scales(Y[:, g.columns], g) for g in groups], axis=0)

    def entry_log_density(
        self, placed: Embedding, Y: FloatArray, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        """log p of each channel (n, C) of raw rows whose latents were placed from other entries."""
        encoded: tuple[Encoded, ...] = self.layout.encode(Y, log_sizes)
        return row_scoring.entry_log_density(self, placed, encoded)


def row_chunks(n_rows: int) -> Iterator[slice]:
    """Slices of at most CHUNK rows that cover them all."""
    for start in range(0, n_rows, CHUNK):
        yield slice(start, min(start + CHUNK, n_rows))
