"""Sites and their fixed points against quadrature and optimisation over all Gaussians."""

from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln, log_expit, logsumexp
from scipy.stats import norm, ortho_group

from srflvm import entries
from srflvm.likelihoods import Bernoulli, Expected, Gaussian, NegativeBinomial, Poisson
from srflvm.sites import (
    DAMPING,
    Function,
    better_amplitude,
    better_parameters,
    local_terms,
    next_sites,
    with_constants,
)

# Six rows, two features and the constant; terms of f that are known; a dispersion.
X = np.array([-1.5, -0.8, -0.1, 0.4, 1.1, 1.9])
PHI = np.stack([X, np.sin(2.0 * X), np.ones(6)], axis=1)
KNOWN = np.array([0.3, -0.2, 0.5, 0.1, -0.4, 0.2])
AMPLITUDE, DISPERSION = 1.5, 1.7
LOG_DISPERSION = np.log(DISPERSION)
GRID = np.linspace(-9.0, 9.0, 721)
GRID_WEIGHTS = norm.pdf(GRID) * (GRID[1] - GRID[0])


def log_negative_binomial(y, f, log_r=LOG_DISPERSION):
    r, odds = np.exp(log_r), f - log_r
    return gammaln(y + r) - gammaln(r) - gammaln(y + 1) + y * log_expit(odds) + r * log_expit(-odds)


class Case(NamedTuple):
    likelihood: object
    y: np.ndarray
    log_prob: object
    learned: dict = {}  # noqa: RUF012


COUNTS = np.array([0.0, 3.0, 1.0, 0.0, 7.0, 2.0])
CASES = {
    "bernoulli": Case(
        Bernoulli(), np.array([0.0, 1.0, 0.0, 1.0, 1.0, 1.0]), lambda y, f: log_expit(np.where(y > 0, f, -f))
    ),
    "negative_binomial": Case(
        NegativeBinomial(), COUNTS, log_negative_binomial, {"log_dispersion": np.array([LOG_DISPERSION])}
    ),
    "poisson": Case(Poisson(), COUNTS, lambda y, f: y * f - np.exp(f) - gammaln(y + 1)),
}


def expected(log_prob, y, mean, variance):
    """E log p(y | f) of each entry, by the trapezoid rule."""
    f = mean[..., None] + np.sqrt(variance)[..., None] * GRID
    return log_prob(y[..., None], f) @ GRID_WEIGHTS


def divergence(mean, covariance, amplitude):
    square = (mean @ mean + np.trace(covariance)) / amplitude
    size = len(mean)
    return 0.5 * (square - size + size * np.log(amplitude) - np.linalg.slogdet(covariance)[1])


def bound(case, mean, covariance):
    """E log p(y | f) - KL(q(h) || p(h)) for any Gaussian q(h)."""
    variance = np.einsum("ni,ij,nj->n", PHI, covariance, PHI)
    values = expected(case.log_prob, case.y, PHI @ mean + KNOWN, variance)
    return np.sum(values) - divergence(mean, covariance, AMPLITUDE)


def log_marginal(case, step, axes):
    """log of the integral of p(y | h) N(h) by the trapezoid rule along given axes, in units of the prior."""
    along = np.arange(-8.0, 8.0, step)
    z = np.stack(np.meshgrid(along, along, along, indexing="ij"), axis=-1).reshape(-1, 3)
    f = np.sqrt(AMPLITUDE) * z @ axes @ PHI.T + KNOWN
    log_terms = np.sum(case.log_prob(case.y, f), axis=1) + np.sum(norm.logpdf(z), axis=1)
    return logsumexp(log_terms) + 3.0 * np.log(step)


@partial(jax.jit, static_argnames=("likelihood", "route"))
def converged(likelihood, route, y, learned):
    """Sites, weights and bound of one column after 200 visits."""
    features, observed = jnp.asarray(PHI), jnp.ones(y.shape, bool)
    parameters, amplitude = with_constants(learned, {}), jnp.full(1, AMPLITUDE)

    def visit(sites, _):
        weights = entries.solve(features, sites, amplitude)
        mean, variance = entries.function_moments(features, weights)
        here = Function(mean, variance, jnp.asarray(KNOWN)[None], mean)
        values, local = local_terms(route, jax.random.key(0), likelihood, y, here, parameters)
        value = jnp.sum(values) - entries.divergence(weights, amplitude)[0]
        return next_sites(sites, local, mean, observed, DAMPING[route]), (weights, value)

    start = entries.Sites(0.1 * jnp.ones(y.shape), jnp.zeros(y.shape))
    sites, history = jax.lax.scan(visit, start, length=200)
    return sites, *jax.tree.map(lambda path: path[-1], history)


@lru_cache
def fixed_point(name, route):
    case = CASES[name]
    with jax.enable_x64(True):
        _, weights, value = converged(case.likelihood, route, jnp.asarray(case.y)[None], case.learned)
    return np.asarray(weights.mean[0]), np.asarray(weights.covariance[0]), float(value)


def best_gaussian(case):
    """max of the bound over mean and Cholesky factor."""
    lower = np.tril_indices(3)

    def loss(point):
        factor = np.zeros((3, 3))
        factor[lower] = point[3:]
        factor[np.diag_indices(3)] = np.exp(np.diag(factor))
        return -bound(case, point[:3], factor @ factor.T)

    return -minimize(loss, np.zeros(9), method="BFGS", options={"gtol": 1e-5}).fun


def best_local_bounds(case):
    """max over c of the integral of N(h) and the quadratic lower bounds of Jaakkola and Jordan that touch at
    psi = +-c, of y psi - b log(1 + e^psi) = kappa psi - b log(2 cosh(psi / 2)), psi = f - log r."""
    b, log_r = (case.y + DISPERSION, LOG_DISPERSION) if case.learned else (np.ones(6), 0.0)
    kappa, known = case.y - 0.5 * b, KNOWN - log_r
    constant = np.sum(case.log_prob(case.y, log_r) + b * np.log(2.0))  # psi = 0

    def loss(log_c):
        c = np.exp(log_c)
        omega = b * np.tanh(0.5 * c) / (2.0 * c)
        at_c = constant - b @ np.logaddexp(0.5 * c, -0.5 * c) + 0.5 * omega @ c**2
        system = PHI.T @ (omega[:, None] * PHI) + np.eye(3) / AMPLITUDE
        cross = PHI.T @ (kappa - omega * known)
        gaussian = 0.5 * (cross @ np.linalg.solve(system, cross) - np.linalg.slogdet(AMPLITUDE * system)[1])
        return -(at_c + kappa @ known - 0.5 * omega @ known**2 + gaussian)

    return -minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-6}).fun


@pytest.mark.parametrize("name", CASES)
def test_mean_field_is_below_the_best_gaussian_and_that_below_the_exact_evidence(name):
    case = CASES[name]
    exact = log_marginal(case, 0.2, np.eye(3))
    np.testing.assert_allclose(exact, log_marginal(case, 0.23, ortho_group.rvs(3, random_state=0)), atol=1e-9)
    mean, covariance, value = fixed_point(name, "sites")
    np.testing.assert_allclose(value, bound(case, mean, covariance), atol=1e-7)
    np.testing.assert_allclose(value, best_gaussian(case), atol=1e-7)
    assert exact - 0.1 < value < exact - 1e-3
    if case.likelihood.has_polya_gamma:
        mean_field = fixed_point(name, "polya_gamma")[2]
        np.testing.assert_allclose(mean_field, best_local_bounds(case), atol=1e-7)
        assert value - 0.3 < mean_field < value - 1e-3


def slopes(function, mean, covariance, step=1e-4):
    """Central differences of function(mean, covariance) in units of the Gaussian's own spread."""
    root = np.linalg.cholesky(covariance)
    moves = [(step * root @ e, 0.0) for e in np.eye(3)]
    for i, j in zip(*np.tril_indices(3), strict=True):
        outer = np.outer(root[:, i], root[:, j])
        moves.append((0.0, step * (outer + outer.T)))
    return [
        (function(mean + m, covariance + c) - function(mean - m, covariance - c)) / (2 * step)
        for m, c in moves
    ]


@pytest.mark.parametrize("name", CASES)
def test_at_the_fixed_point_the_bound_is_flat_in_mean_and_covariance(name):
    # differences have errors of step^2 = 1e-8; for log-odds with a variance of 3.6, 20 nodes leave 1e-5
    mean, covariance, _ = fixed_point(name, "sites")
    tolerance = 2e-5 if name == "bernoulli" else 1e-7
    np.testing.assert_allclose(slopes(partial(bound, CASES[name]), mean, covariance), 0.0, atol=tolerance)


# ---- parameters and amplitudes --------------------------------------------------------------------


def entries_of(likelihood, seed=0):
    """Three columns of 40 entries, some not observed, with q(f) of each."""
    random = np.random.default_rng(seed)
    mean, variance = random.normal(size=(3, 40)), random.gamma(2.0, 0.1, size=(3, 40))
    noise = np.array([[0.3], [1.0], [2.0]])
    if isinstance(likelihood, Gaussian):
        y = mean + noise * random.normal(size=(3, 40))
    else:
        y = random.poisson(np.exp(mean + 1.0) * random.gamma(1.0 / noise, noise)).astype(float)
    known = np.full((3, 1), 0.0 if isinstance(likelihood, Gaussian) else 1.0)
    return y, Function(mean, variance, known, mean), random.uniform(size=(3, 40)) < 0.8


@partial(jax.jit, static_argnames="likelihood")
def climbed(likelihood, y, function, observed, learned):
    def step(learned, _):
        return better_parameters(likelihood, y, function, observed, learned, {})[0], learned

    return jax.lax.scan(step, learned, length=40)[1]


@pytest.mark.parametrize("start", [-4.0, 0.0, 6.0])
@pytest.mark.parametrize("kind", ["dispersion", "column", "shared"])
def test_better_parameters_climb_to_the_maximum_of_the_expected_log_likelihood(kind, start):
    likelihood = NegativeBinomial() if kind == "dispersion" else Gaussian(kind)
    name = "log_dispersion" if kind == "dispersion" else "log_noise"
    y, function, observed = entries_of(likelihood)
    begin = {name: jnp.full(1 if kind == "shared" else 3, start)}
    path = np.asarray(climbed(likelihood, *jax.tree.map(jnp.asarray, (y, function, observed)), begin)[name])

    def total(value, columns):
        def log_prob(y, f):
            if kind == "dispersion":
                return log_negative_binomial(y, f, value)
            return norm.logpdf(y, f, np.exp(0.5 * value))

        parts = (part[columns] for part in (y, function.total, function.variance))
        return np.sum(expected(log_prob, *parts)[observed[columns]])

    for column, values in enumerate(path.T):
        columns = slice(None) if kind == "shared" else slice(column, column + 1)
        heights = np.array([total(value, columns) for value in values])
        assert np.all(np.diff(heights) > -1e-9 * np.abs(heights[1:]))
        loss = partial(lambda value, columns: -total(value, columns), columns=columns)
        best = minimize_scalar(loss, bounds=(-5.0, 7.0), method="bounded")
        np.testing.assert_allclose(values[-1], best.x, atol=1e-4)
        np.testing.assert_allclose(heights[-1], -best.fun, rtol=1e-9)


def test_better_amplitude_maximises_the_expected_log_prior():
    mean, covariance, _ = fixed_point("bernoulli", "sites")
    weights = entries.Weights(mean[None], None, covariance[None], None, None)

    def loss(log_amplitude):
        return divergence(mean, covariance, np.exp(log_amplitude))

    best = minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 1e-9})
    np.testing.assert_allclose(better_amplitude(weights)[0], best.x, atol=1e-6)


def test_missing_entries_and_negative_curvature_make_no_harm_to_the_sites():
    """A site's precision is never negative, and one that is not observed goes to zero."""
    old = entries.Sites(jnp.full((1, 3), 2.0), jnp.full((1, 3), 4.0))
    local = Expected(jnp.zeros((1, 3)), jnp.array([[1.0, 1.0, jnp.nan]]), jnp.array([[3.0, -5.0, jnp.nan]]))
    observed = jnp.array([[True, True, False]])
    moved = next_sites(old, local, jnp.full((1, 3), 0.5), observed, 0.25)
    # shift = slope + precision mean; a quarter of the way
    np.testing.assert_allclose(moved.precision[0], [2.0 + 0.25 * 1.0, 1.5 + 0.25e-6, 1.5], rtol=1e-12)
    np.testing.assert_allclose(moved.shift[0], [4.0 - 0.25 * 1.5, 3.25 + 0.125e-6, 3.0], rtol=1e-12)
