"""Mathematics of every likelihood against brute force.

The truth is a formula for log p(y | f) in NumPy alone, written as the textbook has it. Averages over
f ~ N(m, v) are sums over a fine grid, and derivatives are finite differences or Stein's identities,
E l' = E l (f - m) / v and E l'' = E l ((f - m)^2 - v) / v^2, which need no derivative of l.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from scipy.special import expit, gammaln, log_expit, logsumexp

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


def log_binomial(n):
    return lambda y, f: (
        gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1) + y * log_expit(f) + (n - y) * log_expit(-f)
    )


def log_negative_binomial(r):
    def log_p(y, f):
        odds = f - np.log(r)
        return gammaln(y + r) - gammaln(r) - gammaln(y + 1) + y * log_expit(odds) + r * log_expit(-odds)

    return log_p


def log_ordinal(thresholds):
    ends = np.array([-np.inf, *thresholds, np.inf])

    def log_p(y, f):
        level = np.asarray(y, int)
        above, below = ends[level + 1] - f, ends[level] - f
        mirrored = above + below > 0
        return np.log(np.where(mirrored, expit(-below) - expit(-above), expit(above) - expit(below)))

    return log_p


def custom_log_prob(y, f, parameters):
    """Return the log density of a Gumbel distribution."""
    z = (y - f) * jnp.exp(-parameters["log_scale"])
    return -z - jnp.exp(-z) - parameters["log_scale"]


class Case(NamedTuple):
    """Case of four entries and eight means; all have the same shapes, which share compiled programs."""

    likelihood: object
    parameters: dict
    entries: tuple
    truth: object
    means: tuple = (-3.0, -2.0, -1.0, -0.2, 0.0, 0.7, 1.5, 2.5)


def around(*levels):
    return tuple(level + shift for level in levels for shift in (-1.0, -0.2, 0.3, 1.0))


def negative_binomial(r, entries, means):
    return Case(NegativeBinomial(), {"log_dispersion": np.log(r)}, entries, log_negative_binomial(r), means)


SMALL_COUNTS, LARGE_COUNTS = (0.0, 1.0, 2.0, 7.0), (0.0, 1.0, 7.0, 300.0)
CASES = {
    "gaussian": Case(
        Gaussian(),
        {"log_noise": np.log(0.3)},
        (-1.0, 0.5, 0.7, 3.0),
        lambda y, f: st.norm.logpdf(y, f, 0.3**0.5),
    ),
    "bernoulli": Case(Bernoulli(), {}, (0.0, 1.0, 0.0, 1.0), lambda y, f: log_expit(np.where(y > 0, f, -f))),
    "binomial": Case(Binomial(1000), {"n_trials": 5.0}, (0.0, 1.0, 2.0, 5.0), log_binomial(5)),
    "binomial, large": Case(
        Binomial(1000), {"n_trials": 1000.0}, (0.0, 3.0, 700.0, 1000.0), log_binomial(1000), around(-5.0, 1.0)
    ),
    "negative binomial": negative_binomial(0.5, SMALL_COUNTS, around(-2.0, 1.5)),
    "negative binomial, large": negative_binomial(20.0, LARGE_COUNTS, around(2.0, 5.7)),
    "negative binomial, nearly Poisson": negative_binomial(300.0, LARGE_COUNTS, around(2.0, 5.7)),
    "poisson": Case(
        Poisson(), {}, LARGE_COUNTS, lambda y, f: y * f - np.exp(f) - gammaln(y + 1), around(0.0, 5.7)
    ),
    "student_t": Case(
        StudentT(),
        {"log_scale": np.log(0.5)},
        (-1.0, 0.5, 0.7, 8.0),
        lambda y, f: st.t.logpdf(y, 4.0, f, 0.5),
    ),
    "ordinal": Case(
        Ordinal(4),
        {"threshold": -1.0, "log_gap_1": np.log(0.3), "log_gap_2": np.log(2.0)},
        (0.0, 1.0, 2.0, 3.0),
        log_ordinal([-1.0, -0.7, 1.3]),
    ),
    "custom": Case(
        Custom(custom_log_prob),
        {"log_scale": np.log(2.0)},
        (-1.0, 0.5, 0.7, 3.0),
        lambda y, f: st.gumbel_r.logpdf(y, f, 2.0),
    ),
}
# How far the bounds of the dispersion, 1e-3 and 1e5, move a dispersion of 0.5 or 300, and rounding.
BOUNDS = 3e-11
# Relative error left by 20 Gauss-Hermite nodes, by variance. Closed forms and the Student t do better.
QUADRATURE = {0.01: 1e-9, 0.5: 1e-9, 1.0: 3e-8, 2.0: 5e-6, 4.0: 3e-4}

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
both_precisions = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])


@partial(jax.jit, static_argnums=(0, 1))
def compiled(likelihood, method, *arguments):
    return getattr(likelihood, method)(*arguments)


class Grid(NamedTuple):
    """Grid of all entries against all pairs of a variance and a mean, (4, 40), and parameters (1, 1)."""

    y: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    parameters: dict


def grid_of(case, dtype, variances=tuple(QUADRATURE)):
    y, v, m = np.meshgrid(case.entries, variances, case.means, indexing="ij")
    parameters = {name: np.full((1, 1), value, dtype) for name, value in case.parameters.items()}
    return Grid(*(part.reshape(4, -1).astype(dtype) for part in (y, m, v)), parameters)


def brute_force(case, grid):
    """Return E l, E l', -E l''; the trapezoid rule is exact to rounding for functions as smooth as these."""
    z = np.linspace(-13.0, 13.0, 2001)
    weight = st.norm.pdf(z) * (z[1] - z[0])
    y, m, v = (part.astype(float) for part in grid[:3])
    values = case.truth(y[..., None], m[..., None] + np.sqrt(v)[..., None] * z)
    return values @ weight, values @ (weight * z) / np.sqrt(v), -values @ (weight * (z**2 - 1.0)) / v


@both_precisions
@all_cases
def test_expectations(case, dtype):
    grid = grid_of(case, dtype)
    got = compiled(case.likelihood, "expectations", *grid)
    assert {part.dtype for part in got} == {np.dtype(dtype)}
    value, slope, precision = brute_force(case, grid)
    size = np.abs(slope) + np.abs(precision)
    allowed = np.repeat(list(QUADRATURE.values()), len(case.means)) + 20.0 * np.finfo(dtype).eps
    np.testing.assert_array_less(np.abs(got.value - value), allowed * (1.0 + np.abs(value) + size))
    np.testing.assert_array_less(np.abs(got.slope - slope), allowed * size)
    np.testing.assert_array_less(np.abs(got.precision - precision), allowed * size)


@all_cases
def test_no_variance(case):
    """Check v = 0: log p itself, and its derivatives by central differences (errors h^2 and eps / h^2)."""
    y, f, zero, parameters = grid_of(case, np.float64, np.zeros(5))
    low, middle, high = (case.truth(y, f + h) for h in (-1e-3, 0.0, 1e-3))
    slope, curvature = (high - low) / 2e-3, (high - 2.0 * middle + low) / 1e-6
    size = np.abs(slope) + np.abs(curvature)
    value = compiled(case.likelihood, "log_prob", y, f, parameters)
    np.testing.assert_allclose(value, middle, rtol=BOUNDS, atol=1e-12)
    pointwise = compiled(case.likelihood, "pointwise", y, f, parameters)
    for got in (pointwise, compiled(case.likelihood, "expectations", y, f, zero, parameters)):
        np.testing.assert_array_less(np.abs(got.value - middle), 1e-8 * (1.0 + np.abs(middle)))
        np.testing.assert_array_less(np.abs(got.slope - slope), 2e-6 * size + 1e-9)
        np.testing.assert_array_less(np.abs(got.precision + curvature), 1e-5 * size + 1e-8)


def check_log_predictive(case, dtype):
    """Check also y far from what N(m, v) expects, and p(y | f) far narrower than N(m, v)."""
    grid = grid_of(case, dtype)
    y, m, v = (part[..., None].astype(float) for part in grid[:3])
    z = np.linspace(-60.0, 60.0, 8001)
    with np.errstate(over="ignore", divide="ignore"):
        truth = logsumexp(case.truth(y, m + np.sqrt(v) * z) + st.norm.logpdf(z), axis=-1)
    truth += np.log(z[1] - z[0])
    got = compiled(case.likelihood, "log_predictive", *grid)
    allowed = np.where(grid.variance > 1.0, 1e-4, 1e-6) + 20.0 * np.finfo(dtype).eps * (1.0 + np.abs(truth))
    np.testing.assert_array_less(np.abs(got - truth), allowed)


@all_cases
def test_log_predictive(case):
    check_log_predictive(case, np.float64)


@pytest.mark.parametrize("name", ["gaussian", "negative binomial, large", "student_t"])
def test_log_predictive_in_single_precision(name):
    check_log_predictive(CASES[name], np.float32)


@pytest.mark.parametrize("f", [-1e4, -100.0, 100.0, 1e4])
@both_precisions
@pytest.mark.parametrize("name", [name for name in CASES if name != "custom"])
def test_nothing_overflows(name, dtype, f):
    likelihood = CASES[name].likelihood
    y, m, v, parameters = grid_of(CASES[name], dtype)
    at = np.full_like(m, f)
    found = compiled(likelihood, "expectations", y, at, v, parameters), likelihood.moments(at, parameters)
    assert all(np.isfinite(part).all() for part in jax.tree.leaves(found))


@pytest.mark.parametrize("name", ["gaussian", "negative binomial", "student_t", "ordinal", "custom"])
def test_slopes_in_the_learned_parameters(name):
    """Check first and second derivatives of E l, which Newton steps take, by central differences."""
    case = CASES[name]
    y, m, v, parameters = grid_of(case, np.float64, (0.0, 0.1, 0.5, 1.0, 2.0))
    direction = dict(zip(parameters, (1.0, -0.7, 0.4), strict=False))

    def moved(h):
        by = {key: value + h * direction[key] for key, value in parameters.items()}
        return case.likelihood.expectations(y, m, v, by).value

    def derivatives(h):
        slope, curvature = jax.jvp(lambda g: jax.jvp(moved, (g,), (1.0,))[1], (h,), (1.0,))
        return moved(h), slope, curvature

    derivatives = jax.jit(derivatives)
    low, middle, high = (derivatives(h) for h in (-1e-3, 0.0, 1e-3))
    np.testing.assert_allclose(middle[1], (high[0] - low[0]) / 2e-3, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(middle[2], (high[1] - low[1]) / 2e-3, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.likelihood.has_polya_gamma])
def test_polya_gamma_form(name):
    case = CASES[name]
    y, f, _, parameters = grid_of(case, np.float64)
    form = case.likelihood.polya_gamma(jnp.asarray(y), parameters)
    psi = f + form.shift
    value = form.constant + form.kappa * psi - form.b * np.logaddexp(psi / 2.0, -psi / 2.0)
    np.testing.assert_allclose(value, case.truth(y, f), rtol=BOUNDS, atol=1e-12)
