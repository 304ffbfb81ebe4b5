"""The collapsed Bayesian linear regression: log p(Y | features) with the weights integrated out.

Every column of Y is a linear regression on the same features, h_m ~ N(0, amplitude I),
y_m = Phi h_m + noise. With sigma^2 the noise variance, ratio = sigma^2 / amplitude and

    G = Phi'Phi + ratio I,   B = Phi'Y,   H = G^-1 B   (L x M),

    log p(Y | Phi) = -1/2 { M [N log sigma^2 - L log ratio + log|G|]
                            + (|Y|^2 - <B, H>) / sigma^2 + M N log 2 pi },

    d/dPhi = (Y H' - Phi H H') / sigma^2 - M Phi G^-1.

So value and gradient cost the products Phi'Phi, Phi'Y, Y H' and Phi (...), and algebra of size L x L;
nothing of size N x N, and no differentiation through a factorisation.

Only Y Y' enters. Y may therefore be replaced by its N x R scores on R orthonormal directions of its
columns, keeping |Y|^2 whole: exact when R is the rank, and otherwise still a lower bound, because
each dropped direction could only have added to <B, H>.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular


class Targets(NamedTuple):
    """What the evidence needs of the data: scores (N, R), |Y|^2 and the number of columns M."""

    scores: Array
    total_square: Array
    n_columns: Array

    @property
    def n_rows(self) -> int:
        return self.scores.shape[0]


class Solution(NamedTuple):
    """The solved regression, in float64: C (L, L) with G = C C', C^-1 B (L, R), <B, H>, log evidence."""

    cholesky: Array
    half: Array
    explained: Array
    log_evidence: Array


def smallest_ratio(n_rows: int, dtype: jnp.dtype) -> float:
    """The floor of noise / amplitude that keeps G positive definite whatever the features are.

    Phi'Phi has trace N, and exactly collinear features make its rounding error largest: measured in
    float32, its smallest eigenvalue is down to -14 N eps at N = 60 000 and falls a little faster than N
    beyond. A little more than twice that is kept as a floor.
    """
    growth = max(1.0, (n_rows / 60_000.0) ** 0.5)
    return 32.0 * growth * n_rows * float(jnp.finfo(dtype).eps)


def solve(gram: Array, cross: Array, targets: Any, noise: Array, ratio: Array) -> Solution:
    """The regression from its sufficient statistics Phi'Phi and Phi'Y, in float64.

    Of the targets only |Y|^2 and the numbers of rows and columns are used.
    """
    size, n_rows = gram.shape[0], targets.n_rows
    system = gram.astype(jnp.float64) + ratio * jnp.eye(size, dtype=jnp.float64)
    cross = cross.astype(jnp.float64)
    cholesky = jnp.linalg.cholesky(system)
    half = solve_triangular(cholesky, cross, lower=True)
    explained = jnp.sum(half**2)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(cholesky)))
    n_columns = targets.n_columns
    value = -0.5 * (
        n_columns * (n_rows * jnp.log(2.0 * jnp.pi * noise) - size * jnp.log(ratio) + log_det)
        + (targets.total_square - explained) / noise
    )
    return Solution(cholesky, half, explained, value)


def weights_and_root(solution: Solution, dtype: Any) -> tuple[Array, Array]:
    """H = C^-T (C^-1 B) and C^-1. Single precision is enough for them once C and C^-1 B are exact: the
    evidence does not need them, and its gradient is stochastic."""
    cholesky = solution.cholesky.astype(dtype)
    root = solve_triangular(cholesky, jnp.eye(len(cholesky), dtype=dtype), lower=True)
    return root.T @ solution.half.astype(dtype), root


@jax.custom_vjp
def predict_and_evidence(
    features: Array, noise: Array, ratio: Array, targets: Targets
) -> tuple[Array, Array]:
    """log p(Y | features), differentiable in features, noise and ratio (not in the data), and the posterior
    mean Phi H of the scores (without a gradient).

    `features` and `targets.scores` share a dtype (float32 or float64); `noise`, `ratio` and the evidence are
    float64. If this is not finite the features or the noise are not. See `chunked` for many rows.
    """
    return _forward(features, noise, ratio, targets)[0]


def _forward(features, noise, ratio, targets):
    gram, cross = features.T @ features, features.T @ targets.scores
    solution = solve(gram, cross, targets, noise, ratio)
    weights, _ = weights_and_root(solution, features.dtype)
    return (solution.log_evidence, features @ weights), (features, noise, ratio, targets, solution)


def _backward(residuals, cotangents):
    cotangent, _ = cotangents
    features, noise, ratio, targets, solution = residuals
    terms = row_gradient_terms(solution, noise, targets, cotangent, features.dtype)
    d_features = targets.scores @ terms.slope - features @ terms.pull
    d_noise, d_ratio = scalar_gradients(noise, ratio, targets, solution, terms)
    return d_features, cotangent * d_noise, cotangent * d_ratio, None


class RowGradient(NamedTuple):
    """d/dphi_n = y_n slope - phi_n pull, with slope (R, L) and pull (L, L); and tr G^-1 and |H|^2."""

    slope: Array
    pull: Array
    trace: Array
    square: Array


def row_gradient_terms(solution: Solution, noise, targets, cotangent, dtype) -> RowGradient:
    """slope = H' / sigma^2 and pull = H H' / sigma^2 + M G^-1, times the cotangent."""
    weights, root = weights_and_root(solution, dtype)
    scale = (cotangent / noise).astype(dtype)
    columns = (cotangent * targets.n_columns).astype(dtype)
    pull = scale * (weights @ weights.T) + columns * (root.T @ root)
    trace, square = (jnp.sum(matrix**2, dtype=jnp.float64) for matrix in (root, weights))
    return RowGradient((scale * weights).T, pull, trace, square)


def scalar_gradients(noise, ratio, targets, solution: Solution, terms: RowGradient) -> tuple[Array, Array]:
    """d/dnoise and d/dratio, where d<B,H>/dratio = -|H|^2 and d log|G| / dratio = tr G^-1 = |C^-1|^2."""
    size = len(solution.cholesky)
    residual = targets.total_square - solution.explained
    d_noise = -0.5 * (targets.n_columns * targets.n_rows / noise - residual / noise**2)
    d_ratio = -0.5 * (targets.n_columns * (terms.trace - size / ratio) + terms.square / noise)
    return d_noise, d_ratio


predict_and_evidence.defvjp(_forward, _backward)
