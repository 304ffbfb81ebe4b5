"""Continuous data: y = f + noise, with one noise variance for all columns or one for each.

Everything has a closed form. Columns are centred by their means and divided by one common number, so that
distances between rows keep their proportions, or each by its own spread, so that units do not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.exceptions import check_choice
from srflvm.likelihoods.base import Expected, Likelihood, Moments, Parameters, Start, Summary, Units

_SMALLEST_START = 1e-4

# Added to the noise, in units of the typical variance of a column. A column that does not vary has no noise
# to learn: its likelihood would rise for ever.
_FLOOR = 1e-14


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Real y ~ N(f, noise), with the learned parameter `log_noise`, the logarithm of the variance.

    Parameters
    ----------
    noise : {"shared", "column"}
        One variance for all columns, for which `log_noise` has shape (1,), or one for each, (c,).
    scale : {"shared", "column"}
        Whether columns share a unit, such as pixels, or each has its own, such as dollars and years, and is
        divided by its own standard deviation.
    resolution : tuple of float, or None
        Steps in which each column was recorded, in its standard deviations. None: the median gap between
        values that occur in a column of its own scale, and nothing in columns of one scale. A number that was
        rounded to such steps is not known better than to step^2 / 12, which is added to its noise: the
        density of a few values that repeat would else rise for ever.
    """

    name: ClassVar[str] = "gaussian"
    has_units: ClassVar[bool] = True
    is_quadratic: ClassVar[bool] = True
    noise: str = "shared"
    scale: str = "shared"
    resolution: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("noise", "scale"):
            check_choice(name, getattr(self, name), ("shared", "column"))

    @property
    def has_numbers_by_column(self) -> bool:
        return self.resolution is not None

    def resolve(self, Y: FloatArray) -> Gaussian:
        if self.scale == "shared" or self.resolution is not None:
            return self
        scales = self.units(Y).scale
        gaps = [_median_gap(column[~np.isnan(column)]) for column in np.asarray(Y, np.float64).T]
        return replace(
            self, resolution=tuple(float(gap / scale) for gap, scale in zip(gaps, scales, strict=True))
        )

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        if self.resolution is None:
            return Y, {}
        return Y, {"rounding": np.broadcast_to(np.square(self.resolution) / 12.0, Y.shape)}

    def units(self, Y: FloatArray) -> Units:
        number, mean, variance = Summary.of(Y)
        if self.scale == "shared":
            variance = np.full(Y.shape[1], number @ variance / max(float(number.sum()), 1.0))
        return Units(mean, np.where(variance > 0.0, np.sqrt(variance), 1.0))

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
        rounding = {} if self.resolution is None else {"rounding": np.square(self.resolution) / 12.0}
        return {"noise_variance": units.scale**2 * np.exp(_plain_log_noise({**learned, **rounding}))}

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return f + np.exp(0.5 * _plain_log_noise(parameters)) * rng.standard_normal(f.shape)


def _log_noise(parameters: Parameters) -> Array:
    return jnp.logaddexp(parameters["log_noise"], jnp.log(parameters.get("rounding", 0.0) + _FLOOR))


def _plain_log_noise(parameters: Parameters) -> FloatArray:
    floor = np.log(np.asarray(parameters.get("rounding", 0.0), np.float64) + _FLOOR)
    return np.logaddexp(np.asarray(parameters["log_noise"], np.float64), floor)


def _log_normal(residual: Array, log_variance: Array) -> Array:
    return -0.5 * (residual**2 * jnp.exp(-log_variance) + log_variance + math.log(2.0 * math.pi))


def _median_gap(values: FloatArray) -> float:
    """Return the median distance of neighbouring values that occur, 0 if there is only one."""
    distinct = np.unique(values)
    return float(np.median(np.diff(distinct))) if len(distinct) > 1 else 0.0
