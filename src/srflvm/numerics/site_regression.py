"""Bayesian linear regression with a precision of its own for every entry.

Given the features every column m is a Bayesian linear regression, h_m ~ N(0, a_m I), seen through Gaussian
*sites* exp(shift_mn f_mn - precision_mn f_mn^2 / 2): a missing entry has a site of zeros, a Gaussian one has
precision 1 / noise, and any other likelihood is approximated by its sites. With

    G_m = Phi' diag(precision_m) Phi + I / a_m,   V_m = G_m^-1,   mean_m = V_m Phi' shift_m,

the posterior of the weights is N(mean_m, V_m). `packed_symmetric` does all columns at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from srflvm.numerics import packed_symmetric

# Added to G relative to its trace: above the rounding error of sums over N rows in either precision.
RIDGE = 16.0


class Sites(NamedTuple):
    """Precision and shift of every entry, (B, N) each; zero where nothing is observed."""

    precision: Array
    shift: Array


class Weights(NamedTuple):
    """Posterior q(h_m) = N(mean_m, V_m) of the weights of each column.

    mean (B, L), R_m and V_m = R_m'R_m (B, L, L) have the precision of the features, log|G_m| (B,) is in
    float64.
    """

    mean: Array
    root: Array
    covariance: Array
    log_determinant: Array

    @classmethod
    def from_factor(cls, factor: Array, cross: Array) -> Weights:
        """Return the posterior from Cholesky factors (B, L, L) of G and from Phi' shift_m (B, L)."""
        root = _inverse_factor(factor)
        logs = jnp.log(jnp.diagonal(root, axis1=1, axis2=2))
        mean = jnp.einsum("bji,bj->bi", root, jnp.einsum("bij,bj->bi", root, cross))
        log_determinant = -2.0 * jnp.sum(logs, axis=1, dtype=jnp.float64)
        return cls(mean, root, jnp.swapaxes(root, 1, 2) @ root, log_determinant)

    def divergence(self, amplitude: Array) -> Array:
        """Return KL(q(h_m) || N(0, a_m I)) for each column, (B,)."""
        size = self.mean.shape[1]
        trace = jnp.trace(self.covariance, axis1=1, axis2=2)
        square = jnp.sum(self.mean**2, axis=1) + trace
        return 0.5 * (square / amplitude - size + size * jnp.log(amplitude) + self.log_determinant)

    def function_moments(self, features: Array) -> tuple[Array, Array]:
        """Return mean and variance of f (B, N), differentiable in the features with q(h) held fixed."""
        held = jax.lax.stop_gradient(self)
        mean = held.mean.astype(features.dtype) @ features.T
        packed = packed_symmetric.pack_form(held.covariance.astype(features.dtype))
        return mean, jnp.maximum(packed_symmetric.quadratic_forms(features, packed), 0.0)


def solve(features: Array, sites: Sites, amplitude: Array) -> Weights:
    """Return the posterior of the weights under the sites.

    G and its factor are in float64, the inverse of the factor is not. A ridge tied to the rounding error of
    the products keeps G positive definite whatever the features are; the result is then the posterior under
    slightly smaller amplitudes, a valid q(h) all the same. Errors of the mean are of second order in the
    bound, and can only lower it.
    """
    size, dtype = features.shape[1], features.dtype
    packed = packed_symmetric.weighted_grams(features, sites.precision).astype(jnp.float64)
    ridge = RIDGE * jnp.finfo(dtype).eps * jnp.sum(packed[:, :size], axis=1)
    prior = 1.0 / amplitude + ridge
    system = packed_symmetric.unpack(packed, size) + prior[:, None, None] * jnp.eye(size)
    factor = jax.lax.linalg.cholesky(system, symmetrize_input=False)
    return Weights.from_factor(factor.astype(dtype), sites.shift @ features)


def _inverse_factor(cholesky: Array) -> Array:
    """Return the inverses of lower triangular matrices.

    A compiled program must have only one batch of LAPACK calls that can run at a time: jaxlib may run two
    side by side, which on a CPU with two cores may wait for each other's threads for ever.
    """
    identity = jnp.broadcast_to(jnp.eye(cholesky.shape[-1], dtype=cholesky.dtype), cholesky.shape)
    return jax.lax.linalg.triangular_solve(cholesky, identity, left_side=True, lower=True)
