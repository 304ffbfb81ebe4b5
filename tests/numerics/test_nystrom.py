"""Eigenvectors from a sketch, against those of the whole matrix."""

import numpy as np
import pytest

from srflvm.numerics.nystrom import Sketch


def decaying(n_columns, rate, seed=0):
    """Return eigenvectors, and a Gram matrix whose eigenvalues fall by a rate from one to the next."""
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(n_columns, n_columns)))[0]
    return vectors, (vectors * rate ** np.arange(n_columns)) @ vectors.T


def test_tests_are_orthonormal_and_always_the_same():
    sketch = Sketch.draw(200, 10)
    assert sketch.tests.shape == (200, Sketch.n_tests(10))
    np.testing.assert_allclose(sketch.tests.T @ sketch.tests, np.eye(Sketch.n_tests(10)), atol=1e-13)
    np.testing.assert_array_equal(sketch.tests, Sketch.draw(200, 10).tests)


@pytest.mark.parametrize("rate", [0.5, 0.8])
def test_leading_eigenvectors_are_those_of_the_whole_matrix(rate):
    vectors, gram = decaying(200, rate)
    sketch = Sketch.draw(200, 10)
    found = sketch.leading_eigenvectors(gram @ sketch.tests, 10)
    assert found.shape == (200, 10)
    # the eigenvalues beyond the 70 tests are below 2e-7 of the largest
    np.testing.assert_allclose(np.abs(np.sum(found * vectors[:, :10], axis=0)), 1.0, atol=1e-6)


def test_directions_of_rounding_noise_are_left_out():
    vectors, _ = decaying(120, 0.5)
    gram = vectors[:, :3] @ np.diag([3.0, 2.0, 1.0]) @ vectors[:, :3].T
    sketch = Sketch.draw(120, 8)
    found = sketch.leading_eigenvectors(gram @ sketch.tests, 8)
    assert found.shape == (120, 3)
    np.testing.assert_allclose(found @ (found.T @ vectors[:, :3]), vectors[:, :3], atol=1e-10)
