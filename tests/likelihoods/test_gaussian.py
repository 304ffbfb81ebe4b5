"""Gaussian columns: their units, and the noise that a fit starts from."""

import numpy as np

from srflvm.likelihoods import Gaussian


def test_units_are_means_and_one_common_scale():
    Y = np.random.RandomState(2).standard_normal((400, 3)) * [1.0, 5.0, 0.0] + [3.0, -2.0, 7.0]
    Y[::11, 1] = np.nan
    location, scale = Gaussian().units(Y)
    np.testing.assert_allclose(location, np.nanmean(Y, axis=0))
    np.testing.assert_allclose(scale, np.sqrt(np.nanmean((Y - location) ** 2)))
    np.testing.assert_array_equal(Gaussian().units(np.full((3, 2), 4.0)).scale, 1.0)


def test_starts_have_half_the_variance_as_noise_of_all_columns_or_of_each():
    Y = np.array([[-1.0, 3.0], [1.0, -3.0], [np.nan, 0.0]])
    shared = Gaussian().start(Y, {}).parameters["log_noise"]
    np.testing.assert_allclose(shared, np.log([0.5 * (1.0 + 1.0 + 9.0 + 9.0) / 5.0]))
    by_column = Gaussian("column").start(Y, {}).parameters["log_noise"]
    np.testing.assert_allclose(by_column, np.log([0.5 * 1.0, 0.5 * 6.0]))
