"""Ordered levels by a cumulative logit: P(y <= level k) = 1 / (1 + e^-(t_k - f)).

The codes of a column's levels may begin anywhere and may have gaps: a channel holds the rank 0, ..., C - 1 of
an entry among the levels of its column.

The thresholds t_0 < t_1 < ... < t_(C-2) are learned as t_0 and the logarithms of the gaps between them. With
a = t_y - f and b = t_(y-1) - f, for a level that is neither the lowest nor the highest,

    sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - e^-(a - b)),

so that log p is a sum of stable terms, of which the lowest level has only the first and the highest only
the second. It is concave in f.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import sigmoid, softplus
from scipy.special import expit, logit

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError
from srflvm.likelihoods.base import (
    Expected,
    Likelihood,
    Moments,
    Parameters,
    Start,
    Units,
    gauss_hermite,
    refuse,
)

_MOST_LEVELS = 100

# In the middle of so wide a level an entry is of that level with probability 0.995.
_LARGEST_GAP = 12.0
_SHARPNESS = 16.0


@dataclass(frozen=True)
class Ordinal(Likelihood):
    """Levels around f, with learned parameters `threshold` and `log_gap_1` to `log_gap_{C-2}`.

    Parameters
    ----------
    n_levels : int or None
        Number C of levels in every column, whose codes are 0 to C - 1; if None, the levels of each
        column are the codes that the training data have there.
    levels : tuple of tuples of int, or None
        Codes of the levels of each column, in order, in the place of `n_levels`.
    """

    name: ClassVar[str] = "ordinal"
    has_levels: ClassVar[bool] = True
    moves_with_f: ClassVar[str | None] = "threshold"
    _discrete: ClassVar[bool] = True
    n_levels: int | None = None
    levels: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.n_levels is not None and (self.n_levels != round(self.n_levels) or self.n_levels < 2):
            raise ValueError(f"n_levels={self.n_levels!r}: a whole number of at least two levels is needed.")
        if self.levels is None:
            return
        if self.n_levels is not None:
            raise ValueError("Give n_levels or levels, not both.")
        levels = tuple(tuple(int(code) for code in own) for own in self.levels)
        if not levels or any(list(own) != sorted(set(own)) or not own for own in levels):
            raise ValueError(f"levels={self.levels!r}: give each column its codes in increasing order.")
        object.__setattr__(self, "levels", levels)

    @property
    def has_numbers_by_column(self) -> bool:
        return self.levels is not None

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        if self.levels is not None:
            self._refuse_other_levels(Y, columns)
            return
        whole = "a level is a whole number"
        remedy = "Give the levels whole numbers in their order, or use likelihood='gaussian'."
        refuse(~np.isnan(Y) & (np.floor(Y) != Y), Y, columns, whole, remedy)
        if self.n_levels is not None:
            refuse(
                (self.n_levels <= Y) | (Y < 0.0),
                Y,
                columns,
                f"the levels are 0 to {self.n_levels - 1}",
                "Recode the levels from 0 on, give a larger n_levels, or leave it out: the levels are then "
                "those that Y has.",
            )
            return
        for own, column in zip(_levels_of(Y), columns, strict=True):
            if len(own) > _MOST_LEVELS:
                raise DataError(
                    f"Y has {len(own)} different levels in {column}; the ordinal likelihood has a parameter "
                    f"for each and takes at most {_MOST_LEVELS}. Use likelihood='gaussian' for it, or fewer "
                    "levels."
                )

    def _refuse_other_levels(self, Y: FloatArray, columns: Sequence[str]) -> None:
        for index, own in enumerate(self._codes(Y.shape[1])):
            y = Y[:, index : index + 1]
            refuse(
                ~np.isnan(y) & ~np.isin(y, own),
                y,
                columns[index : index + 1],
                f"the levels of this column are {', '.join(map(str, own))}",
                "Use NaN for an entry of another level, or fit to data that have it.",
            )

    def level_codes(self, n_columns: int) -> list[FloatArray]:
        if self.levels is None:
            return [np.arange(float(self._n_levels()))] * n_columns
        return [np.asarray(own, np.float64) for own in self.levels]

    def resolve(self, Y: FloatArray) -> Ordinal:
        if self.n_levels is not None or self.levels is not None:
            return self
        found = tuple(_levels_of(Y))
        if all(own == tuple(range(max(len(own), 2))) for own in found) and len(set(found)) == 1:
            return replace(self, n_levels=len(found[0]))
        return replace(self, levels=tuple(own or (0,) for own in found))

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        if self.levels is None:
            return Y, {}
        codes = self._codes(Y.shape[1])
        ranks = [np.searchsorted(own, np.nan_to_num(Y[:, index])) for index, own in enumerate(codes)]
        ranked = np.where(np.isnan(Y), np.nan, np.stack(ranks, axis=1))
        if len({len(own) for own in codes}) == 1:
            return ranked, {}
        highest = np.array([len(own) - 1.0 for own in codes])
        return ranked, {"highest": np.broadcast_to(highest, ranked.shape)}

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        # thresholds that reproduce the frequencies at f = 0; half an entry of each level is added, also of
        # levels above the column's own, whose gaps then play no part
        levels = np.arange(self._n_levels())
        seen = (Y[:, :, None] == levels).sum(axis=0) + 0.5
        below = np.cumsum(seen, axis=1)
        thresholds = logit(below[:, :-1] / below[:, -1:])
        gaps = np.log(np.diff(thresholds, axis=1))
        parameters = {"threshold": thresholds[:, 0]}
        parameters |= {_gap_name(k + 1): gaps[:, k] for k in range(gaps.shape[1])}
        return Start(np.zeros(Y.shape[1]), parameters)

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        lower, upper, log_between = self._interval(y, parameters)
        first = jnp.where(y < self._highest(parameters), -softplus(f - upper), 0.0)
        return first + jnp.where(y > 0, -softplus(lower - f), 0.0) + log_between

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        lower, upper, log_between = self._interval(y, parameters)
        has_upper, has_lower = y < self._highest(parameters), y > 0
        above, below = jnp.where(has_upper, f - upper, 0.0), jnp.where(has_lower, lower - f, 0.0)
        value = log_between - has_upper * softplus(above) - has_lower * softplus(below)
        slope = has_lower * sigmoid(below) - has_upper * sigmoid(above)
        bends = [has * sigmoid(x) * sigmoid(-x) for has, x in ((has_upper, above), (has_lower, below))]
        return Expected(value, slope, bends[0] + bends[1])

    def parameter_derivatives(
        self,
        names: tuple[str, ...],
        y: Array,
        mean: Array,
        variance: Array,
        observed: Array,
        parameters: Parameters,
    ) -> tuple[Array, Array]:
        # An entry depends on two thresholds, its upper u and its lower v. With k = 1 / (e^(u - v) - 1) for a
        # level between two others, and k' = -k (1 + k) its derivative in u - v,
        #   dl/du = sigmoid(f - u) + k,       d2l/du2 = -sigmoid'(f - u) + k',     d2l/du dv = -k',
        #   dl/dv = -sigmoid(v - f) - k,      d2l/dv2 = -sigmoid'(v - f) + k',
        # so that all follow from four averages over f.
        lower, upper, _ = self._interval(y, parameters)
        has_upper, has_lower = observed & (y < self._highest(parameters)), observed & (y > 0)
        between = has_upper & has_lower

        def at(f: Array) -> tuple[Array, ...]:
            above, below = sigmoid(f - upper), sigmoid(lower - f)
            return above, below, above * (1.0 - above), below * (1.0 - below)

        above, below, above_bend, below_bend = gauss_hermite(at, mean, variance)
        k = jnp.where(between, 1.0 / jnp.expm1(jnp.where(between, upper - lower, 1.0)), 0.0)
        bend = -k * (1.0 + k)
        of_upper, of_lower = has_upper * above + k, -(has_lower * below) - k
        bend_upper, bend_lower = bend - has_upper * above_bend, bend - has_lower * below_bend

        def summed(level: int, values: Array) -> Array:
            return jnp.sum(jnp.where(y == level, values, 0.0), axis=1, dtype=jnp.float64)

        n_thresholds = self._n_levels() - 1
        slopes = [summed(j, of_upper) + summed(j + 1, of_lower) for j in range(n_thresholds)]
        hessian = jnp.zeros((len(y), n_thresholds, n_thresholds))
        for j in range(n_thresholds):
            hessian = hessian.at[:, j, j].set(summed(j, bend_upper) + summed(j + 1, bend_lower))
            if j > 0:
                both = summed(j, -bend)
                hessian = hessian.at[:, j, j - 1].set(both).at[:, j - 1, j].set(both)
        return self._by_gaps(names, jnp.stack(slopes, axis=1), hessian, parameters)

    def _by_gaps(
        self, names: tuple[str, ...], slopes: Array, hessian: Array, parameters: Parameters
    ) -> tuple[Array, Array]:
        """Turn derivatives in the thresholds into those in the first one and the logarithms of the gaps."""
        n_thresholds = slopes.shape[1]
        free = jnp.stack([parameters[_gap_name(k)][:, 0] for k in range(1, n_thresholds)] or [slopes[:, 0]])
        first = jnp.vectorize(jax.grad(_gap))(free)[: n_thresholds - 1]
        second = jnp.vectorize(jax.grad(jax.grad(_gap)))(free)[: n_thresholds - 1]
        one, none = jnp.ones((1, len(slopes))), jnp.zeros((1, len(slopes)))
        # t_j = t_0 + the sum of the gaps up to j
        below = jnp.tril(jnp.ones((n_thresholds, n_thresholds)))
        jacobian = below * jnp.concatenate([one, first]).T[:, None, :]
        by_gap = jnp.einsum("bjk,bj->bk", jacobian, slopes)
        bends = jnp.einsum("bjk,bji,bil->bkl", jacobian, hessian, jacobian)
        bent = jnp.concatenate([none, second]).T * (slopes @ below)
        bends += bent[:, :, None] * jnp.eye(n_thresholds)
        order = [0 if name == "threshold" else int(name.removeprefix("log_gap_")) for name in names]
        return by_gap[:, order], bends[:, order][:, :, order]

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        # with levels v_0 < v_1 < ...: E y = v_0 + sum_k (v_(k+1) - v_k) P(y > level k), and likewise E y^2.
        # Measured from v_0, which leaves the variance as it is.
        values = self.level_values(f.shape[-1])
        heights = values - values[0]
        mean, square = jnp.zeros_like(f), jnp.zeros_like(f)
        for k, threshold in enumerate(self.thresholds(parameters)):
            beyond = jax.nn.sigmoid(f - threshold)
            mean = mean + (heights[k + 1] - heights[k]) * beyond
            square = square + (heights[k + 1] ** 2 - heights[k] ** 2) * beyond
        return Moments(values[0] + mean, jnp.maximum(square - mean**2, 0.0))

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        uniform = rng.uniform(size=f.shape)
        thresholds = [np.asarray(t) for t in self.thresholds(parameters)]
        rank = np.sum([uniform < expit(f - t) for t in thresholds], axis=0)
        return np.take_along_axis(self.level_values(f.shape[1]), rank, axis=0)

    def level_values(self, n_columns: int) -> FloatArray:
        """Return the codes of each column's levels (C, m); a column with fewer repeats its highest."""
        n_levels = self._n_levels()
        if self.levels is None:
            return np.broadcast_to(np.arange(float(n_levels))[:, None], (n_levels, n_columns))
        codes = self._codes(n_columns)
        return np.array([[own[min(k, len(own) - 1)] for own in codes] for k in range(n_levels)], float)

    def thresholds(self, parameters: Parameters) -> list[Array]:
        """Return t_0, ..., t_(C-2), each with the shape of the parameters."""
        found = [jnp.asarray(parameters["threshold"])]
        for k in range(1, self._n_levels() - 1):
            found.append(found[-1] + _gap(parameters[_gap_name(k)]))
        return found

    def natural_parameters(self, learned: Parameters, units: Units) -> dict[str, FloatArray]:
        natural = {name: value.copy() for name, value in super().natural_parameters(learned, units).items()}
        for k in range(1, self._n_levels() - 1):
            natural[_gap_name(k)] = np.log(np.array(_gap(jnp.asarray(natural[_gap_name(k)])), np.float64))
        for index, own in enumerate(self.levels or ()):
            for k in range(max(len(own) - 1, 1), self._n_levels() - 1):
                natural[_gap_name(k)][index] = np.nan
        return natural

    def _interval(self, y: Array, parameters: Parameters) -> tuple[Array, Array, Array]:
        """Return t_(y-1), t_y and log(1 - e^-(t_y - t_(y-1))).

        The last is zero where y is the lowest or the highest level.
        """
        lower = upper = log_between = jnp.zeros_like(y)
        for k, threshold in enumerate(self.thresholds(parameters)):
            upper = jnp.where(y == k, threshold, upper)
            lower = jnp.where(y == k + 1, threshold, lower)
            if k > 0:
                gap = _gap(parameters[_gap_name(k)])
                between = (y == k) & (y < self._highest(parameters))
                log_between = jnp.where(between, jnp.log(-jnp.expm1(-gap)), log_between)
        return lower, upper, log_between

    def _highest(self, parameters: Parameters) -> Any:
        """Return the rank of the highest level of each column."""
        return parameters.get("highest", self._n_levels() - 1)

    def _n_levels(self) -> int:
        """Return the largest number of levels of a column."""
        if self.levels is not None:
            return max(2, *map(len, self.levels))
        if self.n_levels is None:
            raise ValueError("The levels are not known yet; call resolve with the training columns first.")
        return self.n_levels

    def _codes(self, n_columns: int) -> tuple[tuple[int, ...], ...]:
        assert self.levels is not None
        if len(self.levels) != n_columns:
            raise ValueError(f"levels of {len(self.levels)} columns do not fit {n_columns} columns.")
        return self.levels


def _levels_of(Y: FloatArray) -> list[tuple[int, ...]]:
    """Return the different codes in each column, in order."""
    return [tuple(int(code) for code in np.unique(y[~np.isnan(y)])) for y in Y.T]


def _gap(log_gap: Array) -> Array:
    """Return e^log_gap, smoothly held below _LARGEST_GAP.

    Where levels are predicted without error, gaps and f would grow together for ever.
    """
    beyond = softplus(_SHARPNESS * (log_gap - math.log(_LARGEST_GAP))) / _SHARPNESS
    return jnp.exp(log_gap - beyond)


def _gap_name(k: int) -> str:
    return f"log_gap_{k}"
