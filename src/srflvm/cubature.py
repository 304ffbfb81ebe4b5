"""Averages over Gaussian latents by a few points."""

from __future__ import annotations

import numpy as np

from srflvm._types import FloatArray


def cubature_points(mean: FloatArray, cholesky: FloatArray) -> FloatArray:
    """Points (2Q, n, Q) whose equal-weight average is E[g(x)], x ~ N(mean_n, C_n C_n'), for every
    polynomial g up to degree three: mean_n plus and minus sqrt(Q) times each column of C_n."""
    steps = np.sqrt(mean.shape[-1]) * np.moveaxis(cholesky, -1, 0)
    return np.concatenate([mean + steps, mean - steps])
