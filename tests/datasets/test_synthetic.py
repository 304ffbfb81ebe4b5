"""Data drawn on the S-curve have the moments that are promised."""

import numpy as np
import pytest

from srflvm.datasets import make_s_curve_gp


def test_s_curve_data_have_the_covariance_they_promise():
    data = make_s_curve_gp(40, 20_000, noise=0.5, random_state=0)
    expected = data.kernel()
    assert np.allclose(np.diag(expected), 1.0)
    assert np.abs(data.F @ data.F.T / 20_000 - expected).max() < 6 / np.sqrt(20_000)
    assert np.std(data.Y - data.F) == pytest.approx(0.5, rel=0.01)
    assert np.array_equal(data.Y, make_s_curve_gp(40, 20_000, noise=0.5, random_state=0).Y)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "negative_binomial"])
def test_s_curve_data_of_other_kinds_have_the_moments_they_promise(likelihood):
    """Sums over all columns, which are independent given F, have z scores below four."""
    data = make_s_curve_gp(30, 3000, likelihood=likelihood, dispersion=2.0, random_state=0)
    mean = 1.0 / (1.0 + np.exp(-data.F)) if likelihood == "bernoulli" else np.exp(data.F)
    extra = {"bernoulli": -(mean**2), "poisson": 0.0, "negative_binomial": mean**2 / 2.0}[likelihood]
    residual, variance = data.Y - mean, mean + extra
    assert abs(residual.sum()) < 4.0 * np.sqrt(variance.sum())
    ratio = residual**2 / variance
    assert abs(ratio.mean() - 1.0) < 4.0 * ratio.std() / np.sqrt(ratio.size)
    with pytest.raises(ValueError, match="likelihood='gamma'"):
        make_s_curve_gp(likelihood="gamma")
