"""Student's distribution: expectations far from Gaussian ones, and robust units."""

import jax.numpy as jnp
import numpy as np
import scipy.stats as st

from srflvm.likelihoods import StudentT


def test_a_student_t_far_narrower_than_the_function():
    m, v, scale = np.array([[0.0, 0.3, 5.0]]), 4.0, 0.05
    parameters = {"log_scale": jnp.full((1, 1), np.log(scale))}
    got = StudentT(3.0).expectations(jnp.zeros((1, 3)), jnp.asarray(m), jnp.full((1, 3), v), parameters)
    z = np.linspace(-12.0, 12.0, 40_001)
    weight = st.norm.pdf(z) * (z[1] - z[0])
    values = st.t.logpdf(0.0, 3.0, m[..., None] + 2.0 * z, scale)
    np.testing.assert_allclose(got.value, values @ weight, rtol=1e-7)
    np.testing.assert_allclose(got.slope, values @ (weight * z) / 2.0, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(got.precision, -values @ (weight * (z**2 - 1.0)) / v, rtol=1e-6)


def test_units_are_medians_and_a_robust_scale():
    Y = np.random.RandomState(2).standard_normal((400, 3)) * [1.0, 5.0, 0.0] + [3.0, -2.0, 7.0]
    Y[::11, 1] = np.nan
    Y[0, 0] = 1e6
    robust = StudentT().units(Y)
    np.testing.assert_allclose(robust.location, np.nanmedian(Y, axis=0))
    centred = Y - robust.location
    np.testing.assert_allclose(robust.scale, 1.4826 * np.nanmedian(np.abs(centred)))
    np.testing.assert_allclose(StudentT().units(np.array([[1.0], [1.0], [1.0], [5.0]])).scale, 2.0)
