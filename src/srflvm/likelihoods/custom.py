"""Likelihood from nothing but a function log p(y | f).

Derivatives come from automatic differentiation and expectations from quadrature. Means, variances and draws
come from a grid of values of y: all values of binary data and of small counts, otherwise points around the
training data, so that they are as exact as the grid is fine and wide. For more, subclass `Likelihood`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.likelihoods.base import Likelihood, Moments, Parameters, Start, check_counts, refuse

_N_GRID = 400

_SUPPORTS = ("real", "positive", "unit", "count", "binary")
_LEVELS = np.linspace(-8.0, 8.0, 65)
_QUANTILES = np.linspace(0.0, 1.0, 17)


@dataclass(frozen=True)
class Custom(Likelihood):
    """Likelihood of the user's own.

    Parameters
    ----------
    log_prob_function : callable
        `log_prob_function(y, f, parameters)` is log p(y | f), elementwise, written with `jax.numpy`;
        `parameters` maps names to arrays that broadcast. It must be finite on the support for finite f.
    parameters : tuple of (str, float)
        Names and starting values of parameters to learn for each column, on a scale without bounds.
    support : {"real", "positive", "unit", "count", "binary"}
        Possible values of y: all numbers, y > 0, 0 < y < 1, whole numbers from 0 on, or 0 and 1.
    label : str
        Name of the likelihood in messages.
    low, high : float or None
        Ends of the grid; from the training data if None.
    """

    name: ClassVar[str] = "custom"
    log_prob_function: Callable[[Array, Array, Parameters], Array]
    parameters: tuple[tuple[str, float], ...] = (("log_scale", 0.0),)
    support: str = "real"
    label: str = "custom"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.support not in _SUPPORTS:
            raise ValueError(f"support={self.support!r} is not known; use one of {', '.join(_SUPPORTS)}.")

    @property
    def discrete(self) -> bool:
        return self.support in ("count", "binary")

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        if self.support == "count":
            check_counts(Y, columns, self.label)
            return
        outside = {
            "real": np.isinf(Y),
            "positive": (Y <= 0.0) | np.isinf(Y),
            "unit": (Y <= 0.0) | (Y >= 1.0),
            "binary": ~np.isnan(Y) & (Y != 0.0) & (Y != 1.0),
        }
        problem = f"the support of the {self.label} likelihood is '{self.support}'"
        refuse(outside[self.support], Y, columns, problem, "Move the data inside, or choose another support.")

    def resolve(self, Y: FloatArray) -> Custom:
        seen = Y[~np.isnan(Y)]
        smallest, largest = (float(seen.min()), float(seen.max())) if seen.size else (0.5, 0.5)
        span = largest - smallest or 1.0
        low, high = {
            "real": (smallest - span, largest + span),
            "positive": (0.01 * smallest, 10.0 * largest),
            "unit": (0.0, 1.0),
            "count": (0.0, float(np.ceil(3.0 * largest)) + 20.0),
            "binary": (0.0, 1.0),
        }[self.support]
        return replace(
            self, low=low if self.low is None else self.low, high=high if self.high is None else self.high
        )

    def grid(self) -> tuple[FloatArray, FloatArray]:
        """Return values of y, and the width of the support that each stands for."""
        if self.low is None or self.high is None:
            raise ValueError("The grid is not known yet; call resolve with the training columns first.")
        if self.support in ("count", "binary"):
            y = np.unique(np.round(np.linspace(self.low, self.high, min(_N_GRID, int(self.high) + 1))))
            return y, np.gradient(y) if len(y) > 1 else np.ones(1)
        edges = np.linspace(self.low, self.high, _N_GRID + 1)
        if self.support == "positive":
            edges = np.geomspace(self.low, self.high, _N_GRID + 1)
        return 0.5 * (edges[1:] + edges[:-1]), np.diff(edges)

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        """Choose the constant f under which each column is likeliest, out of a list."""
        parameters = {name: np.full(Y.shape[1], value) for name, value in self.parameters}
        seen = ~np.isnan(Y)
        y = jnp.asarray(np.where(seen, Y, self.grid()[0][0]))
        levels = _LEVELS
        if self.support == "real" and seen.any():
            levels = np.concatenate([levels, np.quantile(Y[seen], _QUANTILES)])
        scores = []
        for level in levels:
            value = np.asarray(self.log_prob(y, jnp.full_like(y, level), parameters))
            scores.append(np.sum(value, axis=0, where=seen))
        return Start(levels[np.argmax(scores, axis=0)], parameters)

    def working(self, Y: FloatArray) -> FloatArray:
        if self.support == "positive":
            return np.log(Y)
        if self.support == "unit":
            return np.log(Y) - np.log1p(-Y)
        return np.log1p(Y) if self.support == "count" else Y

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        return self.log_prob_function(y, f, parameters)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        y, width = self.grid()
        centre = float(y[len(y) // 2])
        total = self._log_total(f, parameters)

        def add(sums: Moments, point: tuple[Array, Array]) -> tuple[Moments, None]:
            share = jnp.exp(self._log_mass(point, f, parameters) - total)
            shifted = point[0] - centre
            return Moments(sums.mean + share * shifted, sums.variance + share * shifted**2), None

        zero = jnp.zeros_like(total)
        first, second = jax.lax.scan(add, Moments(zero, zero), _as_dtype(y, width, f))[0]
        return Moments(centre + first, jnp.maximum(second - first**2, 0.0))

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        """Draw by inverting the distribution function on the grid, uniformly within a cell if continuous."""
        y, width = self.grid()
        function = jnp.asarray(f)
        total = self._log_total(function, parameters)
        uniform = jnp.asarray(rng.uniform(size=f.shape), function.dtype)

        def add(state: tuple[Array, Array], point: tuple[Array, Array]):
            below, index = state
            below = below + jnp.exp(self._log_mass(point, function, parameters) - total)
            return (below, index + (below < uniform)), None

        first = (jnp.zeros_like(total), jnp.zeros(total.shape, int))
        index = np.asarray(jax.lax.scan(add, first, _as_dtype(y, width, function))[0][1])
        index = np.minimum(index, len(y) - 1)
        within = 0.0 if self.discrete else width[index] * (rng.uniform(size=f.shape) - 0.5)
        return y[index] + within

    def _log_mass(self, point: tuple[Array, Array], f: Array, parameters: Parameters) -> Array:
        y, width = point
        return self.log_prob(jnp.broadcast_to(y, f.shape), f, parameters) + jnp.log(width)

    def _log_total(self, f: Array, parameters: Parameters) -> Array:
        def add(total: Array, point: tuple[Array, Array]) -> tuple[Array, None]:
            return jnp.logaddexp(total, self._log_mass(point, f, parameters)), None

        return jax.lax.scan(add, jnp.full(f.shape, -jnp.inf, f.dtype), _as_dtype(*self.grid(), f))[0]


def _as_dtype(y: FloatArray, width: FloatArray, f: Array) -> tuple[Array, Array]:
    return jnp.asarray(y, f.dtype), jnp.asarray(width, f.dtype)
