"""Monotone transforms of skewed columns, and moments of what they make of a normal.

A column x, in units of its own, is seen by the model as v = (T(x) - centre) / spread. T is the logarithm, or
the transform of Yeo and Johnson (2000) with an exponent from 0 to 2,

    T(x) = sign(x) ((1 + |x|)^p - 1) / p,   p = exponent for x >= 0 and 2 - exponent for x < 0,

with the limit sign(x) log(1 + |x|) for p = 0. Beyond `low` and `high`, which are where the observed entries
end, T goes on as a straight line. It maps the real line onto itself in any case, so that a density stays one,
and no exponential carries a tail of the normal to numbers far beyond all that were seen. A density of x is
that of v times the slope dv/dx.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

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

    def inverse(self, v: Any) -> Any:
        """Return x (..., m) of v, as an array of the library of v."""
        xp = v.__array_namespace__()
        t = self.centre + self.spread * v
        t_low, t_high = (self._inside(end) for end in (self.low, self.high))
        inside = xp.clip(t, t_low, t_high)
        size = xp.abs(xp.where(self.is_log, 0.0, inside))
        power = xp.where(inside >= 0.0, self.exponent, 2.0 - self.exponent)
        has_none = power < _NO_EXPONENT
        power = xp.where(has_none, 1.0, power)
        log_size = xp.where(has_none, size, xp.log1p(power * size) / power)
        bent = xp.sign(inside) * xp.expm1(log_size)
        x = xp.where(self.is_log, xp.exp(xp.where(self.is_log, inside, 0.0)), bent)
        ends = xp.where(t < t_low, self._rise(self.low), self._rise(self.high))
        return xp.where(self.is_plain, v, x + (t - inside) * ends)

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

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance (..., m) of x for v ~ N(mean, variance).

        The normal is cut at both ends. Each part has a rule of its own, for x is smooth within each.
        """
        root = jnp.sqrt(jnp.maximum(variance, 1e-24))
        ends = [(self.forward(end) - mean) / root for end in (self.low, self.high)]
        cuts = [jnp.full_like(mean, -_RANGE), *(jnp.clip(end, -_RANGE, _RANGE) for end in ends)]
        cuts.append(jnp.full_like(mean, _RANGE))
        middle = self.inverse(mean)

        def add(total: tuple[Array, Array], rule: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            node, weight = rule
            first, second = total
            for left, right in zip(cuts[:-1], cuts[1:], strict=True):
                half = 0.5 * (right - left)
                z = left + half * (1.0 + node)
                # from the middle, so that squares of large numbers do not cancel
                x = self.inverse(mean + root * z) - middle
                mass = weight * half * jnp.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
                first, second = first + mass * x, second + mass * x**2
            return (first, second), None

        rule = (jnp.asarray(PART_NODES, mean.dtype), jnp.asarray(PART_WEIGHTS, mean.dtype))
        zeros = jnp.zeros_like(mean)
        (first, second), _ = jax.lax.scan(add, (zeros, zeros), rule)
        spread = jnp.maximum(second - first**2, 0.0)
        return jnp.where(self.is_plain, mean, middle + first), jnp.where(self.is_plain, variance, spread)

    def variance_of_means(self, mean: Array, variance: Array, noise: Array) -> Array:
        """Return the variance over f ~ N(mean, variance) of the mean of x for v ~ N(f, noise)."""
        few = (jnp.asarray(_FEW_NODES, mean.dtype), jnp.asarray(_FEW_WEIGHTS, mean.dtype))
        root, jitter, middle = jnp.sqrt(variance), jnp.sqrt(noise), self.inverse(mean)

        def given(f: Array) -> Array:
            nodes = zip(_FEW_NODES.tolist(), _FEW_WEIGHTS.tolist(), strict=True)
            return sum((weight * (self.inverse(f + jitter * node) - middle) for node, weight in nodes), 0.0 * f)

        def add(total: tuple[Array, Array], rule: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            node, weight = rule
            x = given(mean + root * node)
            return (total[0] + weight * x, total[1] + weight * x**2), None

        zeros = jnp.zeros_like(mean)
        (first, second), _ = jax.lax.scan(add, (zeros, zeros), few)
        return jnp.where(self.is_plain, variance, jnp.maximum(second - first**2, 0.0))


@lru_cache(maxsize=64)
def _curves(names: tuple[str, ...], numbers: tuple[tuple[float, ...], ...]) -> Curves:
    kinds = np.array(names)
    return Curves(kinds == NONE, kinds == LOG, *np.array(numbers, np.float64).reshape(-1, 5).T)


# ---- which transform a column has ------------------------------------------------------------------


def transformed_units(name: str, values: FloatArray) -> Units:
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


def fit_curve(name: str, values: FloatArray, *, goes_on_below: bool = False) -> tuple[float, ...]:
    """Return exponent, low, high, centre and spread of the transform of a column, of which some are observed.

    The exponent has the largest likelihood of `values` (n,) as a transformed normal sample. Only the side
    where numbers run away has an end, and a logarithm with `goes_on_below` at the smallest entry, so that
    what is not positive has a place there too.
    """
    if name == NONE or not len(values):
        return (1.0, -_FAR, _FAR, 0.0, 1.0)
    location, scale = transformed_units(name, values)
    x = (values - location) / scale
    least, most = float(x.min()), float(x.max())
    if name == LOG:
        ends = (0.0, least if goes_on_below else _NEAR_ZERO, most)
    else:
        exponent = _likeliest_exponent(x)
        ends = (exponent, least if exponent > 1.0 else -_FAR, most if exponent < 1.0 else _FAR)
    t = Curves.of((name,), ((*ends, 0.0, 1.0),)).forward(x[:, None])
    spread = float(np.std(t))
    return (*ends, float(np.mean(t)), spread if spread > 0.0 else 1.0)


def log_likelihood(name: str, values: FloatArray, numbers: tuple[float, ...]) -> float:
    """Return the largest log likelihood of entries (n,) of a column as a sample of a transformed normal."""
    location, scale = transformed_units(name, values)
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


def column_units(names: tuple[str, ...], Y: FloatArray) -> Units:
    """Return the units of columns (N, m) before their transforms."""
    found = [
        transformed_units(name, column[~np.isnan(column)]) for name, column in zip(names, Y.T, strict=True)
    ]
    return Units(*(np.concatenate(part) for part in zip(*found, strict=True)))


def has_no_end_below(numbers: tuple[float, ...]) -> bool:
    """Tell whether a logarithm has no place for numbers that are not positive."""
    return numbers[1] <= _NEAR_ZERO


# A transform is chosen if it gains so many nats an entry, of at least so many entries, and the order of
# magnitude by which the likelihood of one more number is overrated.
_MARGIN = 0.05
_FEWEST_ENTRIES = 20

# Rows that regressions on the other columns look at, and the penalties that they compare.
_MOST_ROWS = 2000
_PENALTIES = (1.0, 10.0, 100.0, 1000.0)


class _Candidate(NamedTuple):
    """A transform of a column with its numbers, the log likelihood of all its entries, and v (N,)."""

    name: str
    numbers: tuple[float, ...]
    log_likelihood: float
    v: FloatArray
    log_slope: float


def choose_transforms(
    Y: FloatArray, asked: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """Return the names and numbers of the transforms of columns (N, m), with "auto" decided.

    What speaks for a transform is the density of the entries as they are given, with its slopes: of all
    entries as a sample of a transformed normal, and of each entry given the other columns, by a ridge
    regression of the transformed column that leaves it out. It is chosen if both rise by 0.05 nats an entry
    and by log n / 2 nats. Where both transforms do, the second of the two says which.
    """
    by_column = [_candidates(name, column) for name, column in zip(asked, Y.T, strict=True)]
    shown = [np.nan_to_num(np.column_stack([one.v for one in some])) for some in by_column]
    chosen = []
    for place, some in enumerate(by_column):
        others = [np.empty((len(Y), 0)), *shown[:place], *shown[place + 1 :]]
        best = some[0] if len(some) == 1 else _likeliest(some, np.concatenate(others, axis=1))
        chosen.append(best)
    return tuple(one.name for one in chosen), tuple(one.numbers for one in chosen)


def _candidates(asked: str, column: FloatArray) -> list[_Candidate]:
    """Return the transforms that may be taken: what was asked for, or none and those better by themselves."""
    values = column[~np.isnan(column)]
    if asked != AUTO:
        return [_candidate(asked, column, fit_curve(asked, values))]
    found = [_candidate(NONE, column, fit_curve(NONE, values))]
    if len(values) < _FEWEST_ENTRIES or values.min() == values.max():
        return found
    for name in (LOG, YEO_JOHNSON):
        if name == LOG and values.min() <= 0.0:
            continue
        one = _candidate(name, column, fit_curve(name, values, goes_on_below=True))
        if one.log_likelihood - found[0].log_likelihood > _least_gain(len(values)):
            found.append(one)
    return found


def _candidate(name: str, column: FloatArray, numbers: tuple[float, ...]) -> _Candidate:
    values = column[~np.isnan(column)]
    location, scale = transformed_units(name, values)
    curve, x = Curves.of((name,), (numbers,)), ((column - location) / scale)[:, None]
    slope = float(np.nanmean(curve.log_slope(x))) - float(np.log(scale[0])) if len(values) else 0.0
    found = log_likelihood(name, values, numbers) if len(values) else 0.0
    return _Candidate(name, numbers, found, curve.forward(x)[:, 0], slope)


def _least_gain(n_entries: int) -> float:
    return _MARGIN * n_entries + 0.5 * math.log(n_entries)


def _likeliest(some: list[_Candidate], others: FloatArray) -> _Candidate:
    """Return the candidate under which entries are likeliest given the other columns (N, p), 0 if missing.

    Each candidate's error is that of entries left out, which also says how wide its normal is.
    """
    rows = np.flatnonzero(~np.isnan(some[0].v))
    rows = rows[:: -(-len(rows) // _MOST_ROWS)]
    gains = [one.log_slope - 0.5 * math.log(_error_left_out(others[rows], one.v[rows])) for one in some]
    best = int(np.argmax(gains))
    number = np.count_nonzero(~np.isnan(some[0].v))
    return some[best] if number * (gains[best] - gains[0]) > _least_gain(number) else some[0]


def _error_left_out(others: FloatArray, v: FloatArray) -> float:
    """Return the mean squared error of v (n,) by the best ridge regression, each entry left out in turn.

    The residual of an entry left out is that of the regression over 1 - h, h its leverage.
    """
    n_rows, n_columns = others.shape
    others, centre = others - others.mean(axis=0), v.mean()
    gram, product = others.T @ others, others.T @ (v - centre)
    errors = []
    for penalty in _PENALTIES:
        hat = np.linalg.solve(gram + penalty * np.eye(n_columns), others.T)
        leverage = 1.0 / n_rows + np.sum(others * hat.T, axis=1)
        residual = v - centre - others @ np.linalg.solve(gram + penalty * np.eye(n_columns), product)
        errors.append(np.mean(np.square(residual / np.maximum(1.0 - leverage, 0.01))))
    return max(float(min(errors)), 1e-12)
