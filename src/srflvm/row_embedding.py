"""Latents of rows with any likelihood and any holes, under frozen weights.

With the weights at their posterior mean the log density of a row and its latent is, up to a constant,

    sum_m log p(y_m | f_m(x)) - |x|^2 / 2   over the observed entries.

It is climbed by damped Newton steps, with the observed curvature of the likelihood and the
Jacobian of f in the place of the Hessian (Levenberg-Marquardt, for Gaussian entries), from the best of the
similar anchors' latents. A row with nothing observed ends at the prior.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._types import FloatArray
from srflvm.compiling import quickly_compiled
from srflvm.embedding import Embedding
from srflvm.likelihoods import Likelihood
from srflvm.likelihoods._base import Expected
from srflvm.newton import Place, begin, go_on, inverse_root, jacobian
from srflvm.rowwise import Frozen, Rows, chunk_size, function_values, padded_chunks, split

_SMALLEST_PRECISION = 1e-8
_ROWS_AT_ONCE = 256


def embed_rows(
    likelihoods: tuple[Likelihood, ...], frozen: Frozen, rows: tuple[Rows, ...], starts: FloatArray
) -> Embedding:
    """Embed rows from candidate starting latents (n, k, Q). Runs in float64."""
    n_rows, _, n_latent = starts.shape
    size = chunk_size(n_rows, n_latent * max(frozen.weights.shape))
    with jax.enable_x64(True):
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


@partial(quickly_compiled, static_argnames="likelihoods")
def _solve_rows(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], starts: Array) -> tuple[Array, Array]:
    def loss_at(latents: Array) -> Array:
        return _loss(likelihoods, frozen, rows, latents)

    losses = jnp.stack([loss_at(starts[:, k]) for k in range(starts.shape[1])], axis=1)
    best = jnp.argmin(losses, axis=1)
    start = jnp.take_along_axis(starts, best[:, None, None], axis=1)[:, 0]
    evaluate = partial(_evaluate, likelihoods, frozen, rows)
    ended, hessian = go_on(evaluate, partial(_hessian, likelihoods, frozen, rows), begin(start))
    return ended.latents, inverse_root(hessian)


def _loss(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], latents: Array) -> Array:
    f, loss = function_values(frozen, latents), 0.5 * jnp.sum(latents**2, axis=1)
    for likelihood, mine, parameters, channels in split(likelihoods, frozen, rows):
        value = likelihood.log_prob(mine.y, f[:, channels] + mine.offset, parameters)
        loss -= jnp.sum(jnp.where(mine.observed, value, 0.0), axis=1)
    return loss


def _evaluate(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], latents: Array) -> Place:
    f, pull = jax.vjp(partial(function_values, frozen), latents)
    value, slopes = jnp.zeros(len(latents)), []
    for observed, local in _local_terms(likelihoods, frozen, rows, f):
        value += jnp.sum(jnp.where(observed, local.value, 0.0), axis=1)
        slopes.append(jnp.where(observed, local.slope, 0.0))
    loss = 0.5 * jnp.sum(latents**2, axis=1) - value
    return Place(loss, latents - pull(jnp.concatenate(slopes, axis=1))[0])


def _hessian(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], latents: Array) -> Array:
    slopes = jacobian(frozen.frequencies, frozen.weights[:-1], latents)
    precisions = [
        jnp.where(observed, jnp.maximum(local.precision, _SMALLEST_PRECISION), 0.0)
        for observed, local in _local_terms(likelihoods, frozen, rows, function_values(frozen, latents))
    ]
    weighted = slopes * jnp.concatenate(precisions, axis=1)[:, None, :]
    identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
    return identity + jnp.einsum("nqc,nrc->nqr", weighted, slopes)


def _local_terms(
    likelihoods, frozen: Frozen, rows: tuple[Rows, ...], f: Array
) -> list[tuple[Array, Expected]]:
    """What is observed of each group, with log p, its slope and its curvature at f."""
    return [
        (mine.observed, likelihood.pointwise(mine.y, f[:, channels] + mine.offset, parameters))
        for likelihood, mine, parameters, channels in split(likelihoods, frozen, rows)
    ]
