"""Mixture over frequencies against integrals, draws and numerical maximisation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from srflvm.model import spectral
from srflvm.model.spectral import Concentration, Mixture, Sticks
from srflvm.numerics.features import fourier_features

STANDARD_ERRORS = 4.0

kernel = jax.jit(Mixture.kernel)
density = jax.jit(Mixture.density)
moment_sampler = spectral.SAMPLERS["moment"]


@jax.jit
def mixture_bound(logits, sticks, concentration):
    """Return the terms of the ELBO in z, v and alpha."""
    return sticks.bound(concentration) - sticks.assignment_divergence(logits)


def some_factors(n_components=4, n_frequencies=7, seed=0):
    random = np.random.default_rng(seed)
    logits = jnp.asarray(random.normal(size=(n_frequencies, n_components)))
    sticks = Sticks(*jnp.asarray(random.uniform(0.5, 6.0, (2, n_components - 1))))
    return logits, sticks, Concentration(*jnp.asarray(random.uniform(0.5, 4.0, 2)))


def expectation(distribution, function):
    """Return E[function] by integrating over quantiles."""
    return integrate.quad(lambda u: function(distribution.ppf(u)), 0.0, 1.0, epsabs=1e-12, limit=500)[0]


def stick_expectations(sticks):
    factors = [stats.beta(a, b) for a, b in zip(*sticks, strict=True)]
    log_v = np.array([expectation(factor, np.log) for factor in factors])
    log_rest = np.array([expectation(factor, lambda v: np.log1p(-v)) for factor in factors])
    return factors, log_v, log_rest


def test_expected_log_weights_are_integrals_over_the_sticks():
    _, sticks, _ = some_factors()
    _, log_v, log_rest = stick_expectations(sticks)
    expected = [log_v[0], log_rest[0] + log_v[1], log_rest[:2].sum() + log_v[2], log_rest.sum()]
    np.testing.assert_allclose(sticks.expected_log_weights(), expected, rtol=1e-8)


def test_expected_weights_are_products_of_stick_means():
    sticks = Sticks(jnp.array([1.0, 2.0]), jnp.array([3.0, 2.0]))
    np.testing.assert_allclose(sticks.expected_weights(), [1 / 4, 3 / 8, 3 / 8], rtol=1e-15)
    _, many, _ = some_factors(n_components=30)
    np.testing.assert_allclose(jnp.sum(many.expected_weights()), 1.0, rtol=1e-14)


@pytest.mark.parametrize("n_components", [2, 4])
def test_mixture_bound_is_minus_the_divergences(n_components):
    logits, sticks, concentration = some_factors(n_components)
    factors, log_v, log_rest = stick_expectations(sticks)
    alpha = stats.gamma(concentration.shape, scale=1.0 / concentration.rate)
    phi = np.asarray(jax.nn.softmax(logits, axis=1))
    log_weights = np.r_[log_v, 0.0] + np.r_[0.0, np.cumsum(log_rest)]
    assignments = np.sum(phi @ log_weights) + np.sum(stats.entropy(phi, axis=1))
    prior_sticks = len(factors) * expectation(alpha, np.log) + (alpha.mean() - 1.0) * log_rest.sum()
    prior_alpha = expectation(alpha, stats.gamma(1.0, scale=1.0).logpdf)
    entropies = sum(factor.entropy() for factor in factors) + alpha.entropy()
    expected = assignments + prior_sticks + prior_alpha + entropies
    np.testing.assert_allclose(mixture_bound(logits, sticks, concentration), expected, rtol=1e-8)
    assert expected < 0.0


def numerical_maximum(objective, start):
    """Return the maximiser over positive arrays and the maximum, found without the closed form."""
    value_and_grad = jax.jit(jax.value_and_grad(lambda log_x: -objective(jnp.exp(log_x))))
    log_start = np.log(np.asarray(start))
    result = optimize.minimize(value_and_grad, log_start, jac=True, method="BFGS", options={"gtol": 1e-9})
    return np.exp(result.x), -result.fun


def test_the_best_sticks_are_the_maximum_of_the_bound():
    logits, sticks, concentration = some_factors()
    best = Sticks.best(jax.nn.softmax(logits, axis=1), concentration)

    def bound(flat):
        return mixture_bound(logits, Sticks(*jnp.split(flat, 2)), concentration)

    found, value = numerical_maximum(bound, jnp.concatenate(sticks))
    np.testing.assert_allclose(jnp.concatenate(best), found, rtol=1e-6)
    np.testing.assert_allclose(bound(jnp.concatenate(best)), value, rtol=1e-12)
    assert bound(jnp.concatenate(best)) > bound(jnp.concatenate(sticks)) + 0.1


def test_the_best_concentration_is_the_maximum_of_the_bound():
    logits, sticks, concentration = some_factors()
    best = Concentration.best(sticks)

    def bound(flat):
        return mixture_bound(logits, sticks, Concentration(*flat))

    found, value = numerical_maximum(bound, jnp.stack(concentration))
    np.testing.assert_allclose(jnp.stack(best), found, rtol=1e-6)
    np.testing.assert_allclose(bound(jnp.stack(best)), value, rtol=1e-12)
    assert bound(jnp.stack(best)) > bound(jnp.stack(concentration)) + 0.01


def test_without_data_the_best_assignments_follow_the_expected_log_weights():
    logits, sticks, concentration = some_factors()
    best = jnp.broadcast_to(sticks.expected_log_weights(), logits.shape)
    bound = jax.jit(lambda logits: mixture_bound(logits, sticks, concentration))
    np.testing.assert_allclose(jax.grad(bound)(best), 0.0, atol=1e-14)
    for seed in range(20):
        assert bound(best + 0.01 * some_factors(seed=seed)[0]) < bound(best)


def test_numpy_gives_what_jax_gives():
    logits, sticks, concentration = some_factors()
    phi = jax.nn.softmax(logits, axis=1)

    def results(phi, sticks, concentration):
        updates = *Sticks.best(phi, concentration), *Concentration.best(sticks)
        return (*updates, sticks.expected_log_weights(), sticks.bound(concentration))

    by_jax = results(phi, sticks, concentration)
    by_numpy = results(*jax.tree.map(np.asarray, (phi, sticks, concentration)))
    assert all(isinstance(part, np.ndarray | np.generic) for part in by_numpy)
    for one, other in zip(by_numpy, by_jax, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_updates_never_lower_the_bound():
    for seed in range(10):
        logits, sticks, concentration = some_factors(seed=seed)
        values = [mixture_bound(logits, sticks, concentration)]
        for _ in range(5):
            sticks = Sticks.best(jax.nn.softmax(logits, axis=1), concentration)
            values.append(mixture_bound(logits, sticks, concentration))
            concentration = Concentration.best(sticks)
            values.append(mixture_bound(logits, sticks, concentration))
        assert np.all(np.diff(values) >= -1e-12)


MEANS = {1: [[-0.8], [0.3], [1.5]], 2: [[-0.8, 0.4], [0.3, -0.5], [1.0, 1.2]]}
CHOLESKYS = {
    (1, "full"): [[[0.7]], [[1.1]], [[0.9]]],
    (2, "diag"): [np.diag([0.7, 1.2]), np.diag([1.1, 0.6]), np.diag([0.9, 0.8])],
    (2, "full"): [[[0.7, 0.0], [0.5, 0.9]], [[1.1, 0.0], [-0.6, 0.8]], [[0.9, 0.0], [0.3, 0.7]]],
}
WEIGHTS = np.array([0.5, 0.3, 0.2])
LOGITS = np.log(WEIGHTS) + 0.4
KINDS = [(1, "full"), (2, "diag"), (2, "full")]


def some_mixture(size, kind="full"):
    return Mixture(jnp.asarray(MEANS[size]), jnp.asarray(np.array(CHOLESKYS[size, kind])))


def covariances(mixture):
    return np.einsum("kqr,ksr->kqs", mixture.choleskys, mixture.choleskys)


def smooth(w):
    """Return values of a function that couples the coordinates and is not symmetric in sign."""
    along = jnp.sum(w * jnp.array([1.0, -0.7])[: w.shape[-1]], axis=-1)
    return jnp.sin(along) + 0.3 * along * w[..., 0] + 0.2 * w[..., -1] ** 3


def exact_expectation(function, logits, means, choleskys):
    """Return E[function(w)] summed over components, each by Gauss-Hermite quadrature."""
    size = means.shape[1]
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1).reshape(-1, size)
    grid_weights = np.prod(np.stack(np.meshgrid(*[node_weights] * size, indexing="ij"), -1), axis=-1).ravel()
    w = means[:, None] + jnp.einsum("kqr,nr->knq", choleskys, grid)
    return jax.nn.softmax(logits) @ (function(w) @ (grid_weights / grid_weights.sum()))


@jax.jit
@partial(jax.vmap, in_axes=(0, None, None, None))
@partial(jax.grad, argnums=(1, 2, 3))
def gradient_of_one_draw(key, logits, means, choleskys):
    return smooth(Mixture(means, choleskys).sample(key, logits[None])[0])


@pytest.mark.parametrize(("size", "kind"), KINDS)
def test_gradients_through_the_sampler_are_unbiased(size, kind):
    parameters = (jnp.asarray(LOGITS), *some_mixture(size, kind))
    draws = gradient_of_one_draw(jax.random.split(jax.random.key(size), 60_000), *parameters)
    exact = jax.jit(jax.grad(partial(exact_expectation, smooth), argnums=(0, 1, 2)))(*parameters)
    for estimates, gradient in zip(draws, exact, strict=True):
        error = np.std(estimates, axis=0) / np.sqrt(len(estimates))
        assert np.all(np.abs(np.mean(estimates, axis=0) - gradient) <= STANDARD_ERRORS * error)
        assert np.linalg.norm(error) < 0.05 * np.linalg.norm(gradient)


def assert_moments(draws, mean, covariance):
    count = len(draws)
    centred = draws - mean
    products = np.einsum("nq,nr->nqr", centred, centred)
    error = np.std(draws, axis=0) / np.sqrt(count)
    product_error = np.std(products, axis=0) / np.sqrt(count)
    assert np.all(np.abs(np.mean(draws, axis=0) - mean) < STANDARD_ERRORS * error)
    assert np.all(np.abs(np.mean(products, axis=0) - covariance) < STANDARD_ERRORS * product_error)


def draw(sampler, mixture):
    logits = jnp.broadcast_to(LOGITS, (100_000, len(LOGITS)))
    return np.asarray(jax.jit(sampler)(mixture, jax.random.key(5), logits))


@pytest.mark.parametrize(("size", "kind"), KINDS)
def test_draws_have_the_moments_of_the_mixture(size, kind):
    mixture = some_mixture(size, kind)
    mean = WEIGHTS @ mixture.means
    centred = np.asarray(mixture.means) - mean
    between = np.einsum("k,kq,kr->qr", WEIGHTS, centred, centred)
    within = np.einsum("k,kqr->qr", WEIGHTS, covariances(mixture))
    assert_moments(draw(Mixture.sample, mixture), mean, within + between)


def test_draws_of_a_mixture_are_a_mixture():
    mixture = some_mixture(1)
    scales = np.asarray(mixture.choleskys)[:, 0, 0]

    def distribution(w):
        return stats.norm.cdf(w[:, None], np.asarray(mixture.means)[:, 0], scales) @ WEIGHTS

    draws = draw(Mixture.sample, mixture)[:, 0]
    assert stats.kstest(draws, distribution).pvalue > 1e-3


@pytest.mark.parametrize(("size", "kind"), KINDS)
def test_moment_matched_draws_are_the_gaussian_of_the_mean_parameters(size, kind):
    mixture = some_mixture(size, kind)
    covariance = np.einsum("k,kqr->qr", WEIGHTS, covariances(mixture))

    def sample(mixture, key, logits):
        return moment_sampler(mixture, logits)(key)

    draws = draw(sample, mixture)
    assert_moments(draws, WEIGHTS @ mixture.means, covariance)
    assert np.all(np.abs(stats.kurtosis(draws, axis=0)) < STANDARD_ERRORS * np.sqrt(24 / len(draws)))


def test_kernel_is_the_fourier_transform_of_the_spectral_density():
    mixture = some_mixture(1)
    frequencies = np.linspace(-15.0, 15.0, 3001)
    densities = np.asarray(density(mixture, jnp.asarray(frequencies[:, None]), WEIGHTS))
    differences = np.linspace(-4.0, 4.0, 17)
    waves = np.cos(differences[:, None] * frequencies)
    transform = integrate.trapezoid(waves * densities, frequencies, axis=1)
    np.testing.assert_allclose(kernel(mixture, differences[:, None], WEIGHTS), transform, atol=1e-12)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_spectral_density_is_the_symmetrised_mixture(kind):
    mixture = some_mixture(2, kind)
    points = np.random.default_rng(0).normal(size=(30, 2))
    parts = zip(WEIGHTS, np.asarray(mixture.means), covariances(mixture), strict=True)
    components = [(weight, stats.multivariate_normal(mean, cov)) for weight, mean, cov in parts]
    expected = sum(0.5 * weight * (c.pdf(points) + c.pdf(-points)) for weight, c in components)
    np.testing.assert_allclose(density(mixture, jnp.asarray(points), WEIGHTS), expected, rtol=1e-10)


@pytest.mark.parametrize(("size", "kind"), KINDS)
def test_kernel_is_the_expected_cosine(size, kind):
    mixture = some_mixture(size, kind)
    differences = np.random.default_rng(1).normal(size=(2, 3, size))
    values = np.asarray(kernel(mixture, differences, WEIGHTS))
    assert values.shape == (2, 3)
    for value, difference in zip(values.ravel(), differences.reshape(-1, size), strict=True):
        expected = exact_expectation(lambda w, d=difference: np.cos(w @ d), LOGITS, *map(np.asarray, mixture))
        np.testing.assert_allclose(value, expected, rtol=1e-11)


def test_random_features_approach_the_kernel_with_the_root_of_their_number():
    mixture, n_repeats, sizes = some_mixture(2), 250, np.array([4, 16, 64, 256])
    latents = np.array([[0.3, -0.2], [1.1, 0.6]])
    exact = float(kernel(mixture, latents[0] - latents[1], WEIGHTS))
    frequencies = draw(Mixture.sample, mixture)[: n_repeats * sizes.sum()]

    def error(frequencies):
        repeats = frequencies.reshape(n_repeats, -1, 2)
        estimates = [left @ right for left, right in (fourier_features(latents, w) for w in repeats)]
        return np.sqrt(np.mean(np.square(np.subtract(estimates, exact))))

    parts = np.split(frequencies, n_repeats * np.cumsum(sizes)[:-1])
    slope = np.polyfit(np.log(sizes), np.log([error(part) for part in parts]), 1)[0]
    assert -0.6 < slope < -0.4


def conditional_distribution(w, logits, means, choleskys):
    """Return F_q(w_q | w_1, ..., w_{q-1}) of one draw, coordinate by coordinate."""
    found, weights = [], jax.nn.softmax(logits)
    for q in range(len(w)):
        parts = zip(means, choleskys, strict=True)
        ahead = [jnp.linalg.solve(c[: q + 1, : q + 1], (w - m)[: q + 1])[q] for m, c in parts]
        u = jnp.stack(ahead)
        found.append(jnp.sum(weights * jax.scipy.stats.norm.cdf(u)) / jnp.sum(weights))
        weights = weights * jax.scipy.stats.norm.pdf(u) / choleskys[:, q, q]
    return jnp.stack(found)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_gradient_in_the_logits_keeps_the_distribution_functions_fixed(size):
    random = np.random.default_rng(size)
    choleskys = np.tril(0.3 * random.normal(size=(3, size, size)), -1) + np.eye(size) * [
        [[0.8]],
        [[1.3]],
        [[1.0]],
    ]
    means, draw = random.normal(size=(3, size)), random.normal(size=(4, size))
    logits, cotangent = random.normal(size=(4, 3)), random.normal(size=(4, size))
    mixture = Mixture(jnp.asarray(means), jnp.asarray(choleskys))
    _, pull = jax.vjp(lambda at: spectral._tie_to_logits(jnp.asarray(draw), at, mixture), jnp.asarray(logits))
    found = pull(jnp.asarray(cotangent))[0]
    for row in range(4):
        slopes = jax.jacfwd(conditional_distribution, argnums=(0, 1))
        in_draw, in_logits = slopes(jnp.asarray(draw[row]), jnp.asarray(logits[row]), means, choleskys)
        expected = -in_logits.T @ np.linalg.solve(in_draw.T, cotangent[row])
        np.testing.assert_allclose(found[row], expected, rtol=1e-8, atol=1e-10)


def test_inverses_of_triangular_matrices():
    lower = np.tril(np.random.default_rng(0).normal(size=(3, 6, 6))) + 2.0 * np.eye(6)
    np.testing.assert_allclose(
        spectral._triangular_inverse(jnp.asarray(lower)), np.linalg.inv(lower), atol=1e-12
    )
