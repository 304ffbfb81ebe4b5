"""Averages over Gaussian latents by a few points."""

from __future__ import annotations

import numpy as np

from srflvm._types import FloatArray


def cubature_points(mean: FloatArray, cholesky: FloatArray) -> FloatArray:
    """Points (2Q, n, Q) whose equal-weight average is E[g(x)], x ~ N(mean_n, C_n C_n'), for every
    polynomial g up to degree three: mean_n plus and minus sqrt(Q) times each column of C_n."""
    steps = np.sqrt(mean.shape[-1]) * np.moveaxis(cholesky, -1, 0)
    return np.concatenate([mean + steps, mean - steps])


# Cubature takes two points a latent; beyond so many latents, a table of rows is averaged over draws instead.
MOST_LATENTS = 8


def points_for_sums(mean: FloatArray, cholesky: FloatArray, seed: int) -> FloatArray:
    """Points (K, n, Q) for averages that are summed over many rows: cubature points where these are few,
    otherwise draws in opposite pairs, other ones in every row, whose errors cancel in the sum. The same for
    the same seed."""
    n_rows, n_latent = mean.shape
    if n_latent <= MOST_LATENTS:
        return cubature_points(mean, cholesky)
    noise = np.random.default_rng(seed).standard_normal((MOST_LATENTS, n_rows, n_latent))
    steps = np.einsum("nqr,knr->knq", cholesky, noise, optimize=True)
    return np.concatenate([mean + steps, mean - steps])
