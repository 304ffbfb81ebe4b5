"""Damped quasi-Newton steps for many small problems at once: the latents of rows, each row on its own.

Rows have a damping, a curvature and an end of their own, so that a row gets the same answer alone and in any
batch. The Hessian is the costliest part of a step, Q times as costly as the gradient, and the approximate one
of least squares leaves out what large residuals add. So it is computed where a search begins, and then
follows the gradients: after a step s that changed the gradient by y,

    B + y y' / s'y - B s s'B / s'B s,

the update of Broyden, Fletcher, Goldfarb and Shanno, which keeps B positive definite where s'y > 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

MOST_STEPS = 40

# A row stops when a full step would lower its loss by less than this share, or when its damping is larger.
_SMALLEST_GAIN = 1e-9
_LARGEST_DAMPING = 1e8

# A curvature along a step that is below this share of the one expected is not learned: it may be negative.
_SMALLEST_CURVATURE = 0.1

# Rounding errors of a sum of products, in units of the last place.
_ROUNDING = 16.0

# The loss (n,) and its gradient (n, Q) as a function of the latents (n, Q).
Evaluate = Callable[[Array], tuple[Array, Array]]


class Search(NamedTuple):
    """State of the search of each row.

    Latents (n, Q), damping (n,), whether it has not ended (n,), and the curvature B (n, Q, Q), zero of a
    search that has not made a step.
    """

    latents: Any
    damping: Any
    active: Any
    curvature: Any

    @classmethod
    def begin(cls, start: Any) -> Search:
        """Return searches at given latents that have not made a step."""
        xp = start.__array_namespace__()
        n_rows, n_latent = start.shape
        return cls(
            start,
            xp.full(n_rows, 0.03, dtype=start.dtype),
            xp.ones(n_rows, dtype=bool),
            xp.zeros((n_rows, n_latent, n_latent), dtype=start.dtype),
        )

    def advance(
        self, evaluate: Evaluate, hessian_at: Callable[[Array], Array], n_steps: int | Array = MOST_STEPS
    ) -> tuple[Search, Array]:
        """Make at most `n_steps` more steps; also return the Hessians (n, Q, Q) at the latents.

        The loss of each row goes down to its lowest value near the start. The Hessians may be approximate but
        must be positive definite. Stopping and advancing again changes nothing.
        """
        is_new = jnp.all(self.curvature == 0.0, axis=(1, 2), keepdims=True)
        begun = self._replace(curvature=jnp.where(is_new, hessian_at(self.latents), self.curvature))

        def step(state: tuple[Array, Search, Any]) -> tuple[Array, Search, Any]:
            number, now, here = state
            return number + 1, *_step(evaluate, now, here)

        def goes_on(state: tuple[Array, Search, Any]) -> Array:
            return (state[0] < n_steps) & jnp.any(state[1].active)

        ended = jax.lax.while_loop(goes_on, step, (jnp.array(0), begun, evaluate(self.latents)))[1]
        return ended, hessian_at(ended.latents)


def _step(evaluate: Evaluate, search: Search, here: tuple[Array, Array]):
    latents, curvature, (loss, gradient) = search.latents, search.curvature, here
    own = jnp.diagonal(curvature, axis1=1, axis2=2)
    identity = jnp.eye(latents.shape[1], dtype=latents.dtype)
    damped = curvature + (search.damping[:, None] * own)[:, :, None] * identity
    move = -jnp.linalg.solve(damped, gradient[..., None])[..., 0]
    new_loss, new_gradient = evaluate(latents + move)
    bent = jnp.einsum("nqr,nr->nq", curvature, move)
    expected = -jnp.sum(move * (gradient + 0.5 * bent), axis=1)
    gain = loss - new_loss
    better = search.active & (gain > 0.0)
    # less damping only where the quadratic was right: a step beyond the minimum gains a little, too
    factor = jnp.where(better, jnp.where(gain > 0.5 * expected, 1.0 / 3.0, 2.0), 4.0)
    small = (1.0 + search.damping) * expected < _SMALLEST_GAIN * (1.0 + jnp.abs(loss))
    ended = small | (search.damping > _LARGEST_DAMPING)
    moved = Search(
        jnp.where(better[:, None], latents + move, latents),
        search.damping * factor,
        search.active & ~ended,
        _updated(curvature, move, bent, new_gradient - gradient, search.active),
    )
    kept = jnp.where(better, new_loss, loss), jnp.where(better[:, None], new_gradient, gradient)
    return moved, kept


def _updated(curvature: Array, move: Array, bent: Array, change: Array, active: Array) -> Array:
    """Return the curvatures after a move that changed the gradient; `bent` is their product with the move."""
    along, before = jnp.sum(move * change, axis=1), jnp.sum(move * bent, axis=1)
    learns = active & (before > 0.0) & (along > _SMALLEST_CURVATURE * before) & (along < jnp.inf)
    gained = change / jnp.sqrt(jnp.where(learns, along, 1.0))[:, None]
    lost = bent / jnp.sqrt(jnp.where(learns, before, 1.0))[:, None]
    more = gained[:, :, None] * gained[:, None, :] - lost[:, :, None] * lost[:, None, :]
    return jnp.where(learns[:, None, None], curvature + more, curvature)


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
