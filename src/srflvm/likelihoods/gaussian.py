"""Continuous data: y = f + noise, with one noise variance for all columns or one for each.

Everything has a closed form. Columns are centred by their means and divided by one common number, so that
distances between rows keep their proportions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.likelihoods.base import Expected, Likelihood, Moments, Parameters, Start, Summary, Units

_SMALLEST_START = 1e-4

# Added to the noise, in units of the typical variance of a column. A column that does not vary has no noise
# to learn: its likelihood would rise for ever.
_LOG_FLOOR = math.log(1e-14)


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Real y ~ N(f, noise), with the learned parameter `log_noise`, the logarithm of the variance.

    Parameters
    ----------
    noise : {"shared", "column"}
        One variance for all columns, for which `log_noise` has shape (1,), or one for each, (c,).
    """

    name: ClassVar[str] = "gaussian"
    has_units: ClassVar[bool] = True
    noise: str = "shared"

    def __post_init__(self) -> None:
        if self.noise not in ("shared", "column"):
            raise ValueError(f"noise={self.noise!r} is not known; use 'shared' or 'column'.")

    def units(self, Y: FloatArray) -> Units:
        number, mean, variance = Summary.of(Y)
        scale = math.sqrt(float(number @ variance) / max(float(number.sum()), 1.0))
        return Units(mean, np.full(Y.shape[1], scale if scale > 0.0 else 1.0))

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        number, mean, variance = Summary.of(Y)
        if self.noise == "shared":
            variance = np.array([number @ variance / max(float(number.sum()), 1.0)])
        return Start(mean, {"log_noise": np.log(np.maximum(0.5 * variance, _SMALLEST_START))})

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        return _log_normal(y - f, _log_noise(parameters))

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        return self.expectations(y, f, jnp.zeros_like(f), parameters)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        # l is quadratic in f: E l = l(mean) - precision variance / 2
        precision = jnp.exp(-_log_noise(parameters))
        value = self.log_prob(y, mean, parameters) - 0.5 * precision * variance
        return Expected(value, precision * (y - mean), jnp.broadcast_to(precision, value.shape))

    def log_predictive(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Array:
        return _log_normal(y - mean, jnp.log(variance + jnp.exp(_log_noise(parameters))))

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        return Moments(f, jnp.broadcast_to(jnp.exp(_log_noise(parameters)), f.shape))

    def natural_parameters(self, learned: Parameters, units: Units) -> dict[str, FloatArray]:
        return {"noise_variance": units.scale**2 * np.exp(_plain_log_noise(learned))}

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return f + np.exp(0.5 * _plain_log_noise(parameters)) * rng.standard_normal(f.shape)


def _log_noise(parameters: Parameters) -> Array:
    return jnp.logaddexp(parameters["log_noise"], _LOG_FLOOR)


def _plain_log_noise(parameters: Parameters) -> FloatArray:
    return np.logaddexp(np.asarray(parameters["log_noise"], np.float64), _LOG_FLOOR)


def _log_normal(residual: Array, log_variance: Array) -> Array:
    return -0.5 * (residual**2 * jnp.exp(-log_variance) + log_variance + math.log(2.0 * math.pi))
