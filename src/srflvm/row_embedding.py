"""Latents of rows with any likelihood and any holes, under a frozen model.

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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm import pairs
from srflvm._types import FloatArray
from srflvm.compiling import quickly_compiled
from srflvm.computing import in_float64
from srflvm.cubature import MOST_LATENTS, cubature_points
from srflvm.embedding import Embedding
from srflvm.features import fourier_features
from srflvm.layers import with_constant
from srflvm.likelihoods import Likelihood
from srflvm.likelihoods._base import Expected
from srflvm.newton import MOST_STEPS, Place, begin, go_on, inverse_root, jacobian
from srflvm.rowwise import Frozen, Rows, chunk_size, function_values, padded_chunks, split

_SMALLEST_PRECISION = 1e-8
_ROWS_AT_ONCE = 256

# Most rows begin their second round within a few steps of its end.
_STEPS_OF_SECOND_ROUND = 10

# Numbers of packed covariances that are in double precision at a time.
_MOST_CONVERTED = 5_000_000


def embed_rows(
    likelihoods: tuple[Likelihood, ...], frozen: Frozen, rows: tuple[Rows, ...], starts: FloatArray
) -> Embedding:
    """Embed rows from candidate starting latents (n, k, Q). Runs in float64."""
    n_rows, _, n_latent = starts.shape
    numbers = n_latent * max(frozen.weights.shape)
    if frozen.packed_covariance is not None:
        numbers += len(frozen.weights) ** 2
    size = chunk_size(n_rows, numbers)
    with in_float64():
        frozen = jax.tree.map(jnp.asarray, frozen)
        chunks = padded_chunks((rows, starts), n_rows, size)
        parts = [_solve_rows(likelihoods, frozen, *chunk) for chunk in chunks]
        mean, cholesky = (np.concatenate(arrays)[:n_rows] for arrays in zip(*parts, strict=True))
    return Embedding(mean, cholesky)


def similar_anchors(working: FloatArray, anchor_working: FloatArray, n_neighbours: int) -> np.ndarray:
    """Of each row (n, C), NaN where not observed, the nearest anchors (n, k) in the observed columns."""
    parts = []
    squares = anchor_working**2
    for start in range(0, len(working), _ROWS_AT_ONCE):
        rows = working[start : start + _ROWS_AT_ONCE]
        observed = ~np.isnan(rows)
        distances = observed @ squares.T - 2.0 * np.where(observed, rows, 0.0) @ anchor_working.T
        count = min(n_neighbours, len(anchor_working))
        # a copy, for a view would keep the order of all anchors for every row
        parts.append(np.argsort(distances, axis=1, kind="stable")[:, :count].copy())
    return np.concatenate(parts)


@dataclass(frozen=True)
class _Task:
    """Rows to be placed under a model."""

    likelihoods: tuple[Likelihood, ...]
    frozen: Frozen
    rows: tuple[Rows, ...]

    def loss(self, latents: Array) -> Array:
        """-log p(y, x) up to a constant, (n,)."""
        f, loss = function_values(self.frozen, latents), 0.5 * jnp.sum(latents**2, axis=1)
        for likelihood, mine, parameters, channels in split(self.likelihoods, self.frozen, self.rows):
            value = likelihood.log_prob(mine.y, f[:, channels] + mine.offset, parameters)
            loss -= jnp.sum(jnp.where(mine.observed, value, 0.0), axis=1)
        return loss

    def evaluate(self, latents: Array) -> Place:
        """The loss and its gradient."""
        f, pull = jax.vjp(partial(function_values, self.frozen), latents)
        value, slopes = jnp.zeros(len(latents)), []
        for observed, local in self._local_terms(f):
            value += jnp.sum(jnp.where(observed, local.value, 0.0), axis=1)
            slopes.append(jnp.where(observed, local.slope, 0.0))
        loss = 0.5 * jnp.sum(latents**2, axis=1) - value
        return Place(loss, latents - pull(jnp.concatenate(slopes, axis=1))[0])

    def hessian(self, latents: Array) -> Array:
        """I + J diag(lambda) J', (n, Q, Q)."""
        slopes = jacobian(self.frozen.frequencies, self.frozen.weights[:-1], latents)
        weighted = slopes * self.precisions(latents)[:, None, :]
        identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
        return identity + jnp.einsum("nqc,nrc->nqr", weighted, slopes)

    def precisions(self, latents: Array) -> Array:
        """lambda (n, C), zero where nothing is observed."""
        parts = [
            jnp.where(observed, jnp.maximum(local.precision, _SMALLEST_PRECISION), 0.0)
            for observed, local in self._local_terms(function_values(self.frozen, latents))
        ]
        return jnp.concatenate(parts, axis=1)

    def _local_terms(self, f: Array) -> list[tuple[Array, Expected]]:
        """What is observed of each group, with log p, its slope and its curvature at f."""
        return [
            (mine.observed, likelihood.pointwise(mine.y, f[:, channels] + mine.offset, parameters))
            for likelihood, mine, parameters, channels in split(self.likelihoods, self.frozen, self.rows)
        ]


def _solve_rows(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], starts: Array) -> tuple[Array, Array]:
    start = _best_of(likelihoods, frozen, rows, starts)
    n_latent, is_uncertain = start.shape[1], frozen.packed_covariance is not None
    n_points = 2 * n_latent if is_uncertain and n_latent <= MOST_LATENTS else 1
    steps = np.zeros((n_points, *start.shape))
    latents, root = _round(likelihoods, frozen, rows, start, steps, 1, MOST_STEPS)
    if n_points > 1:
        steps = cubature_points(steps[0], np.asarray(root))
    if is_uncertain:
        last = n_points, _STEPS_OF_SECOND_ROUND
        latents, root = _round(likelihoods, frozen, rows, latents, steps, *last)
    return latents, root


@partial(quickly_compiled, static_argnames="likelihoods")
def _best_of(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], starts: Array) -> Array:
    """Of several starting latents (n, k, Q) those with the lowest loss."""
    task = _Task(likelihoods, frozen, rows)
    losses = jax.lax.map(task.loss, jnp.moveaxis(starts, 1, 0))
    best = jnp.argmin(losses, axis=0)
    return jnp.take_along_axis(starts, best[:, None, None], axis=1)[:, 0]


@partial(quickly_compiled, static_argnames="likelihoods")
def _round(
    likelihoods,
    frozen: Frozen,
    rows: tuple[Rows, ...],
    start: Array,
    steps: Array,
    n_points: int,
    n_steps: int,
) -> tuple[Array, Array]:
    """The best means of q(x), which is represented by the first points of steps (K, n, Q) away from them, and
    the roots of S. The number of points is no part of the compiled program, which serves both rounds."""
    task = _Task(likelihoods, frozen, rows)
    penalty = _penalty_of_uncertain_weights(frozen, task.precisions(start))

    def evaluate(latents: Array) -> Place:
        return jax.tree.map(jnp.add, task.evaluate(latents), penalty(latents))

    averaged = partial(_averaged, steps, n_points)
    ended, _ = go_on(averaged(evaluate), task.hessian, begin(start), n_steps)
    return ended.latents, inverse_root(averaged(task.hessian)(ended.latents))


def _averaged(steps: Array, n_points: int, function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """The mean of a function at latents + step, over the first of the steps."""

    def at(latents: Array) -> Any:
        def add(index: Array, total: Any) -> Any:
            return jax.tree.map(jnp.add, total, function(latents + steps[index]))

        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, latents))
        return jax.tree.map(lambda total: total / n_points, jax.lax.fori_loop(0, n_points, add, zeros))

    return at


def _penalty_of_uncertain_weights(frozen: Frozen, precisions: Array) -> Callable[[Array], Place]:
    """1/2 phi'(sum_m lambda_m V_m) phi of each row and its gradient, as functions of the latents."""
    if frozen.packed_covariance is None:
        return lambda latents: Place(jnp.zeros(len(latents)), jnp.zeros_like(latents))
    covariances = _summed_covariances(frozen.packed_covariance, len(frozen.weights), precisions)

    def penalty(latents: Array) -> Place:
        features, pull = jax.vjp(lambda x: with_constant(fourier_features(x, frozen.frequencies)), latents)
        slope = jnp.einsum("nij,nj->ni", covariances, features)
        return Place(0.5 * jnp.sum(features * slope, axis=1), pull(slope)[0])

    return penalty


def _summed_covariances(packed: Array, size: int, precisions: Array) -> Array:
    """sum_m lambda_nm V_m of each row, (n, L, L), in blocks of channels."""
    n_channels, n_pairs = packed.shape
    block = max(1, min(n_channels, _MOST_CONVERTED // n_pairs))

    def add(index: Array, total: Array) -> Array:
        # the last block begins where it ends with the channels; what was seen before counts nothing
        first = jnp.minimum(index * block, n_channels - block)
        is_new = first + jnp.arange(block) >= index * block
        some = jax.lax.dynamic_slice_in_dim(packed, first, block).astype(total.dtype)
        weights = jax.lax.dynamic_slice_in_dim(precisions, first, block, axis=1)
        return total + jnp.where(is_new, weights, 0.0) @ some

    total = jnp.zeros((len(precisions), n_pairs))
    return pairs.unpack_form(jax.lax.fori_loop(0, -(-n_channels // block), add, total), size)
