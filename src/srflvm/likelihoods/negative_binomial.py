"""Overdispersed counts: mean mu = e^f and variance mu + mu^2 / r, with a dispersion r for each column.

    log p(y | f) = log [Gamma(y + r) / (Gamma(r) y!)] + y psi - (y + r) log(1 + e^psi),   psi = f - log r,

the logistic kernel with a = y and b = r; see `_logistic`, which keeps this accurate in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from srflvm._types import FloatArray
from srflvm.likelihoods import _logistic
from srflvm.likelihoods._base import Expected, Moments, Parameters, PolyaGamma, Start, Units
from srflvm.likelihoods._counts import LARGEST_LOG_MEAN, Counts, smoothed_mean
from srflvm.likelihoods._observed import summary

SMALLEST_DISPERSION = 1e-3
LARGEST_DISPERSION = 1e5

_SHARPNESS = 4.0


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    """Counts with log mean f and the learned parameter `log_dispersion`, log r before bounding."""

    name: ClassVar[str] = "negative_binomial"
    called: ClassVar[str] = "negative binomial"
    has_polya_gamma: ClassVar[bool] = True

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        number, mean, variance = summary(Y)
        mean = smoothed_mean(number, mean)
        dispersion = mean**2 / np.maximum(variance - mean, 1e-3 * mean)
        return Start(np.log(mean), {"log_dispersion": np.log(np.clip(dispersion, 0.1, 1e3))})

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        log_r = bounded_log_dispersion(parameters["log_dispersion"])
        r = jnp.exp(log_r)
        value, slope, precision = _logistic.pointwise(_logistic.kernel(y, r), f - log_r)
        return Expected(_logistic.log_peak_negative_binomial(y, r) + value, slope, precision)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        log_r = bounded_log_dispersion(parameters["log_dispersion"])
        r = jnp.exp(log_r)
        value, slope, precision = _logistic.expectations(_logistic.kernel(y, r), mean - log_r, variance)
        return Expected(_logistic.log_peak_negative_binomial(y, r) + value, slope, precision)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        mean = jnp.exp(jnp.minimum(f, LARGEST_LOG_MEAN))
        log_r = bounded_log_dispersion(parameters["log_dispersion"])
        return Moments(mean, mean + mean**2 * jnp.exp(-log_r))

    def polya_gamma(self, y: Array, parameters: Parameters) -> PolyaGamma:
        # log(1 + e^psi) = psi / 2 + log(2 cosh(psi / 2)). This form cancels: use float64 for large counts
        log_r = bounded_log_dispersion(parameters["log_dispersion"])
        r = jnp.exp(log_r)
        constant = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)
        return PolyaGamma(y + r, 0.5 * (y - r), jnp.broadcast_to(-log_r, y.shape), constant)

    def natural_parameters(self, learned: Parameters, units: Units) -> dict[str, FloatArray]:
        log_r = bounded_log_dispersion(jnp.asarray(learned["log_dispersion"]))
        return {"dispersion": np.exp(np.asarray(log_r, np.float64))}

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        r = np.exp(np.asarray(bounded_log_dispersion(jnp.asarray(parameters["log_dispersion"]))))
        mean = np.exp(np.minimum(f, LARGEST_LOG_MEAN))
        return rng.poisson(rng.gamma(np.broadcast_to(r, f.shape), mean / r)).astype(float)


def bounded_log_dispersion(log_dispersion: Array) -> Array:
    """log r, smoothly held between the bounds: the identity inside to within e^(-4 distance).

    A gradient step that leaves the bounds still finds a slope that leads back.
    """
    low, high = math.log(SMALLEST_DISPERSION), math.log(LARGEST_DISPERSION)
    above = jax.nn.softplus(_SHARPNESS * (log_dispersion - low))
    beyond = jax.nn.softplus(_SHARPNESS * (log_dispersion - high))
    return low + (above - beyond) / _SHARPNESS
