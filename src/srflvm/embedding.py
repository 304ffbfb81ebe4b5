"""Latents of given rows under a fitted model, each row on its own.

With the weights at their posterior mean, the log density of a row y and its latent x is, up to a constant,

    -1/2 { |y - H'phi(x)|^2 / noise + |x|^2 },

a nonlinear least-squares problem in a few unknowns. It is solved by a fixed number of Levenberg-Marquardt
steps from a good starting point: of the training rows most similar to y, the latent that explains y best.
The covariance is the inverse Gauss-Newton Hessian at the end. No quantity is shared between rows, so a row
gets the same answer alone and in any batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from sklearn.neighbors import NearestNeighbors

from srflvm._types import FloatArray

if TYPE_CHECKING:
    from srflvm.gaussian_posterior import GaussianPosterior

N_NEIGHBOURS = 3
N_STEPS = 15

# Rows are padded to one of these sizes, so that only two programs are ever compiled for a model.
_CHUNKS = (64, 1024)


class Problem(NamedTuple):
    """Weights in units of the noise (L, R), the frequencies, and the anchors: latents (A, Q) and decoded
    scores in units of the noise (A, R)."""

    loadings: Array
    frequencies: Array
    anchors: Array
    anchor_outputs: Array


class Local(NamedTuple):
    """The loss at a point, with its gradient (n, Q) and Gauss-Newton Hessian (n, Q, Q)."""

    loss: Array
    gradient: Array
    hessian: Array


class Embedding(NamedTuple):
    """Latent means (n, Q) and lower Cholesky factors of their covariances (n, Q, Q)."""

    mean: FloatArray
    cholesky: FloatArray


def embed(posterior: GaussianPosterior, scores: FloatArray) -> Embedding:
    """Embed rows given by their compressed scores (see `Columns.scores`)."""
    similar = _similar_anchors(posterior, scores)
    targets = scores / np.sqrt(posterior.noise)
    with jax.enable_x64(True):
        problem = _problem(posterior)
        chunks = zip(_padded_chunks(targets), _padded_chunks(similar), strict=True)
        parts = [_solve_rows(problem, *map(jnp.asarray, chunk)) for chunk in chunks]
        mean, cholesky = (np.concatenate(arrays)[: len(scores)] for arrays in zip(*parts, strict=True))
    return Embedding(mean, cholesky)


def _similar_anchors(posterior: GaussianPosterior, scores: FloatArray) -> npt.NDArray[np.intp]:
    n_neighbours = min(N_NEIGHBOURS, len(posterior.anchors))
    search = NearestNeighbors(n_neighbors=n_neighbours, algorithm="brute").fit(posterior.anchor_scores)
    return search.kneighbors(scores, return_distance=False)


def _problem(posterior: GaussianPosterior) -> Problem:
    loadings = posterior.weights @ posterior.columns.directions / np.sqrt(posterior.noise)
    outputs = posterior.features(posterior.anchors) @ loadings
    return Problem(*map(jnp.asarray, (loadings, posterior.frequencies, posterior.anchors, outputs)))


def _padded_chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    size = _CHUNKS[0] if len(rows) <= _CHUNKS[0] else _CHUNKS[1]
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        yield np.pad(chunk, ((0, size - len(chunk)), (0, 0)))


@jax.jit
def _solve_rows(problem: Problem, targets: Array, similar: Array) -> tuple[Array, Array]:
    start = _starting_latents(problem, targets, similar)
    latents, end = levenberg_marquardt(partial(_evaluate, problem, targets), start)
    return latents, inverse_root(end.hessian)


def _starting_latents(problem: Problem, targets: Array, similar: Array) -> Array:
    """Of the similar anchors (n, k), the latent that explains each row best."""
    latents = problem.anchors[similar]
    residuals = targets[:, None, :] - problem.anchor_outputs[similar]
    losses = jnp.sum(residuals**2, axis=-1) + jnp.sum(latents**2, axis=-1)
    best = jnp.argmin(losses, axis=1)
    return jnp.take_along_axis(latents, best[:, None, None], axis=1)[:, 0]


def levenberg_marquardt(evaluate: Callable[[Array], Any], start: Array) -> tuple[Array, Any]:
    """A fixed number of damped Newton steps from (n, Q), with a damping of its own for each row.

    `evaluate` gives the loss (n,), its gradient (n, Q) and its positive definite Hessian (n, Q, Q) at
    latents.
    """

    def step(carry, _):
        latents, damping, here = carry
        curvature = jnp.diagonal(here.hessian, axis1=1, axis2=2)
        identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
        damped = here.hessian + (damping[:, None] * curvature)[:, :, None] * identity
        proposal = latents - jnp.linalg.solve(damped, here.gradient[..., None])[..., 0]
        there = evaluate(proposal)
        better = there.loss < here.loss
        latents = jnp.where(better[:, None], proposal, latents)
        here = jax.tree.map(lambda new, old: _where_rows(better, new, old), there, here)
        return (latents, jnp.where(better, damping / 3.0, damping * 4.0), here), None

    damping = jnp.full(start.shape[0], 0.03, start.dtype)
    carry = (start, damping, evaluate(start))
    (latents, _, end), _ = jax.lax.scan(step, carry, length=N_STEPS)
    return latents, end


def _where_rows(rows: Array, if_true: Array, if_false: Array) -> Array:
    return jnp.where(rows.reshape(-1, *[1] * (if_true.ndim - 1)), if_true, if_false)


def _evaluate(problem: Problem, targets: Array, latents: Array) -> Local:
    phase = latents @ problem.frequencies.T
    scale = problem.frequencies.shape[0] ** -0.5
    sine, cosine = scale * jnp.sin(phase), scale * jnp.cos(phase)
    residual = jnp.concatenate([sine, cosine], axis=1) @ problem.loadings - targets
    slopes = jnp.concatenate([cosine, -sine], axis=1)
    twice = jnp.concatenate([problem.frequencies, problem.frequencies])
    columns = [(slopes * twice[:, q]) @ problem.loadings for q in range(latents.shape[1])]
    jacobian = jnp.stack(columns, axis=-1)
    loss = 0.5 * (jnp.sum(residual**2, axis=1) + jnp.sum(latents**2, axis=1))
    gradient = jnp.einsum("npq,np->nq", jacobian, residual) + latents
    identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
    hessian = identity + jnp.einsum("npq,npr->nqr", jacobian, jacobian)
    return Local(loss, gradient, hessian)


def inverse_root(hessian: Array) -> Array:
    """The lower Cholesky factor of the inverse."""
    inverse = jnp.linalg.inv(hessian)
    return jnp.linalg.cholesky(0.5 * (inverse + jnp.swapaxes(inverse, 1, 2)))
