"""Rows with labels, and the digits of scikit-learn."""

import numpy as np
from sklearn.datasets import load_digits as sklearn_digits

from srflvm.datasets import load_digits


def test_digits_are_those_of_scikit_learn():
    data = load_digits()
    np.testing.assert_array_equal(data.Y * 16, sklearn_digits().data)
    assert (data.name, data.likelihood, data.image_shape) == ("digits", "gaussian", (8, 8))


def test_rows_are_chosen_with_their_labels():
    data = load_digits()
    some = data.rows(np.array([5, 2]))
    np.testing.assert_array_equal(some.Y, data.Y[[5, 2]])
    np.testing.assert_array_equal(some.labels, sklearn_digits().target[[5, 2]])
    assert data._replace(labels=None).rows(np.array([1])).labels is None
