"""Elliptical slice sampling (Murray, Adams and MacKay, 2010) of many independent vectors at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

# A bracket shrinks by more than a third with every rejection, on average of its logarithm: after this many
# the vector stands still to rounding.
_MOST_PROPOSALS = 100


class _Search(NamedTuple):
    """State of the search: next angles, their brackets, levels, accepted points, and which rows are done."""

    angle: Array
    low: Array
    high: Array
    level: Array
    found: Array
    is_done: Array
    n_proposals: Array


def elliptical_slice(
    key: Array, current: Array, auxiliary: Array, log_likelihood: Callable[[Array], Array]
) -> Array:
    """Move every row of `current` (B, D) once, which leaves N(0, S_b) exp(log_likelihood_b) invariant.

    `auxiliary` (B, D) holds one draw of N(0, S_b) per row, and `log_likelihood` takes (B, D) to (B,), where
    entry b may depend on row b only. A level is drawn under the likelihood of the present row; points
    cos(angle) row + sin(angle) auxiliary are tried, in a bracket of angles that shrinks towards zero, where
    the row itself lies, until one is above the level. All rows are tried together until the last is done.
    """
    n_rows, dtype = len(current), current.dtype
    uniforms = jax.random.uniform(key, (_MOST_PROPOSALS + 2, n_rows), dtype)
    first_angle = 2.0 * jnp.pi * uniforms[-2]
    zero, not_done = jnp.zeros(n_rows, dtype), jnp.zeros(n_rows, bool)
    start = _Search(zero, first_angle - 2.0 * jnp.pi, first_angle, zero, current, not_done, jnp.array(0))

    def is_searching(search: _Search) -> Array:
        return jnp.any(~search.is_done) & (search.n_proposals < _MOST_PROPOSALS)

    def propose(search: _Search) -> _Search:
        """Try the next angles.

        The first pass is at angle zero and sets the level, so that the likelihood is compiled only once.
        """
        angle, is_first = search.angle[:, None], search.n_proposals == 0
        proposal = jnp.cos(angle) * current + jnp.sin(angle) * auxiliary
        value = log_likelihood(proposal)
        level = jnp.where(is_first, value + jnp.log1p(-uniforms[-1]), search.level)
        is_above = (value >= level) & ~search.is_done & ~is_first
        low = jnp.where(search.angle < 0.0, search.angle, search.low)
        high = jnp.where(search.angle > 0.0, search.angle, search.high)
        inside = low + (high - low) * uniforms[search.n_proposals]
        next_angle = jnp.where(is_first, first_angle, inside)
        found = jnp.where(is_above[:, None], proposal, search.found)
        done = search.is_done | is_above
        return _Search(next_angle, low, high, level, found, done, search.n_proposals + 1)

    return jax.lax.while_loop(is_searching, propose, start).found
