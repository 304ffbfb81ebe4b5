"""Counts with log mean f: Poisson, whose variance is the mean, and negative binomial, which is overdispersed.

Poisson. With y0 = y (1/2 for y = 0) and u = f - log y0, log p(y | f) is measured from its value at u = 0,

    log p(y | f) = log_peak + y u - y0 (e^u - 1),   log_peak = -log(2 pi y) / 2 - S(y)   (-1/2 for y = 0),

with S the remainder of Stirling's formula: nothing large is subtracted from anything large.

Negative binomial. Mean mu = e^f and variance mu + mu^2 / r, with a dispersion r for each column:

    log p(y | f) = log [Gamma(y + r) / (Gamma(r) y!)] + y psi - (y + r) log(1 + e^psi),   psi = f - log r,

the kernel of `logistic` with a = y and b = r, which is accurate in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from srflvm._typing import FloatArray
from srflvm.likelihoods.base import (
    Expected,
    Likelihood,
    Moments,
    Parameters,
    Start,
    Summary,
    Units,
    check_counts,
    refuse,
)
from srflvm.likelihoods.logistic import Kernel, stirling_remainder
from srflvm.numerics.polya_gamma import PolyaGamma

# squares of e^40 stay within float32; no data have such means
_LARGEST_LOG_MEAN = 40.0

_SMALLEST_DISPERSION = 1e-3
_LARGEST_DISPERSION = 1e5
_SHARPNESS = 4.0


class _Counts(Likelihood):
    """Counts with log mean f, named `called` in messages."""

    called: ClassVar[str]
    _discrete: ClassVar[bool] = True
    takes_sizes: ClassVar[bool] = True
    # beyond it float64 does not hold every whole number
    largest: ClassVar[float] = 2.0**53
    remedy: ClassVar[str] = "Count in a larger unit, or use likelihood='gaussian' for the logarithms of Y."

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        check_counts(Y, columns, self.called)
        problem = f"{self.called} counts beyond {self.largest:.1g} cannot be computed with"
        refuse(self.largest < Y, Y, columns, problem, self.remedy)

    def first_guess(self, Y: FloatArray, bias: FloatArray) -> FloatArray:
        return np.where(np.isnan(Y), bias, np.log(Y + 0.5))

    def working(self, Y: FloatArray) -> FloatArray:
        return np.log1p(Y)

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        return self.pointwise(y, f, parameters).value


@dataclass(frozen=True)
class Poisson(_Counts):
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
        return Start(np.log(_smoothed_mean(Summary.of(Y))), {})

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


@dataclass(frozen=True)
class NegativeBinomial(_Counts):
    """Counts with log mean f and the learned parameter `log_dispersion`, log r before bounding."""

    name: ClassVar[str] = "negative_binomial"
    called: ClassVar[str] = "negative binomial"
    has_polya_gamma: ClassVar[bool] = True

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        summary = Summary.of(Y)
        mean = _smoothed_mean(summary)
        dispersion = mean**2 / np.maximum(summary.variance - mean, 1e-3 * mean)
        return Start(np.log(mean), {"log_dispersion": np.log(np.clip(dispersion, 0.1, 1e3))})

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        log_r = _bounded_log_dispersion(parameters["log_dispersion"])
        return Kernel.negative_binomial(y, jnp.exp(log_r)).pointwise(f - log_r)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        log_r = _bounded_log_dispersion(parameters["log_dispersion"])
        return Kernel.negative_binomial(y, jnp.exp(log_r)).expectations(mean - log_r, variance)

    def quick_expectations(
        self, y: Array, mean: Array, variance: Array, parameters: Parameters, n_nodes: int
    ) -> Expected:
        log_r = _bounded_log_dispersion(parameters["log_dispersion"])
        return Kernel.negative_binomial(y, jnp.exp(log_r)).expectations(mean - log_r, variance, n_nodes)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        mean = jnp.exp(jnp.minimum(f, _LARGEST_LOG_MEAN))
        log_r = _bounded_log_dispersion(parameters["log_dispersion"])
        return Moments(mean, mean + mean**2 * jnp.exp(-log_r))

    def polya_gamma(self, y: Array, parameters: Parameters) -> PolyaGamma:
        # log(1 + e^psi) = psi / 2 + log(2 cosh(psi / 2)). This form cancels: use float64 for large counts
        log_r = _bounded_log_dispersion(parameters["log_dispersion"])
        r = jnp.exp(log_r)
        constant = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)
        return PolyaGamma(y + r, 0.5 * (y - r), jnp.broadcast_to(-log_r, y.shape), constant)

    def natural_parameters(self, learned: Parameters, units: Units) -> dict[str, FloatArray]:
        log_r = _bounded_log_dispersion(np.asarray(learned["log_dispersion"], np.float64))
        return {"dispersion": np.exp(log_r)}

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        r = np.exp(_bounded_log_dispersion(np.asarray(parameters["log_dispersion"])))
        mean = np.exp(np.minimum(f, _LARGEST_LOG_MEAN))
        return rng.poisson(rng.gamma(np.broadcast_to(r, f.shape), mean / r)).astype(float)


def _bounded_log_dispersion(log_dispersion: Any) -> Any:
    """Return log r, smoothly held between the bounds: the identity inside to within e^(-4 distance).

    A gradient step that leaves the bounds still finds a slope that leads back. NumPy in, NumPy out, and the
    same for JAX.
    """
    xp = log_dispersion.__array_namespace__()
    low, high = math.log(_SMALLEST_DISPERSION), math.log(_LARGEST_DISPERSION)
    above = xp.logaddexp(_SHARPNESS * (log_dispersion - low), 0.0)
    beyond = xp.logaddexp(_SHARPNESS * (log_dispersion - high), 0.0)
    return low + (above - beyond) / _SHARPNESS


def _smoothed_mean(summary: Summary) -> FloatArray:
    """Return means with half an entry of one added, so that an empty column has a finite log mean."""
    return (summary.number * summary.mean + 0.5) / (summary.number + 0.5)
