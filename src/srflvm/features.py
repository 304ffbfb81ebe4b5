"""Random Fourier features: the map from latents to the linear layer.

With L/2 frequencies w_l the feature vector of a latent x is

    phi(x) = sqrt(2 / L) [sin(w_1'x), ..., sin(w_{L/2}'x), cos(w_1'x), ..., cos(w_{L/2}'x)],

so that phi(x)'phi(x') = (2 / L) sum_l cos(w_l'(x - x')) is an unbiased estimate of the stationary
kernel whose spectral density the frequencies follow, and phi(x)'phi(x) = 1 exactly.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# pi as the sum of two float32 numbers, the first with so many trailing zeros that small multiples of it and
# of its half are exact: the phase is reduced without losing digits.
_PI_HIGH = np.float32(3.140625)
_PI_LOW = np.float32(np.pi - 3.140625)

# sin r = r (1 - r^2/3! + r^4/5! - ...) to 6e-8 for |r| <= pi / 2.
_SINE_SERIES = [np.float32((-1.0) ** k / math.factorial(2 * k + 1)) for k in range(6)]


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
    if xp is jnp and latents.dtype == np.float32:
        return _single_precision_features(latents, frequencies)
    phase = latents @ frequencies.T
    return xp.concat([xp.sin(phase), xp.cos(phase)], axis=1) * frequencies.shape[0] ** -0.5


@jax.custom_jvp
def _single_precision_features(latents: Array, frequencies: Array) -> Array:
    """To 1e-6 absolute for phases below 1e3, and an order of magnitude faster on a CPU than library calls.

    A cosine is a sine half a turn of pi away. So all columns are one loop without branches over the phases
    of the frequencies written twice.
    """
    n_waves = len(frequencies)
    half_turns = jnp.repeat(jnp.array([0.0, 0.5], jnp.float32), n_waves, total_repeat_length=2 * n_waves)
    phase = latents @ jnp.concatenate([frequencies, frequencies]).T
    return np.float32(n_waves**-0.5) * shifted_sine(phase, half_turns)


def shifted_sine(phase: Array, half_turns: Array) -> Array:
    """sin(phase + pi half_turns) in float32, for half_turns 0 or 1/2.

    With n the nearest integer to phase / pi + half_turns and r = phase - pi (n - half_turns), at most pi / 2
    in size, it is (-1)^n sin r.
    """
    nearest = jnp.round(phase * np.float32(1.0 / np.pi) + half_turns)
    turns = nearest - half_turns
    r = (phase - turns * _PI_HIGH) - turns * _PI_LOW
    square, series = r * r, _SINE_SERIES[-1]
    for coefficient in _SINE_SERIES[-2::-1]:
        series = coefficient + square * series
    sign = nearest.astype(jnp.int32) << 31
    flipped = jax.lax.bitcast_convert_type(r * series, jnp.int32) ^ sign
    return jax.lax.bitcast_convert_type(flipped, jnp.float32)


@_single_precision_features.defjvp
def _single_precision_features_jvp(primals, tangents):
    (latents, frequencies), (d_latents, d_frequencies) = primals, tangents
    features = _single_precision_features(latents, frequencies)
    sines, cosines = jnp.split(features, 2, axis=1)
    d_phase = d_latents @ frequencies.T + latents @ d_frequencies.T
    return features, jnp.concatenate([cosines * d_phase, -sines * d_phase], axis=1)
