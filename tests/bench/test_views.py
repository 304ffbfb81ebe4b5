"""Entries that each kind of system is given."""

import numpy as np

from srflvm.datasets import load_digits
from srflvm_bench import views


def test_views():
    digits = load_digits().rows(np.arange(20))
    np.testing.assert_array_equal(views.view(digits, "binary"), digits.Y > 0.5)
    counts = views.view(digits, "counts")
    np.testing.assert_array_equal(counts, np.rint(counts))
    assert counts.max() == 255
    counts = digits._replace(Y=np.rint(16 * digits.Y), image_shape=None)
    np.testing.assert_array_equal(views.view(counts, "counts"), counts.Y)
    assert (views.view(counts, "binary").mean(axis=0) <= 0.5).all()
    varied = counts.Y.std(axis=0) > 0
    np.testing.assert_allclose(views.view(counts, "continuous")[:, varied].std(axis=0), 1.0)
    np.testing.assert_array_equal(views.view(digits, "continuous"), digits.Y)
