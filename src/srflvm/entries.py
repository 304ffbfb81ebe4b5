"""The linear layer with a precision of its own for every entry.

Given the features every column m is a Bayesian linear regression, h_m ~ N(0, a_m I), seen through Gaussian
*sites* exp(shift_mn f_mn - precision_mn f_mn^2 / 2): a missing entry has a site of zeros, a Gaussian one has
precision 1 / noise, and any other likelihood is approximated by its sites. With

    G_m = Phi' diag(precision_m) Phi + I / a_m,   V_m = G_m^-1,   mean_m = V_m Phi' shift_m,

the weights' posterior is N(mean_m, V_m), and the sites' evidence is

    log Z_m = 1/2 { mean_m' Phi' shift_m - log|G_m| - L log a_m },
    d log Z_m / dPhi_n = (shift_mn - precision_mn f_mn) mean_m - precision_mn V_m phi_n,   f = Phi mean.

See `pairs` for how all columns are done at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from srflvm import pairs

# Added to G relative to its trace: above the rounding error of sums over N rows in either precision.
RIDGE = 16.0


class Sites(NamedTuple):
    """Precision and shift of every entry, (B, N) each; zero where nothing is observed."""

    precision: Array
    shift: Array


class Weights(NamedTuple):
    """q(h_m) = N(mean_m, V_m): mean (B, L), R_m and V_m = R_m'R_m (B, L, L) in the precision of the features,
    and in float64 log|G_m| and 2 mean_m' Phi' shift_m - mean_m' G_m mean_m (B,), which is highest, and equal
    to mean_m' Phi' shift_m, at the exact mean."""

    mean: Array
    root: Array
    covariance: Array
    log_determinant: Array
    explained: Array


def solve(features: Array, sites: Sites, amplitude: Array) -> Weights:
    """The weights' posterior under the sites. G and its factor are in float64, the factor's inverse is not.

    A ridge tied to the rounding error of the products keeps G positive definite whatever the features are;
    the result is then the posterior under slightly smaller amplitudes, a valid q(h) all the same. Errors of
    the mean are of second order in the bound, and can only lower it.
    """
    size, dtype = features.shape[1], features.dtype
    packed = pairs.weighted_grams(features, sites.precision).astype(jnp.float64)
    ridge = RIDGE * jnp.finfo(dtype).eps * jnp.sum(packed[:, :size], axis=1)
    prior = 1.0 / amplitude + ridge
    system = pairs.unpack(packed, size) + prior[:, None, None] * jnp.eye(size)
    factor = jax.lax.linalg.cholesky(system, symmetrize_input=False)
    root = inverse_factor(factor.astype(dtype))
    log_determinant = -2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1, dtype=jnp.float64)
    cross = sites.shift @ features
    mean = jnp.einsum("bji,bj->bi", root, jnp.einsum("bij,bj->bi", root, cross))
    f = mean @ features.T
    explained = jnp.sum((2.0 * sites.shift - sites.precision * f) * f, axis=1, dtype=jnp.float64)
    explained -= prior * jnp.sum(mean**2, axis=1)
    return Weights(mean, root, jnp.swapaxes(root, 1, 2) @ root, log_determinant, explained)


def inverse_factor(cholesky: Array) -> Array:
    """Inverses of lower triangular matrices.

    A compiled program must have only one batch of LAPACK calls that can run at a time: jaxlib may run two
    side by side, which on a CPU with two cores may wait for each other's threads for ever.
    """
    identity = jnp.broadcast_to(jnp.eye(cholesky.shape[-1], dtype=cholesky.dtype), cholesky.shape)
    return jax.lax.linalg.triangular_solve(cholesky, identity, left_side=True, lower=True)


def divergence(weights: Weights, amplitude: Array) -> Array:
    """KL(q(h_m) || N(0, a_m I)) for each column, (B,)."""
    size = weights.mean.shape[1]
    trace = jnp.trace(weights.covariance, axis1=1, axis2=2)
    square = jnp.sum(weights.mean**2, axis=1) + trace
    return 0.5 * (square / amplitude - size + size * jnp.log(amplitude) + weights.log_determinant)


def function_moments(features: Array, weights: Weights) -> tuple[Array, Array]:
    """Mean and variance of f (B, N), differentiable in the features with q(h) held fixed."""
    held = jax.lax.stop_gradient(weights)
    mean = held.mean.astype(features.dtype) @ features.T
    packed = pairs.pack_form(held.covariance.astype(features.dtype))
    return mean, jnp.maximum(pairs.quadratic_forms(features, packed), 0.0)


@jax.custom_vjp
def log_evidence(features: Array, sites: Sites, amplitude: Array) -> Array:
    """sum_m log Z_m, differentiable in the features and the amplitudes (not in the sites)."""
    return _forward(features, sites, amplitude)[0]


def _forward(features, sites, amplitude):
    weights = solve(features, sites, amplitude)
    per_column = weights.explained - weights.log_determinant
    value = 0.5 * jnp.sum(per_column - features.shape[1] * jnp.log(amplitude))
    return value, (features, sites, amplitude, weights)


def _backward(residuals, cotangent):
    features, sites, amplitude, weights = residuals
    dtype, size = features.dtype, features.shape[1]
    mean = weights.mean.astype(dtype)
    slope = sites.shift - sites.precision * (mean @ features.T)
    packed = pairs.pack_form(weights.covariance.astype(dtype))
    _, pull = jax.vjp(lambda phi: pairs.quadratic_forms(phi, packed), features)
    d_features = slope.T @ mean - 0.5 * pull(sites.precision)[0]
    # E log p(h_m | a_m) differentiated in a_m, which is all of the dependence at the optimal q(h_m)
    square = jnp.sum(weights.mean**2, axis=1) + jnp.trace(weights.covariance, axis1=1, axis2=2)
    d_amplitude = 0.5 * (square / amplitude - size) / amplitude
    return cotangent.astype(dtype) * d_features, None, cotangent * d_amplitude


log_evidence.defvjp(_forward, _backward)
