"""Gaussian data with one noise as a fit sees them, complete or with missing entries.

A `Problem` is what the run of a fit has to know of its data: the compressed data that starts are made from,
the layer of the model with its data and its part of the state, and the posterior that a state ends in.
`inference.problems.sites` has the problem of all other likelihoods.

For the posterior, frequencies are drawn once and kept, and q(H) is solved exactly. Given q(X), the best q(H)
is Gaussian with precision (E[Phi'Phi] + ratio I) / noise and mean (E[Phi'Phi] + ratio I)^-1 E[Phi]'Y; both
expectations are taken with the same points of q(X), so it is the exact posterior of a regression on those
points.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from srflvm._typing import FloatArray
from srflvm.bcd import State
from srflvm.data.compression import ColumnMoments, Compressed, compress
from srflvm.data.encoding import Layout
from srflvm.data.sources import ArraySource, Source, pieces
from srflvm.model.chunked_evidence import chunk_targets
from srflvm.model.elbo import Settings, StartingPoint, frequency_sampler
from srflvm.model.evidence_layers import FillingLayer, IncompleteData, Layer, SharedData, SharedLayer
from srflvm.numerics.features import cubature_points, fourier_features
from srflvm.numerics.jit import quickly_compiled
from srflvm.numerics.low_rank_fill import low_rank_fill
from srflvm.numerics.shared_regression import (
    Fit,
    Statistics,
    posterior_covariance,
    posterior_weights,
    smallest_ratio,
)
from srflvm.parallel.communicator import Communicator, report
from srflvm.posterior.chunks import Embedding, row_chunks
from srflvm.posterior.gaussian import GaussianPosterior

N_FREQUENCY_DRAWS = 4
MOST_ANCHORS = 20_000

_ROWS_TO_COMPARE_DRAWS = 3000
_FILLING_ROUNDS = 20

_LARGEST_LEVERAGE = 0.9

_FLOOR = float(np.finfo(np.float64).eps) * 100.0


class Problem(Protocol):
    """Say what a fit asks of its data. `working` are the compressed data that starts are made from."""

    @property
    def working(self) -> Compressed: ...

    @property
    def n_rows(self) -> int: ...

    @property
    def n_entries(self) -> int:
        """Return the number of observed entries."""
        ...

    @property
    def share_of_columns(self) -> float:
        """Return the share of the columns that every step sees at least."""
        ...

    @property
    def communicator(self) -> Communicator: ...

    @property
    def layout(self) -> Layout | None:
        """Return the groups of columns, if every entry has a site."""
        ...

    @property
    def layer(self) -> Layer: ...

    def pilot(self) -> Problem | None:
        """Return a problem that is faster to fit and whose latents are a good start, if there is one."""
        ...

    def fit_data(self, dtype: np.dtype) -> Any:
        """Return what the layer needs of the data, as JAX arrays."""
        ...

    def linear_start(self, n_components: int, rng: np.random.RandomState) -> StartingPoint | None:
        """Return the start of Bayesian PCA, if the model has an affine part."""
        ...

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        """Return the layer's entries of the state at a start."""
        ...

    def embedded_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        """Return the layer's entries of the state for all rows, embedded by a posterior of some of them."""
        ...

    def renewed_state(self, state: State, posterior: Any, options: Any) -> State:
        """Return the layer's entries that belong to the data, to go on from an earlier fit's others."""
        ...

    def rows(self, index: np.ndarray) -> Problem:
        """Return the problem of some of the rows, for one process."""
        ...

    def build_posterior(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[Any, Embedding]:
        """Return a posterior, and its embedding of all rows. `latents` are those of this process."""
        ...

    def embed(self, posterior: Any) -> Embedding:
        """Return the embedding that a posterior gives to the rows of this process."""
        ...

    def information(self, bound: float) -> float:
        """Return how many nats the entries tell at a bound in the units of the data, at most one each.

        A bound that rises by a thousandth of it has converged: entries of sparse counts tell far less than a
        nat each.
        """
        ...

    @property
    def row_sizes(self) -> FloatArray | None:
        """Return size factors of the rows, if they have any."""
        ...

    def in_data_units(self, bound: float) -> float:
        """Return log p of raw data: the density of y = location + scale * u is that of u over scale."""
        ...


@dataclass(frozen=True)
class CompleteGaussianProblem:
    """Represent complete Gaussian data, read in pieces.

    Only the posterior reads them again after the compression.
    """

    source: Source
    working: Compressed
    communicator: Communicator = field(default_factory=Communicator)

    layout = None
    row_sizes = None
    share_of_columns = 1.0

    @classmethod
    def of(
        cls,
        source: Source,
        moments: ColumnMoments,
        n_directions: int | str,
        dtype: np.dtype,
        communicator: Communicator,
    ) -> CompleteGaussianProblem:
        """Compress the rows of a source, given the moments of its columns."""
        return cls(source, Compressed.of(source, moments, n_directions, dtype, communicator), communicator)

    @property
    def layer(self) -> SharedLayer:
        return SharedLayer(self.communicator.mesh)

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def n_entries(self) -> int:
        return self.source.n_rows * self.source.n_columns

    def pilot(self) -> None:
        return None

    def information(self, bound: float) -> float:
        return float(self.n_entries)

    def fit_data(self, dtype: np.dtype) -> SharedData:
        working = self.working
        targets = chunk_targets(
            working.scores,
            working.total_square,
            working.n_columns,
            dtype,
            n_rows=working.n_rows,
            n_padded=self.communicator.n_padded_rows(working.n_rows),
            shard=self.communicator.shard,
        )
        return SharedData(targets, jnp.asarray(smallest_ratio(self.n_rows, dtype)))

    def linear_start(self, n_components: int, rng: np.random.RandomState) -> None:
        """Return none: there is no affine part."""

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        return _noise_state(start)

    def embedded_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        return {}

    def renewed_state(self, state: State, posterior: Any, options: Any) -> State:
        return {}

    def rows(self, index: np.ndarray) -> CompleteGaussianProblem:
        start = self.working.start
        mine = index[(index >= start) & (index < start + len(self.working.scores))]
        Y = self.communicator.gather_rows(self.communicator.together(lambda: self.source.take(mine)))
        return CompleteGaussianProblem(ArraySource(Y), self.working.rows(index, self.communicator))

    def build_posterior(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[GaussianPosterior, Embedding]:
        posterior = self._posterior(state, latents, settings, rng)
        own = self.embed(posterior)
        return posterior, Embedding(*(self.communicator.gather_rows(array) for array in own))

    def _posterior(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> GaussianPosterior:
        """Keep the frequencies that explain the data best among a few draws, and solve for q(H)."""
        data, communicator = self.working, self.communicator
        frequencies = communicator.from_first(
            _best_frequencies(state, latents, data, settings, rng, communicator)
        )
        own = _statistics(frequencies, latents, data)
        full_cross = communicator.together(lambda: _full_cross(frequencies, latents, self.source, data))
        gram, cross, full_cross = communicator.sum(own.gram, own.cross, full_cross)
        statistics = replace(own, gram=gram, cross=cross, n_rows=data.n_rows)
        fit = statistics.best_noise(smallest_frozen_ratio(statistics.n_rows))
        weights, covariance = posterior_weights(gram, full_cross, fit.ratio)
        anchors = np.sort(rng.permutation(self.n_rows)[:MOST_ANCHORS])
        return GaussianPosterior(
            columns=data.columns,
            frequencies=frequencies,
            weights=weights,
            weight_covariance=covariance,
            noise=fit.noise,
            ratio=fit.ratio,
            anchors=communicator.take_rows(anchors, latents.mean, data.start),
            anchor_scores=np.asarray(communicator.take_rows(anchors, data.scores, data.start), np.float64),
        )

    def embed(self, posterior: Any) -> Embedding:
        return posterior.embed_scores(self.working.scores)

    def in_data_units(self, bound: float) -> float:
        return bound - self.n_entries * np.log(self.working.columns.scale)


@dataclass(frozen=True)
class MissingGaussianProblem:
    """Represent Gaussian data with missing entries: NaN in Y, a first guess in `filled` (standardised)."""

    Y: FloatArray
    filled: FloatArray
    working: Compressed
    communicator: Communicator = field(default_factory=Communicator)

    layer = FillingLayer()
    layout = None
    row_sizes = None
    share_of_columns = 1.0

    @classmethod
    def of(cls, Y: FloatArray, n_directions: int | str, n_components: int) -> MissingGaussianProblem:
        """Fill the missing entries of Y with a first guess, and compress the result."""
        filled = low_rank_fill(Y, n_components)
        working = compress(filled, n_directions)
        return cls(Y, working.columns.standardise(filled), working)

    @property
    def n_rows(self) -> int:
        return len(self.Y)

    @property
    def missing(self) -> np.ndarray:
        """Tell of each entry whether it is missing."""
        return np.isnan(self.Y)

    @property
    def n_entries(self) -> int:
        return int(self.Y.size - np.sum(self.missing))

    def pilot(self) -> None:
        return None

    def information(self, bound: float) -> float:
        return float(self.n_entries)

    def fit_data(self, dtype: np.dtype) -> IncompleteData:
        return IncompleteData(
            jnp.asarray(self.filled, dtype),
            jnp.asarray(self.missing),
            jnp.asarray(float(self.n_entries)),
            jnp.asarray(smallest_ratio(self.n_rows, dtype)),
        )

    def linear_start(self, n_components: int, rng: np.random.RandomState) -> None:
        """Return none: there is no affine part."""

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        return _noise_state(start) | {"fill": self.filled.astype(options.dtype)}

    def embedded_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        decoded = self.working.columns.standardise(posterior.decode(latents.mean).mean)
        return {"fill": jnp.asarray(np.where(self.missing, decoded, self.filled), options.dtype)}

    def renewed_state(self, state: State, posterior: Any, options: Any) -> State:
        return {"fill": jnp.asarray(self.filled, options.dtype)}

    def rows(self, index: np.ndarray) -> MissingGaussianProblem:
        return MissingGaussianProblem(self.Y[index], self.filled[index], self.working.rows(index))

    def build_posterior(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[GaussianPosterior, Embedding]:
        posterior = self._posterior(state, latents, settings, rng)
        return posterior, self.embed(posterior)

    def _posterior(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> GaussianPosterior:
        """Keep the frequencies that explain the filled data best among a few draws, and solve for q(H).

        The mean of the weights is the fixed point of filling the missing entries with E[Phi] H and solving
        for H. Their covariance, one for all columns, counts every row by its share of observed entries. The
        noise is that of the fit, times `_inflation`.
        """
        filled = np.where(self.missing, np.asarray(state["fill"], np.float64), self.filled)
        columns = self.working.columns
        compressed = replace(
            self.working, scores=filled @ columns.directions, total_square=float(np.sum(filled**2))
        )
        frequencies = _best_frequencies(state, latents, compressed, settings, rng, self.communicator)
        fit = _noise_of_the_fit(state, len(filled))
        filled, weights, covariance, fit = _solve_filled(frequencies, latents, filled, self.missing, fit)
        anchors = np.sort(rng.permutation(len(filled))[:MOST_ANCHORS])
        return GaussianPosterior(
            columns=columns,
            frequencies=frequencies,
            weights=weights,
            weight_covariance=covariance,
            noise=fit.noise,
            ratio=fit.ratio,
            anchors=latents.mean[anchors],
            anchor_scores=filled[anchors] @ columns.directions,
        )

    def embed(self, posterior: Any) -> Embedding:
        return posterior.embed(self.Y)

    def in_data_units(self, bound: float) -> float:
        return bound - self.n_entries * np.log(self.working.columns.scale)


def smallest_frozen_ratio(n_rows: float) -> float:
    """Return the floor of noise / amplitude for sums over so many rows in float64."""
    return _FLOOR * n_rows


def _noise_state(start: StartingPoint) -> State:
    return {"log_noise": np.array(np.log(start.noise)), "log_ratio": np.array(np.log(start.ratio))}


def _solve_filled(
    frequencies: FloatArray, latents: Embedding, filled: FloatArray, missing: np.ndarray, fit: Fit
) -> tuple[FloatArray, FloatArray, FloatArray, Fit]:
    """Solve for the missing entries, mean and covariance of the weights, noise and ratio, from given ones."""
    share, n_observed = np.mean(~missing, axis=1), missing.size - np.sum(missing)
    features, gram = _mean_features(frequencies, latents), _gram(frequencies, latents)
    observed_gram = _gram(frequencies, latents, share)
    hidden_gram = observed_gram - (features.T * share) @ features
    ratio, noise, by_latents, by_weights = fit.ratio, fit.noise, 0.0, 0.0
    weights, covariance = posterior_weights(gram, features.T @ filled, ratio)
    for _ in range(_FILLING_ROUNDS):
        mean = features @ weights
        filled = np.where(missing, mean, filled)
        covariance = posterior_covariance(observed_gram, ratio)
        # E|y - f|^2 over the observed entries: residual, spread of f over q(X), and spread over q(H)
        by_latents = np.sum(hidden_gram * (weights @ weights.T)) / n_observed
        by_weights = noise * filled.shape[1] * np.sum(observed_gram * covariance) / n_observed
        updated = np.sum((filled - mean) ** 2) / n_observed + by_latents + by_weights
        ratio, noise = ratio * updated / noise, updated
        weights, _ = posterior_weights(gram, features.T @ filled, ratio)
    more = _inflation(by_latents / noise, by_weights / noise)
    covariance = posterior_covariance(observed_gram, ratio * more)
    return filled, weights, covariance, Fit(float(noise * more), float(ratio * more), 0.0)


def _inflation(latent_share: float, weight_share: float) -> float:
    """Return the variance of a missing entry given all others, relative to what q(X) q(H) says it is.

    An observed entry pulls its own prediction by its leverage, the variance of f per unit of noise; left out,
    it is predicted with variance noise / (1 - leverage). The leverages a through X and b through H add up,
    but under independent q(X) and q(H) the variance is only noise {1 + a / (1 - a) + b / (1 - b)}.
    """
    both = min(latent_share + weight_share, _LARGEST_LEVERAGE)
    apart = (share / (1.0 - min(share, _LARGEST_LEVERAGE)) for share in (latent_share, weight_share))
    return max(1.0 / (1.0 - both) / (1.0 + sum(apart)), 1.0)


def _noise_of_the_fit(state: State, n_rows: int) -> Fit:
    floor = smallest_ratio(n_rows, state["latent_mean"].dtype)
    return Fit(float(np.exp(state["log_noise"])), floor + float(np.exp(state["log_ratio"])), 0.0)


def _best_frequencies(
    state: State,
    latents: Embedding,
    data: Compressed,
    settings: Settings,
    rng: np.random.RandomState,
    communicator: Communicator,
) -> FloatArray:
    """Return the draw with the highest evidence at the fit's noise and the means of q(X).

    Where there are many rows, some of them are enough to compare draws.
    """
    rows = np.sort(rng.permutation(data.n_rows)[:_ROWS_TO_COMPARE_DRAWS])
    mean = communicator.take_rows(rows, latents.mean, data.start)
    some_data = data.rows(rows, communicator)
    fit = _noise_of_the_fit(state, data.n_rows)

    def evidence(frequencies: FloatArray) -> float:
        features = fourier_features(mean, frequencies)
        gram, cross = features.T @ features, features.T @ some_data.scores
        return _with_sizes(gram, cross, some_data).log_evidence(fit.noise, fit.ratio)

    return max(draw_frequencies(state, settings, rng), key=evidence)


def draw_frequencies(state: State, settings: Settings, rng: np.random.RandomState) -> list[FloatArray]:
    """Draw W from q(W) a few times, to choose from."""
    keys = [jax.random.key(rng.randint(2**31 - 1), impl="rbg") for _ in range(N_FREQUENCY_DRAWS)]
    needed = {name: state[name] for name in ("mixture_mean", "mixture_factor", "logits")}
    return [np.array(_draw_frequencies(key, needed, settings), dtype=np.float64) for key in keys]


@partial(quickly_compiled, is_rare=True, static_argnames="settings")
def _draw_frequencies(key: jax.Array, state: State, settings: Settings) -> jax.Array:
    return frequency_sampler(state, settings)(key)


def _statistics(frequencies: FloatArray, latents: Embedding, data: Compressed) -> Statistics:
    return _with_sizes(*frozen_statistics(frequencies, latents, data.scores), data)


def _with_sizes(gram: FloatArray, cross: FloatArray, data: Compressed) -> Statistics:
    return Statistics(gram, cross, data.total_square, len(data.scores), data.n_columns)


def frozen_statistics(
    frequencies: FloatArray, latents: Embedding, targets: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return E[Phi'Phi] (L, L) and E[Phi]'targets over q(X)."""
    size = 2 * len(frequencies)
    gram, cross = np.zeros((size, size)), np.zeros((size, targets.shape[1]))
    for rows in row_chunks(len(targets)):
        points = _point_features(frequencies, latents, rows)
        gram += sum(phi.T @ phi for phi in points) / len(points)
        cross += np.mean(points, axis=0).T @ targets[rows]
    return gram, cross


def _full_cross(frequencies: FloatArray, latents: Embedding, source: Source, data: Compressed) -> FloatArray:
    """Return E[Phi]'Y with all M columns, standardised.

    The points of q(X) belong to chunks of rows, as in `_statistics`; a chunk of wide rows is read in several
    pieces.
    """
    cross = np.zeros((2 * len(frequencies), source.n_columns))
    for rows in row_chunks(len(data.scores)):
        features = np.mean(_point_features(frequencies, latents, rows), axis=0)
        first = data.start + rows.start
        for part, piece in pieces(source, first, data.start + rows.stop):
            inside = slice(part.start - first, part.stop - first)
            cross += features[inside].T @ data.columns.standardise(piece)
    return cross


def _mean_features(frequencies: FloatArray, latents: Embedding) -> FloatArray:
    """Return E[Phi] (N, L)."""
    parts = [
        np.mean(_point_features(frequencies, latents, rows), axis=0) for rows in row_chunks(len(latents.mean))
    ]
    return np.concatenate(parts)


def _gram(frequencies: FloatArray, latents: Embedding, weights: FloatArray | None = None) -> FloatArray:
    """Return E[Phi' diag(weights) Phi] (L, L)."""
    size = 2 * len(frequencies)
    gram = np.zeros((size, size))
    for rows in row_chunks(len(latents.mean)):
        points = _point_features(frequencies, latents, rows)
        root = 1.0 if weights is None else np.sqrt(weights[rows])[:, None]
        gram += sum((root * phi).T @ (root * phi) for phi in points) / len(points)
    return gram


def _point_features(frequencies: FloatArray, latents: Embedding, rows: slice) -> list[FloatArray]:
    report(f"solving for the weights, rows from {rows.start} on")
    points = cubature_points(latents.mean[rows], latents.cholesky[rows], rows.start)
    return [fourier_features(point, frequencies) for point in points]
