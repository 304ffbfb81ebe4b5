"""Damped Newton steps for many small problems at once: the latents of rows, each row on its own.

Rows have a damping and an end of their own, so that a row gets the same answer alone and in any batch. Of
what a step needs the Hessian costs most, Q times as much as the gradient: with many latents it is kept for
several steps, which then are those of a preconditioned descent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from srflvm.features import fourier_features

# A row stops when a full step would lower its loss by less than this share, or when steps are this timid.
_SMALLEST_GAIN = 1e-10
_LARGEST_DAMPING = 1e8
_MOST_STEPS = 40

# A Hessian serves one step, and one more for every so many latents.
_LATENTS_PER_STEP = 16


class Place(NamedTuple):
    """The loss (n,) and its gradient (n, Q) at latents."""

    loss: Array
    gradient: Array


class _Search(NamedTuple):
    number: Array
    latents: Array
    damping: Array
    active: Array
    here: Place


def minimise(
    evaluate: Callable[[Array], Place], hessian_at: Callable[[Array], Array], start: Array
) -> tuple[Array, Array]:
    """Latents (n, Q) where each row's loss is lowest near its start, and the Hessians (n, Q, Q) there.

    The Hessians may be approximate but must be positive definite.
    """
    n_kept = 1 + start.shape[1] // _LATENTS_PER_STEP

    def steps(search: _Search) -> _Search:
        hessian = hessian_at(search.latents)
        return jax.lax.fori_loop(0, n_kept, lambda _, now: _step(evaluate, hessian, now), search)

    def goes_on(search: _Search) -> Array:
        return (search.number < _MOST_STEPS) & jnp.any(search.active)

    damping = jnp.full(start.shape[0], 0.03, start.dtype)
    begin = _Search(jnp.array(0), start, damping, jnp.ones(start.shape[0], bool), evaluate(start))
    latents = jax.lax.while_loop(goes_on, steps, begin).latents
    return latents, hessian_at(latents)


def _step(evaluate: Callable[[Array], Place], hessian: Array, search: _Search) -> _Search:
    latents, here = search.latents, search.here
    curvature = jnp.diagonal(hessian, axis1=1, axis2=2)
    identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
    damped = hessian + (search.damping[:, None] * curvature)[:, :, None] * identity
    move = jnp.linalg.solve(damped, here.gradient[..., None])[..., 0]
    there = evaluate(latents - move)
    expected = jnp.sum(move * (here.gradient - 0.5 * jnp.einsum("nqr,nr->nq", hessian, move)), axis=1)
    gain = here.loss - there.loss
    better = search.active & (gain > 0.0)
    # less damping only where the quadratic was right: a step beyond the minimum gains a little, too
    factor = jnp.where(better, jnp.where(gain > 0.5 * expected, 1.0 / 3.0, 2.0), 4.0)
    small = (1.0 + search.damping) * expected < _SMALLEST_GAIN * (1.0 + jnp.abs(here.loss))
    ended = small | (search.damping > _LARGEST_DAMPING)
    return _Search(
        search.number + 1,
        jnp.where(better[:, None], latents - move, latents),
        search.damping * factor,
        search.active & ~ended,
        Place(
            jnp.where(better, there.loss, here.loss),
            jnp.where(better[:, None], there.gradient, here.gradient),
        ),
    )


def jacobian(frequencies: Array, weights: Array, latents: Array) -> Array:
    """Derivatives (n, Q, C) of phi(x)'weights in the latents (n, Q)."""
    features = fourier_features(latents, frequencies)
    n_frequencies = len(frequencies)
    sine, cosine = features[:, :n_frequencies], features[:, n_frequencies:]
    slopes = jnp.concatenate([cosine, -sine], axis=1)
    twice = jnp.concatenate([frequencies, frequencies])
    directions = slopes[:, None, :] * twice.T[None, :, :]
    n_rows, n_latent = latents.shape
    return (directions.reshape(n_rows * n_latent, -1) @ weights).reshape(n_rows, n_latent, -1)


def inverse_root(hessian: Array) -> Array:
    """The lower Cholesky factor of the inverse."""
    inverse = jnp.linalg.inv(hessian)
    return jnp.linalg.cholesky(0.5 * (inverse + jnp.swapaxes(inverse, 1, 2)))
