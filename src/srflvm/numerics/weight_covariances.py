"""Covariances V_m of the weights of all channels, in one of two forms with the same methods.

A covariance is seen through its quadratic forms phi'V_m phi, the variances of f. In both forms these are

    sum_k t_k(phi) c_mk

with coefficients c (C, K) and a few products t (n, K) of the features that serve all channels:

- `PackedCovariances` hold every V_m by itself: t are the products of all pairs of features, K = P, see
  `packed_symmetric`;
- `SharedBasisCovariances` are V_m = E diag(d_m) E' with one orthogonal basis E for all channels: t are the
  squares of E'phi, K = L, and nothing has the size of C matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srflvm._typing import FloatArray
from srflvm.numerics import packed_symmetric

_CHANNELS_AT_ONCE = 256

# Numbers of packed covariances that are in double precision at a time.
_MOST_CONVERTED = 5_000_000

# Half of a quadratic form of each row (n,) and its slope (n, L), as a function of features (n, L).
_Penalty = Callable[[Array], tuple[Array, Array]]


class PackedCovariances(NamedTuple):
    """Covariances as the packed forms (C, P) of `packed_symmetric.pack_form`."""

    packed: Any

    @property
    def coefficients(self) -> Any:
        """Return the numbers (C, K) that belong to single channels."""
        return self.packed

    @property
    def basis(self) -> None:
        """Return None: there is no basis that channels share."""
        return None

    @property
    def numbers_per_row(self) -> int:
        """Return how many numbers a row takes where its variances or its penalty are computed."""
        return self.packed.shape[1]

    def take(self, channels: Any) -> PackedCovariances:
        """Return those of some channels."""
        return PackedCovariances(self.packed[channels])

    def products(self, features: FloatArray) -> FloatArray:
        """Return what the coefficients are multiplied with, (n, K), for features (n, L)."""
        return packed_symmetric.pair_products(features)

    def variances(self, features: FloatArray) -> FloatArray:
        """Compute phi_n'V_m phi_n (n, C), in double precision."""
        forms = packed_symmetric.quadratic_forms(features, np.asarray(self.packed, np.float64))
        return np.maximum(forms.T, 0.0)

    def weighted_penalty(self, precisions: Array) -> _Penalty:
        """Return 1/2 phi_n'(sum_m lambda_nm V_m) phi_n and its slope in phi, for precisions (n, C)."""
        # L (L + 1) / 2 pairs
        size = int(np.sqrt(2 * self.packed.shape[1]))
        matrices = packed_symmetric.unpack(self._weighted_sums(precisions), size, form=True)

        def penalty(features: Array) -> tuple[Array, Array]:
            slope = jnp.einsum("nij,nj->ni", matrices, features)
            return 0.5 * jnp.sum(features * slope, axis=1), slope

        return penalty

    def _weighted_sums(self, precisions: Array) -> Array:
        """Compute sum_m lambda_nm V_m of each row, (n, P), in blocks of channels."""
        n_channels, n_pairs = self.packed.shape
        block = max(1, min(n_channels, _MOST_CONVERTED // n_pairs))

        def add(index: Array, total: Array) -> Array:
            # the last block begins where it ends with the channels; what was seen before counts nothing
            first = jnp.minimum(index * block, n_channels - block)
            is_new = first + jnp.arange(block) >= index * block
            some = jax.lax.dynamic_slice_in_dim(self.packed, first, block).astype(total.dtype)
            weights = jax.lax.dynamic_slice_in_dim(precisions, first, block, axis=1)
            return total + jnp.where(is_new, weights, 0.0) @ some

        total = jnp.zeros((len(precisions), n_pairs))
        return jax.lax.fori_loop(0, -(-n_channels // block), add, total)

    def weighted_form(self, weights: FloatArray) -> FloatArray:
        """Return the packed form (P,) of sum_m weights_m V_m, for weights (C,)."""
        return weights @ self.packed

    def forms(self) -> FloatArray:
        """Return the packed forms (C, P) of all covariances."""
        return self.packed

    def draw(self, rng: np.random.RandomState) -> FloatArray:
        """Draw deviations (L, C) of the weights from their means."""
        n_channels, size = len(self.packed), int(np.sqrt(2 * self.packed.shape[1]))
        noise = rng.standard_normal((n_channels, size))
        parts = []
        for start in range(0, n_channels, _CHANNELS_AT_ONCE):
            some = slice(start, start + _CHANNELS_AT_ONCE)
            covariance = packed_symmetric.unpack(self.packed[some].astype(np.float64), size, form=True)
            # the packed covariance is in single precision
            jitter = 1e-6 * np.trace(covariance, axis1=1, axis2=2) / size
            root = np.linalg.cholesky(covariance + jitter[:, None, None] * np.eye(size))
            parts.append(np.einsum("cij,cj->ic", root, noise[some]))
        return np.concatenate(parts, axis=1)


class SharedBasisCovariances(NamedTuple):
    """Covariances E diag(d_m) E' with one orthogonal basis E (L, L) and variances d (C, L) >= 0."""

    basis: Any
    spectrum: Any

    @property
    def coefficients(self) -> Any:
        """Return the numbers (C, K) that belong to single channels."""
        return self.spectrum

    @property
    def numbers_per_row(self) -> int:
        """Return how many numbers a row takes where its variances or its penalty are computed."""
        return self.spectrum.shape[1]

    def take(self, channels: Any) -> SharedBasisCovariances:
        """Return those of some channels."""
        return SharedBasisCovariances(self.basis, self.spectrum[channels])

    def products(self, features: FloatArray) -> FloatArray:
        """Return what the coefficients are multiplied with, (n, K), for features (n, L)."""
        return (features @ self.basis) ** 2

    def variances(self, features: FloatArray) -> FloatArray:
        """Compute phi_n'V_m phi_n (n, C), in double precision."""
        return self.products(features) @ np.asarray(self.spectrum, np.float64).T

    def weighted_penalty(self, precisions: Array) -> _Penalty:
        """Return 1/2 phi_n'(sum_m lambda_nm V_m) phi_n and its slope in phi, for precisions (n, C).

        The matrix of a row is E diag(sum_m lambda_nm d_m) E': a vector of length L.
        """
        variances = precisions @ self.spectrum.astype(precisions.dtype)
        basis = self.basis.astype(precisions.dtype)

        def penalty(features: Array) -> tuple[Array, Array]:
            rotated = features @ basis
            weighted = variances * rotated
            return 0.5 * jnp.sum(rotated * weighted, axis=1), weighted @ basis.T

        return penalty

    def weighted_form(self, weights: FloatArray) -> FloatArray:
        """Return the packed form (P,) of sum_m weights_m V_m, for weights (C,)."""
        return SharedBasisCovariances(self.basis, (weights @ self.spectrum)[None]).forms()[0]

    def forms(self) -> FloatArray:
        """Return the packed forms (C, P) of all covariances, which may be many numbers."""
        parts = []
        for start in range(0, len(self.spectrum), _CHANNELS_AT_ONCE):
            some = self.spectrum[start : start + _CHANNELS_AT_ONCE]
            parts.append(packed_symmetric.pack_form((self.basis * some[:, None, :]) @ self.basis.T))
        return np.concatenate(parts)

    def draw(self, rng: np.random.RandomState) -> FloatArray:
        """Draw deviations (L, C) of the weights from their means."""
        noise = rng.standard_normal(self.spectrum.shape)
        return np.asarray(self.basis, np.float64) @ (np.sqrt(self.spectrum) * noise).T


WeightCovariances = PackedCovariances | SharedBasisCovariances
