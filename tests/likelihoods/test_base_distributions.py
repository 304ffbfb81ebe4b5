"""Likelihoods as distributions of y: sums, SciPy, moments and draws."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from scipy.special import expit

from srflvm.likelihoods import (
    Bernoulli,
    Binomial,
    Custom,
    Gaussian,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
)

COUNTS, REALS = np.arange(4000.0), np.linspace(-400.0, 400.0, 40_001)


@partial(jax.jit, static_argnums=0)
def log_prob(likelihood, y, f, parameters):
    return likelihood.log_prob(y, f, parameters)


def gamma_log_prob(y, f, parameters):
    """Return the log density of a gamma distribution with mean e^f and shape 3."""
    return 3.0 * jnp.log(3.0) - jnp.log(2.0) + 2.0 * jnp.log(y) - 3.0 * f - 3.0 * y * jnp.exp(-f)


def poisson_log_prob(y, f, parameters):
    return y * f - jnp.exp(f) - jax.scipy.special.gammaln(y + 1.0)


# likelihood, parameters, values of y that all probability is on, values of f
DISTRIBUTIONS = {
    "gaussian": (Gaussian(), {"log_noise": np.log(0.3)}, REALS, (-1.0, 2.0)),
    "bernoulli": (Bernoulli(), {}, np.arange(2.0), (-3.0, 0.5)),
    "binomial": (Binomial(7), {"n_trials": 7.0}, np.arange(8.0), (-3.0, 0.5)),
    "negative_binomial": (NegativeBinomial(), {"log_dispersion": np.log(2.0)}, COUNTS, (-2.0, 3.0)),
    "poisson": (Poisson(), {}, COUNTS, (-2.0, 3.0)),
    "student_t": (StudentT(9.0), {"log_scale": np.log(0.5)}, REALS, (-1.0, 2.0)),
    "ordinal": (
        Ordinal(4),
        {"threshold": -1.0, "log_gap_1": 0.3, "log_gap_2": -0.5},
        np.arange(4.0),
        (-1.0, 2.0),
    ),
    "custom": (Custom(gamma_log_prob, (), "positive", low=1e-3, high=60.0), {}, REALS[20_001:], (-1.0, 1.0)),
    "custom, counts": (Custom(poisson_log_prob, (), "count", low=0.0, high=99.0), {}, COUNTS, (-2.0, 3.0)),
}
all_distributions = pytest.mark.parametrize("name", DISTRIBUTIONS)


def masses(name):
    """Return P(y | f), or the density times the width of a cell: (values of f, values of y)."""
    likelihood, parameters, values, f = DISTRIBUTIONS[name]
    y, f = np.broadcast_arrays(values, np.array(f)[:, None])
    width = 1.0 if likelihood.discrete else values[1] - values[0]
    return width * np.exp(log_prob(likelihood, y, f, parameters)), values


@all_distributions
def test_probabilities_sum_to_one(name):
    # the grid of step 0.02 ends where the custom density, y^2 e^-y near zero, is not smooth
    np.testing.assert_allclose(masses(name)[0].sum(axis=1), 1.0, rtol=1e-5 if name == "custom" else 1e-7)


@all_distributions
def test_moments(name):
    likelihood, parameters, _, f = DISTRIBUTIONS[name]
    p, y = masses(name)
    # Custom has a grid of its own: 400 cells
    rtol = 2e-3 if isinstance(likelihood, Custom) else 1e-6
    mean, variance = likelihood.moments(jnp.asarray(f), parameters)
    np.testing.assert_allclose(mean, p @ y, rtol=rtol)
    np.testing.assert_allclose(variance, p @ y**2 - (p @ y) ** 2, rtol=rtol)


@all_distributions
def test_draws(name):
    """Check means and variances of 40 000 draws, with standard errors that follow from fourth moments."""
    likelihood, parameters, _, f = DISTRIBUTIONS[name]
    n = 40_000
    p, y = masses(name)
    p = p / p.sum(axis=1, keepdims=True)
    draws = likelihood.sample(np.tile(f, (n, 1)), parameters, np.random.RandomState(0))
    assert draws.shape == (n, 2)
    if likelihood.discrete:
        np.testing.assert_array_equal(draws, np.round(draws))
    mean = p @ y
    second, fourth = (np.sum(p * (y - mean[:, None]) ** k, axis=1) for k in (2, 4))
    grid = 2e-3 * isinstance(likelihood, Custom)
    error = np.abs(draws.mean(axis=0) - mean)
    np.testing.assert_array_less(error, 5.0 * np.sqrt(second / n) + grid * mean)
    error = np.abs(draws.var(axis=0) - second)
    np.testing.assert_array_less(error, 5.0 * np.sqrt((fourth - second**2) / n) + grid * second)


def test_against_scipy():
    y, f = np.array([[0.0, 1.0, 4.0]]), np.array([[-1.5], [0.0], [2.0]])
    ends = np.array([-np.inf, -1.0, 0.0, 1.0, 1.5, np.inf])
    levels = st.logistic.cdf(ends[1:] - f) - st.logistic.cdf(ends[:-1] - f)
    gaps = {"log_gap_1": 0.0, "log_gap_2": 0.0, "log_gap_3": np.log(0.5)}
    binary = np.minimum(y, 1.0)
    cases = [
        (Bernoulli(), binary, {}, st.bernoulli.logpmf(binary, expit(f))),
        (Binomial(9), y, {"n_trials": 9.0}, st.binom.logpmf(y, 9, expit(f))),
        (
            NegativeBinomial(),
            y,
            {"log_dispersion": np.log(3.0)},
            st.nbinom.logpmf(y, 3.0, 3.0 / (3.0 + np.exp(f))),
        ),
        (Poisson(), y, {}, st.poisson.logpmf(y, np.exp(f))),
        (StudentT(4.0), y, {"log_scale": np.log(0.7)}, st.t.logpdf(y, 4.0, f, 0.7)),
        (Gaussian(), y, {"log_noise": np.log(0.7)}, st.norm.logpdf(y, f, np.sqrt(0.7))),
        (Ordinal(5), y, {"threshold": -1.0, **gaps}, np.log(levels[:, [0, 1, 4]])),
    ]
    for likelihood, entries, parameters, truth in cases:
        found = log_prob(likelihood, entries, f, parameters)
        np.testing.assert_allclose(found, truth, rtol=1e-11, atol=1e-13, err_msg=likelihood.name)
