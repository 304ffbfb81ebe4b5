"""Joint draws of the latents, weights and noises of training rows, by Gibbs sampling.

q(X) and q(H) of a fit are independent, each about as narrow as if the other was known, and the noises are
numbers. Filled tables that are drawn from them differ too little from each other for multiple imputation. A
chain over all of them, given the rows that the model was fitted to, draws from their joint distribution.
Frequencies are held. Entries whose log density is not quadratic in f are held at their Gaussian sites, with
the precision and the target t = f + slope / precision that they have at the embedding. In turn,

- x_n has the log density -|x|^2 / 2 - sum_m precision_nm (t_nm - f_m(x))^2 / 2, and makes a Metropolis step.
  It is proposed from the Gaussian that f has if it is linear around the present x; for an affine function
  that is the conditional itself, and every step is accepted;
- h_m given X is Gaussian, a linear regression;
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

_SMALLEST_PRECISION = 1e-8

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
        state, spread = (
            _Draw(latents, weights, learned),
            self._prior_variances(np.ones(1 + self.frequencies.shape[1])),
        )
        fixed = self._sites(self._values(state), state.parameters)
        n_rounds = _FIRST_ROUNDS
        while True:
            for _ in range(n_rounds):
                state, spread = self._round(state, spread, fixed, rng)
            yield state
            n_rounds = _ROUNDS_BETWEEN

    def _round(
        self, state: _Draw, spread: FloatArray, fixed: _Sites, rng: np.random.RandomState
    ) -> tuple[_Draw, FloatArray]:
        """Draw everything once."""
        sites = self._renewed(fixed, state)
        state = state._replace(latents=self._move_latents(state, sites, rng))
        state = state._replace(weights=self._draw_weights(state, sites, spread, rng))
        state = state._replace(parameters=self._draw_parameters(state, rng))
        return state, self._draw_spread(state.weights, rng)

    def _values(self, state: _Draw) -> FloatArray:
        """Return f (N, C) without offsets."""
        return self._features(state.latents) @ state.weights + self.level

    def _features(self, latents: FloatArray) -> FloatArray:
        return layer_features(latents, self.frequencies, self.affine)

    # ---- sites ------------------------------------------------------------------------------------

    def _sites(self, f: FloatArray, parameters: _Parameters) -> _Sites:
        """Return the sites of all entries at f (N, C)."""
        parts = [
            _group_sites(group.likelihood, rows, learned, f[:, group.channels])
            for group, rows, learned in zip(self.layout.groups, self.encoded, parameters, strict=True)
        ]
        return _Sites(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))

    def _renewed(self, fixed: _Sites, state: _Draw) -> _Sites:
        """Return the sites with those of quadratic likelihoods at the present parameters."""
        target, precision = fixed.target.copy(), fixed.precision.copy()
        for group, rows, learned in zip(self.layout.groups, self.encoded, state.parameters, strict=True):
            if group.likelihood.is_quadratic:
                at = np.zeros(rows.y.shape)
                target[:, group.channels], precision[:, group.channels] = _group_sites(
                    group.likelihood, rows, learned, at
                )
        return _Sites(target, precision)

    # ---- conditionals -----------------------------------------------------------------------------

    def _move_latents(self, state: _Draw, sites: _Sites, rng: np.random.RandomState) -> FloatArray:
        """Make one Metropolis step of each row."""
        now = self._linearised(state.latents, state.weights, sites)
        noise = rng.standard_normal(state.latents.shape)
        root = np.swapaxes(np.linalg.cholesky(now.precision), 1, 2)
        proposed = now.mean + np.linalg.solve(root, noise[:, :, None])[:, :, 0]
        then = self._linearised(proposed, state.weights, sites)
        gain = then.log_density - now.log_density
        gain += then.log_proposal(state.latents) - now.log_proposal(proposed)
        is_accepted = np.log(rng.uniform(size=len(gain))) < gain
        return np.where(is_accepted[:, None], proposed, state.latents)

    def _linearised(self, latents: FloatArray, weights: FloatArray, sites: _Sites) -> _Linearised:
        """Return the log density of latents, and the Gaussian that it is if f is linear around them."""
        residual = sites.target - self._features(latents) @ weights - self.level
        slopes = jacobian(self.frequencies, weights[:-1], latents, self.affine)
        weighted = slopes * sites.precision[:, None, :]
        precision = np.eye(latents.shape[1]) + weighted @ np.swapaxes(slopes, 1, 2)
        gradient = np.einsum("nqc,nc->nq", weighted, residual) - latents
        mean = latents + np.linalg.solve(precision, gradient[:, :, None])[:, :, 0]
        log_density = -0.5 * (np.sum(latents**2, axis=1) + np.sum(sites.precision * residual**2, axis=1))
        return _Linearised(log_density, mean, precision)

    def _draw_weights(
        self, state: _Draw, sites: _Sites, spread: FloatArray, rng: np.random.RandomState
    ) -> FloatArray:
        """Draw the weights (L, C) of all channels, given prior variances (L, C)."""
        features = self._features(state.latents)
        weights = np.empty((features.shape[1], len(self.level)))
        for channel, precision in enumerate(sites.precision.T):
            weighted = features * precision[:, None]
            system = weighted.T @ features + np.diag(1.0 / spread[:, channel])
            root = np.linalg.cholesky(system)
            shift = weighted.T @ (sites.target[:, channel] - self.level[channel])
            noise = rng.standard_normal(len(shift))
            weights[:, channel] = np.linalg.solve(root.T, np.linalg.solve(root, shift) + noise)
        return weights

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


class _Sites(NamedTuple):
    """Targets and precisions (N, C) of all entries, without known terms; zero where nothing is observed."""

    target: FloatArray
    precision: FloatArray


class _Linearised(NamedTuple):
    """Log density (n,) of latents, and mean (n, Q) and precision (n, Q, Q) of the next proposal."""

    log_density: FloatArray
    mean: FloatArray
    precision: FloatArray

    def log_proposal(self, latents: FloatArray) -> FloatArray:
        """Return the log density of proposing latents, up to a constant."""
        apart = latents - self.mean
        square = np.einsum("nq,nqr,nr->n", apart, self.precision, apart, optimize=True)
        return 0.5 * (np.linalg.slogdet(self.precision)[1] - square)


def _group_sites(
    likelihood: Likelihood, rows: GroupRows, learned: dict[str, Any], f: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return targets and precisions (N, c) of the entries of a group at f without offsets."""
    filled = rows.filled()
    with in_float64():
        terms = _slopes(likelihood.of_channels, filled.y, f + rows.offset, {**filled.constants, **learned})
        slope, curvature = map(np.asarray, terms)
    precision = np.maximum(curvature, _SMALLEST_PRECISION)
    observed = rows.observed
    return np.where(observed, f + slope / precision, 0.0), np.where(observed, precision, 0.0)


@partial(quickly_compiled, static_argnames="likelihood")
def _slopes(likelihood: Likelihood, y: Any, f: Any, parameters: Any) -> tuple[Any, Any]:
    """Return the slope of log p in f, and minus its derivative."""
    local = likelihood.pointwise(y, f, parameters)
    return local.slope, local.precision
