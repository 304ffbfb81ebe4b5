"""The log density of rows with any likelihood and any holes, and of single entries.

Rows: importance sampling around the row's embedding, as in `scoring`. Entries held out of the embedding: the
density averaged over the cubature points of the row's latent. In both, p(y | x) integrates over the weights
too, through the Gaussian of f at x.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import logsumexp
from scipy.stats import norm

from srflvm._types import FloatArray
from srflvm.compiling import quickly_compiled
from srflvm.computing import in_float64
from srflvm.cubature import cubature_points
from srflvm.embedding import Embedding
from srflvm.rowwise import padded_chunks, rows_of
from srflvm.scoring import WIDENING, quasi_normals

if TYPE_CHECKING:
    from srflvm.observations import Encoded
    from srflvm.posterior import Posterior

_ROWS_AT_ONCE = 8


def log_density(posterior: Posterior, placed: Embedding, encoded: Sequence[Encoded]) -> FloatArray:
    """log p(y) of each row (n,) over its observed entries, in model units."""
    normals = quasi_normals(placed.mean.shape[1])
    steps = WIDENING * np.einsum("nqr,tr->ntq", placed.cholesky, normals)
    latents = placed.mean[:, None, :] + steps
    log_prior = np.sum(norm.logpdf(latents), axis=-1)
    log_stds = np.log(WIDENING * np.diagonal(placed.cholesky, axis1=1, axis2=2))
    log_proposal = np.sum(norm.logpdf(normals), axis=-1) - np.sum(log_stds, axis=1)[:, None]
    observed = np.concatenate([rows.observed for rows in encoded], axis=1)
    parts = [
        np.sum(np.where(observed[rows][:, None, :], log_probs, 0.0), axis=-1)
        for rows, log_probs in _log_probs(posterior, latents, encoded)
    ]
    ratios = np.concatenate(parts) + log_prior - log_proposal
    return logsumexp(ratios, axis=1) - np.log(len(normals))


def entry_log_density(posterior: Posterior, placed: Embedding, encoded: Sequence[Encoded]) -> FloatArray:
    """log p(y_nc) of each channel (n, C), NaN where not observed, in model units."""
    points = np.moveaxis(cubature_points(placed.mean, placed.cholesky), 0, 1)
    observed = np.concatenate([rows.observed for rows in encoded], axis=1)
    parts = [
        logsumexp(log_probs, axis=1) - np.log(points.shape[1])
        for _, log_probs in _log_probs(posterior, points, encoded)
    ]
    return np.where(observed, np.concatenate(parts), np.nan)


def _log_probs(posterior: Posterior, latents: FloatArray, encoded: Sequence[Encoded]):
    """log p(y_nc | x_nt) (n, T, C) for latents (n, T, Q), a few rows at a time."""
    n_rows, n_points, n_latent = latents.shape
    parameters = posterior.frozen.parameters
    with in_float64():
        chunks = padded_chunks((latents, rows_of(encoded)), n_rows, _ROWS_AT_ONCE)
        for start, (points, rows) in zip(range(0, n_rows, _ROWS_AT_ONCE), chunks, strict=True):
            mean, variance = posterior.function_moments(np.asarray(points).reshape(-1, n_latent))
            shape = (_ROWS_AT_ONCE, n_points, -1)
            values = _predictive(
                posterior.likelihoods, parameters, rows, mean.reshape(shape), variance.reshape(shape)
            )
            here = slice(start, min(start + _ROWS_AT_ONCE, n_rows))
            yield here, np.asarray(values)[: here.stop - start]


@partial(quickly_compiled, static_argnames="likelihoods")
def _predictive(likelihoods, parameters, rows, mean: Array, variance: Array) -> Array:
    parts, start = [], 0
    variance = jnp.broadcast_to(variance, mean.shape)
    for likelihood, mine, learned in zip(likelihoods, rows, parameters, strict=True):
        channels = slice(start, start := start + mine.y.shape[1])
        constants = {name: value[:, None, :] for name, value in mine.constants.items()}
        total = mean[..., channels] + mine.offset[:, None, :]
        y = jnp.broadcast_to(mine.y[:, None, :], total.shape)
        parts.append(likelihood.log_predictive(y, total, variance[..., channels], {**constants, **learned}))
    return jnp.concatenate(parts, axis=-1)
