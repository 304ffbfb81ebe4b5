"""Gamma variables drawn without a loop, which compiles in a fraction of the time of `jax.random.gamma`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

# The probability that all are rejected is below 0.05^12 < 1e-15.
_N_PROPOSALS = 12


def draw_gamma(key: Array, shape: ArrayLike) -> Array:
    """Draw Gamma(shape, 1) for every element: the first of several proposals that is accepted.

    Marsaglia and Tsang (2000): with d = a - 1/3, a >= 1, and a normal z, d v, v = (1 + z / (3 sqrt d))^3, is
    accepted with probability exp(z^2 / 2 + d (1 - v + log v)), at least 0.95 on average. All shapes are
    raised by one; Gamma(a + 1) uniform^(1 / a) is Gamma(a).
    """
    shape = jnp.asarray(shape, float)
    normal_key, accept_key, power_key = jax.random.split(key, 3)
    d = shape + 2.0 / 3.0
    z = jax.random.normal(normal_key, (_N_PROPOSALS, *shape.shape), shape.dtype)
    root = jnp.maximum(1.0 + z / (3.0 * jnp.sqrt(d)), 0.0)
    log_chance = 0.5 * z**2 + d * (1.0 - root**3 + 3.0 * jnp.log(root))
    is_accepted = -jax.random.exponential(accept_key, z.shape, z.dtype) < log_chance
    first = jnp.argmax(is_accepted, axis=0)
    accepted = jnp.take_along_axis(root, first[None], axis=0)[0]
    return d * accepted**3 * jnp.exp(-jax.random.exponential(power_key, shape.shape, shape.dtype) / shape)
