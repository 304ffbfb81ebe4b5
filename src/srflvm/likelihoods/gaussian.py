"""Continuous data: y = f + noise, with one noise variance for all columns or one for each.

Everything has a closed form. Columns are centred by their means and divided by one common number, so that
distances between rows keep their proportions, or each by its own spread, so that units do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.exceptions import check_choice
from srflvm.likelihoods.base import (
    Expected,
    Likelihood,
    Moments,
    Parameters,
    Start,
    Summary,
    Units,
    refuse,
)
from srflvm.likelihoods.transforms import (
    AUTO,
    LOG,
    NONE,
    TRANSFORMS,
    Curves,
    choose_transforms,
)

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
        density of a few values that repeat would else rise for ever. It is measured after a transform, where
        steps differ along a column: at the entry in the middle of them.
    transform : {"auto", "log", "yeo_johnson", "none"}, a tuple of these with one for each column, or None
        Monotone transform of columns of their own scale, so that the model sees them less skewed: the
        logarithm of positive numbers, or that of Yeo and Johnson. "auto" takes one where the likelihood of
        the column's entries clearly speaks for it. Densities stay those of the columns as they are given,
        with the slope of the transform, so that bounds of models with and without are comparable.
    curves : tuple of tuple of float, or None
        Exponent, ends, centre and spread of the transform of each column. None: from the training columns.
    """

    name: ClassVar[str] = "gaussian"
    has_units: ClassVar[bool] = True
    is_quadratic: ClassVar[bool] = True
    noise: str = "shared"
    scale: str = "shared"
    resolution: tuple[float, ...] | None = None
    transform: str | tuple[str, ...] | None = None
    curves: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        for name in ("noise", "scale"):
            check_choice(name, getattr(self, name), ("shared", "column"))
        if self.transform is None:
            if self.curves is not None:
                raise ValueError("curves are given, but transform= does not name the transforms.")
            return
        for name in (self.transform,) if isinstance(self.transform, str) else self.transform:
            check_choice("transform", name, (AUTO, *TRANSFORMS))
        if self.scale == "shared":
            raise ValueError(
                f"transform={self.transform!r} needs scale='column': columns that share a scale are not "
                "transformed one by one."
            )
        if self.curves is not None:
            Curves.check(self.transform, self.curves)

    @property
    def has_numbers_by_column(self) -> bool:
        return self.resolution is not None or isinstance(self.transform, tuple)

    @property
    def of_channels(self) -> Gaussian:
        return replace(self, scale="shared", resolution=None, transform=None, curves=None)

    @property
    def has_own_units(self) -> bool:
        return self.noise == self.scale == "column"

    @property
    def transforms(self) -> tuple[str | None, ...]:
        if self.curves is None or not isinstance(self.transform, tuple):
            return ()
        return tuple(None if name == NONE else name for name in self.transform)

    @property
    def straight(self) -> Gaussian:
        return replace(self, transform=None, curves=None)

    @property
    def known_curves(self) -> Curves | None:
        """Return the transforms of the columns, once they are known."""
        if self.curves is None or not isinstance(self.transform, tuple):
            return None
        return Curves.of(self.transform, self.curves)

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        if self.transform is None:
            return
        curves = self.known_curves
        is_positive = np.array(self._asked(Y.shape[1])) == LOG if curves is None else curves.is_positive
        refuse(
            is_positive & (Y <= 0.0),
            Y,
            columns,
            "the logarithm of a number that is not positive does not exist",
            "Use transform='yeo_johnson' or None.",
        )

    def resolve(self, Y: FloatArray) -> Gaussian:
        if self.scale == "shared":
            return self
        Y = np.asarray(Y, np.float64)
        known = self._with_curves(Y)
        if known.resolution is not None:
            return known
        gaps = [_median_gap(column[~np.isnan(column)]) for column in Y.T]
        scales = known._middle_scales(Y)
        return replace(
            known, resolution=tuple(float(gap / scale) for gap, scale in zip(gaps, scales, strict=True))
        )

    def _asked(self, n_columns: int) -> tuple[str, ...]:
        """Return the transforms of the columns by name, as they were given."""
        if not isinstance(self.transform, tuple):
            return (self.transform or NONE,) * n_columns
        if len(self.transform) != n_columns:
            raise ValueError(f"transform names {len(self.transform)} transforms for {n_columns} columns.")
        return self.transform

    def _with_curves(self, Y: FloatArray) -> Gaussian:
        """Return this likelihood with the transforms of the training columns Y (N, m) decided."""
        if self.transform is None or self.curves is not None:
            return self
        taken, curves = choose_transforms(Y, self._asked(Y.shape[1]))
        if all(name == NONE for name in taken):
            return self.straight
        return replace(self, transform=taken, curves=curves)

    def _middle_scales(self, Y: FloatArray) -> FloatArray:
        """Return the raw distance (m,) that is one unit of the channels, at the middle entry of a column."""
        location, scale = self.units(Y)
        if self.known_curves is None:
            return scale
        slopes = self.known_curves.log_slope((Y - location) / scale)
        return scale / np.exp(np.nanmedian(np.where(np.isnan(Y).all(axis=0), 0.0, slopes), axis=0))

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        y = Y if self.known_curves is None else self.known_curves.forward(Y)
        if self.resolution is None:
            return y, {}
        return y, {"rounding": np.broadcast_to(np.square(self.resolution) / 12.0, Y.shape)}

    def log_slopes(self, Y: FloatArray) -> FloatArray | float:
        return 0.0 if self.known_curves is None else self.known_curves.log_slope(Y)

    def units(self, Y: FloatArray) -> Units:
        if self.curves is not None and isinstance(self.transform, tuple):
            return Curves.units(self.transform, Y)
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

    def transform_moments(
        self, mean: FloatArray, of_function: FloatArray, of_noise: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        curves = self.known_curves
        moments = (mean, of_function, of_noise)
        return moments if curves is None else curves.output_moments(*moments)

    def natural_parameters(self, learned: Parameters, units: Units) -> dict[str, FloatArray]:
        rounding = {} if self.resolution is None else {"rounding": np.square(self.resolution) / 12.0}
        noise = np.exp(_plain_log_noise({**learned, **rounding}))
        # of a transformed column, in its units at the centre
        rise = 1.0 if self.known_curves is None else self.known_curves.rise_at_centre()
        return {"noise_variance": (units.scale * rise) ** 2 * noise}

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return f + np.exp(0.5 * _plain_log_noise(parameters)) * rng.standard_normal(f.shape)

    def draw_parameters(
        self,
        y: FloatArray,
        observed: np.ndarray,
        f: FloatArray,
        parameters: Parameters,
        learned: dict[str, FloatArray],
        rng: np.random.RandomState,
    ) -> dict[str, FloatArray]:
        """Draw the noise, which is inverse gamma given residuals under the prior 1 / noise.

        Rounding is a part of it; what is drawn below that leaves next to nothing beside it.
        """
        number = observed.sum(axis=0).astype(float)
        square = np.sum(np.where(observed, y - f, 0.0) ** 2, axis=0)
        rounding = np.broadcast_to(parameters.get("rounding", 0.0), y.shape)[0]
        if self.noise == "shared":
            number, square, rounding = number.sum(keepdims=True), square.sum(keepdims=True), np.zeros(1)
        drawn = 0.5 * square / np.maximum(rng.gamma(0.5 * np.maximum(number, 1.0)), 1e-300)
        return {**learned, "log_noise": np.log(np.maximum(drawn - rounding, _FLOOR))}

    def columns_from_draws(self, draws: FloatArray, constants: Parameters) -> FloatArray:
        return draws if self.known_curves is None else self.known_curves.inverse(draws)


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
