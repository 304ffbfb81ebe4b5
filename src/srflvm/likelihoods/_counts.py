"""What likelihoods of counts with log mean f have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jax import Array

from srflvm._types import FloatArray
from srflvm.likelihoods._base import Likelihood, Parameters, refuse
from srflvm.likelihoods._observed import check_counts

# squares of e^40 stay within float32; no data have such means
LARGEST_LOG_MEAN = 40.0


class Counts(Likelihood):
    """Counts with log mean f, known by `called` in messages."""

    called: ClassVar[str]
    _discrete: ClassVar[bool] = True
    takes_sizes: ClassVar[bool] = True
    # beyond it float64 does not hold every whole number
    largest: ClassVar[float] = 2.0**53
    remedy: ClassVar[str] = "Count in a larger unit, or use likelihood='gaussian' for the logarithms of Y."

    def check(self, Y: FloatArray, columns: Sequence[str]) -> None:
        check_counts(Y, columns, self.called)
        problem = f"{self.called} counts beyond {self.largest:.1g} cannot be computed with"
        refuse(self.largest < Y, Y, columns, problem, self.remedy)

    def first_guess(self, Y: FloatArray, bias: FloatArray) -> FloatArray:
        return np.where(np.isnan(Y), bias, np.log(Y + 0.5))

    def working(self, Y: FloatArray) -> FloatArray:
        return np.log1p(Y)

    def log_prob(self, y: Array, f: Array, parameters: Parameters) -> Array:
        return self.pointwise(y, f, parameters).value


def smoothed_mean(number: FloatArray, mean: FloatArray) -> FloatArray:
    """Means with half an entry of one added, so that an empty column has a finite log mean."""
    return (number * mean + 0.5) / (number + 0.5)
