"""Regression with a precision for every entry, against dense algebra of one column at a time."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from srflvm.numerics import shared_regression
from srflvm.numerics.features import fourier_features, with_constant
from srflvm.numerics.site_regression import Sites, Weights, solve

N_ROWS, SIZE, N_COLUMNS = 12, 5, 3
AMPLITUDE = np.array([0.4, 1.3, 3.0])


def log_evidence(features, sites, amplitude):
    """Return the log evidence of the sites, to which the bound at the best q(h) is equal.

    Its gradient in features and amplitudes is that of the bound with q(h) held fixed.
    """
    weights = jax.lax.stop_gradient(solve(features, sites, amplitude))
    mean, variance = weights.function_moments(features)
    expected = jnp.sum(sites.shift * mean - 0.5 * sites.precision * (mean**2 + variance), dtype=jnp.float64)
    return expected - jnp.sum(weights.divergence(amplitude))


solved = jax.jit(solve)
value_of = jax.jit(log_evidence)
gradients_of = jax.jit(jax.grad(log_evidence, argnums=(0, 2)))
moments_of = jax.jit(lambda features, weights: weights.function_moments(features))
divergence_of = jax.jit(Weights.divergence)


class Problem(NamedTuple):
    features: np.ndarray
    sites: Sites
    amplitude: np.ndarray

    def as_jax(self, dtype=np.float64):
        features, sites = jax.tree.map(lambda array: jnp.asarray(array, dtype), (self.features, self.sites))
        return features, sites, jnp.asarray(self.amplitude)


def some_problem(seed=0):
    """Return a problem with a third of the entries missing, and all of the last column."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(N_ROWS, SIZE))
    observed = random.uniform(size=(N_COLUMNS, N_ROWS)) < 0.67
    observed[-1] = False
    precision = np.where(observed, random.gamma(2.0, 1.0, size=observed.shape), 0.0)
    shift = np.where(observed, random.normal(size=observed.shape), 0.0)
    return Problem(features, Sites(precision, shift), AMPLITUDE)


class Dense(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float


def dense_column(features, precision, shift, amplitude):
    """Solve one column with its unobserved rows deleted.

    A site is N(y | f, 1 / precision) with y = shift / precision, times
    exp(y^2 precision / 2) sqrt(2 pi / precision); so log Z is a density of y and these factors.
    """
    seen = precision > 0.0
    phi, noise = features[seen], 1.0 / precision[seen]
    y = shift[seen] * noise
    total = amplitude * phi @ phi.T + np.diag(noise)
    gain = amplitude * phi.T @ np.linalg.inv(total)
    size = features.shape[1]
    density = multivariate_normal.logpdf(y, cov=total) if seen.any() else 0.0
    factors = 0.5 * np.sum(y**2 / noise + np.log(2.0 * np.pi * noise))
    return Dense(gain @ y, amplitude * (np.eye(size) - gain @ phi), density + factors)


def dense_columns(problem):
    columns = zip(*problem.sites, problem.amplitude, strict=True)
    return [dense_column(problem.features, *column) for column in columns]


# ---- the posterior --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_weights_have_the_gaussian_posterior_of_the_observed_rows(seed):
    problem = some_problem(seed)
    found = solved(*problem.as_jax())
    for m, exact in enumerate(dense_columns(problem)):
        np.testing.assert_allclose(found.mean[m], exact.mean, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(found.covariance[m], exact.covariance, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(found.root[m].T @ found.root[m], exact.covariance, rtol=1e-11, atol=1e-12)
        log_determinant = -np.linalg.slogdet(exact.covariance)[1]
        np.testing.assert_allclose(found.log_determinant[m], log_determinant, rtol=1e-12)


def test_a_column_without_entries_keeps_the_prior():
    found = solved(*some_problem().as_jax())
    assert not np.any(found.mean[-1])
    np.testing.assert_allclose(found.covariance[-1], AMPLITUDE[-1] * np.eye(SIZE), rtol=1e-15)


def test_a_row_that_nobody_observed_does_not_matter():
    problem = some_problem()
    problem.sites.precision[:, 4] = problem.sites.shift[:, 4] = 0.0
    moved = problem._replace(features=problem.features.copy())
    moved.features[4] = 1e3
    for left, right in zip(solved(*problem.as_jax()), solved(*moved.as_jax()), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.any(gradients_of(*moved.as_jax())[0][4])


def test_divergence_is_that_between_two_gaussians():
    """Check E log q + E |h|^2 / 2a + log |2 pi a I| / 2, also by an average over draws."""
    problem = some_problem()
    found = divergence_of(solved(*problem.as_jax()), problem.amplitude)
    for m, (exact, amplitude) in enumerate(zip(dense_columns(problem), AMPLITUDE, strict=True)):
        posterior = multivariate_normal(exact.mean, exact.covariance)
        prior = multivariate_normal(np.zeros(SIZE), amplitude * np.eye(SIZE))
        quadratic = np.trace(exact.covariance) / amplitude + exact.mean @ exact.mean / amplitude
        dense = 0.5 * quadratic - posterior.entropy() + 0.5 * SIZE * np.log(2.0 * np.pi * amplitude)
        np.testing.assert_allclose(found[m], dense, rtol=1e-11, atol=1e-12)
        draws = posterior.rvs(20_000, random_state=0)
        ratios = posterior.logpdf(draws) - prior.logpdf(draws)
        assert abs(ratios.mean() - found[m]) <= 4.0 * ratios.std() / np.sqrt(len(draws)) + 1e-12


def test_function_moments_are_linear_and_quadratic_forms():
    problem = some_problem()
    features, sites, amplitude = problem.as_jax()
    mean, variance = moments_of(features, solved(features, sites, amplitude))
    for m, exact in enumerate(dense_columns(problem)):
        np.testing.assert_allclose(mean[m], problem.features @ exact.mean, rtol=1e-10, atol=1e-12)
        dense = np.diag(problem.features @ exact.covariance @ problem.features.T)
        np.testing.assert_allclose(variance[m], dense, rtol=1e-11)


def test_function_moments_are_differentiated_with_the_weights_held_fixed():
    features, sites, amplitude = some_problem().as_jax()
    slopes = np.random.default_rng(5).normal(size=(2, N_COLUMNS, N_ROWS))

    def through_solve(phi):
        mean, variance = solve(phi, sites, amplitude).function_moments(phi)
        return jnp.sum(slopes[0] * mean + slopes[1] * variance)

    exact = dense_columns(some_problem())
    expected = sum(
        np.outer(slopes[0][m], column.mean) + 2.0 * slopes[1][m][:, None] * (features @ column.covariance)
        for m, column in enumerate(exact)
    )
    np.testing.assert_allclose(jax.jit(jax.grad(through_solve))(features), expected, rtol=1e-10, atol=1e-11)


# ---- the evidence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_log_evidence_is_that_of_the_observed_entries(seed):
    problem = some_problem(seed)
    exact = sum(column.log_evidence for column in dense_columns(problem))
    np.testing.assert_allclose(value_of(*problem.as_jax()), exact, rtol=1e-11)


def test_with_one_precision_it_is_the_shared_evidence_in_value_and_gradient():
    """Use log N(y) = log Z - 1/2 sum (y^2 / noise + log 2 pi noise) and d/da = d/dratio (-noise / a^2)."""
    random, noise, amplitude = np.random.default_rng(0), 0.3, 1.7
    features, Y = random.normal(size=(N_ROWS, SIZE)), random.normal(size=(N_ROWS, N_COLUMNS))
    targets = shared_regression.Targets(*map(jnp.asarray, (Y, np.sum(Y**2), float(N_COLUMNS))))
    point = jnp.asarray(features), jnp.asarray(noise), jnp.asarray(noise / amplitude), targets
    shared = jax.jit(jax.value_and_grad(shared_regression.predict_and_evidence, argnums=(0, 2), has_aux=True))
    (value, _), (d_features, d_ratio) = shared(*point)
    sites = Sites(np.full(Y.T.shape, 1.0 / noise), Y.T / noise)
    mine = Problem(features, sites, np.full(N_COLUMNS, amplitude)).as_jax()
    constant = 0.5 * np.sum(Y**2 / noise + np.log(2.0 * np.pi * noise))
    np.testing.assert_allclose(value_of(*mine) - constant, value, rtol=1e-12)
    my_features, my_amplitude = gradients_of(*mine)
    np.testing.assert_allclose(my_features, d_features, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(np.sum(my_amplitude), -d_ratio * noise / amplitude**2, rtol=1e-11)


def dense_log_evidence(features, sites, amplitude):
    """Return sum_m log Z_m by the determinant lemma: |I + S K S|, with S the roots of the precisions."""

    def of_column(precision, shift, a):
        covariance, root = a * features @ features.T, jnp.sqrt(precision)
        inside = jnp.eye(len(features)) + root[:, None] * covariance * root
        seen = covariance @ shift
        rest = jnp.linalg.solve(inside, root * seen)
        return 0.5 * (shift @ seen - (root * seen) @ rest - jnp.linalg.slogdet(inside)[1])

    return jnp.sum(jax.vmap(of_column)(*sites, amplitude))


def test_gradients_are_those_of_a_dense_implementation_times_the_cotangent():
    point, cotangent = some_problem().as_jax(), -1.7
    np.testing.assert_allclose(value_of(*point), dense_log_evidence(*point), rtol=1e-11)
    scaled = jax.jit(jax.grad(lambda *at: cotangent * log_evidence(*at), argnums=(0, 2)))(*point)
    dense = jax.jit(jax.grad(dense_log_evidence, argnums=(0, 2)))(*point)
    for left, right in zip(scaled, dense, strict=True):
        np.testing.assert_allclose(left, cotangent * right, rtol=1e-10, atol=1e-11)


def test_gradients_are_central_differences():
    features, sites, amplitude = some_problem().as_jax()
    d_features, d_amplitude = gradients_of(features, sites, amplitude)
    random, step = np.random.default_rng(1), 1e-5
    move, stretch = random.normal(size=features.shape), random.normal(size=amplitude.shape)
    ahead, behind = (value_of(features + s * move, sites, amplitude + s * stretch) for s in (step, -step))
    slope = np.sum(d_features * move) + np.sum(d_amplitude * stretch)
    # errors of step^2 and of rounding / step, about 1e-10 both
    np.testing.assert_allclose((ahead - behind) / (2 * step), slope, rtol=1e-8)


# ---- single precision -----------------------------------------------------------------------------

NOISE = 1e-2


def precise_problem(spread, n_rows=2000, n_features=20):
    """Return float32 features at latents of a given spread, and entries with a noise of about 0.01."""
    random = np.random.default_rng(0)
    latents = jnp.asarray(1.0 + spread * random.normal(size=(n_rows, 2)), jnp.float32)
    frequencies = jnp.asarray(random.normal(size=(n_features // 2, 2)), jnp.float32)
    features = np.asarray(with_constant(fourier_features(latents, frequencies)))
    precision = random.uniform(0.5, 1.5, size=(N_COLUMNS, n_rows)) / NOISE**2
    f = random.normal(size=(N_COLUMNS, n_features + 1)) @ features.T
    shift = precision * (f + NOISE * random.normal(size=f.shape))
    return Problem(features, Sites(precision.astype(np.float32), shift.astype(np.float32)), AMPLITUDE)


@pytest.mark.parametrize("spread", [0.0, 1e-4, 1.0])
def test_in_single_precision_collinear_features_and_large_precisions_do_no_harm(spread):
    """Check that the posterior is the exact one for amplitudes 1 / (1 / a + 16 eps trace)."""
    problem = precise_problem(spread)
    point = problem.as_jax(np.float32)
    weights = solved(*point)
    assert np.isfinite(value_of(*point))
    assert all(np.all(np.isfinite(part)) for part in gradients_of(*point))
    mean, variance = moments_of(point[0], weights)
    assert mean.dtype == variance.dtype == jnp.float32
    features = problem.features.astype(float)
    columns = zip(*(np.asarray(site, float) for site in problem.sites), AMPLITUDE, strict=True)
    for m, (precision, shift, amplitude) in enumerate(columns):
        gram = features.T @ (precision[:, None] * features)
        ridge = 16.0 * np.finfo(np.float32).eps * np.trace(gram)
        exact_mean, exact_covariance = posterior_of(gram, features.T @ shift, 1.0 / amplitude + ridge)
        # the rounding of sums over 2000 rows is far below the ridge
        error = mean[m] - features @ exact_mean
        assert np.sqrt(np.mean(error**2)) < 0.05 * NOISE
        exact_variance = np.sum((features @ exact_covariance) * features, axis=1)
        # large covariances of collinear weights cancel in phi'V phi
        terms = np.sum((np.abs(features) @ np.abs(exact_covariance)) * np.abs(features), axis=1)
        rounding = 21 * np.finfo(np.float32).eps * terms
        assert np.all(np.abs(variance[m] - exact_variance) < 0.01 * exact_variance + rounding)
        assert np.max(rounding) < 0.01 * NOISE**2
        statistics = gram, features.T @ shift, amplitude
        best = bound_of(*posterior_of(*statistics[:2], 1.0 / amplitude), *statistics)
        mine = bound_of(weights.mean[m], weights.covariance[m], *statistics)
        ridged = bound_of(exact_mean, exact_covariance, *statistics)
        assert 0.0 < best - mine < 1.2 * (best - ridged) + 1.0


def posterior_of(gram, cross, prior_precision):
    system = gram + prior_precision * np.eye(len(gram))
    return np.linalg.solve(system, cross), np.linalg.inv(system)


def bound_of(mean, covariance, gram, cross, amplitude):
    """Return E log sites - KL(q || prior), which log Z bounds from above."""
    expected = cross @ mean - 0.5 * (mean @ gram @ mean + np.sum(gram * covariance))
    square = (mean @ mean + np.trace(covariance)) / amplitude
    size = len(gram)
    return expected - 0.5 * (square - size + size * np.log(amplitude) - np.linalg.slogdet(covariance)[1])


def test_a_program_has_one_chain_of_batched_factorisations():
    """Check what prevents a deadlock: two batches of LAPACK calls side by side on two cores may never end."""
    arguments = some_problem().as_jax(np.float32)
    text = jax.jit(jax.value_and_grad(log_evidence)).lower(*arguments).compile().as_text()
    assert sorted(re.findall(r'custom_call_target="lapack_(\w+)_ffi"', text)) == ["dpotrf", "strsm"]
