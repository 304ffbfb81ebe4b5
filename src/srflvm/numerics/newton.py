"""Damped Newton steps for many small problems at once: the latents of rows, each row on its own.

Rows have a damping and an end of their own, so that a row gets the same answer alone and in any batch. The
Hessian is the costliest part of a step, Q times as costly as the gradient: with many latents it is kept for
several steps, which then are those of a preconditioned descent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

MOST_STEPS = 40

# A row stops when a full step would lower its loss by less than this share, or when its damping is larger.
_SMALLEST_GAIN = 1e-9
_LARGEST_DAMPING = 1e8

# A Hessian serves one step, and one more for every so many latents.
_LATENTS_PER_STEP = 16

# Rounding errors of a sum of products, in units of the last place.
_ROUNDING = 16.0

# The loss (n,) and its gradient (n, Q) as a function of the latents (n, Q).
Evaluate = Callable[[Array], tuple[Array, Array]]


class Search(NamedTuple):
    """State of the search of each row: latents (n, Q), damping (n,), and whether it has not ended (n,)."""

    latents: Any
    damping: Any
    active: Any

    @classmethod
    def begin(cls, start: Any) -> Search:
        """Return searches at given latents that have not made a step."""
        xp = start.__array_namespace__()
        n_rows = start.shape[0]
        return cls(start, xp.full(n_rows, 0.03, dtype=start.dtype), xp.ones(n_rows, dtype=bool))

    def advance(
        self, evaluate: Evaluate, hessian_at: Callable[[Array], Array], n_steps: int | Array = MOST_STEPS
    ) -> tuple[Search, Array]:
        """Make at most `n_steps` more steps; also return the Hessians (n, Q, Q) at the latents.

        The loss of each row goes down to its lowest value near the start. The Hessians may be approximate but
        must be positive definite. Stopping and advancing again changes nothing.
        """
        n_kept = 1 + self.latents.shape[1] // _LATENTS_PER_STEP

        def steps(state: tuple[Array, Search, Any]) -> tuple[Array, Search, Any]:
            number, now, here = state
            hessian = hessian_at(now.latents)
            step = partial(_step, evaluate, hessian)
            return number + n_kept, *jax.lax.fori_loop(0, n_kept, lambda _, pair: step(*pair), (now, here))

        def goes_on(state: tuple[Array, Search, Any]) -> Array:
            return (state[0] < n_steps) & jnp.any(state[1].active)

        start = jnp.array(0), self, evaluate(self.latents)
        ended = jax.lax.while_loop(goes_on, steps, start)[1]
        return ended, hessian_at(ended.latents)


def _step(evaluate: Evaluate, hessian: Array, search: Search, here: tuple[Array, Array]):
    latents, (loss, gradient) = search.latents, here
    curvature = jnp.diagonal(hessian, axis1=1, axis2=2)
    identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
    damped = hessian + (search.damping[:, None] * curvature)[:, :, None] * identity
    move = jnp.linalg.solve(damped, gradient[..., None])[..., 0]
    new_loss, new_gradient = evaluate(latents - move)
    expected = jnp.sum(move * (gradient - 0.5 * jnp.einsum("nqr,nr->nq", hessian, move)), axis=1)
    gain = loss - new_loss
    better = search.active & (gain > 0.0)
    # less damping only where the quadratic was right: a step beyond the minimum gains a little, too
    factor = jnp.where(better, jnp.where(gain > 0.5 * expected, 1.0 / 3.0, 2.0), 4.0)
    small = (1.0 + search.damping) * expected < _SMALLEST_GAIN * (1.0 + jnp.abs(loss))
    ended = small | (search.damping > _LARGEST_DAMPING)
    moved = Search(
        jnp.where(better[:, None], latents - move, latents),
        search.damping * factor,
        search.active & ~ended,
    )
    kept = jnp.where(better, new_loss, loss), jnp.where(better[:, None], new_gradient, gradient)
    return moved, kept


def inverse_root(hessian: Array) -> Array:
    """Return the lower Cholesky factor of the inverse, finite for every finite H = I + J diag(lambda) J'.

    With rows and columns in reverse order H = U U' with U upper triangular, so that the factor is U'^-1 and
    the inverse, whose smallest eigenvalues rounding may turn negative, is never made. Sums of products are
    rounded by some eps sqrt(H_qq H_rr) (Cauchy and Schwarz): that share of their diagonal, Q times, keeps H
    positive definite where lambda is so large that the identity is lost in it.
    """
    size = hessian.shape[-1]
    identity = jnp.eye(size, dtype=hessian.dtype)
    share = _ROUNDING * size * jnp.finfo(hessian.dtype).eps
    raised = hessian + share * identity * (hessian - identity)
    upper = jnp.flip(jnp.linalg.cholesky(jnp.flip(raised, (1, 2))), (1, 2))
    targets = jnp.broadcast_to(identity, hessian.shape)
    return jax.lax.linalg.triangular_solve(upper, targets, left_side=True, lower=False, transpose_a=True)
