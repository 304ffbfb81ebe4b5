"""Rows under a linear function of the latents with Gaussian noise, in closed form.

With features g = (scales * x, constant) and weights h_m ~ N(mean_m, V_m), an observed entry has precision
lambda_m and its residual without the function is r_nm. What `posterior.embedding` climbs is quadratic here:

    q(x_n) = N(S_n shift_n, S_n),   S_n^-1 = I + sum_m lambda_m E[a_m a_m'],
    shift_n = sum_m lambda_m (r_nm E a_m - Cov(a_m, b_m) - E a_m E b_m),

with a_m = scales * (weights of the latents), b_m the weight of the constant, and sums over the observed
entries. The entry's variance has parts from not knowing x, E a_m' S_n E a_m, and from not knowing the
weights, sum_ij V_m,ij E[g_i g_j]. All of them are products of packed symmetric matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs

from srflvm._typing import FloatArray
from srflvm.numerics import packed_symmetric
from srflvm.posterior.chunks import Embedding
from srflvm.posterior.embedding import FrozenFunction

# Numbers of the matrices of rows that are held at a time, in double precision.
_MOST_NUMBERS = 10_000_000


def embed_linear(function: FrozenFunction, residuals: FloatArray, precision: FloatArray) -> Embedding:
    """Embed rows given by y without levels and offsets (n, C), NaN where not observed.

    The precisions are (C,). Covariances are returned in single precision: there is one for every row, of many
    latents.
    """
    n_rows, size, n_latent = len(residuals), len(function.weights), function.frequencies.shape[1]
    first = size - 1 - n_latent - n_latent % 2
    latents, scales = slice(first, first + n_latent), np.asarray(function.affine[1:], np.float64)
    observed = ~np.isnan(residuals)
    weighted = np.where(observed, residuals, 0.0) * precision
    slopes = function.weights[latents]
    means, roots = np.empty((n_rows, n_latent)), np.empty((n_rows, n_latent, n_latent), np.float32)
    outer = _packed_outer(function.weights)
    moments = precision[:, None] * (function.packed_covariance.astype(np.float64) + outer)
    for rows in _pieces(n_rows, size):
        second = packed_symmetric.unpack(observed[rows] @ moments, size, form=True)
        inner = second[:, latents, latents] * scales[:, None] * scales
        shift = scales * (weighted[rows] @ slopes.T - second[:, latents, -1])
        for place, (matrix, pull) in enumerate(zip(inner, shift, strict=True), start=rows.start):
            matrix[range(n_latent), range(n_latent)] += 1.0
            root = _inverse_root(matrix)
            means[place], roots[place] = root @ (pull @ root), root
    return Embedding(means, roots)


def linear_moments(
    function: FrozenFunction, latents: FloatArray, cholesky: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute of f the mean, and its variances by latents and by weights, (n, C) each.

    The latents are known, or N(latents_n, C_n C_n').
    """
    n_rows, n_latent = latents.shape
    size, n_channels = function.weights.shape
    first = size - 1 - n_latent - n_latent % 2
    features = np.asarray(function.features(latents))
    mean = features @ function.weights + function.level
    of_latents, of_weights = np.zeros((n_rows, n_channels)), np.empty((n_rows, n_channels))
    covariance, outer = function.packed_covariance.astype(np.float64), _packed_outer(function.weights)
    pairs = packed_symmetric.pair_indices(size)
    scales = np.asarray(function.affine[1:], np.float64)
    for rows in _pieces(n_rows, size):
        some = features[rows]
        second = some[:, pairs[0]] * some[:, pairs[1]]
        if cholesky is not None:
            roots = scales[:, None] * cholesky[rows]
            spread = np.zeros((len(some), size, size))
            inside = slice(first, first + n_latent)
            spread[:, inside, inside] = roots @ np.swapaxes(roots, 1, 2)
            packed = spread[:, pairs[0], pairs[1]]
            of_latents[rows] = packed @ outer.T
            second += packed
        of_weights[rows] = second @ covariance.T
    return mean, np.maximum(of_latents, 0.0), np.maximum(of_weights, 0.0)


def _packed_outer(weights: FloatArray) -> FloatArray:
    """Return the packed forms (C, P) of the weights' means times themselves."""
    first, second = packed_symmetric.pair_indices(len(weights))
    twice = np.where(first == second, 1.0, 2.0)
    return (weights[first] * weights[second]).T * twice


def _pieces(n_rows: int, size: int) -> list[slice]:
    """Return slices of so many rows that matrices (size, size) of them fit into a bounded memory."""
    step = max(1, _MOST_NUMBERS // size**2)
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def _inverse_root(matrix: FloatArray) -> FloatArray:
    """Return the lower triangular C with C C' = matrix^-1.

    With the order of rows and columns reversed, the Cholesky factor is upper triangular, and the transpose of
    its inverse is C.
    """
    factorise, invert = get_lapack_funcs(("potrf", "trtri"), (matrix,))
    factor: Any = factorise(np.asfortranarray(matrix[::-1, ::-1]), lower=1, clean=1)[0]
    return np.ascontiguousarray(invert(factor, lower=1)[0][::-1, ::-1].T)
