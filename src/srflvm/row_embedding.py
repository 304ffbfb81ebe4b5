"""Latents of rows with any likelihood and any holes, under frozen weights.

With the weights at their posterior mean the log density of a row and its latent is, up to a constant,

    sum_m log p(y_m | f_m(x)) - |x|^2 / 2   over the observed entries.

It is climbed by a fixed number of damped Newton steps, with the observed curvature of the likelihood and the
Jacobian of f in the place of the Hessian (Levenberg-Marquardt, for Gaussian entries), from the best of the
similar anchors' latents. A row with nothing observed ends at the prior.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._types import FloatArray
from srflvm.embedding import Embedding, inverse_root, levenberg_marquardt
from srflvm.features import fourier_features
from srflvm.likelihoods import Likelihood
from srflvm.rowwise import Frozen, Rows, chunk_size, function_values, padded_chunks, split

_SMALLEST_PRECISION = 1e-8
_ANCHORS_AT_ONCE = 1024


class Local(NamedTuple):
    """The loss at a point, with its gradient (n, Q) and approximate Hessian (n, Q, Q)."""

    loss: Array
    gradient: Array
    hessian: Array


def embed_rows(
    likelihoods: tuple[Likelihood, ...], frozen: Frozen, rows: tuple[Rows, ...], starts: FloatArray
) -> Embedding:
    """Embed rows from candidate starting latents (n, k, Q). Runs in float64."""
    n_rows, _, n_latent = starts.shape
    size = chunk_size(n_rows, n_latent * frozen.weights.shape[1])
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
    for start in range(0, len(working), _ANCHORS_AT_ONCE):
        rows = working[start : start + _ANCHORS_AT_ONCE]
        observed = ~np.isnan(rows)
        distances = observed @ squares.T - 2.0 * np.where(observed, rows, 0.0) @ anchor_working.T
        count = min(n_neighbours, len(anchor_working))
        parts.append(np.argsort(distances, axis=1, kind="stable")[:, :count])
    return np.concatenate(parts)


@partial(jax.jit, static_argnames="likelihoods")
def _solve_rows(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], starts: Array) -> tuple[Array, Array]:
    def loss_at(latents: Array) -> Array:
        return _loss(likelihoods, frozen, rows, latents)

    losses = jnp.stack([loss_at(starts[:, k]) for k in range(starts.shape[1])], axis=1)
    best = jnp.argmin(losses, axis=1)
    start = jnp.take_along_axis(starts, best[:, None, None], axis=1)[:, 0]
    latents, end = levenberg_marquardt(partial(_evaluate, likelihoods, frozen, rows), start)
    return latents, inverse_root(end.hessian)


def _loss(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], latents: Array) -> Array:
    f, loss = function_values(frozen, latents), 0.5 * jnp.sum(latents**2, axis=1)
    for likelihood, mine, parameters, channels in split(likelihoods, frozen, rows):
        value = likelihood.log_prob(mine.y, f[:, channels] + mine.offset, parameters)
        loss -= jnp.sum(jnp.where(mine.observed, value, 0.0), axis=1)
    return loss


def _evaluate(likelihoods, frozen: Frozen, rows: tuple[Rows, ...], latents: Array) -> Local:
    f, jacobian = _function_and_jacobian(frozen, latents)
    value, slopes, precisions = jnp.zeros(len(latents)), [], []
    for likelihood, mine, parameters, channels in split(likelihoods, frozen, rows):
        local = likelihood.pointwise(mine.y, f[:, channels] + mine.offset, parameters)
        value += jnp.sum(jnp.where(mine.observed, local.value, 0.0), axis=1)
        slopes.append(jnp.where(mine.observed, local.slope, 0.0))
        positive = jnp.maximum(local.precision, _SMALLEST_PRECISION)
        precisions.append(jnp.where(mine.observed, positive, 0.0))
    slope, precision = jnp.concatenate(slopes, axis=1), jnp.concatenate(precisions, axis=1)
    gradient = latents - jnp.einsum("nqc,nc->nq", jacobian, slope)
    weighted = jacobian * precision[:, None, :]
    identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
    hessian = identity + jnp.einsum("nqc,nrc->nqr", weighted, jacobian)
    return Local(0.5 * jnp.sum(latents**2, axis=1) - value, gradient, hessian)


def _function_and_jacobian(frozen: Frozen, latents: Array) -> tuple[Array, Array]:
    """f (n, C) and its derivatives in the latents (n, Q, C)."""
    features = fourier_features(latents, frozen.frequencies)
    n_frequencies = len(frozen.frequencies)
    sine, cosine = features[:, :n_frequencies], features[:, n_frequencies:]
    slopes = jnp.concatenate([cosine, -sine], axis=1)
    twice = jnp.concatenate([frozen.frequencies, frozen.frequencies])
    directions = slopes[:, None, :] * twice.T[None, :, :]
    weights = frozen.weights[:-1]
    n_rows, n_latent = latents.shape
    jacobian = (directions.reshape(n_rows * n_latent, -1) @ weights).reshape(n_rows, n_latent, -1)
    return function_values(frozen, latents), jacobian
