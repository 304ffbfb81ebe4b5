"""Random Fourier features: the map from latents to the linear layer.

With L/2 frequencies w_l the feature vector of a latent x is

    phi(x) = sqrt(2 / L) [sin(w_1'x), ..., sin(w_{L/2}'x), cos(w_1'x), ..., cos(w_{L/2}'x)],

so that phi(x)'phi(x') = (2 / L) sum_l cos(w_l'(x - x')) is an unbiased estimate of the stationary
kernel whose spectral density the frequencies follow, and phi(x)'phi(x) = 1 exactly.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# pi / 2 as the sum of two float32 numbers, the first with enough trailing zeros that small multiples of
# it are exact: the phase is reduced without losing digits.
_HALF_PI_HIGH = 1.5703125
_HALF_PI_LOW = float(np.pi / 2.0 - _HALF_PI_HIGH)


def fourier_features(latents: Any, frequencies: Any) -> Any:
    """Features of each latent row; NumPy in, NumPy out, and the same for JAX.

    Parameters
    ----------
    latents : (N, Q)
    frequencies : (L/2, Q)

    Returns
    -------
    (N, L), sines first.
    """
    xp = latents.__array_namespace__()
    phase = latents @ frequencies.T
    fast = xp is jnp and phase.dtype == np.float32
    waves = sine_and_cosine(phase) if fast else (xp.sin(phase), xp.cos(phase))
    return xp.concat(waves, axis=1) * frequencies.shape[0] ** -0.5


@jax.custom_jvp
def sine_and_cosine(phase: Array) -> tuple[Array, Array]:
    """Both at once in float32, to 1e-6 absolute for |phase| < 1e3, an order of magnitude faster on a
    CPU than two library calls: one range reduction to [-pi/4, pi/4] and two short Taylor polynomials."""
    quadrant = jnp.round(phase * np.float32(2.0 / np.pi))
    r = (phase - quadrant * np.float32(_HALF_PI_HIGH)) - quadrant * np.float32(_HALF_PI_LOW)
    square = r * r
    sine = r * (1 + square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040 + square / 362880))))
    cosine = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square / 40320)))
    turns = quadrant.astype(jnp.int32)
    odd = (turns & 1) == 1
    sine, cosine = jnp.where(odd, cosine, sine), jnp.where(odd, sine, cosine)
    sine = jnp.where((turns & 2) == 2, -sine, sine)
    return sine, jnp.where(((turns + 1) & 2) == 2, -cosine, cosine)


@sine_and_cosine.defjvp
def _sine_and_cosine_jvp(primals, tangents):
    sine, cosine = sine_and_cosine(*primals)
    return (sine, cosine), (cosine * tangents[0], -sine * tangents[0])
