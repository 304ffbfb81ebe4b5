"""Random Fourier features: the map from latents to the linear layer.

With L/2 frequencies w_l the feature vector of a latent x is

    phi(x) = sqrt(2 / L) [sin(w_1'x), ..., sin(w_{L/2}'x), cos(w_1'x), ..., cos(w_{L/2}'x)],

so that phi(x)'phi(x') = (2 / L) sum_l cos(w_l'(x - x')) is an unbiased estimate of the stationary
kernel whose spectral density the frequencies follow, and phi(x)'phi(x) = 1 exactly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def fourier_features(latents: Array, frequencies: Array) -> Array:
    """Features of each latent row.

    Parameters
    ----------
    latents : (N, Q)
    frequencies : (L/2, Q)

    Returns
    -------
    (N, L), sines first.
    """
    phase = latents @ frequencies.T
    return _stack(jnp.sin(phase), jnp.cos(phase), frequencies)


def expected_features(mean: Array, cholesky: Array, frequencies: Array) -> Array:
    """E[phi(x)] for x_n ~ N(mean_n, C_n C_n'), in closed form.

    The characteristic function of a Gaussian gives
    E[exp(i w'x)] = exp(i w'mean - w'Sw / 2), whose imaginary and real parts are the sine and cosine.
    """
    phase = mean @ frequencies.T
    spread = jnp.einsum("nqr,lq->nlr", cholesky, frequencies)
    damping = jnp.exp(-0.5 * jnp.sum(spread**2, axis=-1))
    return _stack(damping * jnp.sin(phase), damping * jnp.cos(phase), frequencies)


def expected_gram(mean: Array, cholesky: Array, frequencies: Array) -> Array:
    """sum_n E[phi(x_n) phi(x_n)'] for x_n ~ N(mean_n, C_n C_n'), in closed form, (L, L).

    A product of two sines or cosines is half a sum of cosines or sines of w_a'x - w_b'x and
    w_a'x + w_b'x, each again a Gaussian characteristic function. One row at a time is in memory.
    """

    def add_row(total: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        return total + _second_moment(*row, frequencies), None

    size = 2 * frequencies.shape[0]
    start = jnp.zeros((size, size), frequencies.dtype)
    return jax.lax.scan(add_row, start, (mean, cholesky))[0]


def _second_moment(mean: Array, cholesky: Array, frequencies: Array) -> Array:
    phase = frequencies @ mean
    sine, cosine = jnp.sin(phase), jnp.cos(phase)
    spread = frequencies @ cholesky
    own = jnp.sum(spread**2, axis=-1)
    squares = own[:, None] + own[None, :]
    cross = 2.0 * spread @ spread.T
    # damping of w_a - w_b and of w_a + w_b: exp(-(w_a -+ w_b)'S(w_a -+ w_b) / 2)
    minus = jnp.exp(-0.5 * jnp.maximum(squares - cross, 0.0))
    plus = jnp.exp(-0.5 * jnp.maximum(squares + cross, 0.0))
    cos_cos, sin_sin = jnp.outer(cosine, cosine), jnp.outer(sine, sine)
    sin_cos, cos_sin = jnp.outer(sine, cosine), jnp.outer(cosine, sine)
    cos_minus, cos_plus = minus * (cos_cos + sin_sin), plus * (cos_cos - sin_sin)
    sin_minus, sin_plus = minus * (sin_cos - cos_sin), plus * (sin_cos + cos_sin)
    upper = jnp.concatenate([cos_minus - cos_plus, sin_plus + sin_minus], axis=1)
    lower = jnp.concatenate([sin_plus - sin_minus, cos_minus + cos_plus], axis=1)
    return jnp.concatenate([upper, lower], axis=0) / (2.0 * frequencies.shape[0])


def _stack(sine: Array, cosine: Array, frequencies: Array) -> Array:
    scale = jnp.asarray(frequencies.shape[0], sine.dtype) ** -0.5
    return scale * jnp.concatenate([sine, cosine], axis=-1)
