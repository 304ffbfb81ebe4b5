"""Continuous data with outliers: y = f + scale t, with t of Student's distribution.

With nu degrees of freedom and d = y - f,

    l = log Gamma((nu + 1) / 2) - log Gamma(nu / 2) - log(pi nu) / 2 - log scale
        - (nu + 1) / 2 log(1 + d^2 / (nu scale^2)).

An entry far from f pulls less the farther it is, and l is not concave there: -l'' and its expectation may be
negative. Columns are centred by their medians and divided by one common robust scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.likelihoods.base import Expected, Likelihood, Moments, Parameters, Start, Units

_N_POINTS = 32

_TO_STANDARD_DEVIATION = 1.4826
_SMALLEST_START = 1e-2
_SMALLEST_LOG_WEIGHT = -32.0


@dataclass(frozen=True)
class StudentT(Likelihood):
    """Real y around f with the learned parameter `log_scale`, one for each column.

    Parameters
    ----------
    degrees_of_freedom : float
        Small for heavy tails. The variance is infinite up to two.
    """

    name: ClassVar[str] = "student_t"
    has_units: ClassVar[bool] = True
    degrees_of_freedom: float = 4.0

    def __post_init__(self) -> None:
        if not 0.0 < self.degrees_of_freedom < math.inf:
            raise ValueError(f"degrees_of_freedom={self.degrees_of_freedom!r} must be positive and finite.")

    def units(self, Y: FloatArray) -> Units:
        location = _column_median(Y)
        scale = float(_robust_scale((Y - location).reshape(-1, 1))[0])
        return Units(location, np.full(Y.shape[1], scale if scale > 0.0 else 1.0))

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        location = _column_median(Y)
        scale = math.sqrt(0.5) * _robust_scale(Y - location)
        return Start(location, {"log_scale": np.log(np.maximum(scale, _SMALLEST_START))})

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        nu, log_scale = self.degrees_of_freedom, parameters["log_scale"]
        square = ((y - f) * jnp.exp(-log_scale)) ** 2
        return self._log_peak() - log_scale - 0.5 * (nu + 1.0) * jnp.log1p(square / nu)

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        # l' = (nu + 1) d q and l'' = (nu + 1) q (2 d^2 q - 1), with q = 1 / (nu scale^2 + d^2)
        nu, d = self.degrees_of_freedom, y - f
        q = 1.0 / (nu * jnp.exp(2.0 * parameters["log_scale"]) + d**2)
        value = self.log_prob(y, f, parameters)
        return Expected(value, (nu + 1.0) * d * q, (nu + 1.0) * q * (1.0 - 2.0 * d**2 * q))

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        """Return E l, E l' and -E l'' by `_averages`.

        Gauss-Hermite nodes miss the peak of l where the variance of f is larger than scale^2.
        """
        nu, log_scale = self.degrees_of_freedom, parameters["log_scale"]
        averages = _averages(y - mean, variance, nu * jnp.exp(2.0 * log_scale))
        value = self._log_peak() - log_scale - 0.5 * (nu + 1.0) * averages.value
        return Expected(value, (nu + 1.0) * averages.slope, (nu + 1.0) * averages.precision)

    def log_predictive(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Array:
        """Return log E p(y | f) for f ~ N(mean, variance).

        Student's distribution is a mixture: y | w ~ N(f, scale^2 / w), w ~ Gamma(nu / 2, rate nu / 2).
        Given w, f integrates out exactly. In z = log w the integrand is smooth and decays exponentially on
        both sides, so that the trapezoid rule converges exponentially.
        """
        half = 0.5 * self.degrees_of_freedom
        step = 0.4 / max(1.0, math.sqrt(0.5 * half))
        grid = np.arange(_SMALLEST_LOG_WEIGHT, 5.0, step)
        log_weights = half * (math.log(half) + grid - np.exp(grid)) - math.lgamma(half) + math.log(step)
        scale_squared = jnp.exp(2.0 * parameters["log_scale"])

        def add(total: Array, point: tuple[Array, Array]) -> tuple[Array, None]:
            z, log_weight = point
            spread = variance + scale_squared * jnp.exp(-z)
            log_normal = -0.5 * ((y - mean) ** 2 / spread + jnp.log(2.0 * math.pi * spread))
            return jnp.logaddexp(total, log_weight + log_normal), None

        rule = (jnp.asarray(grid, mean.dtype), jnp.asarray(log_weights, mean.dtype))
        shape = jnp.broadcast_shapes(y.shape, mean.shape, scale_squared.shape)
        return jax.lax.scan(add, jnp.full(shape, -jnp.inf, mean.dtype), rule)[0]

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        nu = self.degrees_of_freedom
        ratio = nu / (nu - 2.0) if nu > 2.0 else math.inf
        return Moments(f, jnp.broadcast_to(ratio * jnp.exp(2.0 * parameters["log_scale"]), f.shape))

    def natural_parameters(self, learned: Parameters, units: Units) -> dict[str, FloatArray]:
        return {"scale": units.scale * np.exp(np.asarray(learned["log_scale"], np.float64))}

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return f + np.exp(np.asarray(parameters["log_scale"])) * rng.standard_t(
            self.degrees_of_freedom, size=f.shape
        )

    def _log_peak(self) -> float:
        nu = self.degrees_of_freedom
        return math.lgamma(0.5 * nu + 0.5) - math.lgamma(0.5 * nu) - 0.5 * math.log(math.pi * nu)


def _averages(residual: Array, variance: Array, width: Array) -> Expected:
    """Return E log(1 + d^2 / width), E d q and E q (1 - 2 d^2 q) for d ~ N(residual, variance).

    Here q = 1 / (width + d^2).

    As log(1 + d^2 / width) is the integral over t > 0 of e^(-t width) (1 - e^(-t d^2)) / t, the first is that
    of e^(-t width) (1 - g) / t with g = E e^(-t d^2) = e^(-t residual^2 / A) / sqrt(A), A = 1 + 2 t variance.
    The others are half its first and second derivatives in the residual: residual g / A and
    (1 - 2 t residual^2 / A) g / A take the place of (1 - g) / t.

    The trapezoid rule in x, t = e^(x - e^-x) / (width + E d^2), converges exponentially: the integrands decay
    doubly exponentially to both sides. 32 points leave errors below 1e-6 for d^2 up to 10^5 widths.
    """
    square = variance + residual**2
    first, last = -2.8, jnp.log(25.0 * (1.0 + square / width))
    step = (last - first) / (_N_POINTS - 1)

    def add(total: Expected, index: Array) -> tuple[Expected, None]:
        x = first + step * index
        t = jnp.exp(x - jnp.exp(-x)) / (width + square)
        t, weight = jax.lax.stop_gradient((t, step * (1.0 + jnp.exp(-x)) * t))
        a = 1.0 + 2.0 * t * variance
        exponent = -t * residual**2 / a
        weight = weight * jnp.exp(-t * width)
        bent = weight * jnp.exp(exponent) / (a * jnp.sqrt(a))
        value = -weight / t * jnp.expm1(exponent - 0.5 * jnp.log(a))
        term = Expected(value, residual * bent, (1.0 + 2.0 * exponent) * bent)
        return jax.tree.map(jnp.add, total, term), None

    zero = jnp.zeros_like(last)
    return jax.lax.scan(add, Expected(zero, zero, zero), jnp.arange(_N_POINTS, dtype=zero.dtype))[0]


def _robust_scale(centred: FloatArray) -> FloatArray:
    """Return 1.4826 times the median of |y| of each column, for Gaussian data the standard deviation.

    Where most entries are equal and the median is zero, it is the root mean square.
    """
    median = _TO_STANDARD_DEVIATION * _column_median(np.abs(centred))
    number = np.maximum((~np.isnan(centred)).sum(axis=0), 1)
    return np.where(median > 0.0, median, np.sqrt(np.nansum(centred**2, axis=0) / number))


def _column_median(Y: FloatArray) -> FloatArray:
    """Return the median of the observed entries of each column (c,); zero for an empty column."""
    empty = np.isnan(Y).all(axis=0)
    return np.nanmedian(np.where(empty, 0.0, Y), axis=0)
