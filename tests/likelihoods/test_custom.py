"""Likelihoods from a function of the user's own."""

import jax.numpy as jnp
import numpy as np
import scipy.stats as st

from srflvm.likelihoods import Custom


def gamma_log_prob(y, f, parameters):
    """Return the log density of a gamma distribution with mean e^f and shape 3."""
    return 3.0 * jnp.log(3.0) - jnp.log(2.0) + 2.0 * jnp.log(y) - 3.0 * f - 3.0 * y * jnp.exp(-f)


def with_missing(Y, rng):
    return np.where(rng.uniform(size=Y.shape) < 0.1, np.nan, Y)


def test_a_custom_likelihood_from_data():
    rng = np.random.RandomState(6)
    Y = with_missing(rng.gamma(3.0, np.exp([0.5, 2.0]) / 3.0, size=(2000, 2)), rng)
    likelihood = Custom(gamma_log_prob, (), "positive").resolve(Y)
    assert likelihood == Custom(gamma_log_prob, (), "positive").resolve(Y)
    assert len({likelihood, likelihood.resolve(Y)}) == 1
    assert not likelihood.discrete
    # the list of levels has steps of 1/4
    np.testing.assert_allclose(likelihood.start(Y, {}).bias, [0.5, 2.0], atol=0.126)
    mean, variance = likelihood.moments(jnp.array([0.5, 2.0]), {})
    np.testing.assert_allclose(mean, np.exp([0.5, 2.0]), rtol=1e-3)
    np.testing.assert_allclose(variance, np.exp([1.0, 4.0]) / 3.0, rtol=1e-2)


def test_custom_draws_stay_inside_the_support():
    def log_prob(y, f, parameters):
        return -jnp.log(jnp.pi) - 0.5 * (jnp.log(y) + jnp.log1p(-y))

    likelihood = Custom(log_prob, (), "unit").resolve(np.full((3, 1), 0.5))
    draws = likelihood.sample(np.zeros((20_000, 1)), {}, np.random.RandomState(7))[:, 0]
    assert np.all((draws > 0.0) & (draws < 1.0))
    # the arcsine distribution is not smooth at its ends: the first of 400 cells holds 3% of the draws
    assert st.kstest(draws, st.arcsine.cdf).statistic < 0.02
