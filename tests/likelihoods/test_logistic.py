"""Logistic kernel and Stirling's remainder against log-gamma functions in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from scipy.special import expit, gammaln

from srflvm.likelihoods.logistic import Kernel, stirling_remainder

COUNTS = np.array([0.0, 1.0, 3.0, 40.0])[:, None]
PSI = np.linspace(-6.0, 6.0, 25)


def kernels():
    """Return kernels with the log probabilities that they stand for, as functions of psi."""
    return {
        "binomial": (
            Kernel.binomial(jnp.asarray(COUNTS), jnp.asarray(40.0 - COUNTS)),
            lambda psi: st.binom.logpmf(COUNTS, 40, expit(psi)),
        ),
        "negative binomial": (
            Kernel.negative_binomial(jnp.asarray(COUNTS), jnp.full((4, 1), 2.5)),
            lambda psi: st.nbinom.logpmf(COUNTS, 2.5, expit(-psi)),
        ),
    }


@pytest.mark.parametrize("name", ["binomial", "negative binomial"])
def test_pointwise_values_are_log_probabilities_and_their_derivatives(name):
    kernel, truth = kernels()[name]
    found = kernel.pointwise(jnp.asarray(PSI))
    low, middle, high = (truth(PSI + h) for h in (-1e-3, 0.0, 1e-3))
    np.testing.assert_allclose(found.value, middle, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found.slope, (high - low) / 2e-3, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.precision, -(high - 2.0 * middle + low) / 1e-6, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["binomial", "negative binomial"])
def test_expectations_are_averages_over_a_gaussian(name):
    kernel, truth = kernels()[name]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    averages = sum(w * truth(PSI + 0.7 * z) for z, w in zip(nodes, weights, strict=True)) / np.sqrt(
        2.0 * np.pi
    )
    found = kernel.expectations(jnp.asarray(PSI), jnp.full(PSI.shape, 0.49))
    np.testing.assert_allclose(found.value, averages, rtol=1e-9, atol=1e-9)


def test_no_trials_have_no_information():
    kernel = Kernel.binomial(jnp.zeros(()), jnp.zeros(()))
    for part in (*kernel.pointwise(jnp.asarray(PSI)), *kernel.expectations(jnp.asarray(PSI), jnp.ones(25))):
        np.testing.assert_array_equal(part, 0.0)


def test_the_remainder_of_stirlings_formula():
    x = np.geomspace(1e-3, 1e6, 200)
    exact = gammaln(x) - (x - 0.5) * np.log(x) + x - 0.5 * np.log(2.0 * np.pi)
    size = 1.0 + np.abs(gammaln(x)) + np.abs(x * np.log(x))
    assert np.all(np.abs(stirling_remainder(jnp.asarray(x)) - exact) < 1e-14 * size)
    # far out it is 1 / (12 x), where the difference of large numbers has no digits left
    np.testing.assert_allclose(stirling_remainder(jnp.asarray(1e8)), 1.0 / 12e8, rtol=1e-12)
    slopes = jax.vmap(jax.grad(stirling_remainder))(jnp.asarray([0.3, 7.999, 8.001, 50.0]))
    steps = [(stirling_remainder(v + 1e-4) - stirling_remainder(v - 1e-4)) / 2e-4 for v in (0.3, 50.0)]
    np.testing.assert_allclose(slopes[jnp.array([0, 3])], steps, rtol=1e-6)
    np.testing.assert_allclose(slopes[1], slopes[2], rtol=1e-3)
