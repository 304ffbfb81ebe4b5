"""Counts whose variance is their mean e^f.

With y0 = y (1/2 for y = 0) and u = f - log y0, log p(y | f) is measured from its value at u = 0,

    log p(y | f) = log_peak + y u - y0 (e^u - 1),   log_peak = -log(2 pi y) / 2 - S(y)   (-1/2 for y = 0),

with S the remainder of Stirling's formula: nothing large is subtracted from anything large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._types import FloatArray
from srflvm.likelihoods._base import Expected, Moments, Parameters, Start
from srflvm.likelihoods._counts import LARGEST_LOG_MEAN, Counts, smoothed_mean
from srflvm.likelihoods._logistic import stirling_remainder
from srflvm.likelihoods._observed import summary


@dataclass(frozen=True)
class Poisson(Counts):
    """Counts with log mean f; nothing to learn."""

    name: ClassVar[str] = "poisson"
    called: ClassVar[str] = "Poisson"
    # the noise of larger counts, less than a millionth of them, is finer than the steps of a fit resolve
    largest: ClassVar[float] = 1e12
    remedy: ClassVar[str] = (
        "Use likelihood='negative_binomial', whose noise grows with the counts, or likelihood='gaussian' for "
        "the logarithms of Y."
    )

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        number, mean, _ = summary(Y)
        return Start(np.log(smoothed_mean(number, mean)), {})

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        return self.expectations(y, f, jnp.zeros_like(f), parameters)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        # E e^f = e^(mean + variance / 2), so that slope and curvature need no more than the value
        origin = jnp.where(y > 0, y, 0.5)
        u = mean - jnp.log(origin)
        excess = origin * jnp.expm1(jnp.minimum(u + 0.5 * variance, LARGEST_LOG_MEAN))
        return Expected(_log_peak(y) + y * u - excess, y - origin - excess, origin + excess)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        mean = jnp.exp(jnp.minimum(f, LARGEST_LOG_MEAN))
        return Moments(mean, mean)

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return rng.poisson(np.exp(np.minimum(f, LARGEST_LOG_MEAN))).astype(float)


def _log_peak(y: Array) -> Array:
    positive = jnp.where(y > 0, y, 1.0)
    log_peak = -0.5 * (jnp.log(positive) + math.log(2.0 * math.pi)) - stirling_remainder(positive)
    return jnp.where(y > 0, log_peak, -0.5)
