"""Weighted Gram matrices of all columns at once, and their quadratic forms.

For weights lambda_mn the matrices Phi' diag(lambda_m) Phi of all columns m come from one matrix product:
with T the N x L(L+1)/2 matrix of the products phi_i phi_j of each pair of features, they are the rows of
Lambda T. The forms phi_n' V_m phi_n of all rows and columns are T times the packed V_m, one more product, and
their gradient in Phi is a third. There is no loop over columns.

Pairs are packed along cyclic diagonals, (i, i + d mod L) for d = 0 ... (L - 1) / 2, which for odd L holds
every pair exactly once and makes products and gradients out of shifted copies of Phi. L must therefore be
odd: the 2F Fourier features and the constant. A few diagonals of T are made at a time: they stay in the
processor's cache, and T is never held whole.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# Diagonals of T made at a time: wide enough for fast matrix products, small enough for the cache.
_DIAGONALS = 3


def unpack(packed: Any, size: int, *, form: bool = False) -> Any:
    """Return symmetric matrices (B, L, L) from packed entries (B, P), or from forms of `pack_form`."""
    matrices = packed[:, _positions(size)].reshape(-1, size, size)
    return matrices * (1.0 - 0.5 * (1.0 - np.eye(size))) if form else matrices


def pack_form(matrices: Array) -> Array:
    """Pack the coefficients (B, P) of the forms phi'V phi: every pair stands for V_ij and V_ji."""
    first, second = _pair_indices(matrices.shape[-1])
    twice = np.where(first == second, 1.0, 2.0)
    return matrices[:, first, second] * twice.astype(matrices.dtype)


def _pair_indices(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the features i and j of every packed pair."""
    step = np.repeat(np.arange(size // 2 + 1), size)
    first = np.tile(np.arange(size), size // 2 + 1)
    return first, (first + step) % size


def _positions(size: int) -> np.ndarray:
    """Return the position at which each entry (i, j) of a matrix is packed, for all entries in order."""
    row, column = np.divmod(np.arange(size * size), size)
    ahead = (column - row) % size
    behind = (row - column) % size
    return np.where(ahead <= size // 2, ahead * size + row, behind * size + column)


def weighted_grams(features: Array, weights: Array) -> Array:
    """Return packed Phi' diag(weights_m) Phi (B, P) from features (N, L) and weights (B, N)."""

    def grams(carry, first):
        return carry, weights @ jnp.concatenate(_diagonals(features, first), axis=1)

    parts = jax.lax.scan(grams, None, _starts(features.shape[1]))[1]
    return jnp.moveaxis(parts, 0, 1).reshape(len(weights), -1)[:, : _n_pairs(features.shape[1])]


def quadratic_forms(features: Any, packed: Any) -> Any:
    """Return phi_n' V_m phi_n (B, N), differentiable in the features (N, L) only.

    NumPy in, NumPy out, and the same for JAX.
    """
    if isinstance(features, np.ndarray) and isinstance(packed, np.ndarray):
        return (pair_products(features) @ packed.T).T
    return _differentiable_forms(features, packed)


@jax.custom_vjp
def _differentiable_forms(features: Array, packed: Array) -> Array:

    def add(total, part):
        first, coefficients = part
        return total + coefficients @ jnp.concatenate(_diagonals(features, first), axis=1).T, None

    start = jnp.zeros((len(packed), len(features)), features.dtype)
    return jax.lax.scan(add, start, _in_groups(packed, features.shape[1]))[0]


def _forms_forward(features, packed):
    return _differentiable_forms(features, packed), (features, packed)


def _forms_backward(residuals, cotangent):
    features, packed = residuals
    rows = cotangent.T

    def add(total, part):
        first, coefficients = part
        return total + _pull_back(rows @ coefficients, features, first), None

    return jax.lax.scan(add, jnp.zeros_like(features), _in_groups(packed, features.shape[1]))[0], None


_differentiable_forms.defvjp(_forms_forward, _forms_backward)


def _n_pairs(size: int) -> int:
    """Return the number of pairs of an odd number of features."""
    return size * (size + 1) // 2


def pair_products(features: np.ndarray) -> np.ndarray:
    """Return T for some rows, (n, P)."""
    first, second = _pair_indices(features.shape[1])
    return features[:, first] * features[:, second]


def _starts(size: int) -> Array:
    """Return the first diagonal of each group; the last group may run into diagonals without new pairs."""
    return jnp.arange(0, size // 2 + 1, _DIAGONALS)


def _in_groups(packed: Array, size: int) -> tuple[Array, Array]:
    """Return first diagonals, and coefficients (groups, B, _DIAGONALS L) with zeros for repeated pairs."""
    starts = _starts(size)
    width = _DIAGONALS * size
    padded = jnp.pad(packed, ((0, 0), (0, len(starts) * width - packed.shape[1])))
    return starts, jnp.moveaxis(padded.reshape(len(packed), len(starts), width), 1, 0)


def _diagonals(features: Array, first: Array) -> list[Array]:
    """Return phi_i phi_(i + d) for the diagonals d of a group, (N, L) each."""
    return [features * ahead for ahead in _shifted(features, first)]


def _shifted(features: Array, first: Array) -> list[Array]:
    """Return phi_(i + d mod L) for the diagonals d of a group."""
    size = features.shape[1]
    twice = jnp.concatenate([features] * (2 + _DIAGONALS // size), axis=1)
    return [jax.lax.dynamic_slice_in_dim(twice, first + d, size, axis=1) for d in range(_DIAGONALS)]


def _pull_back(cotangent: Array, features: Array, first: Array) -> Array:
    """Return the gradient in phi of sum_p s_p T_p: s_ij phi_j goes to i and s_ij phi_i goes to j."""
    size = features.shape[1]
    total = jnp.zeros_like(features)
    for d, ahead in enumerate(_shifted(features, first)):
        diagonal = cotangent[:, d * size : (d + 1) * size]
        both = jnp.concatenate([diagonal * features] * 2, axis=1)
        behind = jax.lax.dynamic_slice_in_dim(both, size - first - d, size, axis=1)
        total += diagonal * ahead + behind
    return total
