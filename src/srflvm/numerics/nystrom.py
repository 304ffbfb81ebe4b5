"""Leading eigenvectors of a Gram matrix that has only been multiplied with a few random vectors.

For a positive semi-definite S and tests T (M, k), S T (T'ST)^-1 T'S is the best approximation that follows
from S T. Computed as such it loses half of the digits; shifted by a multiple nu of the identity, a little
above rounding, it does not: with S_nu = S + nu I and T' S_nu T = C'C, the approximation is E E' for
E = S_nu T C^-1, whose left singular vectors are the eigenvectors (Tropp, Yurtsever, Udell and Cevher 2017).
The error in the leading R directions is governed by the eigenvalues beyond the k-th.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from srflvm._typing import FloatArray

_TESTS_PER_DIRECTION = 2
_MORE_TESTS = 50

# Eigenvalues below this share of the largest are rounding noise of the sketch.
_SMALLEST_EIGENVALUE = 1e-12


@dataclass(frozen=True)
class Sketch:
    """Tests (M, k) that a Gram matrix of M columns is multiplied with: orthonormal vectors."""

    tests: FloatArray

    @staticmethod
    def n_tests(n_directions: int) -> int:
        """Return the number k of tests for so many directions."""
        return _TESTS_PER_DIRECTION * n_directions + _MORE_TESTS

    @classmethod
    def draw(cls, n_columns: int, n_directions: int) -> Sketch:
        """Draw tests that span a random subspace, always the same."""
        normals = np.random.default_rng(0).standard_normal((n_columns, cls.n_tests(n_directions)))
        return cls(np.linalg.qr(normals)[0])

    def leading_eigenvectors(self, image: FloatArray, limit: int) -> FloatArray:
        """Return at most `limit` eigenvectors (M, R) of S, from its image S @ tests."""
        shift = np.sqrt(len(image)) * np.finfo(np.float64).eps * np.linalg.norm(image, 2)
        shifted = image + shift * self.tests
        products = self.tests.T @ shifted
        factor = cholesky(0.5 * (products + products.T))
        root = solve_triangular(factor, shifted.T, trans=1).T
        vectors, singular, _ = np.linalg.svd(root, full_matrices=False)
        values = np.maximum(singular**2 - shift, 0.0)
        kept = min(limit, int(np.sum(values > _SMALLEST_EIGENVALUE * values[0])))
        return vectors[:, :kept]
