"""Latents of given rows under a fitted model, each row on its own.

With the weights at their posterior mean, the log density of a row y and its latent x is, up to a constant,

    -1/2 { |y - H'phi(x)|^2 / noise + |x|^2 },

a nonlinear least-squares problem in a few unknowns. It is solved by Levenberg-Marquardt steps (see `newton`)
from a good starting point: of the training rows most similar to y, the latent that explains y best. The
covariance is the inverse Gauss-Newton Hessian at the end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.neighbors import NearestNeighbors

from srflvm import parallel
from srflvm._types import FloatArray
from srflvm.compiling import quickly_compiled
from srflvm.computing import in_float64
from srflvm.features import fourier_features
from srflvm.newton import MOST_STEPS, Place, Search, begin, go_on, inverse_root, jacobian
from srflvm.rowwise import chunk_size, padded_chunks

if TYPE_CHECKING:
    from srflvm.gaussian_posterior import GaussianPosterior

N_NEIGHBOURS = 3

# Rows whose targets and neighbours are held at a time.
_ROWS_AT_ONCE = 16_384

# Most rows take few steps. After so many, those that have not ended go on among themselves.
_STEPS_TOGETHER = 8


class Problem(NamedTuple):
    """Weights in units of the noise (L, R), the frequencies, and the anchors: latents (A, Q) and decoded
    scores in units of the noise (A, R)."""

    loadings: Array
    frequencies: Array
    anchors: Array
    anchor_outputs: Array


class Embedding(NamedTuple):
    """Latent means (n, Q) and lower Cholesky factors of their covariances (n, Q, Q)."""

    mean: FloatArray
    cholesky: FloatArray


def embed(posterior: GaussianPosterior, scores: FloatArray) -> Embedding:
    """Embed rows given by their compressed scores (see `Columns.scores`)."""
    n_features, n_latent = len(posterior.weights), posterior.frequencies.shape[1]
    mean, cholesky = np.empty((len(scores), n_latent)), np.empty((len(scores), n_latent, n_latent))
    size = chunk_size(len(scores), n_latent * n_features)
    search = _search_of_anchors(posterior)
    with in_float64():
        problem = _problem(posterior)
        for start in range(0, len(scores), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            parallel.note(f"placing rows from {start} on")
            mean[rows], cholesky[rows] = _embed_piece(problem, search, posterior.noise, scores[rows], size)
    return Embedding(mean, cholesky)


def _embed_piece(
    problem: Problem, search: NearestNeighbors, noise: float, scores: FloatArray, size: int
) -> tuple[FloatArray, FloatArray]:
    values = np.asarray(scores, np.float64)
    targets, similar = values / np.sqrt(noise), np.asarray(search.kneighbors(values, return_distance=False))
    found = begin(_starting_latents(problem, targets, similar))
    n_rows, n_latent = found.latents.shape
    cholesky, left, n_steps = np.empty((n_rows, n_latent, n_latent)), np.arange(n_rows), 0
    while len(left) and n_steps < MOST_STEPS:
        more = _STEPS_TOGETHER if len(left) > size else MOST_STEPS - n_steps
        begun = Search(*(array[left] for array in found))
        ended, cholesky[left] = _go_on(problem, targets[left], begun, size, more)
        for array, new in zip(found, ended, strict=True):
            array[left] = new
        left, n_steps = left[ended.active], n_steps + more
    return found.latents, cholesky


def _go_on(
    problem: Problem, targets: FloatArray, search: Search, size: int, n_steps: int
) -> tuple[Search, FloatArray]:
    """The searches after some steps more and the roots of the covariances, in chunks of `size` rows."""
    n_rows = len(targets)
    chunks = padded_chunks((targets, search), n_rows, size)
    parts = [_solve_rows(problem, *chunk, n_steps) for chunk in chunks]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays)[:n_rows], *parts)


def _search_of_anchors(posterior: GaussianPosterior) -> NearestNeighbors:
    n_neighbours = min(N_NEIGHBOURS, len(posterior.anchors))
    return NearestNeighbors(n_neighbors=n_neighbours, algorithm="brute").fit(posterior.anchor_scores)


def _problem(posterior: GaussianPosterior) -> Problem:
    loadings = posterior.weights @ posterior.columns.directions / np.sqrt(posterior.noise)
    outputs = posterior.features(posterior.anchors) @ loadings
    return Problem(*map(jnp.asarray, (loadings, posterior.frequencies, posterior.anchors, outputs)))


@quickly_compiled
def _solve_rows(problem: Problem, targets: Array, search: Search, n_steps: Array) -> tuple[Search, Array]:
    ended, hessian = go_on(partial(_evaluate, problem, targets), partial(_hessian, problem), search, n_steps)
    return ended, inverse_root(hessian)


def _starting_latents(problem: Problem, targets: FloatArray, similar: np.ndarray) -> FloatArray:
    """Of the similar anchors (n, k), the latent that explains each row best."""
    anchors, outputs = np.asarray(problem.anchors), np.asarray(problem.anchor_outputs)
    losses = np.stack(
        [np.sum((targets - outputs[at]) ** 2, axis=1) + np.sum(anchors[at] ** 2, axis=1) for at in similar.T]
    )
    return anchors[similar[np.arange(len(similar)), np.argmin(losses, axis=0)]]


def _evaluate(problem: Problem, targets: Array, latents: Array) -> Place:
    def decoded(at: Array) -> Array:
        return fourier_features(at, problem.frequencies) @ problem.loadings

    output, pull = jax.vjp(decoded, latents)
    residual = output - targets
    loss = 0.5 * (jnp.sum(residual**2, axis=1) + jnp.sum(latents**2, axis=1))
    return Place(loss, pull(residual)[0] + latents)


def _hessian(problem: Problem, latents: Array) -> Array:
    slopes = jacobian(problem.frequencies, problem.loadings, latents)
    identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
    return identity + jnp.einsum("nqp,nrp->nqr", slopes, slopes)
