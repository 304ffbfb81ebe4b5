"""Latents of given rows under a fitted model, each row on its own.

With the weights' posterior fixed, the expected log density of a row y at a latent x is, up to a constant,

    -1/2 { |y - H'phi(x)|^2 / noise + M phi(x)'V phi(x) + |x|^2 }:

a least-squares problem with residuals [y; 0] - A'phi(x), A = [H, sqrt(M noise) V^(1/2)] in units of the
noise, and x itself. It is solved by a fixed number of Levenberg-Marquardt steps from several good
starting points; the row keeps the best end, and its covariance is the inverse Gauss-Newton Hessian there.
No quantity is shared between rows, so a row gets the same answer alone and in any batch.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._types import FloatArray
from srflvm.posterior import Posterior

N_STARTS = 3
N_STEPS = 15

# Rows are padded to one of these sizes, so that only two programs are ever compiled for a model.
_CHUNKS = (64, 1024)

# Singular directions of A whose whole range is below this many noise standard deviations do not matter.
_SMALLEST_LOADING = 0.05


class Problem(NamedTuple):
    """A turned onto its singular directions (L, P), the frequencies, and the anchors with their A'phi."""

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


def embed(posterior: Posterior, scores: FloatArray) -> Embedding:
    """Embed rows given by their compressed scores (see `Columns.scores`)."""
    with jax.enable_x64(True):
        problem, rotation = _problem(posterior)
        targets = scores @ rotation
        parts = [_embed_chunk(problem, chunk) for chunk in _padded_chunks(targets)]
    mean, cholesky = (np.concatenate(arrays)[: len(scores)] for arrays in zip(*parts, strict=True))
    return Embedding(mean, cholesky)


def _problem(posterior: Posterior) -> tuple[Problem, FloatArray]:
    """The least-squares problem, and the map from scores to its targets."""
    n_columns = posterior.weights.shape[1]
    explained = posterior.weights @ posterior.columns.directions / np.sqrt(posterior.noise)
    values, vectors = np.linalg.eigh(posterior.weight_covariance)
    uncertain = vectors * np.sqrt(n_columns * np.maximum(values, 0.0))
    # the left singular vectors and singular values of A, from A A'
    squares, left = np.linalg.eigh(explained @ explained.T + uncertain @ uncertain.T)
    kept = squares > _SMALLEST_LOADING**2
    left, singular = left[:, kept], np.sqrt(squares[kept])
    loadings = left * singular
    rotation = (explained.T @ left) / (singular * np.sqrt(posterior.noise))
    outputs = posterior.features(posterior.anchors) @ loadings
    arrays = (loadings, posterior.frequencies, posterior.anchors, outputs)
    return Problem(*map(jnp.asarray, arrays)), rotation


def _padded_chunks(targets: FloatArray):
    size = _CHUNKS[0] if len(targets) <= _CHUNKS[0] else _CHUNKS[1]
    for start in range(0, len(targets), size):
        chunk = targets[start : start + size]
        yield np.pad(chunk, ((0, size - len(chunk)), (0, 0)))


def _embed_chunk(problem: Problem, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    mean, cholesky = _solve_rows(problem, jnp.asarray(targets))
    return np.asarray(mean), np.asarray(cholesky)


@jax.jit
def _solve_rows(problem: Problem, targets: Array) -> tuple[Array, Array]:
    starts = _nearest_anchors(problem, targets)
    ends, locals_ = jax.lax.map(partial(_climb, problem, targets), starts)
    best = jnp.argmin(locals_.loss, axis=0)
    mean = jnp.take_along_axis(ends, best[None, :, None], axis=0)[0]
    hessian = jnp.take_along_axis(locals_.hessian, best[None, :, None, None], axis=0)[0]
    return mean, _inverse_root(hessian)


def _nearest_anchors(problem: Problem, targets: Array) -> Array:
    """The anchors that explain each row best, (N_STARTS, n, Q)."""
    outputs, anchors = problem.anchor_outputs, problem.anchors
    own = jnp.sum(outputs**2, axis=1) + jnp.sum(anchors**2, axis=1)
    losses = own - 2.0 * targets @ outputs.T
    n_starts = min(N_STARTS, anchors.shape[0])
    _, nearest = jax.lax.top_k(-losses, n_starts)
    return jnp.moveaxis(anchors[nearest], 1, 0)


def _climb(problem: Problem, targets: Array, start: Array) -> tuple[Array, Local]:
    """Levenberg-Marquardt with a damping of its own for each row."""

    def step(carry, _):
        latents, damping, here = carry
        curvature = jnp.diagonal(here.hessian, axis1=1, axis2=2)
        identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
        damped = here.hessian + (damping[:, None] * curvature)[:, :, None] * identity
        proposal = latents - jnp.linalg.solve(damped, here.gradient[..., None])[..., 0]
        there = _evaluate(problem, targets, proposal)
        better = there.loss < here.loss
        latents = jnp.where(better[:, None], proposal, latents)
        here = jax.tree.map(lambda new, old: _where_rows(better, new, old), there, here)
        return (latents, jnp.where(better, damping / 3.0, damping * 4.0), here), None

    damping = jnp.full(start.shape[0], 0.03, start.dtype)
    carry = (start, damping, _evaluate(problem, targets, start))
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


def _inverse_root(hessian: Array) -> Array:
    """The lower Cholesky factor of the inverse."""
    inverse = jnp.linalg.inv(hessian)
    return jnp.linalg.cholesky(0.5 * (inverse + jnp.swapaxes(inverse, 1, 2)))
