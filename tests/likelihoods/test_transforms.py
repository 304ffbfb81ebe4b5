"""Transforms of skewed columns against SciPy's, finite differences and dense integration."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from srflvm.likelihoods.transforms import Curves, choose_transforms
from srflvm.likelihoods.transforms import _fit_curve as fit_curve
from srflvm.likelihoods.transforms import _log_likelihood as log_likelihood
from srflvm.likelihoods.transforms import _transformed_units as transformed_units
from srflvm.numerics.jit import in_float64

EXPONENTS = (0.0, 0.3, 1.0, 1.45, 2.0)


def without_ends(exponent):
    return Curves.of(("yeo_johnson",), ((exponent, -1e100, 1e100, 0.0, 1.0),))


# Each kind of transform, with ends within what is tried.
CURVES = Curves.of(
    ("log", "log", "yeo_johnson", "yeo_johnson", "yeo_johnson", "none"),
    (
        (0.0, 1e-300, 3.0, 0.2, 1.3),
        (0.0, 0.5, 3.0, 0.2, 0.7),
        (0.0, -1e100, 2.0, 0.1, 0.8),
        (0.45, -1e100, 2.0, -0.3, 1.2),
        (1.6, -2.0, 1e100, 0.4, 1.1),
        (1.0, -1e100, 1e100, 0.0, 1.0),
    ),
)
BY_COLUMN = range(len(CURVES.exponent))


def some_numbers(n_rows=400):
    """Return numbers on both sides of all ends, positive in the column that needs it."""
    x = 3.0 * np.random.RandomState(0).standard_normal((n_rows, len(CURVES.exponent)))
    x[:, 0] = np.abs(x[:, 0]) + 1e-3
    return x


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_transform_of_yeo_and_johnson_is_that_of_scipy(exponent):
    x = np.concatenate([np.linspace(-5.0, 5.0, 101), [-80.0, 1e-9, 300.0]])
    found = without_ends(exponent).forward(x[:, None])[:, 0]
    np.testing.assert_allclose(found, stats.yeojohnson(x, exponent), rtol=1e-12, atol=1e-15)


def test_the_logarithm_and_its_line():
    v = CURVES.forward(np.array([[0.7, 0.1, 0.0, 0.0, 0.0, 4.0], [6.0, 6.0, 0.0, 0.0, 0.0, -4.0]]))
    np.testing.assert_allclose(v[0, 0], (np.log(0.7) - 0.2) / 1.3)
    np.testing.assert_allclose(v[1, 0], (np.log(3.0) + 3.0 / 3.0 - 0.2) / 1.3)
    np.testing.assert_allclose(v[0, 1], (np.log(0.5) - 0.4 / 0.5 - 0.2) / 0.7)
    np.testing.assert_array_equal(v[:, 5], [4.0, -4.0])


def test_slopes_are_finite_differences():
    x, step = some_numbers(), 1e-6
    difference = (CURVES.forward(x + step) - CURVES.forward(x - step)) / (2.0 * step)
    away = np.min(np.abs(x[..., None] - np.stack([CURVES.low, CURVES.high, 0.0 * CURVES.low], -1)), -1) > 1e-4
    np.testing.assert_allclose(np.exp(CURVES.log_slope(x))[away], difference[away], rtol=1e-6)


def test_missing_entries_stay_missing():
    x = np.full((1, len(CURVES.exponent)), np.nan)
    assert np.isnan(CURVES.forward(x)).all()
    assert np.isnan(CURVES.log_slope(x)).all()


def test_the_inverse_undoes_the_transform_on_the_whole_line():
    x = some_numbers()
    np.testing.assert_allclose(CURVES.inverse(CURVES.forward(x)), x, rtol=1e-11, atol=1e-12)
    v = np.linspace(-30.0, 30.0, 301)[:, None] * np.ones(len(CURVES.exponent))
    x = CURVES.inverse(v)
    assert np.all(np.diff(x, axis=0) >= 0.0)
    np.testing.assert_allclose(CURVES.forward(x), v, rtol=1e-9, atol=1e-9)
    with in_float64():
        np.testing.assert_allclose(CURVES.inverse(jnp.asarray(v)), x, rtol=1e-12)


def test_the_rise_at_the_centre_is_a_finite_difference():
    step = 1e-6
    ones = np.ones(len(CURVES.exponent))
    difference = (CURVES.inverse(step * ones) - CURVES.inverse(-step * ones)) / (2.0 * step)
    np.testing.assert_allclose(CURVES.rise_at_centre(), difference, rtol=1e-6)


# ---- moments ---------------------------------------------------------------------------------------


def dense_moments(column, mean, std):
    """Integrate x and x^2 over v ~ N(mean, std^2), part by part."""
    ones = np.ones(len(CURVES.exponent))

    def back(v):
        return CURVES.inverse(v * ones)[column]

    cuts = [float(CURVES.forward(end)[column]) for end in (CURVES.low, CURVES.high)]
    edges = np.clip([-np.inf, *cuts, np.inf], mean - 12.0 * std, mean + 12.0 * std)
    parts = [
        [
            quad(lambda v, k=k: back(v) ** k * stats.norm.pdf(v, mean, std), a, b, epsabs=1e-12, limit=200)[0]
            for a, b in pairwise(edges)
        ]
        for k in (1, 2)
    ]
    first, second = np.sum(parts, axis=1)
    return first, second - first**2


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.2, 0.3), (-2.0, 0.7), (3.0, 0.05)])
def test_moments_are_those_of_dense_integration(mean, std):
    at = np.full((1, len(CURVES.exponent)), mean)
    found = [part[0] for part in CURVES.moments(at, np.full_like(at, std**2))]
    expected = np.array([dense_moments(column, mean, std) for column in BY_COLUMN]).T
    spread = np.sqrt(expected[1])
    # the third derivative of Yeo and Johnson's transform jumps at 0, which leaves the fifth digit
    np.testing.assert_allclose(found[0] / spread, expected[0] / spread, atol=3e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4)
    np.testing.assert_allclose(found[0][:2], expected[0][:2], rtol=1e-8)
    np.testing.assert_allclose(found[1][:2], expected[1][:2], rtol=1e-7)


def test_the_share_of_the_function_in_the_variance():
    """Compare with a dense grid over f, of means that are integrals by 200 nodes."""
    mean, variance, noise = 0.6, 0.25, 0.16
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    ones = np.ones(len(CURVES.exponent))
    means = [weights @ CURVES.inverse((mean + 0.5 * z + 0.4 * nodes)[:, None] * ones) for z in nodes]
    expected = weights @ np.square(means) - np.square(weights @ np.array(means))
    at = np.full((1, len(CURVES.exponent)), mean)
    found = CURVES.variance_of_means(at, np.full_like(at, variance), np.full_like(at, noise))
    np.testing.assert_allclose(found[0], expected, rtol=0.02)


def test_means_do_not_run_away():
    """A tail of the normal far beyond the entries grows as a line, not as an exponential."""
    values = np.exp(3.0 * np.random.RandomState(0).standard_normal(200))
    for name in ("log", "yeo_johnson"):
        curve = Curves.of((name,), (fit_curve(name, values),))
        location, scale = transformed_units(name, values)
        mean, _ = curve.moments(np.full((1, 1), 2.5), np.full((1, 1), 4.0))
        assert location[0] + scale[0] * float(mean[0, 0]) < 5.0 * values.max()


# ---- which transform a column has ------------------------------------------------------------------


def skewed(n_rows=300, seed=0):
    return 2e4 * np.exp(0.8 * np.random.RandomState(seed).standard_normal(n_rows))


def test_exponents_are_the_likeliest_by_scipy():
    for values in (skewed(), np.sqrt(skewed()), -np.sqrt(skewed()) + 5.0):
        location, scale = transformed_units("yeo_johnson", values)
        expected = stats.yeojohnson_normmax((values - location) / scale)
        exponent = fit_curve("yeo_johnson", values)[0]
        assert abs(exponent - np.clip(expected, 0.0, 2.0)) <= 0.03


@pytest.mark.parametrize("name", ["none", "log", "yeo_johnson"])
def test_log_likelihoods_are_those_of_scipy(name):
    values = skewed()
    numbers = fit_curve(name, values)
    if name == "none":
        expected = stats.norm.logpdf(values, values.mean(), values.std()).sum()
    elif name == "log":
        logs = np.log(values)
        expected = stats.lognorm.logpdf(values, logs.std(), scale=np.exp(logs.mean())).sum()
    else:
        location, scale = transformed_units(name, values)
        kernel = stats.yeojohnson_llf(numbers[0], (values - location) / scale)
        expected = kernel - len(values) * (0.5 * np.log(2.0 * np.pi) + 0.5 + np.log(scale[0]))
    np.testing.assert_allclose(log_likelihood(name, values, numbers), expected, rtol=1e-10)


def test_transformed_entries_have_mean_zero_and_variance_one():
    Y = np.column_stack([skewed(), skewed(seed=1), 3.0 - skewed(seed=2)])
    Y[::7, 0] = np.nan
    names = ("log", "yeo_johnson", "yeo_johnson")
    chosen, numbers = choose_transforms(Y, names)
    location, scale = Curves.units(chosen, Y)
    v = Curves.of(chosen, numbers).forward((Y - location) / scale)
    assert chosen == names
    np.testing.assert_allclose(np.nanmean(v, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(v, axis=0), 1.0, rtol=1e-12)


def test_logarithms_asked_for_have_no_end_below_and_chosen_ones_have():
    values = skewed()
    assert Curves.of(("log",), (fit_curve("log", values),)).is_positive
    numbers = fit_curve("log", values, goes_on_below=True)
    assert not Curves.of(("log",), (numbers,)).is_positive
    location, scale = transformed_units("log", values)
    beyond = Curves.of(("log",), (numbers,)).forward((np.array([[0.0], [-1e3]]) - location) / scale)
    assert np.isfinite(beyond).all()
    assert beyond[1] < beyond[0] < -2.0


def automatic(values):
    (name,), _ = choose_transforms(np.asarray(values, float)[:, None], ("auto",))
    return name


def test_skewed_columns_are_transformed_and_others_are_not():
    random = np.random.RandomState(0)
    assert automatic(skewed()) == "log"
    assert automatic(-skewed()) == "yeo_johnson"
    dollars = np.where(random.rand(300) < 0.3, 0.0, np.round(skewed(seed=1)))
    assert automatic(dollars) == "yeo_johnson"
    for values in (
        random.standard_normal(300),
        1e5 + random.standard_normal(300),
        random.rand(300),
        random.standard_t(8, 300),
        np.arange(1950.0, 2020.0),
    ):
        assert automatic(values) == "none"


def test_columns_that_tell_too_little_are_not_transformed():
    assert automatic(skewed(12)) == "none"
    assert automatic(np.full(100, 3.0)) == "none"
    assert automatic([np.nan] * 30) == "none"


def test_the_choice_does_not_depend_on_the_unit():
    for factor in (1e-30, 1e-3, 7.0, 1e30):
        assert automatic(factor * skewed()) == "log"
