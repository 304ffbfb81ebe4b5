"""Sites and their fixed points against quadrature and optimisation over all Gaussians."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.site_cases import (
    AMPLITUDE,
    CASES,
    DISPERSION,
    KNOWN,
    LOG_DISPERSION,
    PHI,
    divergence,
    expected,
    log_negative_binomial,
    slopes,
)
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp
from scipy.stats import norm, ortho_group

from srflvm.data.encoding import GroupRows
from srflvm.likelihoods import Expected, Gaussian, NegativeBinomial, Ordinal
from srflvm.model.sites import (
    DAMPING,
    Function,
    GroupState,
    at_once,
    better_amplitude,
    better_parameters,
)
from srflvm.numerics import site_regression


def bound(case, mean, covariance):
    """Compute E log p(y | f) - KL(q(h) || p(h)) for any Gaussian q(h)."""
    variance = np.einsum("ni,ij,nj->n", PHI, covariance, PHI)
    values = expected(case.log_prob, case.y, PHI @ mean + KNOWN, variance)
    return np.sum(values) - divergence(mean, covariance, AMPLITUDE)


def log_marginal(case, step, axes):
    """Integrate p(y | h) N(h) by the trapezoid rule along given axes of the prior, and return the log."""
    along = np.arange(-8.0, 8.0, step)
    z = np.stack(np.meshgrid(along, along, along, indexing="ij"), axis=-1).reshape(-1, 3)
    f = np.sqrt(AMPLITUDE) * z @ axes @ PHI.T + KNOWN
    log_terms = np.sum(case.log_prob(case.y, f), axis=1) + np.sum(norm.logpdf(z), axis=1)
    return logsumexp(log_terms) + 3.0 * np.log(step)


@partial(jax.jit, static_argnames=("likelihood", "route"))
def converged(likelihood, route, y, learned):
    """Return sites, weights and bound of one column after 200 visits."""
    features, amplitude = jnp.asarray(PHI), jnp.full(1, AMPLITUDE)
    rows = GroupRows(y, jnp.ones(y.shape, bool), {}, jnp.asarray(KNOWN)[None])
    parameters = rows.arguments(learned)

    def visit(sites, _):
        weights = site_regression.solve(features, sites, amplitude)
        mean, variance = weights.function_moments(features)
        here = Function(mean, variance, rows.offset, mean)
        values, local = here.local_terms(route, jax.random.key(0), likelihood, y, parameters)
        value = jnp.sum(values) - weights.divergence(amplitude)[0]
        targets = here.target_sites(local, rows.observed)
        return GroupState(sites, learned, amplitude).move_sites(targets, DAMPING[route]), (weights, value)

    start = site_regression.Sites(0.1 * jnp.ones(y.shape), jnp.zeros(y.shape))
    sites, history = jax.lax.scan(visit, start, length=200)
    return sites, *jax.tree.map(lambda path: path[-1], history)


@lru_cache
def fixed_point(name, route):
    case = CASES[name]
    with jax.enable_x64(True):
        _, weights, value = converged(case.likelihood, route, jnp.asarray(case.y)[None], case.learned)
    return np.asarray(weights.mean[0]), np.asarray(weights.covariance[0]), float(value)


def best_gaussian(case):
    """Maximise the bound over mean and Cholesky factor."""
    lower = np.tril_indices(3)

    def loss(point):
        factor = np.zeros((3, 3))
        factor[lower] = point[3:]
        factor[np.diag_indices(3)] = np.exp(np.diag(factor))
        return -bound(case, point[:3], factor @ factor.T)

    return -minimize(loss, np.zeros(9), method="BFGS", options={"gtol": 1e-5}).fun


def best_local_bounds(case):
    """Maximise over c the integral of N(h) and the quadratic lower bounds of Jaakkola and Jordan.

    They touch at psi = +-c, and are bounds of y psi - b log(1 + e^psi) = kappa psi - b log(2 cosh(psi / 2)),
    psi = f - log r.
    """
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


@pytest.mark.parametrize("name", CASES)
def test_at_the_fixed_point_the_bound_is_flat_in_mean_and_covariance(name):
    # differences have errors of step^2 = 1e-8; for log-odds with a variance of 3.6, 20 nodes leave 1e-5
    mean, covariance, _ = fixed_point(name, "sites")
    tolerance = 2e-5 if name == "bernoulli" else 1e-7
    np.testing.assert_allclose(slopes(partial(bound, CASES[name]), mean, covariance), 0.0, atol=tolerance)


# ---- parameters and amplitudes --------------------------------------------------------------------


def entries_of(likelihood, seed=0):
    """Draw three columns of 40 entries, some not observed, with q(f) of each."""
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
def climbed(likelihood, rows, function, learned):
    def step(learned, _):
        return better_parameters(likelihood, len(rows.y), learned, at_once(rows, function))[0], learned

    return jax.lax.scan(step, learned, length=40)[1]


@pytest.mark.parametrize("start", [-4.0, 0.0, 6.0])
@pytest.mark.parametrize("kind", ["dispersion", "column", "shared"])
def test_better_parameters_climb_to_the_maximum_of_the_expected_log_likelihood(kind, start):
    likelihood = NegativeBinomial() if kind == "dispersion" else Gaussian(kind)
    name = "log_dispersion" if kind == "dispersion" else "log_noise"
    y, function, observed = entries_of(likelihood)
    begin = {name: jnp.full(1 if kind == "shared" else 3, start)}
    arguments = GroupRows(y, observed, {}, np.zeros((1, 40))), function
    path = np.asarray(climbed(likelihood, *jax.tree.map(jnp.asarray, arguments), begin)[name])

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
    weights = site_regression.Weights(mean[None], None, covariance[None], None)

    def loss(log_amplitude):
        return divergence(mean, covariance, np.exp(log_amplitude))

    best = minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 1e-9})
    np.testing.assert_allclose(better_amplitude(weights)[0], best.x, atol=1e-6)


def test_thresholds_take_over_the_constant_of_f():
    """Levels have the same probabilities, and sites the same heights, at f without it."""
    random = np.random.RandomState(0)
    likelihood, constants = Ordinal(n_levels=4), np.array([2.5, -1.0])
    with jax.enable_x64(True):
        learned = {"threshold": jnp.array([-0.3, 0.2]), "log_gap_1": jnp.zeros(2), "log_gap_2": jnp.ones(2)}
        sites = site_regression.Sites(*jnp.asarray(random.uniform(0.1, 1.0, (2, 2, 5))))
        before = GroupState(sites, learned, jnp.zeros(2))
        after = before.centred(likelihood, jnp.asarray(constants))
        f = random.normal(size=(2, 5))
        y = random.randint(4, size=(2, 5)).astype(float)

        def log_prob(state, f):
            parameters = {name: value[:, None] for name, value in state.parameters.items()}
            return np.asarray(likelihood.log_prob(y, f, parameters))

        np.testing.assert_allclose(log_prob(after, f - constants[:, None]), log_prob(before, f), atol=1e-12)

        def slope(state, f):
            return np.asarray(state.sites.shift - state.sites.precision * f)

        np.testing.assert_allclose(slope(after, f - constants[:, None]), slope(before, f), atol=1e-12)
        assert before.centred(Gaussian(), jnp.asarray(constants)) is before


def test_missing_entries_and_negative_curvature_make_no_harm_to_the_sites():
    """A site's precision is never negative, and one that is not observed goes to zero."""
    old = site_regression.Sites(jnp.full((1, 3), 2.0), jnp.full((1, 3), 4.0))
    local = Expected(jnp.zeros((1, 3)), jnp.array([[1.0, 1.0, jnp.nan]]), jnp.array([[3.0, -5.0, jnp.nan]]))
    observed = jnp.array([[True, True, False]])
    mean = jnp.full((1, 3), 0.5)
    targets = Function(mean, mean, mean, mean).target_sites(local, observed)
    moved = GroupState(old, {}, jnp.zeros(1)).move_sites(targets, 0.25)
    # shift = slope + precision mean; a quarter of the way
    np.testing.assert_allclose(moved.precision[0], [2.0 + 0.25 * 1.0, 1.5 + 0.25e-6, 1.5], rtol=1e-12)
    np.testing.assert_allclose(moved.shift[0], [4.0 - 0.25 * 1.5, 3.25 + 0.125e-6, 3.0], rtol=1e-12)


def test_states_of_groups_are_taken_apart_and_put_together():
    """A batch of columns is taken out of the state of its group, and written back."""
    state = {
        "sites": (site_regression.Sites(jnp.arange(8.0).reshape(4, 2), -jnp.arange(8.0).reshape(4, 2)),),
        "parameters": ({"log_noise": jnp.array([3.0]), "log_scale": jnp.arange(4.0)},),
        "log_amplitude": (jnp.arange(4.0) + 10.0,),
    }
    (whole,) = GroupState.of_groups(state)
    pick = jnp.array([2, 0])
    part = whole.take(pick)
    np.testing.assert_array_equal(part.sites.precision, [[4.0, 5.0], [0.0, 1.0]])
    np.testing.assert_array_equal(part.parameters["log_scale"], [2.0, 0.0])
    np.testing.assert_array_equal(part.parameters["log_noise"], [3.0])
    moved = whole.put(pick, jax.tree.map(lambda array: array + 100.0, part))
    np.testing.assert_array_equal(moved.log_amplitude, [110.0, 11.0, 112.0, 13.0])
    np.testing.assert_array_equal(moved.sites.shift[:, 0], [100.0, -2.0, 96.0, -6.0])
    np.testing.assert_array_equal(moved.parameters["log_scale"], [100.0, 1.0, 102.0, 3.0])
    np.testing.assert_array_equal(moved.parameters["log_noise"], [103.0])
    jax.tree.map(np.testing.assert_array_equal, GroupState.as_entries([whole]), state)
