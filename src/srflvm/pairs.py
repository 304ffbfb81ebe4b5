"""Weighted Gram matrices of all columns at once, and their quadratic forms.

For weights lambda_mn the matrices Phi' diag(lambda_m) Phi of all columns m come from one matrix product:
with T the N x L(L+1)/2 matrix of the products phi_i phi_j of each pair of features, they are the rows of
Lambda T. The forms phi_n' V_m phi_n of all rows and columns are T times the packed V_m, one more product, and
their gradient in Phi is a third. There is no loop over columns, and T is made for some rows at a time, so
memory is bounded by the batch of columns.

Pairs are packed along cyclic diagonals, (i, i + d mod L) for d = 0 ... (L - 1) / 2, which for odd L holds
every pair exactly once and makes gradients out of shifted copies of Phi. L must therefore be odd: the 2F
Fourier features and the constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# Entries of T made at a time.
_MOST_ENTRIES = 2**26


def n_pairs(size: int) -> int:
    """The number of pairs of an odd number of features."""
    return size * (size + 1) // 2


def unpack(packed: Any, size: int) -> Any:
    """Symmetric matrices (B, L, L) from their packed entries (B, P)."""
    return packed[:, _positions(size)].reshape(-1, size, size)


def pack_form(matrices: Array) -> Array:
    """Packed coefficients (B, P) of the forms phi'V phi: every pair stands for V_ij and V_ji."""
    first, second = _pair_indices(matrices.shape[-1])
    twice = np.where(first == second, 1.0, 2.0)
    return matrices[:, first, second] * twice.astype(matrices.dtype)


def unpack_form(packed: Any, size: int) -> Any:
    """The matrices that `pack_form` packed."""
    matrices = unpack(packed, size)
    off_diagonal = 1.0 - np.eye(size)
    return matrices * (1.0 - 0.5 * off_diagonal)


def _pair_indices(size: int) -> tuple[np.ndarray, np.ndarray]:
    """The features i and j of every packed pair."""
    step = np.repeat(np.arange(size // 2 + 1), size)
    first = np.tile(np.arange(size), size // 2 + 1)
    return first, (first + step) % size


def _positions(size: int) -> np.ndarray:
    """Where the entry (i, j) of a matrix is packed, for all entries in order."""
    row, column = np.divmod(np.arange(size * size), size)
    ahead = (column - row) % size
    behind = (row - column) % size
    return np.where(ahead <= size // 2, ahead * size + row, behind * size + column)


def weighted_grams(features: Array, weights: Array) -> Array:
    """Packed Phi' diag(weights_m) Phi (B, P) from features (N, L) and weights (B, N)."""

    def add(total, rows):
        some, some_weights = rows
        return total + some_weights.T @ products(some), None

    shape = (weights.shape[0], n_pairs(features.shape[1]))
    return _over_rows(add, jnp.zeros(shape, features.dtype), features, weights.T)[0]


@jax.custom_vjp
def quadratic_forms(features: Array, packed: Array) -> Array:
    """phi_n' V_m phi_n (B, N), differentiable in the features (N, L) only."""

    def forms(total, rows):
        return total, products(rows[0]) @ packed.T

    parts = _over_rows(forms, (), features)[1]
    return parts.reshape(-1, packed.shape[0])[: features.shape[0]].T


def _forms_forward(features, packed):
    return quadratic_forms(features, packed), (features, packed)


def _forms_backward(residuals, cotangent):
    features, packed = residuals

    def gradients(total, rows):
        some, some_cotangent = rows
        return total, _pull_back(some_cotangent @ packed, some)

    parts = _over_rows(gradients, (), features, cotangent.T)[1]
    return parts.reshape(-1, features.shape[1])[: features.shape[0]], None


quadratic_forms.defvjp(_forms_forward, _forms_backward)


def products(features: Any) -> Any:
    """T for some rows, (n, P). NumPy in, NumPy out, and so for JAX."""
    first, second = _pair_indices(features.shape[1])
    return features[:, first] * features[:, second]


def _pull_back(cotangent: Array, features: Array) -> Array:
    """The gradient in phi of sum_p s_p T_p: s_ij phi_j goes to i and s_ij phi_i goes to j."""
    size = features.shape[1]
    twice = jnp.concatenate([features, features], axis=1)

    def add(d, total):
        diagonal = jax.lax.dynamic_slice_in_dim(cotangent, d * size, size, axis=1)
        ahead = jax.lax.dynamic_slice_in_dim(twice, d, size, axis=1)
        both = jnp.concatenate([diagonal * features] * 2, axis=1)
        behind = jax.lax.dynamic_slice_in_dim(both, size - d, size, axis=1)
        return total + diagonal * ahead + behind

    return jax.lax.fori_loop(0, size // 2 + 1, add, jnp.zeros_like(features))


def _over_rows(function: Callable, start: Any, *arrays: Array) -> tuple[Any, Any]:
    """Scan over groups of rows, few enough that their products fit in memory; padded with zeros."""
    n_rows, size = arrays[0].shape
    at_once = max(_MOST_ENTRIES // n_pairs(size), 1)
    n_groups = -(-n_rows // at_once)
    at_once = -(-n_rows // n_groups)
    padding = n_groups * at_once - n_rows
    grouped = [
        jnp.pad(array, ((0, padding), (0, 0))).reshape(n_groups, at_once, array.shape[1]) for array in arrays
    ]
    if n_groups == 1:
        total, part = function(start, [array[0] for array in grouped])
        return total, part
    return jax.lax.scan(function, start, grouped)
