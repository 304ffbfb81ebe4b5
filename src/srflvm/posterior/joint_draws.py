"""Joint draws of the latents, weights and noises of training rows, by a Markov chain.

q(X) and q(H) of a fit are independent, each about as narrow as if the other was known, and the noises are
numbers. Filled tables that are drawn from them differ too little from each other for multiple imputation. A
chain over all of them, given the rows that the model was fitted to, draws from their joint distribution.
Frequencies are held. In turn,

- x_n makes a Metropolis step. With slopes s_m and precisions lambda_m of log p(y_m | f_m) at the present f it
  is proposed from the Gaussian that it has if log p is quadratic in f, and f linear in x, around there. For
  Gaussian entries and an affine function that is the conditional itself, and every step is accepted;
- h_m makes one too, proposed from the regression with the same slopes and precisions: for Gaussian columns
  again the conditional itself;
- the likelihoods draw parameters that they know the conditional of, such as noises, given f;
- the prior variances of the weights of the waves, and of those of each latent, are inverse gamma.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.encoding import GroupRows, Layout
from srflvm.likelihoods.base import Likelihood
from srflvm.numerics.features import jacobian, layer_features
from srflvm.numerics.jit import in_float64, quickly_compiled

# Rounds before the first draw, and between draws. More of them moved pooled intervals by less than their
# Monte Carlo error.
_FIRST_ROUNDS = 50
_ROUNDS_BETWEEN = 10

# Products of a round, N C L^2, up to which a chain is affordable. In larger tables weights are known so well
# that it adds little.
_MOST_PRODUCTS = 2e8

# The prior of a prior variance, relative to that of the fit, is inverse gamma with this shape and scale.
_VARIANCE_SHAPE = 0.5
_VARIANCE_SCALE = 0.5

_Parameters = tuple[dict[str, FloatArray], ...]


class _Draw(NamedTuple):
    """One draw: latents (N, Q), weights (L, C), and the learned parameters of each group."""

    latents: FloatArray
    weights: FloatArray
    parameters: _Parameters


class Chain(NamedTuple):
    """What a chain holds fixed: features, prior variances (C,) of weights, and the rows as channels."""

    layout: Layout
    encoded: tuple[GroupRows, ...]
    frequencies: FloatArray
    affine: FloatArray
    level: FloatArray
    amplitude: FloatArray

    def is_affordable(self) -> bool:
        """Tell whether the rounds of a chain take seconds at most."""
        n_rows = len(self.encoded[0].y)
        n_features = 2 * len(self.frequencies) + self.frequencies.shape[1] + 1
        return n_rows * len(self.level) * n_features**2 <= _MOST_PRODUCTS

    def draws(
        self, latents: FloatArray, weights: FloatArray, parameters: Any, rng: np.random.RandomState
    ) -> Iterator[_Draw]:
        """Yield draws without end, beginning at the latents, weights and learned parameters of a fit."""
        learned: Any = tuple(
            {name: np.asarray(value, np.float64) for name, value in own.items()} for own in parameters
        )
        state = _Draw(latents, weights, learned)
        spread = self._prior_variances(np.ones(1 + self.frequencies.shape[1]))
        n_rounds = _FIRST_ROUNDS
        while True:
            for _ in range(n_rounds):
                state, spread = self._round(state, spread, rng)
            yield state
            n_rounds = _ROUNDS_BETWEEN

    def _round(
        self, state: _Draw, spread: FloatArray, rng: np.random.RandomState
    ) -> tuple[_Draw, FloatArray]:
        """Draw everything once."""
        state = state._replace(latents=self._move_latents(state, rng))
        state = state._replace(weights=self._move_weights(state, spread, rng))
        state = state._replace(parameters=self._draw_parameters(state, rng))
        return state, self._draw_spread(state.weights, rng)

    def _features(self, latents: FloatArray) -> FloatArray:
        return layer_features(latents, self.frequencies, self.affine)

    def _values(self, state: _Draw) -> FloatArray:
        """Return f (N, C) without offsets."""
        return self._features(state.latents) @ state.weights + self.level

    def _local(self, f: FloatArray, parameters: _Parameters) -> _Local:
        """Return log p of all entries at f (N, C), its slopes and its precisions."""
        parts = [
            _group_local(group.likelihood, rows, learned, f[:, group.channels])
            for group, rows, learned in zip(self.layout.groups, self.encoded, parameters, strict=True)
        ]
        return _Local(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))

    # ---- latents ----------------------------------------------------------------------------------

    def _move_latents(self, state: _Draw, rng: np.random.RandomState) -> FloatArray:
        """Make one Metropolis step of each row."""
        now = self._around(state)
        noise = rng.standard_normal(state.latents.shape)
        root = np.swapaxes(np.linalg.cholesky(now.precision), 1, 2)
        proposed = now.mean + np.linalg.solve(root, noise[:, :, None])[:, :, 0]
        then = self._around(state._replace(latents=proposed))
        gain = then.log_density - now.log_density
        gain += then.log_proposal(state.latents) - now.log_proposal(proposed)
        is_accepted = np.log(rng.uniform(size=len(gain))) < gain
        return np.where(is_accepted[:, None], proposed, state.latents)

    def _around(self, state: _Draw) -> _Around:
        """Return the log density of the latents, and the Gaussian from which the next are proposed."""
        latents = state.latents
        local = self._local(self._values(state), state.parameters)
        slopes = jacobian(self.frequencies, state.weights[:-1], latents, self.affine)
        weighted = slopes * local.precision[:, None, :]
        precision = np.eye(latents.shape[1]) + weighted @ np.swapaxes(slopes, 1, 2)
        gradient = np.einsum("nqc,nc->nq", slopes, local.slope) - latents
        mean = latents + np.linalg.solve(precision, gradient[:, :, None])[:, :, 0]
        log_density = np.sum(local.value, axis=1) - 0.5 * np.sum(latents**2, axis=1)
        return _Around(log_density, mean, precision)

    # ---- weights ----------------------------------------------------------------------------------

    def _move_weights(self, state: _Draw, spread: FloatArray, rng: np.random.RandomState) -> FloatArray:
        """Make one Metropolis step of the weights of each channel, given prior variances (L, C)."""
        features = self._features(state.latents)
        now = self._regression(features, state.weights, spread, state.parameters, self._every_channel)
        noise = rng.standard_normal(state.weights.shape)
        steps = [np.linalg.solve(root.T, own) for root, own in zip(now.roots, noise.T, strict=True)]
        proposed = now.means + np.stack(steps, axis=1)
        uncertain = self._channels_not_quadratic
        if uncertain.size:
            then = self._regression(features, proposed, spread, state.parameters, uncertain)
            gain = then.log_density - now.log_density[uncertain]
            gain += then.log_proposal(state.weights[:, uncertain])
            gain -= now.take(uncertain).log_proposal(proposed[:, uncertain])
            refused = uncertain[np.log(rng.uniform(size=uncertain.size)) >= gain]
            proposed[:, refused] = state.weights[:, refused]
        return proposed

    def _regression(
        self,
        features: FloatArray,
        weights: FloatArray,
        spread: FloatArray,
        parameters: _Parameters,
        channels: np.ndarray,
    ) -> _Regression:
        """Return the log density of the weights of some channels, and the Gaussians of the next proposals."""
        local = self._local(features @ weights + self.level, parameters)
        roots, means, log_density = [], [], []
        for channel in channels:
            own, prior = weights[:, channel], spread[:, channel]
            system = (features * local.precision[:, channel, None]).T @ features + np.diag(1.0 / prior)
            root = np.linalg.cholesky(system)
            gradient = features.T @ local.slope[:, channel] - own / prior
            roots.append(root)
            means.append(own + np.linalg.solve(root.T, np.linalg.solve(root, gradient)))
            log_density.append(np.sum(local.value[:, channel]) - 0.5 * np.sum(own**2 / prior))
        return _Regression(np.stack(roots), np.stack(means, axis=1), np.array(log_density))

    @property
    def _every_channel(self) -> np.ndarray:
        return np.arange(len(self.level))

    @property
    def _channels_not_quadratic(self) -> np.ndarray:
        """Return the channels whose proposals are not their conditionals."""
        parts = [
            self._every_channel[group.channels]
            for group in self.layout.groups
            if not group.likelihood.is_quadratic
        ]
        return np.concatenate([np.zeros(0, int), *parts])

    # ---- parameters and prior variances -----------------------------------------------------------

    def _draw_parameters(self, state: _Draw, rng: np.random.RandomState) -> _Parameters:
        f = self._values(state)
        return tuple(
            group.likelihood.draw_parameters(
                rows.y, rows.observed, f[:, group.channels] + rows.offset, rows.constants, learned, rng
            )
            for group, rows, learned in zip(self.layout.groups, self.encoded, state.parameters, strict=True)
        )

    def _draw_spread(self, weights: FloatArray, rng: np.random.RandomState) -> FloatArray:
        """Draw the prior variances (L, C) of the weights, of waves and of each latent for all channels."""
        squares = np.sum(weights**2 / self.amplitude, axis=1)
        n_waves, n_channels = 2 * len(self.frequencies), weights.shape[1]
        n_slopes = self.frequencies.shape[1] if len(self.affine) else 0
        blocks = [squares[:n_waves], *squares[n_waves : n_waves + n_slopes, None]]
        shapes = np.array([_VARIANCE_SHAPE + 0.5 * n_channels * len(block) for block in blocks])
        scales = np.array([_VARIANCE_SCALE + 0.5 * np.sum(block) for block in blocks])
        return self._prior_variances(scales / rng.gamma(shapes))

    def _prior_variances(self, relative: FloatArray) -> FloatArray:
        """Return prior variances (L, C) from those of waves and latents relative to the fit's."""
        n_waves, n_latent = 2 * len(self.frequencies), self.frequencies.shape[1]
        n_slopes = n_latent if len(self.affine) else 0
        n_features = self._features(np.zeros((1, n_latent))).shape[1]
        of_features = np.ones(n_features)
        of_features[:n_waves] = relative[0]
        of_features[n_waves : n_waves + n_slopes] = relative[1 : 1 + n_slopes]
        return of_features[:, None] * self.amplitude


class _Local(NamedTuple):
    """Log p of all entries, its slopes and its precisions (N, C); zero where nothing is observed."""

    value: FloatArray
    slope: FloatArray
    precision: FloatArray


class _Around(NamedTuple):
    """Log density (n,) of latents, and mean (n, Q) and precision (n, Q, Q) of the next proposal."""

    log_density: FloatArray
    mean: FloatArray
    precision: FloatArray

    def log_proposal(self, latents: FloatArray) -> FloatArray:
        """Return the log density of proposing latents, up to a constant."""
        apart = latents - self.mean
        square = np.einsum("nq,nqr,nr->n", apart, self.precision, apart, optimize=True)
        return 0.5 * (np.linalg.slogdet(self.precision)[1] - square)


class _Regression(NamedTuple):
    """Cholesky roots (c, L, L) of precisions and means (L, c) of proposals, and log densities (c,)."""

    roots: FloatArray
    means: FloatArray
    log_density: FloatArray

    def take(self, channels: np.ndarray) -> _Regression:
        """Return those of some channels."""
        return _Regression(self.roots[channels], self.means[:, channels], self.log_density[channels])

    def log_proposal(self, weights: FloatArray) -> FloatArray:
        """Return the log densities of proposing weights (L, c), up to a constant."""
        standard = np.einsum("cij,ic->jc", self.roots, weights - self.means)
        logs = np.log(np.diagonal(self.roots, axis1=1, axis2=2))
        return np.sum(logs, axis=1) - 0.5 * np.sum(standard**2, axis=0)


def _group_local(
    likelihood: Likelihood, rows: GroupRows, learned: dict[str, Any], f: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log p, slopes and precisions (N, c) of the entries of a group at f without offsets."""
    filled = rows.filled()
    with in_float64():
        terms = _pointwise(likelihood.of_channels, filled.y, f + rows.offset, {**filled.constants, **learned})
        value, slope, precision = (np.where(rows.observed, np.asarray(part), 0.0) for part in terms)
    return value, slope, np.maximum(precision, 0.0)


@partial(quickly_compiled, static_argnames="likelihood")
def _pointwise(likelihood: Likelihood, y: Any, f: Any, parameters: Any) -> tuple[Any, Any, Any]:
    local = likelihood.pointwise(y, f, parameters)
    return local.value, local.slope, local.precision
