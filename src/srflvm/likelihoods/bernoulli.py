"""Binary data: y is 1 with probability 1 / (1 + e^-f), so that f is the log-odds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import expit, logit

from srflvm._types import FloatArray
from srflvm.likelihoods._base import Expected, Likelihood, Moments, Parameters, PolyaGamma, Start, refuse
from srflvm.likelihoods._observed import summary


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """y in {0, 1} with log-odds f; nothing to learn."""

    name: ClassVar[str] = "bernoulli"
    _discrete: ClassVar[bool] = True
    has_polya_gamma: ClassVar[bool] = True
    working_gain: ClassVar[float] = 4.0

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        refuse(
            ~np.isnan(Y) & (Y != 0.0) & (Y != 1.0),
            Y,
            columns,
            "a binary entry is 0 or 1",
            "Recode the column, use NaN for what was not observed, or choose likelihood='categorical' or "
            "'ordinal' for more than two values.",
        )

    def start(self, Y: FloatArray, constants: Parameters) -> Start:
        number, mean, _ = summary(Y)
        # half an entry of each kind is added, so that a constant column has finite log-odds
        return Start(logit((number * mean + 0.5) / (number + 1.0)), {})

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        # y f - log(1 + e^f) = -log(1 + e^((1 - 2 y) f)) for y in {0, 1}, without cancellation
        return -jax.nn.softplus((1.0 - 2.0 * y) * f)

    def pointwise(self, y: Array, f: Array, parameters: Parameters) -> Expected:
        # one exponential e^-|g| of the log-odds g against y serves all three; that is most of the cost
        sign = 1.0 - 2.0 * y
        against = sign * f
        small = jnp.exp(-jnp.abs(against))
        inverse = 1.0 / (1.0 + small)
        value = -jnp.maximum(against, 0.0) - jnp.log1p(small)
        return Expected(value, -sign * inverse * jnp.where(against > 0.0, 1.0, small), small * inverse**2)

    def moments(self, f: Array, parameters: Parameters) -> Moments:
        mean = jax.nn.sigmoid(f)
        return Moments(mean, mean * jax.nn.sigmoid(-f))

    def polya_gamma(self, y: Array, parameters: Parameters) -> PolyaGamma:
        # log(1 + e^f) = f / 2 + log(2 cosh(f / 2))
        return PolyaGamma(jnp.ones_like(y), y - 0.5, jnp.zeros_like(y), jnp.zeros_like(y))

    def sample(self, f: FloatArray, parameters: Parameters, rng: np.random.RandomState) -> FloatArray:
        return (rng.uniform(size=f.shape) < expit(f)).astype(float)
