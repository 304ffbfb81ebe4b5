"""Ordered levels 0, 1, ..., C - 1 by a cumulative logit: P(y <= k) = 1 / (1 + e^-(t_k - f)).

The thresholds t_0 < t_1 < ... < t_(C-2) are learned as t_0 and the logarithms of the gaps between them. With
a = t_y - f and b = t_(y-1) - f, for a level that is neither the lowest nor the highest,

    sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - e^-(a - b)),

so that log p is a sum of stable terms, of which the lowest level has only the first and the highest only
the second. It is concave in f.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import sigmoid, softplus
from scipy.special import expit, logit

from srflvm._types import FloatArray
from srflvm.likelihoods._base import Expected, Likelihood, Moments, Parameters, Start, refuse
from srflvm.likelihoods._observed import check_counts


@dataclass(frozen=True)
class Ordinal(Likelihood):
    """Levels around f, with learned parameters `threshold` and `log_gap_1` to `log_gap_{C-2}`.

    Parameters
    ----------
    n_levels : int or None
        The number C of levels in every column; from the largest training entry if None.
    """

    name: ClassVar[str] = "ordinal"
    _discrete: ClassVar[bool] = True
    n_levels: int | None = None

    def __post_init__(self) -> None:
        if self.n_levels is not None and (self.n_levels != round(self.n_levels) or self.n_levels < 2):
            raise ValueError(f"n_levels={self.n_levels!r}: a whole number of at least two levels is needed.")

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        check_counts(Y, columns, "ordinal")
        if self.n_levels is not None:
            refuse(
                self.n_levels <= Y,
                Y,
                columns,
                f"the levels are 0 to {self.n_levels - 1}",
                "Recode the levels from 0 on, or give a larger n_levels.",
            )

    def resolve(self, Y: FloatArray) -> Ordinal:
        if self.n_levels is not None:
            return self
        return replace(self, n_levels=max(2, 1 + int(np.nanmax(Y, initial=0.0))))

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        # thresholds that reproduce the frequencies at f = 0; half an entry of each level is added
        levels = np.arange(self._levels())
        seen = (Y[:, :, None] == levels).sum(axis=0) + 0.5
        below = np.cumsum(seen, axis=1)
        thresholds = logit(below[:, :-1] / below[:, -1:])
        gaps = np.log(np.diff(thresholds, axis=1))
        parameters = {"threshold": thresholds[:, 0]}
        parameters |= {_gap_name(k + 1): gaps[:, k] for k in range(gaps.shape[1])}
        return Start(np.zeros(Y.shape[1]), parameters)

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        lower, upper, log_between = self._interval(y, parameters)
        first = jnp.where(y < self._levels() - 1, -softplus(f - upper), 0.0)
        return first + jnp.where(y > 0, -softplus(lower - f), 0.0) + log_between

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        lower, upper, log_between = self._interval(y, parameters)
        has_upper, has_lower = y < self._levels() - 1, y > 0
        above, below = jnp.where(has_upper, f - upper, 0.0), jnp.where(has_lower, lower - f, 0.0)
        value = log_between - has_upper * softplus(above) - has_lower * softplus(below)
        slope = has_lower * sigmoid(below) - has_upper * sigmoid(above)
        bends = [has * sigmoid(x) * sigmoid(-x) for has, x in ((has_upper, above), (has_lower, below))]
        return Expected(value, slope, bends[0] + bends[1])

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        # E y = sum_k P(y > k), E y^2 = sum_k (2 k + 1) P(y > k)
        mean, square = jnp.zeros_like(f), jnp.zeros_like(f)
        for k, threshold in enumerate(self.thresholds(parameters)):
            beyond = jax.nn.sigmoid(f - threshold)
            mean, square = mean + beyond, square + (2 * k + 1) * beyond
        return Moments(mean, jnp.maximum(square - mean**2, 0.0))

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        uniform = rng.uniform(size=f.shape)
        thresholds = [np.asarray(t) for t in self.thresholds(parameters)]
        return np.sum([uniform < expit(f - t) for t in thresholds], axis=0).astype(float)

    def thresholds(self, parameters: Parameters) -> list[Array]:
        """t_0, ..., t_(C-2), each with the shape of the parameters."""
        found = [jnp.asarray(parameters["threshold"])]
        for k in range(1, self._levels() - 1):
            found.append(found[-1] + jnp.exp(parameters[_gap_name(k)]))
        return found

    def _interval(self, y: Array, parameters: Parameters) -> tuple[Array, Array, Array]:
        """t_(y-1), t_y and log(1 - e^-(t_y - t_(y-1))); zeros where y is the lowest or the highest level."""
        lower = upper = log_between = jnp.zeros_like(y)
        for k, threshold in enumerate(self.thresholds(parameters)):
            upper = jnp.where(y == k, threshold, upper)
            lower = jnp.where(y == k + 1, threshold, lower)
            if k > 0:
                gap = jnp.exp(parameters[_gap_name(k)])
                log_between = jnp.where(y == k, jnp.log(-jnp.expm1(-gap)), log_between)
        return lower, upper, log_between

    def _levels(self) -> int:
        if self.n_levels is None:
            raise ValueError("n_levels is not known yet; call resolve with the training columns first.")
        return self.n_levels


def _gap_name(k: int) -> str:
    return f"log_gap_{k}"
