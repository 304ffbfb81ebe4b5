"""Data of any likelihoods with any holes, as a fit by sites sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from srflvm._types import FloatArray
from srflvm.bcd import State
from srflvm.blocks import STEPS_PER_SWEEP, Settings, StartingPoint
from srflvm.compiling import quickly_compiled
from srflvm.compression import Compressed, compress
from srflvm.computing import in_float64
from srflvm.cubature import cubature_points
from srflvm.embedding import Embedding
from srflvm.entries import Sites
from srflvm.features import fourier_features
from srflvm.filling import low_rank_fill
from srflvm.freezing import MOST_ANCHORS, draw_frequencies
from srflvm.gradient_layer import GradientLayer
from srflvm.layers import GroupData, GroupPlan, SiteLayer, with_constant
from srflvm.likelihoods import Likelihood
from srflvm.observations import Encoded, Group, Layout
from srflvm.problems import SharedProblem
from srflvm.rowwise import function_values
from srflvm.settling import Settled, settle
from srflvm.site_posterior import SitePosterior
from srflvm.sources import ArraySource

_FEWEST_IN_BATCH = 64
_MOST_IN_BATCH = 512

_ROUNDS_AT_START = 2
_ROUNDS_AT_END = 6
_COLUMNS_TO_COMPARE_DRAWS = 64

# Rows of features, over all cubature points, up to which uncertain latents are averaged over those points.
_MOST_POINTS = 6000


@dataclass(frozen=True)
class SiteProblem:
    """`levels` and `parameters` are each group's moment-based starting values."""

    layout: Layout
    encoded: tuple[Encoded, ...]
    levels: tuple[FloatArray, ...]
    parameters: tuple[dict[str, FloatArray], ...]
    working: Compressed
    route: str
    log_scale_total: float

    @classmethod
    def of(
        cls,
        Y: FloatArray,
        layout: Layout,
        log_sizes: FloatArray | None,
        n_directions: int | str,
        n_components: int,
        route: str,
    ) -> SiteProblem:
        encoded = layout.encode(Y, log_sizes)
        starts = [
            group.likelihood.start(rows.y / np.exp(rows.offset), rows.constants)
            for group, rows in zip(layout.groups, encoded, strict=True)
        ]
        working = compress(low_rank_fill(layout.working(encoded), n_components), n_directions)
        levels, parameters = zip(*starts, strict=True)
        return cls(layout, encoded, levels, parameters, working, route, layout.log_scale_total(Y))

    @property
    def n_rows(self) -> int:
        return len(self.encoded[0].y)

    @property
    def n_entries(self) -> int:
        return int(sum(np.sum(rows.observed) for rows in self.encoded))

    def information(self, bound: float) -> float:
        return float(np.clip(bound - self._log_likelihood_at_levels, 0.0, self.n_entries))

    @cached_property
    def _log_likelihood_at_levels(self) -> float:
        """log p of the data, in their units, if every column stays at its level."""
        total = 0.0
        with in_float64():
            for group, rows, level, learned in zip(
                self.layout.groups, self.encoded, self.levels, self.parameters, strict=True
            ):
                constants = {n: np.where(rows.observed, v, 1.0) for n, v in rows.constants.items()}
                y = np.where(rows.observed, rows.y, 0.0)
                values = group.likelihood.log_prob(y, level + rows.offset, {**constants, **learned})  # pyright: ignore
                total += float(np.sum(np.where(rows.observed, values, 0.0)))
        return self.in_data_units(total)

    @property
    def row_sizes(self) -> FloatArray | None:
        counts = [rows for group, rows in self._groups if group.likelihood.takes_sizes]
        return np.exp(counts[0].offset[:, 0]) if counts else None

    @property
    def _groups(self) -> list[tuple[Group, Encoded]]:
        return list(zip(self.layout.groups, self.encoded, strict=True))

    @property
    def layer(self) -> SiteLayer | GradientLayer:
        return GradientLayer(self._plans) if self.route == "gradient" else SiteLayer(self._plans, self.route)

    @property
    def _plans(self) -> tuple[GroupPlan, ...]:
        return tuple(
            GroupPlan(group.likelihood, rows.y.shape[1], _batch_size(rows.y.shape[1]))
            for group, rows in self._groups
        )

    @property
    def smallest_share_of_columns(self) -> float:
        """Of the groups' columns, how many a step sees at least."""
        return min(plan.batch / plan.n_channels for plan in self._plans)

    def pilot(self) -> SharedProblem:
        """The working data, as if they were Gaussian."""
        directions = self.working.columns.directions
        return SharedProblem(ArraySource(self.working.scores @ directions.T), self.working)

    def fit_data(self, dtype: np.dtype) -> tuple[GroupData, ...]:
        return tuple(
            GroupData(
                jnp.asarray(np.where(rows.observed, rows.y, 0.0).T, dtype),
                jnp.asarray(rows.observed.T),
                {name: _harmless(value, rows.observed, dtype) for name, value in rows.constants.items()},
                jnp.asarray(rows.offset[:, 0], dtype),
                jnp.asarray(level, dtype),
            )
            for rows, level in zip(self.encoded, self.levels, strict=True)
        )

    def layer_state(self, start: StartingPoint, rng: np.random.RandomState, options: Any) -> State:
        """Sites made near a first guess, then settled for the start's latents and one draw of frequencies."""
        spread = np.exp(rng.uniform(-0.7, 0.7, size=(options.n_frequencies, 1)))
        shape = (options.n_frequencies, start.latents.shape[1])
        frequencies = start.frequency_scale * spread * rng.standard_normal(shape)
        # the function's variance on the working scale, as the starting point found it
        variance = self.working.columns.scale**2 * start.noise / start.ratio
        data = self.fit_data(options.dtype)
        state = self._state(self._guesses(), data, self.parameters, options.dtype)
        state["log_amplitude"] = tuple(
            np.full(rows.y.shape[1], np.log(variance * (g.spread * g.likelihood.working_gain) ** 2))
            for g, rows in self._groups
        )
        features = _features(start.latents[None], frequencies, options.dtype)
        settled = settle(self._plans, features, data, state, _ROUNDS_AT_START)
        if self.route == "gradient":
            return _gradient_state(settled, options.dtype)
        return state | _site_state(settled)

    def placed_state(self, state: State, posterior: Any, latents: Embedding, options: Any) -> State:
        if self.route == "gradient":
            return {}
        f = np.asarray(function_values(posterior.frozen, latents.mean)) - posterior.level
        guesses = [f[:, group.channels] for group in self.layout.groups]
        data = self.fit_data(options.dtype)
        fresh = self._state(guesses, data, posterior.parameters, options.dtype)
        return {**fresh, "parameters": state["parameters"], "log_amplitude": state["log_amplitude"]}

    def renewed_state(self, state: State, options: Any) -> State:
        if self.route == "gradient":
            return {}
        fresh = self._state(self._guesses(), self.fit_data(options.dtype), self.parameters, options.dtype)
        return {name: fresh[name] for name in ("sites", "order", "visit")}

    def _guesses(self) -> list[FloatArray]:
        """First guesses of f without known terms, (N, c) of each group."""
        return [
            group.likelihood.first_guess(rows.y, level) - level - rows.offset
            for group, rows, level in zip(self.layout.groups, self.encoded, self.levels, strict=True)
        ]

    def _state(self, guesses, data, parameters, dtype) -> State:
        """The layer's entries with sites made at given f without known terms (N, c) of each group."""
        sites = [
            _sites_at(group.likelihood, mine, jnp.asarray(f.T, dtype), jax.tree.map(jnp.asarray, learned))
            for group, mine, f, learned in zip(self.layout.groups, data, guesses, parameters, strict=True)
        ]
        return {
            "sites": tuple(sites),
            "parameters": tuple({n: np.asarray(v) for n, v in learned.items()} for learned in parameters),
            "order": tuple(np.arange(rows.y.shape[1], dtype=np.int32) for rows in self.encoded),
            "visit": np.zeros((), np.int32),
        }

    def rows(self, index: np.ndarray) -> SiteProblem:
        encoded = tuple(
            Encoded(rows.y[index], {n: v[index] for n, v in rows.constants.items()}, rows.offset[index])
            for rows in self.encoded
        )
        share = len(index) / self.n_rows
        return replace(
            self,
            encoded=encoded,
            working=self.working.rows(index),
            log_scale_total=share * self.log_scale_total,
        )

    def freeze(
        self, state: State, latents: Embedding, settings: Settings, rng: np.random.RandomState
    ) -> tuple[SitePosterior, Embedding]:
        dtype = np.asarray(state["latent_mean"]).dtype
        data = self.fit_data(dtype)
        if "sites" not in state:
            state = self._state(self._guesses(), data, self.parameters, dtype) | state
        points = self._points(latents, rng)
        frequencies = self._best_frequencies(state, points[:1], data, settings, rng)
        settled = settle(self._plans, _features(points, frequencies, dtype), data, state, _ROUNDS_AT_END)
        anchors = np.sort(rng.permutation(self.n_rows)[:MOST_ANCHORS])
        posterior = SitePosterior(
            columns=self.working.columns,
            frequencies=frequencies,
            anchors=latents.mean[anchors],
            anchor_scores=self.working.scores[anchors],
            table=self.layout,
            weights=np.concatenate([s.weights for s in settled]).T.astype(np.float64),
            packed_covariance=np.concatenate([s.packed_covariance for s in settled]).astype(np.float32),
            level=np.concatenate(self.levels),
            amplitude=np.exp(np.concatenate([s.log_amplitude for s in settled])),
            parameters=tuple(s.parameters for s in settled),
        )
        return posterior, self.place(posterior)

    def _points(self, latents: Embedding, rng: np.random.RandomState) -> FloatArray:
        """Cubature points of q(X), or one random draw for each row where there are many rows."""
        n_rows, n_latent = latents.mean.shape
        if 2 * n_latent * n_rows <= _MOST_POINTS:
            return cubature_points(latents.mean, latents.cholesky)
        noise = rng.standard_normal(latents.mean.shape)
        return (latents.mean + np.einsum("nqr,nr->nq", latents.cholesky, noise))[None]

    def _best_frequencies(self, state, points, data, settings: Settings, rng) -> FloatArray:
        def bound(frequencies: FloatArray) -> float:
            features = _features(points, frequencies, np.asarray(state["latent_mean"]).dtype)
            settled = settle(self._plans, features, data, state, 1, _COLUMNS_TO_COMPARE_DRAWS)
            return float(sum(np.sum(s.bound) for s in settled))

        return max(draw_frequencies(state, settings, rng), key=bound)

    def place(self, posterior: Any) -> Embedding:
        return posterior.place_encoded(self.encoded)

    def in_data_units(self, bound: float) -> float:
        return bound - self.log_scale_total


def _site_state(settled: list[Settled]) -> State:
    return {
        "sites": tuple(s.sites for s in settled),
        "parameters": tuple(s.parameters for s in settled),
        "log_amplitude": tuple(s.log_amplitude for s in settled),
    }


def _gradient_state(settled: list[Settled], dtype: np.dtype) -> State:
    """Weights at their settled means, with the standard deviations that they have one by one."""
    size = settled[0].weights.shape[1]
    variances = [s.packed_covariance[:, :size] for s in settled]
    return {
        "weight_mean": tuple(s.weights.astype(dtype) for s in settled),
        "weight_log_std": tuple(0.5 * np.log(v).astype(dtype) for v in variances),
        "parameters": tuple(s.parameters for s in settled),
        "log_amplitude": tuple(s.log_amplitude for s in settled),
    }


def _batch_size(n_channels: int) -> int:
    """A fifth of the columns, so that the steps of a sweep visit them all, within bounds."""
    share = -(-n_channels // STEPS_PER_SWEEP)
    return min(n_channels, max(_FEWEST_IN_BATCH, min(share, _MOST_IN_BATCH)))


def _harmless(value: FloatArray, observed: np.ndarray, dtype: np.dtype) -> jax.Array:
    return jnp.asarray(np.where(observed, value, 1.0).T, dtype)


def _features(points: FloatArray, frequencies: FloatArray, dtype: np.dtype) -> FloatArray:
    """Features with the constant at sets of latents (K, N, Q): (K, N, L)."""
    return np.stack([with_constant(fourier_features(p, frequencies)) for p in points]).astype(dtype)


@partial(quickly_compiled, static_argnames="likelihood")
def _sites_at(likelihood: Likelihood, data: GroupData, f: jax.Array, learned: dict[str, jax.Array]) -> Sites:
    """Sites that match the likelihood's slope and curvature at f without known terms."""
    known = data.level[:, None] + data.offset
    parameters = {**data.constants, **{name: value[:, None] for name, value in learned.items()}}
    local = likelihood.pointwise(data.y, f + known, parameters)
    precision = jnp.maximum(local.precision, 1e-6).astype(f.dtype)
    shift = (local.slope + precision * f).astype(f.dtype)
    return Sites(jnp.where(data.observed, precision, 0.0), jnp.where(data.observed, shift, 0.0))
