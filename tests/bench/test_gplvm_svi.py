import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import bernoulli, multivariate_normal, nbinom, norm, poisson

from srflvm.exceptions import DataError
from srflvm.likelihoods import LIKELIHOODS
from srflvm_bench.baselines.gplvm_svi import (
    GPLVMSVI,
    JITTER,
    Kernel,
    Parameters,
    SparseProcess,
    divergence_of_functions,
    divergence_of_latents,
    function_moments,
    starting_point,
)

N_ROWS, N_COLUMNS, N_INDUCING = 7, 3, 4
LENGTHS, AMPLITUDE, NOISE = np.array([0.8, 1.7]), 1.3, 0.2


def dense_kernel(x, z):
    square = np.array([[np.sum(((p - q) / LENGTHS) ** 2) for q in z] for p in x])
    return AMPLITUDE * np.exp(-0.5 * square)


@pytest.fixture(scope="module")
def problem():
    """Rows, latents, and parameters that are far from anything special."""
    rng = np.random.RandomState(3)
    Y = rng.standard_normal((N_ROWS, N_COLUMNS))
    with jax.enable_x64(True):
        parameters = Parameters(
            location=jnp.asarray(rng.standard_normal((N_ROWS, 2))),
            log_std=jnp.asarray(rng.uniform(-2.0, 0.0, (N_ROWS, 2))),
            inducing=jnp.asarray(rng.standard_normal((N_INDUCING, 2))),
            kernel=Kernel(jnp.log(AMPLITUDE), jnp.log(jnp.asarray(LENGTHS))),
            mean=jnp.asarray(rng.standard_normal((N_INDUCING, N_COLUMNS))),
            root=jnp.asarray(0.3 * rng.standard_normal((N_COLUMNS, N_INDUCING, N_INDUCING))),
            bias=jnp.zeros((N_COLUMNS, 1)),
            learned={"log_noise": jnp.log(jnp.full((1, 1), NOISE))},
        )
    return Y, parameters


def inducing_gram(parameters):
    Z = np.asarray(parameters.inducing)
    return dense_kernel(Z, Z) + JITTER * AMPLITUDE * np.eye(len(Z))


def with_best_functions(Y, parameters):
    """q(u) of Titsias (2009): precision K^-1 + K^-1 K_uf K_fu K^-1 / noise, by dense inverses."""
    Z, X = np.asarray(parameters.inducing), np.asarray(parameters.location)
    gram, cross = inducing_gram(parameters), dense_kernel(Z, X)
    inverse = np.linalg.inv(gram)
    covariance = np.linalg.inv(inverse + inverse @ cross @ cross.T @ inverse / NOISE)
    mean = covariance @ inverse @ cross @ Y / NOISE
    factor = np.linalg.inv(np.linalg.cholesky(gram))
    root = np.linalg.cholesky(factor @ covariance @ factor.T)
    root[np.diag_indices(len(Z))] = np.log(np.diag(root))
    return parameters._replace(mean=jnp.asarray(factor @ mean), root=jnp.asarray(root)[None])


def bound_at_fixed_latents(Y, parameters):
    model = SparseProcess(LIKELIHOODS["gaussian"](), N_ROWS)
    expected = model.expected_log_likelihood(parameters, parameters.location, jnp.asarray(Y))
    return float(expected - divergence_of_functions(parameters))


def exact_evidence(Y, parameters):
    X = np.asarray(parameters.location)
    return float(np.sum(multivariate_normal(cov=dense_kernel(X, X) + NOISE * np.eye(N_ROWS)).logpdf(Y.T)))


def test_moments_of_functions_are_those_of_dense_algebra(problem):
    _, parameters = problem
    X, Z = np.random.RandomState(0).standard_normal((5, 2)), np.asarray(parameters.inducing)
    mean, variance = function_moments(parameters, jnp.asarray(X))
    factor = np.linalg.cholesky(inducing_gram(parameters))
    projection = dense_kernel(X, Z) @ np.linalg.inv(inducing_gram(parameters))
    for d in range(N_COLUMNS):
        root = np.tril(np.asarray(parameters.root[d]))
        root[np.diag_indices(N_INDUCING)] = np.exp(np.diag(root))
        S = factor @ root @ root.T @ factor.T
        covariance = dense_kernel(X, X) - projection @ (inducing_gram(parameters) - S) @ projection.T
        np.testing.assert_allclose(variance[d], np.diag(covariance), rtol=1e-8)
        expected = projection @ factor @ np.asarray(parameters.mean[:, d])
        np.testing.assert_allclose(mean[d], expected, rtol=1e-8, atol=1e-10)


def test_with_the_best_functions_the_bound_is_the_collapsed_one(problem):
    Y, parameters = problem
    X, Z = np.asarray(parameters.location), np.asarray(parameters.inducing)
    cross = dense_kernel(X, Z)
    low_rank = cross @ np.linalg.inv(inducing_gram(parameters)) @ cross.T
    fit = np.sum(multivariate_normal(cov=low_rank + NOISE * np.eye(N_ROWS)).logpdf(Y.T))
    collapsed = fit - 0.5 * N_COLUMNS * np.trace(dense_kernel(X, X) - low_rank) / NOISE
    best = bound_at_fixed_latents(Y, with_best_functions(Y, parameters))
    np.testing.assert_allclose(best, collapsed, rtol=1e-8)
    assert best < exact_evidence(Y, parameters)


def test_no_other_functions_give_a_higher_bound(problem):
    Y, parameters = problem
    best = with_best_functions(Y, parameters)
    highest = bound_at_fixed_latents(Y, best)
    rng = np.random.RandomState(1)
    assert bound_at_fixed_latents(Y, parameters) < highest
    for size in (1e-3, 0.1):
        mean = best.mean + size * rng.standard_normal(best.mean.shape)
        root = best.root + size * rng.standard_normal(best.root.shape)
        assert bound_at_fixed_latents(Y, best._replace(mean=mean)) < highest
        assert bound_at_fixed_latents(Y, best._replace(root=root)) < highest


def test_inducing_points_at_the_latents_give_the_exact_evidence(problem):
    """Up to the jitter, which leaves a variance of at most JITTER AMPLITUDE unexplained in every row."""
    Y, parameters = problem
    complete = with_best_functions(Y, parameters._replace(inducing=parameters.location))
    lost = exact_evidence(Y, parameters) - bound_at_fixed_latents(Y, complete)
    assert 0.0 < lost < 10.0 * JITTER * AMPLITUDE * N_ROWS * N_COLUMNS / NOISE


def test_batches_estimate_the_bound_without_bias(problem):
    """Every subset of three rows is as likely as another: their mean is the bound of all rows."""
    Y, parameters = problem
    model = SparseProcess(LIKELIHOODS["gaussian"](), N_ROWS)
    noise = jnp.asarray(np.random.RandomState(0).standard_normal((N_ROWS, 2)))

    @jax.jit
    def bound(rows):
        return model.bound(parameters, noise[rows], rows, jnp.asarray(Y)[rows])

    subsets = [np.array(rows) for rows in itertools.combinations(range(N_ROWS), 3)]
    estimates = [float(bound(rows)) for rows in subsets]
    assert np.std(estimates) > 1.0
    np.testing.assert_allclose(np.mean(estimates), float(bound(np.arange(N_ROWS))), rtol=1e-10)


def test_divergence_of_functions_counts_a_shared_root_for_every_column(problem):
    _, parameters = problem
    one = parameters._replace(root=parameters.root[:1])
    repeated = parameters._replace(root=jnp.repeat(parameters.root[:1], N_COLUMNS, axis=0))
    np.testing.assert_allclose(divergence_of_functions(one), divergence_of_functions(repeated), rtol=1e-12)
    total = 0.0
    for d in range(N_COLUMNS):
        root = np.tril(np.asarray(parameters.root[d]))
        root[np.diag_indices(N_INDUCING)] = np.exp(np.diag(root))
        S, mean = root @ root.T, np.asarray(parameters.mean[:, d])
        total += 0.5 * (np.trace(S) + mean @ mean - N_INDUCING - np.linalg.slogdet(S)[1])
    np.testing.assert_allclose(divergence_of_functions(parameters), total, rtol=1e-10)


def test_divergence_of_latents_by_integration():
    def integrand(x):
        q = norm(0.7, 0.4)
        return q.pdf(x) * (q.logpdf(x) - norm.logpdf(x))

    value = divergence_of_latents(jnp.array([[0.7]]), jnp.log(jnp.array([[0.4]])))
    np.testing.assert_allclose(value, quad(integrand, -4.0, 5.0)[0], rtol=1e-8)


@pytest.mark.parametrize("kind", ["bernoulli", "poisson", "negative_binomial"])
def test_expected_log_likelihood_by_integration(problem, kind):
    _, parameters = problem
    dispersion = 1.5
    parameters = parameters._replace(learned={"log_dispersion": jnp.log(jnp.full((1, 1), dispersion))})
    y = np.random.RandomState(0).binomial(1, 0.5, (2, N_COLUMNS)).astype(float)
    y = y if kind == "bernoulli" else 3.0 * y

    def log_prob(count, f):
        if kind == "bernoulli":
            return bernoulli.logpmf(count, 1.0 / (1.0 + np.exp(-f)))
        if kind == "poisson":
            return poisson.logpmf(count, np.exp(f))
        return nbinom.logpmf(count, dispersion, dispersion / (dispersion + np.exp(f)))

    latents = parameters.location[:2]
    mean, variance = (np.asarray(part) for part in function_moments(parameters, latents))
    total = 0.0
    for d, n in itertools.product(range(N_COLUMNS), range(2)):
        m, s = mean[d, n], np.sqrt(variance[d, n])
        f = np.linspace(m - 9.0 * s, m + 9.0 * s, 2001)
        total += np.trapezoid(norm.pdf(f, m, s) * log_prob(y[n, d], f), f)
    model = SparseProcess(LIKELIHOODS[kind](), 2)
    np.testing.assert_allclose(
        model.expected_log_likelihood(parameters, latents, jnp.asarray(y)), total, rtol=1e-5
    )


@pytest.fixture(scope="module")
def curve():
    """Draw a curved line in ten dimensions, and the position on it."""
    rng = np.random.RandomState(0)
    position = rng.uniform(-1.5, 1.5, 80)
    angles, phases = rng.uniform(0.5, 2.0, 10), rng.uniform(0.0, 6.0, 10)
    return position, np.sin(np.outer(position, angles) + phases)


def rank_correlation(a, b):
    return abs(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def test_finds_the_position_on_a_curve(curve):
    position, F = curve
    Y = 5.0 + 3.0 * (F + 0.1 * np.random.RandomState(1).standard_normal(F.shape))
    settings = {"n_components": 1, "n_inducing": 8, "n_epochs": 60, "batch_size": 40, "random_state": 0}
    model = GPLVMSVI(**settings, learning_rate=0.03)
    Z = model.fit_transform(Y)
    assert Z.shape == (80, 1)
    assert Z.dtype == np.float64
    assert rank_correlation(Z[:, 0], position) > 0.97
    assert model.bound_history_[-1] > model.bound_history_[0] + 0.5
    assert np.all(model.embedding_std_ < 0.5)
    np.testing.assert_array_equal(GPLVMSVI(**settings, learning_rate=0.03).fit_transform(Y), Z)


@pytest.mark.parametrize("kind", ["bernoulli", "negative_binomial"])
def test_finds_the_position_from_binary_entries_and_counts(curve, kind):
    position, F = curve
    rng = np.random.RandomState(2)
    F = np.hstack([F, -F, F[:, ::-1]])
    Y = (
        rng.uniform(size=F.shape) < 1 / (1 + np.exp(-4 * F))
        if kind == "bernoulli"
        else rng.poisson(np.exp(1.5 + F))
    )
    model = GPLVMSVI(
        1, likelihood=kind, n_inducing=8, n_epochs=25, batch_size=40, learning_rate=0.05, random_state=0
    )
    assert rank_correlation(model.fit_transform(Y.astype(float))[:, 0], position) > 0.9


def test_more_components_than_directions():
    Y = np.outer(np.arange(10.0), [1.0, 2.0])
    with jax.enable_x64(True):
        start = starting_point(Y, LIKELIHOODS["gaussian"](), 3, 20, np.random.RandomState(0))
    assert start.location.shape == (10, 3)
    assert start.inducing.shape == (10, 3)
    assert np.all(np.std(start.location, axis=0) > 0.01)


def test_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="student"):
        GPLVMSVI(likelihood="student").fit_transform(np.ones((4, 2)))
    with pytest.raises(DataError, match="whole number"):
        GPLVMSVI(likelihood="poisson").fit_transform(np.full((4, 2), 0.5))
