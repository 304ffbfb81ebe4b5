"""Random Fourier features of latents: the map from latents to the linear layer.

With L/2 frequencies w_l the feature vector of a latent x is

    phi(x) = sqrt(2 / L) [sin(w_1'x), ..., sin(w_{L/2}'x), cos(w_1'x), ..., cos(w_{L/2}'x)],

so that phi(x)'phi(x') = (2 / L) sum_l cos(w_l'(x - x')) is an unbiased estimate of the stationary
kernel whose spectral density the frequencies follow, and phi(x)'phi(x) = 1 exactly.

Averages of features over uncertain latents are means over a few points of each row, and features of many rows
are made in chunks of rows.
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

from srflvm._typing import FloatArray

# Name of the axis of devices that rows are shared out over.
ROWS = "rows"

# Rows of a chunk. The features of a few thousand rows fit in a cache that cores share, and threads find too
# little to do in fewer.
MOST_CHUNK_ROWS = 2048

QUARTERS = 4
VECTOR = 8

# Cubature takes two points a latent; beyond so many latents, sums over rows take draws instead.
MOST_LATENTS = 8

# Up to so many latents, sums of products within a loop are faster than a matrix product before it.
_FEW_LATENTS = 8


def fourier_features(latents: Any, frequencies: Any) -> Any:
    """Return the features of each row of latents; NumPy in, NumPy out, and the same for JAX.

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


def with_constant(features: Any) -> Any:
    """Append a column of ones, whose weight is the deviation from the starting level of a column of data."""
    xp = features.__array_namespace__()
    return xp.concat([features, xp.ones((features.shape[0], 1), dtype=features.dtype)], axis=1)


def layer_features(latents: Any, frequencies: Any, affine: Any) -> Any:
    """Return all features (n, L) of the linear layer: waves, scaled latents if there are any, a constant.

    Parameters
    ----------
    latents : (n, Q)
    frequencies : (F, Q)
    affine : (1 + Q,), or (0,) for a layer without an affine part
        Scale of the waves, and of each of the latents: prior standard deviations of their parts of f in units
        of that of the constant.

    The number of features is odd, as `packed_symmetric` needs it: behind an odd number of latents there is a
    feature that is zero, whose weight stays at its prior.
    """
    waves = fourier_features(latents, frequencies)
    if not len(affine):
        return with_constant(waves)
    xp = latents.__array_namespace__()
    nothing = xp.zeros((latents.shape[0], latents.shape[1] % 2), dtype=waves.dtype)
    return with_constant(xp.concat([affine[0] * waves, latents * affine[1:], nothing], axis=1))


def jacobian(frequencies: Any, weights: Any, latents: Any, affine: Any = ()) -> Any:
    """Return the derivatives (n, Q, C) of the features times weights in the latents (n, Q).

    The weights (2F, C) of the waves are followed by those (Q, C) of an affine part, if there is one. NumPy
    in, NumPy out, and the same for JAX.
    """
    xp = latents.__array_namespace__()
    features = fourier_features(latents, frequencies)
    n_frequencies = len(frequencies)
    sine, cosine = features[:, :n_frequencies], features[:, n_frequencies:]
    slopes = xp.concat([cosine, -sine], axis=1)
    twice = xp.concat([frequencies, frequencies])
    directions = slopes[:, None, :] * twice.T[None, :, :]
    n_rows, n_latent = latents.shape
    of_waves = directions.reshape(n_rows * n_latent, -1) @ weights[: 2 * n_frequencies]
    derivatives = of_waves.reshape(n_rows, n_latent, -1)
    if not len(affine):
        return derivatives
    slopes = affine[1:, None] * weights[2 * n_frequencies : 2 * n_frequencies + n_latent]
    return affine[0] * derivatives + slopes


# ---- averages over uncertain latents --------------------------------------------------------------


def cubature_points(mean: FloatArray, cholesky: FloatArray, seed: int | None = None) -> FloatArray:
    """Return points (K, n, Q) whose mean stands for the average over x ~ N(mean_n, C_n C_n').

    The points are mean_n plus and minus sqrt(Q) times each column of C_n, which is exact for polynomials up
    to degree three. For sums over many rows, which `seed` asks for, points of many latents are draws in
    opposite pairs, other ones in every row, whose errors cancel in the sum; they depend on the seed alone.
    """
    n_rows, n_latent = mean.shape
    if seed is None or n_latent <= MOST_LATENTS:
        steps = np.sqrt(n_latent) * np.moveaxis(cholesky, -1, 0)
    else:
        noise = np.random.default_rng(seed).standard_normal((MOST_LATENTS, n_rows, n_latent))
        steps = np.einsum("nqr,knr->knq", cholesky, noise, optimize=True)
    return np.concatenate([mean + steps, mean - steps])


# ---- chunks of rows -------------------------------------------------------------------------------


def chunk_shape(n_rows: int) -> tuple[int, int]:
    """Return the number of chunks and of their rows: as even as can be, whatever the number of devices.

    From three on, chunks come in fours, so that one, two and four processes have whole quarters of them, and
    their rows in eights, whole vectors of a processor.
    """
    n_chunks = -(-n_rows // MOST_CHUNK_ROWS)
    if n_chunks <= 2:
        return n_chunks, -(-n_rows // n_chunks)
    size = _round_up(-(-n_rows // _round_up(n_chunks, QUARTERS)), VECTOR)
    return _round_up(-(-n_rows // size), QUARTERS), size


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


# ---- sines and cosines on a CPU -------------------------------------------------------------------


@jax.custom_jvp
def _fast_features(latents: Array, frequencies: Array) -> Array:
    """Compute features several times faster on a CPU than library calls, to a few roundings for phases < 1e3.

    A cosine is a sine half a turn of pi away. So all columns are one loop without branches over the phases
    of the frequencies written twice.
    """
    n_waves = len(frequencies)
    phase = _phases(latents, jnp.concatenate([frequencies, frequencies]))
    half_turns = jnp.repeat(jnp.array([0.0, 0.5], phase.dtype), n_waves, total_repeat_length=2 * n_waves)
    return n_waves**-0.5 * _shifted_sine(phase, half_turns)


@_fast_features.defjvp
def _fast_features_jvp(primals, tangents):
    (latents, frequencies), (d_latents, d_frequencies) = primals, tangents
    features = _fast_features(latents, frequencies)
    sines, cosines = jnp.split(features, 2, axis=1)
    d_phase = d_latents @ frequencies.T + latents @ d_frequencies.T
    return features, jnp.concatenate([cosines * d_phase, -sines * d_phase], axis=1)


def _phases(latents: Array, frequencies: Array) -> Array:
    """Return w'x of every row and frequency.

    A sum over few latents is best made where the sine is, in one loop: a matrix product would write all
    phases to memory to be read again.
    """
    if latents.shape[1] > _FEW_LATENTS:
        return latents @ frequencies.T
    return reduce(add, (latents[:, q, None] * frequencies[None, :, q] for q in range(latents.shape[1])))


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
        """Return the position of the bit that holds the sign."""
        return 8 * np.dtype(self.bits).itemsize - 1


def _series(n_terms: int) -> list[float]:
    return [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(n_terms)]


_SINES = {
    np.dtype(np.float32): _Sine(3.140625, math.pi - 3.140625, _series(6), np.int32),
    np.dtype(np.float64): _Sine(3.1415926218032837, 3.178650954705639e-08, _series(11), np.int64),
}


def _shifted_sine(phase: Array, half_turns: Array) -> Array:
    """Return sin(phase + pi half_turns) in the precision of the phase, for half_turns 0 or 1/2.

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
