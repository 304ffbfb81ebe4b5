"""Moves of the weights: columns of H with their biases, independent given the features.

Under a Gaussian prior with variances v and a log likelihood sum_n shift_n f_n - precision_n f_n^2 / 2, a
column is N(G^-1 Phi'shift, G^-1) with G = Phi' diag(precision) Phi + diag(1 / v). With G = C C' and e normal,
C^-T (C^-1 Phi'shift + e) is a draw from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from srflvm.numerics import packed_symmetric
from srflvm_bench.baselines.rflvm.slices import elliptical_slice


class Regression(NamedTuple):
    """Factor C of G (M, L, L) and C^-1 Phi'shift (M, L) of every column."""

    factor: Array
    half: Array


def draw_shared(key: Array, phi: Array, y: Array, noise: Array, variances: Array) -> Array:
    """Draw weights (M, L) of all columns when the precision is 1 / noise everywhere."""
    factor = jnp.linalg.cholesky(phi.T @ phi / noise + jnp.diag(1.0 / variances))
    half = _solve(factor, phi.T @ y / noise, transposed=False)
    draw = jax.random.normal(key, half.shape, half.dtype)
    return _solve(factor, half + draw, transposed=True).T


def regress(phi: Array, precision: Array, shift: Array, variances: Array) -> Regression:
    """Regress all columns with precisions and shifts (N, M)."""
    size = phi.shape[1]
    packed = packed_symmetric.weighted_grams(phi, precision.T)
    factor = jnp.linalg.cholesky(packed_symmetric.unpack(packed, size) + jnp.diag(1.0 / variances))
    return Regression(factor, _solve(factor, (shift.T @ phi)[..., None], transposed=False)[..., 0])


def centre(regression: Regression) -> Array:
    """Compute G^-1 Phi'shift (M, L)."""
    return _solve(regression.factor, regression.half[..., None], transposed=True)[..., 0]


def draw_sites(key: Array, phi: Array, precision: Array, shift: Array, variances: Array) -> Array:
    """Draw weights (M, L) given precisions and shifts (N, M)."""
    regression = regress(phi, precision, shift, variances)
    draw = jax.random.normal(key, regression.half.shape, phi.dtype)
    return _solve(regression.factor, (regression.half + draw)[..., None], transposed=True)[..., 0]


def slice_around(
    key: Array,
    weights: Array,
    phi: Array,
    sites: tuple[Array, Array],
    variances: Array,
    log_likelihood: Callable[[Array], Array],
) -> Array:
    """Move every column by an elliptical slice, for any log likelihood of f (N, M) -> (M,).

    The ellipse is that of the Gaussian proportional to prior times exp(shift f - precision f^2 / 2), as in
    Nishihara, Murray and Adams (2014), and the level is that of the likelihood divided by the sites. This is
    exact for any sites that do not depend on the weights; good sites make the ratio nearly flat.
    """
    precision, shift = sites
    regression = regress(phi, precision, shift, variances)
    auxiliary_key, slice_key = jax.random.split(key)
    draw = jax.random.normal(auxiliary_key, regression.half.shape, phi.dtype)
    right = jnp.stack([regression.half, draw], axis=-1)
    middle, auxiliary = jnp.moveaxis(_solve(regression.factor, right, transposed=True), -1, 0)

    def remainder(offset: Array) -> Array:
        f = phi @ (middle + offset).T
        return log_likelihood(f) - jnp.sum(f * (shift - 0.5 * precision * f), axis=0)

    return middle + elliptical_slice(slice_key, weights - middle, auxiliary, remainder)


def _solve(factor: Array, right: Array, transposed: bool) -> Array:
    return jax.lax.linalg.triangular_solve(factor, right, left_side=True, lower=True, transpose_a=transposed)
