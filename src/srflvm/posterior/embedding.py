"""Latents of rows with any likelihood and any missing entries, under a frozen model, each row on its own.

With the weights at their posterior mean the log density of a row and its latent is, up to a constant,

    sum_m log p(y_m | f_m(x)) - |x|^2 / 2   over the observed entries.

Its maximum is the latent that the mean function explains best, and that is too confident where the function
is uncertain and where the posterior of x is wide. Where every channel has weights of its own uncertainty,
what is maximised over the mean of q(x) = N(mean, S) is therefore the row's part of the evidence lower bound,

    E_q(x) [ sum_m { log p(y_m | f_m(x)) - 1/2 lambda_m phi(x)' V_m phi(x) } - |x|^2 / 2 ],

with lambda_m = -l'' of the entry: the second term is what E log p(y | f) over f ~ N(f_m, phi'V_m phi) loses,
to second order. lambda is taken at the latents that a round begins with, so that sum_m lambda_m V_m is one
matrix of each row. A first round has S = 0, a second the S that the first ends with; averages over q(x) are
over its cubature points, and with many latents over its mean alone.

All are climbed by damped Newton steps, with the observed curvature of the likelihood and the Jacobian of f in
the place of the Hessian (Levenberg-Marquardt, for Gaussian entries), from the best of the similar anchors'
latents; S is the inverse of that Hessian, averaged over q(x). A row with nothing observed ends at the prior.

Arrays are (n, c), rows first, and learned parameters (c,) or (1,) broadcast along them. No quantity is shared
between rows: a row gets the same answer alone and in any batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.data.encoding import GroupRows
from srflvm.likelihoods.base import Expected, Likelihood
from srflvm.numerics.features import MOST_LATENTS, cubature_points, jacobian, layer_features
from srflvm.numerics.jit import in_float64, quickly_compiled
from srflvm.numerics.newton import MOST_STEPS, Evaluate, Search, inverse_root
from srflvm.numerics.weight_covariances import WeightCovariances
from srflvm.posterior.chunks import Embedding, PaddedChunks

_SMALLEST_PRECISION = 1e-8

# Rows whose distances to all anchors are held at a time.
_ROWS_AT_ONCE = 256

# Most rows begin their second round within a few steps of its end.
_STEPS_OF_SECOND_ROUND = 10


class FrozenFunction(NamedTuple):
    """Function at the posterior mean of its weights.

    Frequencies are (F, Q), weights (L, C) with the constant's last, the level (C,), the scales of waves and
    latents (1 + Q,), or (0,) without an affine part; the learned parameters of each group are in a
    dictionary. The covariances of the weights are there if every channel has its own.
    """

    frequencies: Any
    affine: Any
    weights: Any
    level: Any
    parameters: tuple[dict[str, Any], ...]
    covariance: WeightCovariances | None = None

    def values(self, latents: Any) -> Any:
        """Return f without offsets at latents (n, Q): (n, C)."""
        return self.features(latents) @ self.weights + self.level

    def features(self, latents: Any) -> Any:
        """Return all features (n, L) of the layer."""
        return layer_features(latents, self.frequencies, self.affine)


class AnchorIndex:
    """Index of the nearest among given points (A, C), for rows of which some columns are not observed."""

    def __init__(self, points: FloatArray):
        self._points = points

    @cached_property
    def _squares(self) -> FloatArray:
        return self._points**2

    def nearest(self, rows: FloatArray, n_neighbours: int) -> np.ndarray:
        """Return the nearest points (n, k) of rows (n, C), NaN where not observed, in their observed columns.

        Of equally near points the first comes first.
        """
        count = min(n_neighbours, len(self._points))
        parts = [np.zeros((0, count), int)]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            observed = ~np.isnan(some)
            distances = observed @ self._squares.T - 2.0 * np.where(observed, some, 0.0) @ self._points.T
            parts.append(_smallest(distances, count))
        return np.concatenate(parts)


def _smallest(values: FloatArray, count: int) -> np.ndarray:
    """Return where the smallest of each row (n, A) are, in their order: (n, count)."""
    largest = np.partition(values, count - 1, axis=1)[:, count - 1 : count]
    # what is not a number is never larger, and comes last
    rows, columns = np.nonzero(~(values > largest))
    # both keys leave equal ones in their order, which is that of the columns
    columns = columns[np.lexsort((values[rows, columns], rows))]
    first = np.searchsorted(rows, np.arange(len(values)))
    return columns[first[:, None] + np.arange(count)]


def embed_rows(
    likelihoods: tuple[Likelihood, ...],
    function: FrozenFunction,
    rows: tuple[GroupRows, ...],
    starts: FloatArray,
    n_rounds: int = 2,
) -> Embedding:
    """Embed filled rows from candidate starting latents (n, k, Q), in float64.

    With a single round, which takes a fraction of the time of two, means are those for S = 0.
    """
    n_rows, _, n_latent = starts.shape
    numbers = n_latent * max(function.weights.shape)
    if function.covariance is not None:
        numbers += 2 * function.covariance.numbers_per_row
    chunks = PaddedChunks.for_rows(n_rows, numbers)
    with in_float64():
        function = jax.tree.map(jnp.asarray, function)
        parts = [
            _solve_rows(likelihoods, function, some, begins, n_rounds)
            for some, begins in chunks.cut((rows, starts))
        ]
        return Embedding(*chunks.join(parts))


@dataclass(frozen=True)
class _Objective:
    """Negative log density of rows as a function of their latents."""

    likelihoods: tuple[Likelihood, ...]
    function: FrozenFunction
    rows: tuple[GroupRows, ...]

    def loss(self, latents: Array) -> Array:
        """Return -log p(y, x) up to a constant, (n,)."""
        f, loss = self.function.values(latents), 0.5 * jnp.sum(latents**2, axis=1)
        for likelihood, mine, parameters, channels in self._groups():
            value = likelihood.log_prob(mine.y, f[:, channels] + mine.offset, parameters)
            loss -= jnp.sum(jnp.where(mine.observed, value, 0.0), axis=1)
        return loss

    def evaluate(self, latents: Array) -> tuple[Array, Array]:
        """Return the loss and its gradient."""
        f, pull = jax.vjp(self.function.values, latents)
        value, slopes = jnp.zeros(len(latents)), []
        for observed, local in self._local_terms(f):
            value += jnp.sum(jnp.where(observed, local.value, 0.0), axis=1)
            slopes.append(jnp.where(observed, local.slope, 0.0))
        loss = 0.5 * jnp.sum(latents**2, axis=1) - value
        return loss, latents - pull(jnp.concatenate(slopes, axis=1))[0]

    def hessian(self, latents: Array) -> Array:
        """Return I + J diag(lambda) J', (n, Q, Q)."""
        function = self.function
        slopes = jacobian(function.frequencies, function.weights[:-1], latents, function.affine)
        weighted = slopes * self.precisions(latents)[:, None, :]
        identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
        return identity + jnp.einsum("nqc,nrc->nqr", weighted, slopes)

    def precisions(self, latents: Array) -> Array:
        """Return lambda (n, C), zero where nothing is observed."""
        parts = [
            jnp.where(observed, jnp.maximum(local.precision, _SMALLEST_PRECISION), 0.0)
            for observed, local in self._local_terms(self.function.values(latents))
        ]
        return jnp.concatenate(parts, axis=1)

    def _local_terms(self, f: Array) -> list[tuple[Array, Expected]]:
        """Return what is observed of each group, with log p, its slope and its curvature at f."""
        return [
            (mine.observed, likelihood.pointwise(mine.y, f[:, channels] + mine.offset, parameters))
            for likelihood, mine, parameters, channels in self._groups()
        ]

    def _groups(self) -> Iterator[Any]:
        """Yield each group's likelihood, rows, parameters with constants, and slice of the channels."""
        start = 0
        for likelihood, mine, learned in zip(
            self.likelihoods, self.rows, self.function.parameters, strict=True
        ):
            channels = slice(start, start := start + mine.y.shape[1])
            yield likelihood, mine, {**mine.constants, **learned}, channels


def _solve_rows(
    likelihoods: Any, function: FrozenFunction, rows: tuple[GroupRows, ...], starts: Array, n_rounds: int
) -> tuple[Array, Array]:
    start = _best_of(likelihoods, function, rows, starts)
    n_latent, is_uncertain = start.shape[1], function.covariance is not None
    n_points = 2 * n_latent if is_uncertain and n_latent <= MOST_LATENTS else 1
    steps = np.zeros((n_points, *start.shape))
    latents, root = _round(likelihoods, function, rows, start, steps, 1, MOST_STEPS)
    if n_rounds == 1:
        return latents, root
    if n_points > 1:
        steps = cubature_points(steps[0], np.asarray(root))
    if is_uncertain:
        last = n_points, _STEPS_OF_SECOND_ROUND
        latents, root = _round(likelihoods, function, rows, latents, steps, *last)
    return latents, root


@partial(quickly_compiled, static_argnames="likelihoods")
def _best_of(likelihoods: Any, function: FrozenFunction, rows: tuple[GroupRows, ...], starts: Array) -> Array:
    """Return those of several starting latents (n, k, Q) with the lowest loss."""
    objective = _Objective(likelihoods, function, rows)
    losses = jax.lax.map(objective.loss, jnp.moveaxis(starts, 1, 0))
    best = jnp.argmin(losses, axis=0)
    return jnp.take_along_axis(starts, best[:, None, None], axis=1)[:, 0]


@partial(quickly_compiled, static_argnames="likelihoods")
def _round(
    likelihoods: Any,
    function: FrozenFunction,
    rows: tuple[GroupRows, ...],
    start: Array,
    steps: Array,
    n_points: int,
    n_steps: int,
) -> tuple[Array, Array]:
    """Return the best means of q(x) and the roots of S.

    q(x) is represented by the first points of steps (K, n, Q) away from its mean. The number of points is no
    part of the compiled program, which serves both rounds.
    """
    objective = _Objective(likelihoods, function, rows)
    penalty = _penalty_of_uncertain_weights(function, objective.precisions(start))

    def evaluate(latents: Array) -> tuple[Array, Array]:
        return jax.tree.map(jnp.add, objective.evaluate(latents), penalty(latents))

    averaged = partial(_averaged, steps, n_points)
    ended, _ = Search.begin(start).advance(averaged(evaluate), objective.hessian, n_steps)
    return ended.latents, inverse_root(averaged(objective.hessian)(ended.latents))


def _averaged(steps: Array, n_points: int, function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Return the mean of a function at latents + step, over the first of the steps."""

    def at(latents: Array) -> Any:
        def add(index: Array, total: Any) -> Any:
            return jax.tree.map(jnp.add, total, function(latents + steps[index]))

        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, latents))
        return jax.tree.map(lambda total: total / n_points, jax.lax.fori_loop(0, n_points, add, zeros))

    return at


def _penalty_of_uncertain_weights(function: FrozenFunction, precisions: Array) -> Evaluate:
    """Return 1/2 phi'(sum_m lambda_m V_m) phi of each row and its gradient, as functions of the latents."""
    if function.covariance is None:
        return lambda latents: (jnp.zeros(len(latents)), jnp.zeros_like(latents))
    of_features = function.covariance.weighted_penalty(precisions)

    def penalty(latents: Array) -> tuple[Array, Array]:
        features, pull = jax.vjp(function.features, latents)
        value, slope = of_features(features)
        return value, pull(slope)[0]

    return penalty
