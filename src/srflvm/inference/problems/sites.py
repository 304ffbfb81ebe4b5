"""Data of any likelihoods with any missing entries, as a fit by sites sees them.

`solve_sites` solves for the sites, parameters and amplitudes of all columns at features that are held fixed.
It is used where a fit begins, to find sites for its first features, and where it ends, to find the weights'
posterior for the frozen ones. Latents that are uncertain are given as several equally weighted sets of
features; an entry's f then has the mean and the variance of the mixture over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.bcd import State
from srflvm.data.compression import Compressed, compress
from srflvm.data.encoding import Group, GroupRows, Layout
from srflvm.data.sources import ArraySource
from srflvm.inference.problems.gaussian import MOST_ANCHORS, CompleteGaussianProblem, draw_frequencies
from srflvm.likelihoods.base import Likelihood
from srflvm.model.elbo import STEPS_PER_SWEEP, Settings, StartingPoint
from srflvm.model.evidence_layers import GradientLayer, GroupPlan, SiteData, SiteLayer, affine_scales
from srflvm.model.sites import (
    DAMPING,
    Function,
    GroupState,
    Slopes,
    at_once,
    better_amplitude,
    better_parameters,
)
from srflvm.numerics import packed_symmetric, site_regression
from srflvm.numerics.bayesian_pca import LinearFactors
from srflvm.numerics.features import cubature_points, layer_features
from srflvm.numerics.jit import in_float64, one_blas_thread, quickly_compiled
from srflvm.numerics.low_rank_fill import low_rank_fill
from srflvm.numerics.site_regression import Sites
from srflvm.numerics.weight_covariances import PackedCovariances
from srflvm.parallel.communicator import Communicator
from srflvm.posterior.chunks import Embedding
from srflvm.posterior.sites import SitePosterior

# Columns that a step of the fit visits, of each group.
_FEWEST_IN_BATCH = 64
_MOST_IN_BATCH = 512

# Columns that `solve_sites` holds at a time.
_COLUMNS_AT_ONCE = 128

_ROUNDS_AT_START = 2
_ROUNDS_AT_END = 6
_COLUMNS_TO_COMPARE_DRAWS = 64
_ROWS_TO_COMPARE_DRAWS = 10_000

# A start of Bayesian PCA leaves to the waves this share of the variance of the working values, at this scale
# in two dimensions. Scales of features are not smaller than this.
_WAVE_VARIANCE = 0.05
_LINEAR_FREQUENCY_SCALE = 0.5
_SMALLEST_SCALE = 1e-2

# Rows kept as anchors with an affine part, which leads a search from afar to the optimum: fewer than without.
_MOST_AFFINE_ANCHORS = 2000

# Rows of features, over all cubature points, up to which uncertain latents are averaged over those points.
_MOST_POINTS = 6000


@dataclass(frozen=True)
class SiteProblem:
    """Training data with a site for every entry: a `Problem` of the run of a fit.

    `levels` and `parameters` are each group's starting values, from moments.
    """

    layout: Layout
    encoded: tuple[GroupRows, ...]
    levels: tuple[FloatArray, ...]
    parameters: tuple[dict[str, FloatArray], ...]
    working: Compressed
    route: str
    has_affine: bool
    log_scale_total: float
    communicator: Communicator = field(default_factory=Communicator)

    @classmethod
    def of(
        cls,
        Y: FloatArray,
        layout: Layout,
        log_sizes: FloatArray | None,
        n_directions: int | str,
        n_components: int,
        route: str,
        has_affine: bool = False,
    ) -> SiteProblem:
        """Encode the rows of Y, and compress their working values for the starts."""
        encoded = layout.encode(Y, log_sizes)
        starts = [
            group.likelihood.start(rows.y / np.exp(rows.offset), rows.constants)
            for group, rows in zip(layout.groups, encoded, strict=True)
        ]
        working = compress(low_rank_fill(layout.working(encoded), n_components), n_directions)
        levels, parameters = zip(*starts, strict=True)
        total = layout.log_scale_total(Y)
        return cls(layout, encoded, levels, parameters, working, route, has_affine, total)

    @property
    def n_rows(self) -> int:
        """Return the number of rows N."""
        return len(self.encoded[0].y)

    @property
    def n_entries(self) -> int:
        """Return the number of observed entries."""
        return int(sum(np.sum(rows.observed) for rows in self.encoded))

    @property
    def row_sizes(self) -> FloatArray | None:
        """Return the size factors of the rows, if they have any."""
        counts = [rows for group, rows in self._groups if group.likelihood.takes_sizes]
        return np.exp(counts[0].offset[:, 0]) if counts else None

    @property
    def layer(self) -> SiteLayer | GradientLayer:
        """Return the layer of the model."""
        if self.route == "gradient":
            return GradientLayer(self._plans)
        return SiteLayer(self._plans, self.route, self.has_affine)

    @property
    def share_of_columns(self) -> float:
        """Return the share of the columns that every step sees at least."""
        return min(plan.batch / plan.n_channels for plan in self._plans)

    @property
    def _plans(self) -> tuple[GroupPlan, ...]:
        return tuple(
            GroupPlan(group.likelihood.of_channels, rows.y.shape[1], _batch_size(rows.y.shape[1]))
            for group, rows in self._groups
        )

    @property
    def _groups(self) -> list[tuple[Group, GroupRows]]:
        return list(zip(self.layout.groups, self.encoded, strict=True))

    def pilot(self) -> CompleteGaussianProblem:
        """Return the problem of the working data, as if they were Gaussian."""
        directions = self.working.columns.directions
        return CompleteGaussianProblem(ArraySource(self.working.scores @ directions.T), self.working)

    def rows(self, index: np.ndarray) -> SiteProblem:
        """Return the problem of some of the rows."""
        share = len(index) / self.n_rows
        return replace(
            self,
            encoded=tuple(rows.take_rows(index) for rows in self.encoded),
            working=self.working.rows(index),
            log_scale_total=share * self.log_scale_total,
        )

    def in_data_units(self, bound: float) -> float:
        """Return log p of raw data: the density of y = location + scale * u is that of u over scale."""
        return bound - self.log_scale_total

    def information(self, bound: float) -> float:
        """Return how many nats the entries tell at a bound in the units of the data, at most one each."""
        return float(np.clip(bound - self._log_likelihood_at_levels, 0.0, self.n_entries))

    @cached_property
    def _log_likelihood_at_levels(self) -> float:
        """Return the log density of the data, in their units, if every column stays at its level."""
        total = 0.0
        with in_float64():
            for group, rows, level, learned in zip(
                self.layout.groups, self.encoded, self.levels, self.parameters, strict=True
            ):
                filled = rows.filled()
                arguments = filled.y, level + rows.offset, rows.observed, {**filled.constants, **learned}
                total += float(_log_likelihood(group.likelihood.of_channels, *arguments))
        return self.in_data_units(total)

    # ---- the layer's data and state ---------------------------------------------------------------

    def fit_data(self, dtype: np.dtype) -> SiteData:
        """Return what the layer needs of the data, as JAX arrays."""
        return jax.device_put(
            tuple(
                (rows.filled().channels_first(dtype), np.asarray(level, dtype))
                for rows, level in zip(self.encoded, self.levels, strict=True)
            )
        )

    def linear_start(self, n_components: int, rng: np.random.RandomState) -> StartingPoint | None:
        """Return the start of Bayesian PCA of the working values, over their observed entries."""
        if not self.has_affine:
            return None
        values = self.layout.working(self.encoded)
        values = values - np.nanmean(values, axis=0)
        factors = LinearFactors.fit(values, n_components, rng)
        cholesky = np.linalg.cholesky(factors.latent_covariances)
        scale = _LINEAR_FREQUENCY_SCALE * (2.0 / max(n_components, 2)) ** 0.5
        slopes = np.sqrt(factors.relevance)
        return StartingPoint("pca", factors.latents, scale, _WAVE_VARIANCE, 1.0, slopes, cholesky)

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        """Make sites near a first guess, and solve for them at the start's latents and one draw of W."""
        if self.has_affine:
            return self._affine_state(start, options)
        spread = np.exp(rng.uniform(-0.7, 0.7, size=(options.n_frequencies, 1)))
        shape = (options.n_frequencies, start.latents.shape[1])
        frequencies = start.frequency_scale * spread * rng.standard_normal(shape)
        data = self.fit_data(options.dtype)
        state = self._state(self._guesses(), data, self.parameters, options.dtype)
        state["log_amplitude"] = self._log_amplitudes(start)
        # as many sets of features as at the end, so that one program serves both where it costs little
        points = np.repeat(start.latents[None], _n_points(start.latents), axis=0)
        features = _features(points, frequencies, np.zeros(0), options.dtype)
        solved = solve_sites(self._plans, features, data, state, _ROUNDS_AT_START)
        if self.route == "gradient":
            return _gradient_state(solved, options.dtype)
        return state | GroupState.as_entries([group.state for group in solved])

    def _log_amplitudes(self, start: StartingPoint) -> tuple[FloatArray, ...]:
        """Return the log amplitudes of each group at a start, without an affine part."""
        # the function's variance on the working scale, as the starting point found it
        variance = self.working.columns.scale**2 * start.noise / start.ratio
        return tuple(
            np.full(rows.y.shape[1], np.log(variance * (g.spread * g.likelihood.working_gain) ** 2))
            for g, rows in self._groups
        )

    def _affine_state(self, start: StartingPoint, options: Any) -> State:
        """Make sites near a first guess, with the amplitudes and slopes of the start."""
        data = self.fit_data(options.dtype)
        state = self._state(self._guesses(), data, self.parameters, options.dtype)
        return state | self._affine_entries(start)

    def _affine_entries(self, start: StartingPoint) -> State:
        """Return the log amplitudes of each group and the log scales of features at a start."""
        wave = np.sqrt(start.noise / start.ratio)
        n_latent = start.latents.shape[1]
        slopes = np.full(n_latent, wave / np.sqrt(n_latent)) if start.slopes is None else start.slopes
        scales = np.maximum(np.array([wave, *slopes]), _SMALLEST_SCALE)
        size = np.linalg.norm(scales)
        amplitudes = tuple(
            np.full(rows.y.shape[1], 2.0 * np.log(size * g.spread * g.likelihood.working_gain))
            for g, rows in self._groups
        )
        return {"log_amplitude": amplitudes, "log_affine": np.log(scales)}

    def embedded_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        """Return the layer's entries of the state for all rows, embedded by a posterior of some of them."""
        if self.route == "gradient":
            return {}
        f = np.asarray(posterior.function.values(latents.mean)) - posterior.level
        guesses = [f[:, group.channels] for group in self.layout.groups]
        data = self.fit_data(options.dtype)
        fresh = self._state(guesses, data, posterior.parameters, options.dtype)
        return {**fresh, "parameters": state["parameters"], "log_amplitude": state["log_amplitude"]}

    def renewed_state(self, state: State, posterior: Any, options: Any) -> State:
        """Return the layer's entries that belong to the data, to go on from an earlier fit's others."""
        if self.route == "gradient":
            return {}
        fresh = self._state(self._guesses(), self.fit_data(options.dtype), self.parameters, options.dtype)
        return {name: fresh[name] for name in ("sites", "order", "visit")}

    def _guesses(self) -> list[FloatArray]:
        """Return first guesses of f without known terms, (N, c) of each group."""
        return [
            group.likelihood.first_guess(rows.y, level) - level - rows.offset
            for group, rows, level in zip(self.layout.groups, self.encoded, self.levels, strict=True)
        ]

    def _state(
        self,
        guesses: list[FloatArray],
        data: SiteData,
        parameters: tuple[dict[str, FloatArray], ...],
        dtype: np.dtype,
    ) -> State:
        """Return the layer's entries, with sites made at given f without known terms (N, c) of each group."""
        sites = [
            _sites_at(
                group.likelihood.of_channels,
                *mine,
                np.asarray(f.T, dtype),
                jax.tree.map(np.asarray, learned),
            )
            for group, mine, f, learned in zip(self.layout.groups, data, guesses, parameters, strict=True)
        ]
        return {
            "sites": tuple(sites),
            "parameters": tuple({n: np.asarray(v) for n, v in learned.items()} for learned in parameters),
            "order": tuple(np.arange(rows.y.shape[1], dtype=np.int32) for rows in self.encoded),
            "visit": np.zeros((), np.int32),
        }

    # ---- the posterior at the end -----------------------------------------------------------------

    def build_posterior(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[SitePosterior, Embedding]:
        """Draw frequencies, solve for the weights' posterior, and embed all rows by it."""
        dtype = np.asarray(state["latent_mean"]).dtype
        data = self.fit_data(dtype)
        if "sites" not in state:
            state = self._state(self._guesses(), data, self.parameters, dtype) | state
        points = self._points(latents, rng)
        # as many sets of features as below, for the program of below
        first = np.repeat(points[:1], len(points), axis=0)
        frequencies = self._best_frequencies(state, first, data, settings, rng)
        affine = self._affine_scales(state)
        features = _features(points, frequencies, affine, dtype)
        solved = solve_sites(self._plans, features, data, state, _ROUNDS_AT_END)
        anchors = self._anchors(rng)
        posterior = SitePosterior(
            columns=self.working.columns,
            frequencies=frequencies,
            anchors=latents.mean[anchors],
            anchor_scores=self.working.scores[anchors],
            table=self.layout,
            weights=np.concatenate([group.weights for group in solved]).T.astype(np.float64),
            covariance=PackedCovariances(
                np.concatenate([group.packed_covariance for group in solved]).astype(np.float32)
            ),
            level=np.concatenate(self.levels),
            amplitude=np.exp(np.concatenate([group.state.log_amplitude for group in solved])),
            parameters=tuple(group.state.parameters for group in solved),
            affine=affine,
        )
        embedding = self.embed(posterior)
        if self.has_affine:
            posterior = posterior.with_votes(self.encoded, embedding.mean, rng)
        return posterior, embedding

    def embed(self, posterior: Any) -> Embedding:
        """Return the embedding that a posterior gives to all rows."""
        return posterior.embed_encoded(self.encoded)

    def _anchors(self, rng: np.random.RandomState) -> np.ndarray:
        """Return the rows that are kept as anchors."""
        n_anchors = _MOST_AFFINE_ANCHORS if self.has_affine else MOST_ANCHORS
        return np.sort(rng.permutation(self.n_rows)[:n_anchors])

    def _points(self, latents: Embedding, rng: np.random.RandomState) -> FloatArray:
        """Return cubature points of q(X), or one random draw for each row where there are many rows."""
        if _n_points(latents.mean) > 1:
            return cubature_points(latents.mean, latents.cholesky)
        return latents.draw(rng)[None]

    @staticmethod
    def _affine_scales(state: State) -> FloatArray:
        """Return the scales of the features as NumPy numbers, in double precision."""
        entries = {name: np.asarray(state[name]) for name in ("log_affine",) if name in state}
        return affine_scales(entries, np.float64)

    def _best_frequencies(
        self,
        state: State,
        points: FloatArray,
        data: SiteData,
        settings: Settings,
        rng: np.random.RandomState,
    ) -> FloatArray:
        """Return the draw of W with the highest bound, of some columns and evenly spaced rows."""
        affine, dtype = self._affine_scales(state), np.asarray(state["latent_mean"]).dtype
        step = -(-self.n_rows // _ROWS_TO_COMPARE_DRAWS)
        rows, sites = [rows for rows, _ in data], state["sites"]
        if step > 1:
            rows, sites = jax.tree.map(lambda part: part[:, ::step], (rows, sites))
        some_data = tuple((some, level) for some, (_, level) in zip(rows, data, strict=True))
        some_state = {**state, "sites": sites}

        def bound(frequencies: FloatArray) -> float:
            features = _features(points[:, ::step], frequencies, affine, dtype)
            solved = solve_sites(self._plans, features, some_data, some_state, 1, _COLUMNS_TO_COMPARE_DRAWS)
            return float(sum(np.sum(group.bound) for group in solved))

        return max(draw_frequencies(state, settings, rng), key=bound)


@dataclass(frozen=True)
class _SolvedGroup:
    """State of one group at fixed features, and what follows from it for each channel.

    These are the weights' mean (c, L), their packed covariance (c, P), and what the channel adds to the bound
    (c,).
    """

    state: GroupState
    weights: FloatArray
    packed_covariance: FloatArray
    bound: FloatArray


def solve_sites(
    plans: Sequence[GroupPlan],
    features: FloatArray,
    data: SiteData,
    state: dict[str, Any],
    n_rounds: int,
    columns: int | None = None,
) -> list[_SolvedGroup]:
    """Solve for the sites of all groups at features (K, N, L), the constant included.

    If `columns` is given, only about the first so many of each group are solved for.
    """
    flat = jax.device_put(features.reshape(-1, features.shape[-1]))
    solved = []
    for plan, (rows, level), mine in zip(plans, data, GroupState.of_groups(state), strict=True):
        n_channels = plan.n_channels if columns is None else min(columns, plan.n_channels)
        with one_blas_thread():
            solved.append(_solve_group(plan.likelihood, flat, rows, level, mine, n_rounds, n_channels))
    return solved


def _solve_group(
    likelihood: Likelihood,
    features: Array,
    rows: GroupRows,
    level: Array,
    mine: GroupState,
    n_rounds: int,
    n_channels: int,
) -> _SolvedGroup:
    batches = _batches(n_channels)
    is_whole = len(batches) == 1 and n_channels == len(level)
    states = [mine] if is_whole else [mine.take(batch.pick) for batch in batches]

    def visit(batch: _Batch, state: GroupState) -> _Visit:
        if is_whole:
            return _visit(likelihood, features, rows, level, state)
        return _visit(likelihood, features, rows.take_channels(batch.pick), level[batch.pick], state)

    for _ in range(n_rounds):
        visits = [visit(*pair) for pair in zip(batches, states, strict=True)]
        states = _agreed_states(batches, visits, states)
    parts = []
    for batch, state in zip(batches, states, strict=True):
        last = visit(batch, state)
        solved = (state, last.weights, last.packed_covariance, last.bound)
        parts.append(jax.tree.map(lambda array, n=batch.keep: np.asarray(array)[:n], solved))
    state, weights, packed, bound = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
    shared = {n: np.asarray(states[0].parameters[n]) for n, v in mine.parameters.items() if len(v) == 1}
    state = state._replace(parameters={**state.parameters, **shared})
    return _SolvedGroup(state, weights, packed, bound)


class _Batch(NamedTuple):
    """Columns, and how many of them count: the last batch is filled up with the first columns."""

    pick: np.ndarray
    keep: int


def _batches(n_channels: int) -> list[_Batch]:
    size = min(_COLUMNS_AT_ONCE, n_channels)
    return [
        _Batch((start + np.arange(size)) % n_channels, min(size, n_channels - start))
        for start in range(0, n_channels, size)
    ]


class _Visit(NamedTuple):
    """Next state of a batch of columns, and the weights' posterior and the bound (B,) of the present one.

    `slopes` are those of the parameters that moved alone.
    """

    state: GroupState
    slopes: dict[str, Slopes]
    weights: Array
    packed_covariance: Array
    bound: Array


def _agreed_states(batches: list[_Batch], visits: list[_Visit], before: list[GroupState]) -> list[GroupState]:
    """Return the next states of the batches, after one step for all of them in parameters that they share."""
    old = before[0].parameters
    shared = {}
    for name in (name for name, value in old.items() if len(value) == 1 and len(batches) > 1):
        kept = [
            jax.tree.map(lambda part, n=batch.keep: part[:n], visit.slopes[name])
            for batch, visit in zip(batches, visits, strict=True)
        ]
        slopes = jax.tree.map(lambda *parts: jnp.concatenate(parts), *kept)
        shared[name] = slopes.newton_step(old[name])
    return [visit.state._replace(parameters={**visit.state.parameters, **shared}) for visit in visits]


@partial(quickly_compiled, is_rare=True, static_argnames="likelihood")
def _visit(
    likelihood: Likelihood, features: Array, rows: GroupRows, level: Array, state: GroupState
) -> _Visit:
    weights, here = _posterior(features, level[:, None] + rows.offset, state)
    local = likelihood.expectations(rows.y, here.total, here.variance, rows.arguments(state.parameters))
    value = jnp.sum(jnp.where(rows.observed, local.value, 0.0), axis=1, dtype=jnp.float64)
    bound = value - weights.divergence(jnp.exp(state.log_amplitude))
    better, slopes = better_parameters(likelihood, len(rows.y), state.parameters, at_once(rows, here))
    updated = GroupState(
        sites=state.move_sites(here.target_sites(local, rows.observed), DAMPING["sites"]),
        parameters=better,
        log_amplitude=better_amplitude(weights),
    )
    updated = updated.centred(likelihood, weights.mean[:, -1])
    packed = packed_symmetric.pack_form(weights.covariance).astype(features.dtype)
    return _Visit(updated, slopes, weights.mean, packed, bound)


def _posterior(features: Array, known: Array, state: GroupState) -> tuple[site_regression.Weights, Function]:
    """Return q(h), and q(f) as a mixture over the K sets of features."""
    n_rows = known.shape[1]
    n_sets = features.shape[0] // n_rows
    spread = jax.tree.map(lambda site: jnp.tile(site, (1, n_sets)) / n_sets, state.sites)
    weights = site_regression.solve(features, spread, jnp.exp(state.log_amplitude))
    means, variances = (part.reshape(-1, n_sets, n_rows) for part in weights.function_moments(features))
    mean = jnp.mean(means, axis=1)
    variance = jnp.mean(variances, axis=1) + jnp.var(means, axis=1)
    return weights, Function(mean, variance, known, mean)


@partial(quickly_compiled, is_rare=True, static_argnames="likelihood")
def _log_likelihood(
    likelihood: Likelihood, y: Array, f: Array, observed: Array, parameters: dict[str, Array]
) -> Array:
    """Return the log density of the observed entries at f."""
    return jnp.sum(jnp.where(observed, likelihood.log_prob(y, f, parameters), 0.0))


@partial(quickly_compiled, is_rare=True, static_argnames="likelihood")
def _sites_at(
    likelihood: Likelihood, rows: GroupRows, level: Array, f: Array, learned: dict[str, Array]
) -> Sites:
    """Return sites that match the likelihood's slope and curvature at f without known terms."""
    here = Function(f, jnp.zeros_like(f), level[:, None] + rows.offset, f)
    return here.target_sites(likelihood.pointwise(rows.y, here.total, rows.arguments(learned)), rows.observed)


def _gradient_state(solved: list[_SolvedGroup], dtype: np.dtype) -> State:
    """Return weights at their solved means, with the standard deviations that they have one by one."""
    size = solved[0].weights.shape[1]
    variances = [group.packed_covariance[:, :size] for group in solved]
    return {
        "weight_mean": tuple(group.weights.astype(dtype) for group in solved),
        "weight_log_std": tuple(0.5 * np.log(v).astype(dtype) for v in variances),
        "parameters": tuple(group.state.parameters for group in solved),
        "log_amplitude": tuple(group.state.log_amplitude for group in solved),
    }


def _n_points(latents: FloatArray) -> int:
    """Return how many cubature points a row has, or 1 where there are too many rows for them."""
    n_rows, n_latent = latents.shape
    return 2 * n_latent if 2 * n_latent * n_rows <= _MOST_POINTS else 1


def _batch_size(n_channels: int) -> int:
    """Return a fifth of the columns, so that the steps of a sweep visit them all, within bounds."""
    share = -(-n_channels // STEPS_PER_SWEEP)
    return min(n_channels, max(_FEWEST_IN_BATCH, min(share, _MOST_IN_BATCH)))


def _features(points: FloatArray, frequencies: FloatArray, affine: FloatArray, dtype: np.dtype) -> FloatArray:
    """Return all features at sets of latents (K, N, Q): (K, N, L)."""
    return np.stack([layer_features(p, frequencies, affine) for p in points]).astype(dtype)
