"""Counts whose variance is their mean e^f.

With y0 = y (1/2 for y = 0) and u = f - log y0, log p(y | f) is measured from its value at u = 0,

    log p(y | f) = log_peak + y u - y0 (e^u - 1),   log_peak = -log(2 pi y) / 2 - S(y)   (-1/2 for y = 0),

with S the remainder of Stirling's formula: nothing large is subtracted from anything large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._types import FloatArray
from srflvm.likelihoods._base import Expected, Likelihood, Moments, Parameters, Start
from srflvm.likelihoods._logistic import stirling_remainder
from srflvm.likelihoods._observed import check_counts, summary

# squares of e^40 stay within float32; no data have such means
_LARGEST_LOG_MEAN = 40.0


@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts with log mean f; nothing to learn."""

    name: ClassVar[str] = "poisson"
    _discrete: ClassVar[bool] = True
    takes_sizes: ClassVar[bool] = True

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        check_counts(Y, columns, "Poisson")

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        number, mean, _ = summary(Y)
        # half an entry of one is added, so that an empty column has a finite log mean
        return Start(np.log((number * mean + 0.5) / (number + 0.5)), {})

    def first_guess(self, Y: FloatArray, bias: FloatArray) -> FloatArray:
        return np.where(np.isnan(Y), bias, np.log(Y + 0.5))

    def working(self, Y: FloatArray) -> FloatArray:
        return np.log1p(Y)

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        return self.pointwise(y, f, parameters).value

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        return self.expectations(y, f, jnp.zeros_like(f), parameters)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        # E e^f = e^(mean + variance / 2), so that slope and curvature need no more than the value
        origin = jnp.where(y > 0, y, 0.5)
        u = mean - jnp.log(origin)
        excess = origin * jnp.expm1(jnp.minimum(u + 0.5 * variance, _LARGEST_LOG_MEAN))
        return Expected(_log_peak(y) + y * u - excess, y - origin - excess, origin + excess)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        mean = jnp.exp(jnp.minimum(f, _LARGEST_LOG_MEAN))
        return Moments(mean, mean)

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return rng.poisson(np.exp(np.minimum(f, _LARGEST_LOG_MEAN))).astype(float)


def _log_peak(y: Array) -> Array:
    positive = jnp.where(y > 0, y, 1.0)
    log_peak = -0.5 * (jnp.log(positive) + math.log(2.0 * math.pi)) - stirling_remainder(positive)
    return jnp.where(y > 0, log_peak, -0.5)
