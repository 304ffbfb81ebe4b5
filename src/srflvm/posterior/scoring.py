"""Log densities of rows with any likelihood and any missing entries, and of single entries.

log p(y) = log integral p(y | x) N(x; 0, I) dx has no closed form. It is estimated by importance sampling from
the row's own embedding N(x*, S), a little widened: the log of an unbiased estimate, hence in expectation a
lower bound that tightens as draws are added. The draws are quasi-random and the same for every row and every
call, so the estimate is deterministic and a row's value does not depend on its batch. The density of an entry
held out of the embedding is averaged over the cubature points of the row's latent. In both, p(y | x)
integrates over the weights too, through the Gaussian of f at x.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import logsumexp
from scipy.stats import norm, qmc

from srflvm._typing import FloatArray
from srflvm.data.encoding import GroupRows
from srflvm.numerics.features import cubature_points
from srflvm.numerics.jit import in_float64, quickly_compiled
from srflvm.posterior.chunks import PaddedChunks

if TYPE_CHECKING:
    from srflvm.posterior.base import Posterior
    from srflvm.posterior.chunks import Embedding

_N_DRAWS = 64
_WIDENING = 1.2

# Rows that go through a compiled program at a time: the larger number where there are many rows, unless the
# products of features at all their points, which give the variances, are more numbers than this.
_SIZES = (8, 64)
_MANY_ROWS = 512
_MOST_NUMBERS = 2e7


class ImportanceSample:
    """Quasi-random latents (n, T, Q) around the embedding of rows, with which log p(y) is estimated."""

    def __init__(self, embedding: Embedding):
        normals = _quasi_normals(embedding.mean.shape[1])
        steps = _WIDENING * np.einsum("nqr,tr->ntq", embedding.cholesky, normals)
        log_stds = np.log(_WIDENING * np.diagonal(embedding.cholesky, axis1=1, axis2=2))
        self.latents = embedding.mean[:, None, :] + steps
        self._log_prior = np.sum(norm.logpdf(self.latents), axis=-1)
        self._log_proposal = np.sum(norm.logpdf(normals), axis=-1) - np.sum(log_stds, axis=1)[:, None]

    def log_density(self, log_likelihood: FloatArray) -> FloatArray:
        """Estimate log p(y) of each row (n,) from log p(y | x) at the latents (n, T)."""
        ratios = log_likelihood + self._log_prior - self._log_proposal
        return logsumexp(ratios, axis=1) - np.log(ratios.shape[1])


@lru_cache(maxsize=16)
def _quasi_normals(n_latent: int) -> FloatArray:
    """Return draws (T, Q) of a standard normal, the same at every call."""
    uniforms = qmc.Sobol(n_latent, rng=np.random.default_rng(0)).random(_N_DRAWS)
    return norm.ppf(uniforms)


def row_log_density(posterior: Posterior, embedding: Embedding, encoded: Sequence[GroupRows]) -> FloatArray:
    """Estimate log p(y) of each row (n,) over its observed entries, in model units."""
    sample = ImportanceSample(embedding)
    observed = np.concatenate([rows.observed for rows in encoded], axis=1)
    parts = [
        np.sum(np.where(observed[rows][:, None, :], log_probs, 0.0), axis=-1)
        for rows, (log_probs,) in _log_probs(posterior, sample.latents, [encoded])
    ]
    return sample.log_density(np.concatenate(parts))


def entry_log_density(posterior: Posterior, embedding: Embedding, encoded: Sequence[GroupRows]) -> FloatArray:
    """Compute log p(y_nc) of each channel (n, C), NaN where not observed, in model units."""
    return entry_log_densities(posterior, embedding, [encoded])[0]


def entry_log_densities(
    posterior: Posterior, embedding: Embedding, tables: Sequence[Sequence[GroupRows]]
) -> list[FloatArray]:
    """Compute what `entry_log_density` does for several tables of the same rows, with one function."""
    points = np.moveaxis(cubature_points(embedding.mean, embedding.cholesky), 0, 1)
    parts = [
        [logsumexp(log_probs, axis=1) - np.log(points.shape[1]) for log_probs in of_tables]
        for _, of_tables in _log_probs(posterior, points, tables)
    ]
    observed = [np.concatenate([rows.observed for rows in encoded], axis=1) for encoded in tables]
    wholes = [np.concatenate(of_table) for of_table in zip(*parts, strict=True)]
    return [np.where(seen, whole, np.nan) for seen, whole in zip(observed, wholes, strict=True)]


def _log_probs(
    posterior: Posterior, latents: FloatArray, tables: Sequence[Sequence[GroupRows]]
) -> Iterator[tuple[slice, list[FloatArray]]]:
    """Yield log p(y_nc | x_nt) (n, T, C) of each table for latents (n, T, Q), a few rows at a time."""
    n_rows, n_points, n_latent = latents.shape
    few, many = _SIZES
    is_small = many * n_points * posterior.covariances.numbers_per_row <= _MOST_NUMBERS
    chunks = PaddedChunks(n_rows, many if is_small and n_rows >= _MANY_ROWS else few)
    parameters = posterior.function.parameters
    filled = [tuple(rows.filled() for rows in encoded) for encoded in tables]
    shape = (chunks.size, n_points, -1)
    with in_float64():
        for number, (points, tables_of_some) in enumerate(chunks.cut((latents, filled))):
            mean, variance = posterior.function_moments(np.asarray(points).reshape(-1, n_latent))
            moments = mean.reshape(shape), variance.reshape(shape)
            here = slice(number * chunks.size, min((number + 1) * chunks.size, n_rows))
            values = [
                np.asarray(_predictive(posterior.channel_likelihoods, parameters, rows, *moments))
                for rows in tables_of_some
            ]
            yield here, [of_table[: here.stop - here.start] for of_table in values]


@partial(quickly_compiled, static_argnames="likelihoods")
def _predictive(likelihoods: Any, parameters: Any, rows: Any, mean: Array, variance: Array) -> Array:
    parts, start = [], 0
    variance = jnp.broadcast_to(variance, mean.shape)
    for likelihood, mine, learned in zip(likelihoods, rows, parameters, strict=True):
        channels = slice(start, start := start + mine.y.shape[1])
        constants = {name: value[:, None, :] for name, value in mine.constants.items()}
        total = mean[..., channels] + mine.offset[:, None, :]
        y = jnp.broadcast_to(mine.y[:, None, :], total.shape)
        parts.append(likelihood.log_predictive(y, total, variance[..., channels], {**constants, **learned}))
    return jnp.concatenate(parts, axis=-1)
