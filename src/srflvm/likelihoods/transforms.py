"""Monotone transforms of skewed columns, and moments of what they make of a normal.

A column x, in units of its own, is seen by the model as v = (T(x) - centre) / spread. T is the logarithm, or
the transform of Yeo and Johnson (2000) with an exponent from 0 to 2,

    T(x) = sign(x) ((1 + |x|)^p - 1) / p,   p = exponent for x >= 0 and 2 - exponent for x < 0,

with the limit sign(x) log(1 + |x|) for p = 0. Beyond `low` and `high`, which are near the ends of the
observed entries, T goes on as a straight line. It maps the real line onto itself in any case, so that a
density stays one, and no exponential carries a tail of the normal to numbers far beyond all that were seen. A
density of x is that of v times the slope dv/dx.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.likelihoods.base import Summary, Units

AUTO, NONE, LOG, YEO_JOHNSON = "auto", "none", "log", "yeo_johnson"
TRANSFORMS = (NONE, LOG, YEO_JOHNSON)

# Where there is no end: numbers that no entry reaches, whose transforms are finite.
_FAR = 1e100
_NEAR_ZERO = 1e-300

# Exponents that are compared, and one so small that its limit is taken.
_EXPONENTS = np.arange(41) / 20.0
_NO_EXPONENT = 1e-6

# Gauss-Legendre nodes for each of the three parts of a normal within so many standard deviations.
_RANGE = 7.0
PART_NODES, PART_WEIGHTS = np.polynomial.legendre.leggauss(24)

# Nodes for the share of the variance that comes from not knowing the function.
_FEW_NODES, _FEW_WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
_FEW_WEIGHTS = _FEW_WEIGHTS / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class Curves:
    """Transforms of columns: arrays (m,) that broadcast against rows of columns (..., m)."""

    is_plain: np.ndarray
    is_log: np.ndarray
    exponent: FloatArray
    low: FloatArray
    high: FloatArray
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, names: tuple[str, ...], numbers: tuple[tuple[float, ...], ...]) -> Curves:
        """Return the transforms of these names, with exponent, low, high, centre and spread of each."""
        return _curves(names, numbers)

    @staticmethod
    def check(names: Any, numbers: tuple[tuple[float, ...], ...]) -> None:
        """Refuse names and numbers that no transforms have."""
        if not isinstance(names, tuple) or AUTO in names or len(names) != len(numbers):
            raise ValueError(
                f"curves are of {len(numbers)} columns, but transform={names!r} does not name each."
            )
        for name, some in zip(names, numbers, strict=True):
            sound = len(some) == 5 and 0.0 <= some[0] <= 2.0 and some[1] < some[2] and some[4] > 0.0
            if not sound or (name == LOG and some[1] <= 0.0):
                raise ValueError(f"curves have {some!r} for a transform {name!r}, which is not possible.")

    @staticmethod
    def units(names: Sequence[str], Y: FloatArray) -> Units:
        """Return the units of columns (N, m) before transforms of these names."""
        observed = (column[~np.isnan(column)] for column in Y.T)
        found = [_transformed_units(name, values) for name, values in zip(names, observed, strict=True)]
        return Units(*(np.concatenate(part) for part in zip(*found, strict=True)))

    @property
    def is_positive(self) -> np.ndarray:
        """Tell which columns (m,) have no place for numbers that are not positive."""
        return self.is_log & (self.low <= _NEAR_ZERO)

    def forward(self, x: FloatArray) -> FloatArray:
        """Return v (..., m) of x."""
        inside = np.clip(x, self.low, self.high)
        straight = (x - inside) * np.exp(self._log_slope_inside(inside))
        v = (self._inside(inside) + straight - self.centre) / self.spread
        return np.where(self.is_plain, x, v)

    def log_slope(self, x: FloatArray) -> FloatArray:
        """Return log dv/dx (..., m)."""
        slope = self._log_slope_inside(np.clip(x, self.low, self.high)) - np.log(self.spread)
        return np.where(self.is_plain & ~np.isnan(x), 0.0, slope)

    def inverse(self, v: FloatArray) -> FloatArray:
        """Return x (..., m) of v."""
        t = self.centre + self.spread * v
        t_low, t_high = (self._inside(end) for end in (self.low, self.high))
        inside = np.clip(t, t_low, t_high)
        size = np.abs(np.where(self.is_log, 0.0, inside))
        power = np.where(inside >= 0.0, self.exponent, 2.0 - self.exponent)
        has_none = power < _NO_EXPONENT
        power = np.where(has_none, 1.0, power)
        log_size = np.where(has_none, size, np.log1p(power * size) / power)
        bent = np.sign(inside) * np.expm1(log_size)
        x = np.where(self.is_log, np.exp(np.where(self.is_log, inside, 0.0)), bent)
        ends = np.where(t < t_low, self._rise(self.low), self._rise(self.high))
        return np.where(self.is_plain, v, x + (t - inside) * ends)

    def rise_at_centre(self) -> FloatArray:
        """Return dx/dv (m,) at v = 0."""
        return np.exp(-self.log_slope(self.inverse(np.zeros(len(self.exponent)))))

    def _rise(self, x: FloatArray) -> FloatArray:
        """Return dx/dT at x (m,)."""
        return np.exp(-self._log_slope_inside(x))

    def _inside(self, x: FloatArray) -> FloatArray:
        """Return T(x) of x (..., m) between the ends."""
        size, power = np.log1p(np.abs(x)), self._power(x)
        has_none = power < _NO_EXPONENT
        power = np.where(has_none, 1.0, power)
        bent = np.sign(x) * np.where(has_none, size, np.expm1(power * size) / power)
        return np.where(self.is_log, np.log(np.where(self.is_log, x, 1.0)), bent)

    def _log_slope_inside(self, x: FloatArray) -> FloatArray:
        """Return log dT/dx at x (..., m) between the ends."""
        bent = (self._power(x) - 1.0) * np.log1p(np.abs(x))
        return np.where(self.is_log, -np.log(np.where(self.is_log, x, 1.0)), bent)

    def _power(self, x: FloatArray) -> FloatArray:
        return np.where(x >= 0.0, self.exponent, 2.0 - self.exponent)

    # ---- moments ----------------------------------------------------------------------------------

    def output_moments(
        self, mean: FloatArray, variance: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return E E(x | f), Var E(x | f) and E Var(x | f) (..., m), for v ~ N(f, noise) and uncertain f.

        Only columns that are transformed take work.
        """
        bent = np.flatnonzero(~self.is_plain)
        some = Curves(**{name: values[bent] for name, values in vars(self).items()})
        outputs = np.array(mean, np.float64), np.array(variance, np.float64), np.array(noise, np.float64)
        of_mean, of_function, of_noise = (part[..., bent] for part in outputs)
        first, whole = some.moments(of_mean, of_function + of_noise)
        of_means = np.minimum(some.variance_of_means(of_mean, of_function, of_noise), whole)
        for output, part in zip(outputs, (first, of_means, whole - of_means), strict=True):
            output[..., bent] = part
        return outputs

    def moments(self, mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance (..., m) of x for v ~ N(mean, variance).

        The normal is cut at both ends. Each part has a rule of its own, for x is smooth within each.
        """
        root = np.sqrt(np.maximum(variance, 1e-24))
        ends = [np.clip((self.forward(end) - mean) / root, -_RANGE, _RANGE) for end in (self.low, self.high)]
        edges = np.stack([np.full_like(mean, -_RANGE), *ends, np.full_like(mean, _RANGE)])
        half = 0.5 * (edges[1:] - edges[:-1])
        middle = self.inverse(mean)
        first, second = np.zeros_like(mean), np.zeros_like(mean)
        for node, weight in zip(PART_NODES, PART_WEIGHTS, strict=True):
            z = edges[:-1] + half * (1.0 + node)
            # from the middle, so that squares of large numbers do not cancel
            x = self.inverse(mean + root * z) - middle
            mass = weight * half * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
            first += np.sum(mass * x, axis=0)
            second += np.sum(mass * x**2, axis=0)
        spread = np.maximum(second - first**2, 0.0)
        return np.where(self.is_plain, mean, middle + first), np.where(self.is_plain, variance, spread)

    def variance_of_means(self, mean: FloatArray, variance: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the variance over f ~ N(mean, variance) of the mean of x for v ~ N(f, noise)."""
        steps = np.sqrt(noise) * np.expand_dims(_FEW_NODES, tuple(range(1, mean.ndim + 1)))
        root, middle = np.sqrt(variance), self.inverse(mean)
        first, second = np.zeros_like(mean), np.zeros_like(mean)
        for node, weight in zip(_FEW_NODES, _FEW_WEIGHTS, strict=True):
            x = np.tensordot(_FEW_WEIGHTS, self.inverse(mean + root * node + steps) - middle, 1)
            first += weight * x
            second += weight * x**2
        return np.where(self.is_plain, variance, np.maximum(second - first**2, 0.0))


@lru_cache(maxsize=64)
def _curves(names: tuple[str, ...], numbers: tuple[tuple[float, ...], ...]) -> Curves:
    kinds = np.array(names)
    return Curves(kinds == NONE, kinds == LOG, *np.array(numbers, np.float64).reshape(-1, 5).T)


# ---- which transform a column has ------------------------------------------------------------------


def _transformed_units(name: str, values: FloatArray) -> Units:
    """Return location and scale, each (1,), of the observed entries (n,) of a column before its transform.

    The logarithm needs no location. That of Yeo and Johnson bends at 0, which is put to the median; its unit
    is the median distance of the entries that differ from it, so that most of them are where it bends.
    """
    if name == NONE or not len(values):
        _, mean, variance = Summary.of(values[:, None])
        return Units(mean, np.where(variance > 0.0, np.sqrt(variance), 1.0))
    middle = np.median(values, keepdims=True)
    if name == LOG:
        return Units(np.zeros(1), middle)
    distances = np.abs(values - middle)
    distances = distances[distances > 0.0]
    return Units(middle, np.median(distances, keepdims=True) if len(distances) else np.ones(1))


def _fit_curve(name: str, values: FloatArray, *, goes_on_below: bool = False) -> tuple[float, ...]:
    """Return exponent, low, high, centre and spread of the transform of a column, of which some are observed.

    The exponent has the largest likelihood of `values` (n,) as a transformed normal sample. Only the side
    where numbers run away has an end. A logarithm with `goes_on_below` has one below, too, so that what is
    not positive has a place: a standard deviation below the smallest entry, where predictions hardly come.
    """
    if name == NONE or not len(values):
        return (1.0, -_FAR, _FAR, 0.0, 1.0)
    location, scale = _transformed_units(name, values)
    x = (values - location) / scale
    least, most = float(x.min()), float(x.max())
    if name == LOG:
        below = least * math.exp(-float(np.std(np.log(x))))
        ends = (0.0, below if goes_on_below else _NEAR_ZERO, most)
    else:
        exponent = _likeliest_exponent(x)
        ends = (exponent, least if exponent > 1.0 else -_FAR, most if exponent < 1.0 else _FAR)
    t = Curves.of((name,), ((*ends, 0.0, 1.0),)).forward(x[:, None])
    spread = float(np.std(t))
    return (*ends, float(np.mean(t)), spread if spread > 0.0 else 1.0)


def _log_likelihood(name: str, values: FloatArray, numbers: tuple[float, ...]) -> float:
    """Return the largest log likelihood of entries (n,) of a column as a sample of a transformed normal."""
    location, scale = _transformed_units(name, values)
    curve, x = Curves.of((name,), (numbers,)), ((values - location) / scale)[:, None]
    slopes = float(np.sum(curve.log_slope(x))) - len(x) * float(np.log(scale[0]))
    return _normal_log_likelihood(curve.forward(x)) + slopes


def _likeliest_exponent(x: FloatArray) -> float:
    ones = np.ones(len(_EXPONENTS))
    every = Curves(ones > 1, ones > 1, _EXPONENTS, -_FAR * ones, _FAR * ones, 0.0 * ones, ones)
    columns = np.broadcast_to(x[:, None], (len(x), len(_EXPONENTS)))
    variance = np.maximum(np.var(every.forward(columns), axis=0), np.finfo(float).tiny)
    found = -0.5 * len(x) * np.log(variance) + np.sum(every.log_slope(columns), axis=0)
    return float(_EXPONENTS[np.argmax(found)])


def _normal_log_likelihood(t: FloatArray) -> float:
    variance = max(float(np.var(t)), np.finfo(float).tiny)
    return -0.5 * len(t) * (math.log(2.0 * math.pi * variance) + 1.0)


# "auto" takes a transform that gains so many nats an entry. Fewer entries or values tell too little about the
# shape of a column, and one value with a larger share of the entries is not made normal by any transform.
_LEAST_GAIN = 0.1
_FEWEST_ENTRIES = 20
_FEWEST_VALUES = 11
_LARGEST_SHARE = 0.5


def choose_transforms(
    Y: FloatArray, asked: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """Return the names and numbers of the transforms of columns (N, m), with "auto" decided for each.

    What speaks for a transform is the largest log likelihood of the observed entries as a sample of a normal
    that is transformed back, in the units of the column, so that slopes count: how much larger it is than
    that of a normal, less log n / 2 nats for the exponent if there is one. "auto" takes the logarithm, for
    positive numbers, or that of Yeo and Johnson, whichever gains more, if it gains 0.1 nats for each entry
    and log n / 2 in all. Columns with fewer than 20 entries or 11 values, or with one value in more than half
    of the entries, are taken as they are.
    """
    found = [
        _automatic(values) if name == AUTO else (name, _fit_curve(name, values))
        for name, values in zip(asked, (column[~np.isnan(column)] for column in Y.T), strict=True)
    ]
    return tuple(name for name, _ in found), tuple(numbers for _, numbers in found)


def _automatic(values: FloatArray) -> tuple[str, tuple[float, ...]]:
    """Return the transform of a column with these entries that "auto" stands for, and its numbers."""
    best = NONE, _fit_curve(NONE, values)
    _, counts = np.unique(values, return_counts=True)
    n_entries = len(values)
    if n_entries < _FEWEST_ENTRIES or len(counts) < _FEWEST_VALUES:
        return best
    if counts.max() > _LARGEST_SHARE * n_entries:
        return best
    price = 0.5 * math.log(n_entries)
    level = _log_likelihood(NONE, values, best[1]) + _LEAST_GAIN * n_entries + price
    for name in (LOG, YEO_JOHNSON):
        if name == LOG and values.min() <= 0.0:
            continue
        numbers = _fit_curve(name, values, goes_on_below=True)
        found = _log_likelihood(name, values, numbers) - (price if name == YEO_JOHNSON else 0.0)
        if found > level:
            best, level = (name, numbers), found
    return best
