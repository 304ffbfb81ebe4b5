"""Leading eigenvectors of a Gram matrix that has only been multiplied with a few random vectors.

For a positive semi-definite S and tests T (M, k), S T (T'ST)^-1 T'S is its best approximation from what S T
says of it. Computed as such it loses half of the digits; shifted by a multiple nu of the identity, a little
above rounding, it does not: with S_nu = S + nu I and T' S_nu T = C'C, the approximation is E E' for
E = S_nu T C^-1, whose left singular vectors are the eigenvectors (Tropp, Yurtsever, Udell and Cevher 2017).
The error in the leading R directions is governed by the eigenvalues beyond the k-th.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from srflvm._types import FloatArray

_TESTS_PER_DIRECTION = 2
_MORE_TESTS = 50

# Eigenvalues below this share of the largest are rounding noise of the sketch.
_SMALLEST_EIGENVALUE = 1e-12


def n_tests(n_directions: int) -> int:
    """How many vectors are used for so many directions."""
    return _TESTS_PER_DIRECTION * n_directions + _MORE_TESTS


def draw_tests(n_columns: int, n_directions: int) -> FloatArray:
    """Orthonormal vectors (M, k) that span a random subspace, always the same."""
    normals = np.random.default_rng(0).standard_normal((n_columns, n_tests(n_directions)))
    return np.linalg.qr(normals)[0]


def leading_eigenvectors(image: FloatArray, tests: FloatArray, limit: int) -> FloatArray:
    """At most `limit` eigenvectors (M, R) of S, from its image S @ tests."""
    shift = np.sqrt(len(image)) * np.finfo(np.float64).eps * np.linalg.norm(image, 2)
    shifted = image + shift * tests
    products = tests.T @ shifted
    factor = cholesky(0.5 * (products + products.T))
    root = solve_triangular(factor, shifted.T, trans=1).T
    vectors, singular, _ = np.linalg.svd(root, full_matrices=False)
    values = np.maximum(singular**2 - shift, 0.0)
    kept = min(limit, int(np.sum(values > _SMALLEST_EIGENVALUE * values[0])))
    return vectors[:, :kept]
