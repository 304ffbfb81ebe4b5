"""The log density of complete Gaussian rows.

log p(y) = log integral p(y | x) N(x; 0, I) dx has no closed form. It is estimated by importance sampling
from the row's own embedding N(x*, S), a little widened: the log of an unbiased estimate, hence in
expectation a lower bound that tightens as draws are added. The draws are quasi-random and the same for
every row and every call, so the estimate is deterministic and a row's value does not depend on its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm, qmc

from srflvm._types import FloatArray
from srflvm.embedding import Embedding, embed

if TYPE_CHECKING:
    from srflvm.gaussian_posterior import GaussianPosterior

N_DRAWS = 64

WIDENING = 1.2
_ROWS_AT_ONCE = 64


def complete_log_density(posterior: GaussianPosterior, Y: FloatArray) -> FloatArray:
    """An importance-weighted estimate of log p(y) for each raw row, in the units of the data."""
    standardised = posterior.columns.standardise(Y)
    placed = embed(posterior, standardised @ posterior.columns.directions)
    normals = quasi_normals(placed.mean.shape[1])
    second = posterior.weights @ posterior.weights.T
    parts = [
        _chunk_density(posterior, second, standardised[rows], _some(placed, rows), normals)
        for rows in _slices(len(Y))
    ]
    return np.concatenate(parts) - Y.shape[1] * np.log(posterior.columns.scale)


def _chunk_density(
    posterior: GaussianPosterior, second: FloatArray, Y: FloatArray, placed: Embedding, normals: FloatArray
) -> FloatArray:
    n_rows, (n_draws, n_latent) = len(Y), normals.shape
    steps = WIDENING * np.einsum("nqr,tr->ntq", placed.cholesky, normals)
    latents = placed.mean[:, None, :] + steps
    phi = posterior.features(latents.reshape(-1, n_latent))
    # |y - H'phi|^2 = |y|^2 - 2 phi'Hy + phi'HH'phi without forming n_rows * n_draws rows of M columns
    cross = np.einsum("ntl,nl->nt", phi.reshape(n_rows, n_draws, -1), Y @ posterior.weights.T)
    own = np.sum((phi @ second) * phi, axis=1).reshape(n_rows, n_draws)
    distance = np.maximum(np.sum(Y**2, axis=1)[:, None] - 2.0 * cross + own, 0.0)
    variance = posterior.noise + posterior.weight_variance(phi).reshape(n_rows, n_draws)
    log_likelihood = -0.5 * (Y.shape[1] * np.log(2.0 * np.pi * variance) + distance / variance)
    log_prior = np.sum(norm.logpdf(latents), axis=-1)
    log_stds = np.log(WIDENING * np.diagonal(placed.cholesky, axis1=1, axis2=2))
    log_proposal = np.sum(norm.logpdf(normals), axis=-1) - np.sum(log_stds, axis=1)[:, None]
    return logsumexp(log_likelihood + log_prior - log_proposal, axis=1) - np.log(n_draws)


def quasi_normals(n_latent: int) -> FloatArray:
    """The draws (N_DRAWS, Q) of a standard normal, the same at every call."""
    uniforms = qmc.Sobol(n_latent, rng=np.random.default_rng(0)).random(N_DRAWS)
    return norm.ppf(uniforms)


def _some(placed: Embedding, rows: slice) -> Embedding:
    return Embedding(placed.mean[rows], placed.cholesky[rows])


def _slices(n_rows: int) -> list[slice]:
    return [slice(start, start + _ROWS_AT_ONCE) for start in range(0, n_rows, _ROWS_AT_ONCE)]
