"""Random Fourier features: the map from latents to the linear layer.

With L/2 frequencies w_l the feature vector of a latent x is

    phi(x) = sqrt(2 / L) [sin(w_1'x), ..., sin(w_{L/2}'x), cos(w_1'x), ..., cos(w_{L/2}'x)],

so that phi(x)'phi(x') = (2 / L) sum_l cos(w_l'(x - x')) is an unbiased estimate of the stationary
kernel whose spectral density the frequencies follow, and phi(x)'phi(x) = 1 exactly.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class _Sine(NamedTuple):
    """Constants of a sine in one precision.

    pi is the sum of two numbers, the first with so many trailing zeros that small multiples of it and of its
    half are exact: the phase is reduced without losing digits. sin r = r (1 - r^2/3! + r^4/5! - ...), to
    rounding for |r| <= pi / 2. The sign of a number is the highest bit of an integer of the same size.
    """

    pi_high: float
    pi_low: float
    series: list[float]
    bits: Any

    @property
    def sign_bit(self) -> int:
        return 8 * np.dtype(self.bits).itemsize - 1


def _series(n_terms: int) -> list[float]:
    return [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(n_terms)]


_SINES = {
    np.dtype(np.float32): _Sine(3.140625, math.pi - 3.140625, _series(6), np.int32),
    np.dtype(np.float64): _Sine(3.1415926218032837, 3.178650954705639e-08, _series(11), np.int64),
}

# Up to so many latents, sums of products within a loop are faster than a matrix product before it.
_FEW_LATENTS = 8


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
    if xp is jnp:
        return _fast_features(latents, frequencies)
    phase = latents @ frequencies.T
    return xp.concat([xp.sin(phase), xp.cos(phase)], axis=1) * frequencies.shape[0] ** -0.5


@jax.custom_jvp
def _fast_features(latents: Array, frequencies: Array) -> Array:
    """To a few roundings for phases below 1e3, and several times faster on a CPU than library calls.

    A cosine is a sine half a turn of pi away. So all columns are one loop without branches over the phases
    of the frequencies written twice.
    """
    n_waves = len(frequencies)
    phase = _phases(latents, jnp.concatenate([frequencies, frequencies]))
    half_turns = jnp.repeat(jnp.array([0.0, 0.5], phase.dtype), n_waves, total_repeat_length=2 * n_waves)
    return n_waves**-0.5 * shifted_sine(phase, half_turns)


def _phases(latents: Array, frequencies: Array) -> Array:
    """w'x of every row and frequency. A sum over few latents is best made where the sine is, in one loop: a
    matrix product would write all phases to memory to be read again."""
    if latents.shape[1] > _FEW_LATENTS:
        return latents @ frequencies.T
    return reduce(add, (latents[:, q, None] * frequencies[None, :, q] for q in range(latents.shape[1])))


def shifted_sine(phase: Array, half_turns: Array) -> Array:
    """sin(phase + pi half_turns) in the precision of the phase, for half_turns 0 or 1/2.

    With n the nearest integer to phase / pi + half_turns and r = phase - pi (n - half_turns), at most pi / 2
    in size, it is (-1)^n sin r.
    """
    sine = _SINES[phase.dtype]
    nearest = jnp.round(phase * (1.0 / np.pi) + half_turns)
    turns = nearest - half_turns
    r = (phase - turns * sine.pi_high) - turns * sine.pi_low
    square, series = r * r, sine.series[-1]
    for coefficient in sine.series[-2::-1]:
        series = coefficient + square * series
    sign = nearest.astype(sine.bits) << sine.sign_bit
    flipped = jax.lax.bitcast_convert_type(r * series, sine.bits) ^ sign
    return jax.lax.bitcast_convert_type(flipped, phase.dtype)


@_fast_features.defjvp
def _fast_features_jvp(primals, tangents):
    (latents, frequencies), (d_latents, d_frequencies) = primals, tangents
    features = _fast_features(latents, frequencies)
    sines, cosines = jnp.split(features, 2, axis=1)
    d_phase = d_latents @ frequencies.T + latents @ d_frequencies.T
    return features, jnp.concatenate([cosines * d_phase, -sines * d_phase], axis=1)
