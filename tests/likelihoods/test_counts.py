"""Counts: rounding of large ones, and the bounds of the dispersion."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

from srflvm.likelihoods import NegativeBinomial
from srflvm.likelihoods.counts import _bounded_log_dispersion as bounded_log_dispersion


@partial(jax.jit, static_argnums=0)
def log_prob(likelihood, y, f, parameters):
    return likelihood.log_prob(y, f, parameters)


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("r", [1e-2, 0.1, 1.0, 30.0, 1e3, 3e4, 1e5])
def test_negative_binomial_of_large_counts(r, dtype):
    """Check that rounding is that of the result and of min(y, r) |u|, not of log Gamma(y + r)."""
    y = np.array([0.0, 1.0, 2.0, 10.0, 300.0, 5000.0, 60_000.0])[:, None]
    u = np.array([-1.0, -0.1, -0.01, 0.0, 0.01, 0.1, 1.0])
    f = (np.log(np.maximum(y, 0.5)) + u).astype(dtype)
    free = np.full((1, 1), np.log(r), dtype)
    counts = np.broadcast_to(y, f.shape).astype(dtype)
    got = log_prob(NegativeBinomial(), counts, f, {"log_dispersion": free})
    bounded = float(np.exp(bounded_log_dispersion(free.astype(float)))[0, 0])
    truth = st.nbinom.logpmf(y, bounded, 1.0 / (1.0 + np.exp(f.astype(float)) / bounded))
    error = np.abs(got - truth)
    # the rounding of f and log r, of size 11, moves u by about their steps
    size = 1.0 + np.abs(truth) + (np.abs(u) + np.abs(f) * np.abs(u)) * np.minimum(y, r)
    reference = 1e-13 * (y + r) * np.log(y + r + 2.0)
    np.testing.assert_array_less(error, 12.0 * np.finfo(dtype).eps * size + reference)


def test_slope_in_the_dispersion_where_it_equals_the_count():
    """Check a dispersion of exactly 1 in float32: it must not matter which of two equals is taken."""
    y, f = np.ones((1, 1), np.float32), np.full((1, 1), 0.1, np.float32)

    def value(log_r):
        return NegativeBinomial().log_prob(y, f, {"log_dispersion": log_r})[0, 0]

    truth = [
        st.nbinom.logpmf(1.0, np.exp(h), np.exp(h) / (np.exp(h) + np.exp(float(f[0, 0]))))
        for h in (-1e-4, 1e-4)
    ]
    slope = jax.jit(jax.grad(value))(jnp.float32(0.0))
    assert np.exp(np.float32(bounded_log_dispersion(jnp.float32(0.0)))) == 1.0
    np.testing.assert_allclose(slope, (truth[1] - truth[0]) / 2e-4, atol=1e-6)


def test_dispersion_is_bounded_smoothly():
    inside = np.linspace(np.log(0.1), np.log(1e3), 7)
    np.testing.assert_allclose(bounded_log_dispersion(inside), inside, atol=1e-7)
    ends = bounded_log_dispersion(np.array([-1e3, 1e3]))
    np.testing.assert_allclose(np.exp(ends), [1e-3, 1e5], rtol=1e-12)
    assert np.all(jax.vmap(jax.grad(bounded_log_dispersion))(np.array([-9.0, 0.0, 13.0])) > 1e-4)
