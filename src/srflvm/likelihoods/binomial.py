"""Numbers of successes y among n trials, each with probability 1 / (1 + e^-f).

The logistic kernel with a = y and b = n - y; see `_logistic`, which keeps this accurate in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from scipy.special import expit, logit

from srflvm._types import FloatArray
from srflvm.likelihoods import _logistic
from srflvm.likelihoods._base import (
    Expected,
    Likelihood,
    Moments,
    Parameters,
    PolyaGamma,
    Start,
    refuse,
    whole_numbers,
)
from srflvm.likelihoods._observed import check_counts


@dataclass(frozen=True)
class BinomialChannels(Likelihood):
    """The mathematics of binomial channels, whose constant `n_trials` may differ from entry to entry.

    With zero trials an entry says nothing: its log probability and all derivatives are zero.
    """

    _discrete: ClassVar[bool] = True
    has_polya_gamma: ClassVar[bool] = True

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        seen = ~np.isnan(Y)
        successes = np.where(seen, Y, 0.0).sum(axis=0)
        trials = np.where(seen, constants["n_trials"], 0.0).sum(axis=0)
        # half a success and half a failure are added, so that a constant column has finite log-odds
        return Start(logit((successes + 0.5) / (trials + 1.0)), {})

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        return self.pointwise(y, f, parameters).value

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        failures = parameters["n_trials"] - y
        value, slope, precision = _logistic.pointwise(_logistic.kernel(y, failures), f)
        return Expected(_logistic.log_peak_binomial(y, failures) + value, slope, precision)

    def expectations(self, y: Array, mean: Array, variance: Array, parameters: Parameters) -> Expected:
        failures = parameters["n_trials"] - y
        value, slope, precision = _logistic.expectations(_logistic.kernel(y, failures), mean, variance)
        return Expected(_logistic.log_peak_binomial(y, failures) + value, slope, precision)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        mean = parameters["n_trials"] * jax.nn.sigmoid(f)
        return Moments(mean, mean * jax.nn.sigmoid(-f))

    def polya_gamma(self, y: Array, parameters: Parameters) -> PolyaGamma:
        # log(1 + e^f) = f / 2 + log(2 cosh(f / 2)). This form cancels: use float64 for many trials
        n = jnp.broadcast_to(parameters["n_trials"], y.shape)
        constant = gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)
        return PolyaGamma(n, y - 0.5 * n, jnp.zeros_like(y), constant)


@dataclass(frozen=True)
class Binomial(BinomialChannels):
    """y successes among `n_trials` with log-odds f; nothing to learn.

    Parameters
    ----------
    n_trials : int or tuple of int
        The number of trials behind every entry, or one number for each column.
    """

    name: ClassVar[str] = "binomial"
    n_trials: int | tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_trials", whole_numbers("n_trials", self.n_trials))
        if min(np.atleast_1d(self.n_trials), default=0) < 1:
            raise ValueError(f"n_trials={self.n_trials!r}: at least one trial is needed in each column.")

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        check_counts(Y, columns, "binomial")
        refuse(
            self._trials(Y.shape[1]) < Y,
            Y,
            columns,
            "there are more successes than trials",
            f"Give Binomial(n_trials=...) the numbers of trials of all columns, not {self.n_trials!r}.",
        )

    def channels(self, Y: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        return Y, {"n_trials": np.broadcast_to(self._trials(Y.shape[1]), Y.shape)}

    def working(self, Y: FloatArray) -> FloatArray:
        return Y / self._trials(Y.shape[1])

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return rng.binomial(np.asarray(parameters["n_trials"]).astype(int), expit(f)).astype(float)

    def _trials(self, n_columns: int) -> FloatArray:
        trials = np.atleast_1d(np.asarray(self.n_trials, float))
        if trials.size not in (1, n_columns):
            raise ValueError(f"n_trials={self.n_trials!r} does not fit {n_columns} columns.")
        return np.broadcast_to(trials, (n_columns,))
