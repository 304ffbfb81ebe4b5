"""Posterior of a fitted model: the interface of its two kinds, and what follows from it for given rows.

A posterior holds frozen frequencies and q(H). Everything is deterministic and in float64. `GaussianPosterior`
and `SitePosterior` know the function f at given latents; everything else is here. Rows may have any missing
entries. What is derived from a posterior, such as the index of its anchors, is computed when it is first
needed and kept with it; copies and files do not hold it.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.encoding import Columns, GroupRows, Layout
from srflvm.likelihoods.base import Likelihood
from srflvm.numerics.features import fourier_features
from srflvm.numerics.jit import in_float64
from srflvm.numerics.weight_covariances import WeightCovariances
from srflvm.posterior.chunks import Embedding, row_chunks
from srflvm.posterior.embedding import AnchorIndex, FrozenFunction, embed_rows
from srflvm.posterior.scoring import entry_log_densities, entry_log_density, row_log_density

N_NEIGHBOURS = 3

# Derived arrays of more numbers than this are made anew for each call, and not kept.
_MOST_KEPT = 20_000_000


@dataclass(frozen=True)
class Decoded:
    """Decoded mean (n, M) with its variances told apart, all in the units of the data.

    `latent_variance` comes from not knowing the latent, `weight_variance` from not knowing the function,
    `noise_variance` is that of an observation given the function: arrays that broadcast to (n, M).
    """

    mean: FloatArray
    latent_variance: FloatArray
    weight_variance: FloatArray
    noise_variance: FloatArray | float

    @property
    def variance(self) -> FloatArray:
        """Return the predictive variance: the sum of the three."""
        return self.latent_variance + self.weight_variance + self.noise_variance


class _IncompleteRows(NamedTuple):
    """Those rows of a table that have missing entries, embedded.

    `rows` tells where they are; `values` (n, M) are raw, NaN where missing; `log_sizes` (n,) may be None.
    `voted` has the probabilities (n, C) of the codes of the columns on which similar rows vote.
    """

    rows: np.ndarray
    values: FloatArray
    log_sizes: FloatArray | None
    embedding: Embedding
    voted: dict[int, FloatArray]

    @property
    def missing(self) -> np.ndarray:
        """Tell which entries (n, M) are missing."""
        return np.isnan(self.values)


@dataclass(frozen=True)
class Posterior(abc.ABC):
    """Posterior of a fitted model.

    `columns` compress the working data. Anchors are training rows kept as starting points for new ones:
    latents (A, Q) and compressed scores (A, R).
    """

    columns: Columns
    frequencies: FloatArray
    anchors: FloatArray
    anchor_scores: FloatArray

    # Whether one covariance serves the weights of all columns.
    shares_covariance: ClassVar[bool]

    # ---- differences between the kinds ------------------------------------------------------------

    @abc.abstractmethod
    def _build_layout(self) -> Layout:
        """Return the groups of columns."""

    @abc.abstractmethod
    def _build_function(self) -> FrozenFunction:
        """Return the function at the weights' mean."""

    @property
    @abc.abstractmethod
    def covariances(self) -> WeightCovariances:
        """Return the covariances of the weights of all channels, or only one if they share it."""

    @property
    @abc.abstractmethod
    def mean_amplitude(self) -> float:
        """Return the prior variance of the function: in squared units of Y, or a mean over channels."""

    @property
    @abc.abstractmethod
    def noise_variance(self) -> FloatArray | float | None:
        """Return the noise variance in squared units of Y, if any column has one; NaN for the others."""

    @abc.abstractmethod
    def learned_parameters(self) -> dict[str, FloatArray]:
        """Return the learned parameters of columns (M,), on their natural scales; NaN for the others."""

    @abc.abstractmethod
    def state_entries(self) -> dict[str, Any]:
        """Return the entries of a fit's state that this posterior determines."""

    @abc.abstractmethod
    def function_moments(self, latents: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute mean (n, C) and variance (n, C) or (n, 1) of f, without offsets."""

    @abc.abstractmethod
    def decode(
        self, latents: FloatArray, cholesky: FloatArray | None = None, log_sizes: FloatArray | None = None
    ) -> Decoded:
        """Compute mean and variances of Y at the latents, or at N(latents_n, C_n C_n')."""

    def decode_data(self, embedding: Embedding, Y: FloatArray, log_sizes: FloatArray | None) -> Decoded:
        """Decode the embedding of raw rows, with the constants (such as totals) of those rows."""
        return self.decode(embedding.mean, embedding.cholesky, log_sizes)

    @abc.abstractmethod
    def draw(
        self, latents: FloatArray, rng: np.random.RandomState, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        """Draw rows at given latents: the whole function once, then an observation of each entry."""

    def draw_data(
        self, latents: FloatArray, rng: np.random.RandomState, Y: FloatArray, log_sizes: FloatArray | None
    ) -> FloatArray:
        """Draw rows that might have been in the place of raw ones, with the constants of those rows."""
        return self.draw(latents, rng, log_sizes)

    def category_probabilities(
        self, latents: FloatArray, cholesky: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        """Compute the probabilities (n, C) of the codes of each categorical column.

        They are those at the latents, or at N(latents_n, C_n C_n').
        """
        return {}

    @abc.abstractmethod
    def unknown_share(self, latents: FloatArray) -> FloatArray:
        """Compute the share of the function's prior variance that is left, a mean over columns, (n,)."""

    @abc.abstractmethod
    def relative_variance_form(self) -> FloatArray:
        """Return the packed form (P,) of the function's variance as a share of its prior variance.

        It is a mean over the channels.
        """

    # ---- contents ---------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return the values of the fields by their names, and nothing that is derived from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __getstate__(self) -> dict[str, Any]:
        return self.as_dict()

    @property
    def is_finite(self) -> bool:
        """Tell whether all numbers are finite."""
        kept = jax.tree.leaves(list(self.as_dict().values()))
        return all(np.isfinite(part).all() for part in kept if isinstance(part, np.ndarray | float))

    @cached_property
    def layout(self) -> Layout:
        """Return the groups of columns, with their likelihoods and units."""
        return self._build_layout()

    @cached_property
    def function(self) -> FrozenFunction:
        """Return the function at the weights' mean, with their covariances if channels differ in them."""
        return self._build_function()

    @property
    def channel_likelihoods(self) -> tuple[Likelihood, ...]:
        """Return the likelihoods of the channels of the groups, for compiled programs."""
        return tuple(group.likelihood.of_channels for group in self.layout.groups)

    @property
    def transforms(self) -> list[str | None]:
        """Return the names of the transforms of all columns (M,), None where a column is taken as it is."""
        found: list[str | None] = [None] * self.layout.n_columns
        for group in self.layout.groups:
            for column, name in zip(group.columns.tolist(), group.likelihood.transforms, strict=False):
                found[column] = name
        return found

    def features(self, latents: FloatArray) -> FloatArray:
        """Compute random Fourier features (n, L)."""
        return fourier_features(latents, self.frequencies)

    # ---- embedding --------------------------------------------------------------------------------

    def embed(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> Embedding:
        """Embed raw rows (n, M), NaN where not observed."""
        return self.embed_encoded(self.layout.encode(Y, log_sizes))

    def embed_encoded(self, encoded: tuple[GroupRows, ...]) -> Embedding:
        """Embed rows given by their channels."""
        index = self._kept_anchor_index or self._build_anchor_index()
        nearest = index.nearest(self.standardise(encoded), N_NEIGHBOURS)
        function = self._kept_device_function or self.function
        rows = tuple(group.filled() for group in encoded)
        return embed_rows(self.channel_likelihoods, function, rows, self.anchors[nearest])

    def standardise(self, encoded: tuple[GroupRows, ...]) -> FloatArray:
        """Return rows given by their channels in the units of the anchors, NaN where not observed."""
        return self.columns.standardise(self.layout.working(encoded))

    def with_anchors(self, latents: FloatArray, scores: FloatArray | None = None) -> Self:
        """Return the posterior with other latents of its anchors, or with other anchors."""
        return replace(self, anchors=latents, anchor_scores=self.anchor_scores if scores is None else scores)

    def _build_anchor_index(self) -> AnchorIndex:
        return AnchorIndex(self.anchor_scores @ self.columns.directions.T)

    @cached_property
    def _kept_anchor_index(self) -> AnchorIndex | None:
        n_numbers = len(self.anchors) * len(self.columns.directions)
        return self._build_anchor_index() if n_numbers <= _MOST_KEPT else None

    @cached_property
    def _kept_device_function(self) -> FrozenFunction | None:
        """Return the function as arrays of JAX."""
        if sum(np.size(part) for part in jax.tree.leaves(self.function)) > _MOST_KEPT:
            return None
        with in_float64():
            return jax.device_put(self.function)

    # ---- log densities ----------------------------------------------------------------------------

    def log_density(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> FloatArray:
        """Estimate log p(y) of each raw row, over its observed entries, by importance sampling."""
        encoded = self.layout.encode(Y, log_sizes)
        estimate = row_log_density(self, self.embed_encoded(encoded), encoded)
        return estimate - self.layout.log_scales(Y)

    def score_held_out(
        self, Y: FloatArray, truth: FloatArray, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        """Compute log p (n, M) of the entries of `truth` that are missing in Y, NaN elsewhere."""
        embedding = self.embed(Y, log_sizes)
        hidden = np.where(np.isnan(Y), truth, np.nan)
        channels = entry_log_density(self, embedding, self.layout.encode(hidden, log_sizes))
        scores = np.full(Y.shape, np.nan)
        for group in self.layout.groups:
            if group.likelihood.has_categories:
                continue
            group.likelihood.refuse_vector_entries()
            scores[:, group.columns] = channels[:, group.channels] + group.log_slopes(hidden)
        for column, table in self.category_probabilities(embedding.mean, embedding.cholesky).items():
            rows = np.flatnonzero(~np.isnan(hidden[:, column]))
            scores[rows, column] = np.log(table[rows, hidden[rows, column].astype(int)])
        return scores

    # ---- levels -----------------------------------------------------------------------------------

    @cached_property
    def level_columns(self) -> dict[int, FloatArray]:
        """Return the codes of the columns whose entries are levels: binary, ordinal and categorical ones."""
        return {
            int(column): codes
            for group in self.layout.groups
            for column, codes in zip(
                group.columns, group.likelihood.level_codes(len(group.columns)), strict=False
            )
        }

    def level_probabilities(
        self, Y: FloatArray, log_sizes: FloatArray | None = None, incomplete: _IncompleteRows | None = None
    ) -> dict[int, FloatArray]:
        """Compute the probabilities (n, C) of the codes of each column that has levels, given raw rows.

        An observed entry has its level for certain. `incomplete` are the rows with missing entries, if they
        are embedded already.
        """
        columns = self.level_columns.items()
        tables = {column: (Y[:, column, None] == codes).astype(float) for column, codes in columns}
        some = self.embed_incomplete(Y, log_sizes) if tables and incomplete is None else incomplete
        if some is None or not some.rows.size:
            return tables
        found = self.category_probabilities(some.embedding.mean, some.embedding.cholesky)
        found |= some.voted
        found |= self._ordered_probabilities(some.embedding, [c for c in tables if c not in found])
        for column, table in tables.items():
            missing = some.missing[:, column]
            table[some.rows[missing]] = found[column][missing]
        return tables

    def _ordered_probabilities(self, embedding: Embedding, columns: list[int]) -> dict[int, FloatArray]:
        """Compute the probabilities of the codes of columns that are one channel each, code by code."""
        if not columns:
            return {}
        codes = {column: self.level_columns[column] for column in columns}
        places = range(max(map(len, codes.values())))
        rows = np.full((len(places), len(embedding.mean), self.layout.n_columns), np.nan)
        for column, own in codes.items():
            rows[: len(own), :, column] = own[:, None]
        densities = entry_log_densities(self, embedding, [self.layout.encode(some) for some in rows])
        tables = {column: np.zeros((len(embedding.mean), len(own))) for column, own in codes.items()}
        for place, log_density in zip(places, densities, strict=True):
            for group in self.layout.groups:
                for column, values in zip(
                    group.columns.tolist(), log_density[:, group.channels].T, strict=False
                ):
                    if column in codes and place < len(codes[column]):
                        tables[column][:, place] = np.exp(values)
        return {column: table / table.sum(axis=1, keepdims=True) for column, table in tables.items()}

    # ---- missing entries --------------------------------------------------------------------------

    def embed_incomplete(self, Y: FloatArray, log_sizes: FloatArray | None = None) -> _IncompleteRows:
        """Embed the raw rows that have missing entries."""
        index = np.flatnonzero(np.isnan(Y).any(axis=1))
        some = None if log_sizes is None else log_sizes[index]
        n_latent = self.frequencies.shape[1]
        nothing = Embedding(np.empty((0, n_latent)), np.empty((0, n_latent, n_latent)))
        embedding = self.embed(Y[index], some) if index.size else nothing
        voted = self.voted_probabilities(Y[index], some, embedding) if index.size else {}
        return _IncompleteRows(index, Y[index], some, embedding, voted)

    @property
    def has_votes(self) -> bool:
        """Tell whether training rows vote on the classes of others."""
        return False

    def voted_probabilities(
        self, Y: FloatArray, log_sizes: FloatArray | None, embedding: Embedding
    ) -> dict[int, FloatArray]:
        """Compute the probabilities (n, C) of the codes of columns on which similar rows vote.

        Those of a row are for the case that its own entry is missing.
        """
        return {}

    def fill_missing(
        self, Y: FloatArray, log_sizes: FloatArray | None = None, incomplete: _IncompleteRows | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return Y with missing entries at their predictive means, and the standard deviations there.

        `incomplete` are the rows with missing entries, if they are embedded already.
        """
        missing = np.isnan(Y)
        filled, std = np.array(Y, dtype=np.float64), np.zeros(Y.shape)
        if missing.any():
            some = self.embed_incomplete(Y, log_sizes) if incomplete is None else incomplete
            decoded = self.decode_data(some.embedding, some.values, some.log_sizes)
            mean, variance = decoded.mean, np.array(np.broadcast_to(decoded.variance, decoded.mean.shape))
            for column, table in some.voted.items():
                mean[:, column], variance[:, column] = self._moments_of_codes(column, table)
            filled[missing] = mean[some.missing]
            std[missing] = np.sqrt(variance[some.missing])
        return filled, std

    def _moments_of_codes(self, column: int, table: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what probabilities (n, C) of codes fill in, and its variance, as decoding defines both."""
        if column in self._category_columns:
            chance = table.max(axis=1)
            return self.level_columns[column][table.argmax(axis=1)], chance * (1.0 - chance)
        codes = self.level_columns[column]
        mean = table @ codes
        return mean, np.maximum(table @ codes**2 - mean**2, 0.0)

    @cached_property
    def _category_columns(self) -> set[int]:
        """Return the columns of categories, whose mean is the most probable code."""
        groups = [group for group in self.layout.groups if group.likelihood.has_categories]
        return {column for group in groups for column in group.columns.tolist()}

    def ends_of_missing(
        self, Y: FloatArray, log_sizes: FloatArray | None, width: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return Y with missing entries so many standard deviations below and above their means.

        Those of a transformed column are ends of its channel, transformed back: quantiles stay quantiles.
        """
        some = self.embed_incomplete(Y, log_sizes) if np.isnan(Y).any() else None
        filled, std = self._straightened().fill_missing(Y, log_sizes, some)
        low, high = filled - width * std, filled + width * std
        for group in self.layout.groups:
            if not group.likelihood.transforms:
                continue
            missing = np.isnan(Y[:, group.columns])
            for side in (low, high):
                channels = (side[:, group.columns] - group.units.location) / group.units.scale
                columns = group.likelihood.columns_from_draws(channels, {})
                ends = group.units.location + group.units.scale * columns
                side[:, group.columns] = np.where(missing, ends, Y[:, group.columns])
        return low, high

    def _straightened(self) -> Posterior:
        """Return the posterior whose columns are their channels, where they are transformed."""
        return self

    def draw_filled(
        self,
        Y: FloatArray,
        log_sizes: FloatArray | None,
        n_draws: int,
        rng: np.random.RandomState,
        training_latents: FloatArray | None = None,
    ) -> FloatArray:
        """Return copies of Y (n_draws, n, M) filled with draws: of the latents, the function, the entries.

        If Y are the rows of the fit, whose latents are given, these and the function are drawn jointly where
        that is known how.
        """
        missing = np.isnan(Y)
        copies = np.repeat(np.array(Y, dtype=np.float64)[None], n_draws, axis=0)
        if missing.any():
            some = self.embed_incomplete(Y, log_sizes)
            for copy in copies:
                drawn = self.draw_data(some.embedding.draw(rng), rng, some.values, some.log_sizes)
                copy[missing] = drawn[some.missing]
        return copies

    # ---- draws ------------------------------------------------------------------------------------

    def draw_rows(
        self, Y: FloatArray, log_sizes: FloatArray | None, n_draws: int, rng: np.random.RandomState
    ) -> tuple[FloatArray, FloatArray]:
        """Draw latents (n_draws, n, Q) of rows, and rows that might have been in their place.

        Each draw (n_draws, n, M) is one of the latents, of the function and of the entries.
        """
        embedding = self.embed(Y, log_sizes)
        latents = np.empty((n_draws, *embedding.mean.shape))
        rows = np.empty((n_draws, *Y.shape))
        for draw in range(n_draws):
            latents[draw] = embedding.draw(rng)
            rows[draw] = self.draw_data(latents[draw], rng, Y, log_sizes)
        return latents, rows

    def draw_dataset(
        self,
        Y: FloatArray,
        log_sizes: FloatArray | None,
        n_draws: int,
        rng: np.random.RandomState,
        components: Sequence[str],
        columns: Sequence[str] | None,
    ) -> Any:
        """Return what `draw_rows` draws as an xarray data set; its first dimensions are those of ArviZ."""
        try:
            import xarray
        except ImportError as error:
            raise ImportError(
                "Draws as a data set need the package xarray: pip install 'srflvm[xarray]'."
            ) from error
        latents, rows = self.draw_rows(Y, log_sizes, n_draws, rng)
        names = np.arange(rows.shape[2]) if columns is None else np.array([str(name) for name in columns])
        return xarray.Dataset(
            {
                "latent": (("chain", "draw", "row", "component"), latents[None]),
                "observation": (("chain", "draw", "row", "column"), rows[None]),
            },
            coords={"component": np.array([str(name) for name in components]), "column": names},
        )

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
            parts.append(self._observe(f, encoded, rng))
        return np.concatenate(parts)

    def _observe(
        self,
        f: FloatArray,
        encoded: tuple[GroupRows, ...],
        rng: np.random.RandomState,
        learned_parameters: tuple[dict[str, FloatArray], ...] | None = None,
    ) -> FloatArray:
        """Draw rows (n, M) given the function's values (n, C) and the constants and offsets of `encoded`."""
        drawn = np.empty((len(f), self.layout.n_columns))
        all_learned = self.function.parameters if learned_parameters is None else learned_parameters
        for group, rows, learned in zip(self.layout.groups, encoded, all_learned, strict=True):
            parameters = {**rows.constants, **learned}
            y = group.likelihood.sample(f[:, group.channels] + rows.offset, parameters, rng)
            columns = group.likelihood.columns_from_draws(y, rows.constants)
            drawn[:, group.columns] = group.units.location + group.units.scale * columns
        return drawn
