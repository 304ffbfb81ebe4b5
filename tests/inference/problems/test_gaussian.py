"""Posteriors of Gaussian data with missing entries: their noise, and their variance far from the data."""

import numpy as np
import pytest

from srflvm import SRFLVM
from srflvm.inference.problems.gaussian import _inflation


def test_the_noise_is_raised_to_what_an_entry_left_out_shows():
    """Ridge regression with latents known, then weights known: one leverage alone changes nothing."""
    assert _inflation(0.3, 0.0) == pytest.approx(1.0)
    assert _inflation(0.0, 0.3) == pytest.approx(1.0)
    expected = (1.0 / (1.0 - 0.22 - 0.16)) / (1.0 + 0.22 / 0.78 + 0.16 / 0.84)
    assert _inflation(0.22, 0.16) == pytest.approx(expected)
    assert 1.0 <= _inflation(0.7, 0.9) < 10.0


def test_far_from_the_data_the_function_has_its_prior_variance():
    random = np.random.default_rng(0)
    Y = np.sin(random.normal(size=(60, 1)) + np.arange(12.0)) + 0.1 * random.normal(size=(60, 12))
    Y[random.uniform(size=Y.shape) < 0.3] = np.nan
    model = SRFLVM(n_components=2, max_iter=3, tol=0.0, random_state=0).fit(Y)
    far = model.decode(1e3 * random.normal(size=(200, 2)))
    assert np.max(far.weight_variance) <= model.amplitude_ * (1.0 + 1e-9)
    assert np.median(far.weight_variance) > 0.2 * model.amplitude_
