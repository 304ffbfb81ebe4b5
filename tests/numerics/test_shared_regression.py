"""Shared regression against dense densities, in value and gradient, compiled and not."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, ortho_group

from srflvm.numerics.features import fourier_features
from srflvm.numerics.shared_regression import (
    Statistics,
    Targets,
    posterior_covariance,
    posterior_weights,
    predict_and_evidence,
    smallest_ratio,
)

NOISE, RATIO = 0.3, 0.12
SHAPES = [(9, 14, 4), (30, 8, 5)]


def log_evidence(*point):
    return predict_and_evidence(*point)[0]


value_of = jax.jit(log_evidence)
gradients_of = jax.jit(jax.grad(log_evidence, argnums=(0, 1, 2)))


class Problem(NamedTuple):
    features: np.ndarray
    Y: np.ndarray


def some_problem(n_rows, n_features, n_columns, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(n_rows, n_features)) / np.sqrt(n_features)
    weights = random.normal(size=(n_features, n_columns))
    return Problem(features, features @ weights + 0.5 * random.normal(size=(n_rows, n_columns)))


def targets_of(Y, scores=None, dtype=np.float64):
    scores = Y if scores is None else scores
    return Targets(jnp.asarray(scores, dtype), jnp.asarray(np.sum(Y**2)), jnp.asarray(float(Y.shape[1])))


def arguments(features, targets, noise=NOISE, ratio=RATIO):
    return jnp.asarray(features), jnp.asarray(noise), jnp.asarray(ratio), targets


def evaluate(features, targets):
    return value_of(*arguments(features, targets))


def column_densities(features, Y, noise=NOISE, ratio=RATIO):
    covariance = (noise / ratio) * features @ features.T + noise * np.eye(len(features))
    return sum(multivariate_normal.logpdf(column, cov=covariance) for column in Y.T)


def dense_log_evidence(features, noise, ratio, Y):
    covariance = (noise / ratio) * features @ features.T + noise * jnp.eye(features.shape[0])
    return jnp.sum(jax.scipy.stats.multivariate_normal.logpdf(Y.T, jnp.zeros(features.shape[0]), covariance))


@pytest.mark.parametrize("shape", SHAPES)
def test_log_evidence_is_the_density_of_every_column(shape):
    features, Y = some_problem(*shape)
    np.testing.assert_allclose(evaluate(features, targets_of(Y)), column_densities(features, Y), rtol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_single_precision_features_lose_only_rounding(shape):
    features, Y = (part.astype(np.float32) for part in some_problem(*shape))
    value = evaluate(features, targets_of(Y.astype(float), dtype=np.float32))
    assert value.dtype == jnp.float64
    np.testing.assert_allclose(value, column_densities(features.astype(float), Y.astype(float)), rtol=1e-5)


@pytest.mark.parametrize("shape", [(9, 14, 40), (30, 8, 5)])
def test_scores_of_full_rank_are_exact(shape):
    features, Y = some_problem(*shape)
    left, scale, _ = np.linalg.svd(Y, full_matrices=False)
    scores = left * scale
    exact = evaluate(features, targets_of(Y))
    np.testing.assert_allclose(evaluate(features, targets_of(Y, scores)), exact, rtol=1e-12)


def test_fewer_scores_give_lower_bounds_that_rise_to_the_exact_value():
    features, Y = some_problem(30, 8, 6)
    left, scale, _ = np.linalg.svd(Y, full_matrices=False)
    values = [evaluate(features, targets_of(Y, (left * scale)[:, :rank])) for rank in range(1, 7)]
    assert np.all(np.diff(values) > 0.0)
    np.testing.assert_allclose(values[-1], column_densities(features, Y), rtol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_the_dense_density(shape):
    features, Y = some_problem(*shape)
    dense = jax.jit(jax.grad(dense_log_evidence, argnums=(0, 1, 2)))(*arguments(features, Y))
    for left, right in zip(gradients_of(*arguments(features, targets_of(Y))), dense, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-10)


def test_gradients_scale_with_the_cotangent():
    point = arguments(some_problem(9, 14, 4).features, targets_of(some_problem(9, 14, 4).Y))
    scaled = jax.jit(jax.grad(lambda *point: -1.7 * log_evidence(*point), argnums=(0, 1, 2)))(*point)
    for left, right in zip(scaled, gradients_of(*point), strict=True):
        np.testing.assert_allclose(left, -1.7 * right, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_central_differences(shape):
    features, Y = some_problem(*shape)
    *point, targets = arguments(features, targets_of(Y))
    random, step = np.random.default_rng(1), 1e-5
    for moved, gradient in enumerate(gradients_of(*point, targets)):
        direction = random.normal(size=gradient.shape)

        ahead, behind = list(point), list(point)
        ahead[moved], behind[moved] = point[moved] + step * direction, point[moved] - step * direction
        slope = (value_of(*ahead, targets) - value_of(*behind, targets)) / (2 * step)
        np.testing.assert_allclose(slope, np.sum(gradient * direction), rtol=1e-7)


def test_single_precision_gradients_are_close():
    features, Y = some_problem(200, 20, 10)
    single, double = (
        gradients_of(*arguments(features.astype(dtype), targets_of(Y, dtype=dtype)))[0]
        for dtype in (np.float32, np.float64)
    )
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, double, atol=1e-5 * np.abs(double).max())


def test_rows_may_be_permuted_and_columns_rotated():
    features, Y = some_problem(30, 8, 5)
    value = evaluate(features, targets_of(Y))
    order = np.random.default_rng(0).permutation(len(Y))
    rotation, feature_rotation = (ortho_group.rvs(size, random_state=0) for size in (5, 8))
    np.testing.assert_allclose(evaluate(features[order], targets_of(Y[order])), value, rtol=1e-12)
    np.testing.assert_allclose(evaluate(features, targets_of(Y @ rotation)), value, rtol=1e-12)
    np.testing.assert_allclose(evaluate(features @ feature_rotation, targets_of(Y)), value, rtol=1e-12)


def features_of(latents, n_features):
    frequencies = np.random.default_rng(1).normal(size=(n_features // 2, 2)).astype(np.float32)
    return fourier_features(jnp.asarray(latents, jnp.float32), jnp.asarray(frequencies))


@pytest.mark.parametrize("n_features", [10, 100])
@pytest.mark.parametrize("spread", [0.0, 1e-4, 1.0])
def test_collinear_single_precision_features_stay_finite_at_the_smallest_ratio(spread, n_features):
    n_rows = 60_000
    random = np.random.default_rng(0)
    features = features_of(1.0 + spread * random.normal(size=(n_rows, 2)), n_features)
    Y = random.normal(size=(n_rows, 3)).astype(np.float32)
    ratio = smallest_ratio(n_rows, features.dtype)
    point = arguments(features, targets_of(Y, dtype=np.float32), ratio=ratio)
    assert np.isfinite(value_of(*point))
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients_of(*point))


def test_the_smallest_ratio_is_far_below_any_noise_worth_modelling():
    assert smallest_ratio(60_000, jnp.float32) < 1.0
    assert smallest_ratio(60_000, jnp.float64) < 1e-8


def test_vmap_gives_the_values_and_gradients_of_a_loop():
    features = jnp.stack([some_problem(9, 14, 4, seed).features for seed in range(4)])
    noises = jnp.linspace(0.1, 0.5, 4)
    targets, ratio = targets_of(some_problem(9, 14, 4).Y), jnp.asarray(RATIO)
    for function in (value_of, gradients_of):
        batch = jax.vmap(function, (0, 0, None, None))(features, noises, ratio, targets)
        loop = [function(phi, noise, ratio, targets) for phi, noise in zip(features, noises, strict=True)]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *loop)
        jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, rtol=1e-10), batch, stacked)


# ---- outside of compiled programs -----------------------------------------------------------------


def make_regression(rng, n_rows=25, n_features=8, n_columns=3):
    features = rng.standard_normal((n_rows, n_features)) / np.sqrt(n_features)
    Y = features @ rng.standard_normal((n_features, n_columns)) + 0.3 * rng.standard_normal(
        (n_rows, n_columns)
    )
    statistics = Statistics(features.T @ features, features.T @ Y, float(np.sum(Y**2)), n_rows, n_columns)
    return features, Y, statistics


def dense_evidence(features, Y, noise, ratio):
    covariance = noise / ratio * features @ features.T + noise * np.eye(len(Y))
    return multivariate_normal(np.zeros(len(Y)), covariance).logpdf(Y.T).sum()


def test_best_noise_is_the_maximum_of_the_dense_evidence():
    features, Y, statistics = make_regression(np.random.RandomState(0))
    fit = statistics.best_noise(1e-10)
    assert fit.log_evidence == pytest.approx(dense_evidence(features, Y, fit.noise, fit.ratio), rel=1e-10)
    found = minimize(
        lambda p: -dense_evidence(features, Y, *np.exp(p)), np.log([0.5, 0.5]), method="Nelder-Mead"
    )
    assert fit.log_evidence >= -found.fun - 1e-6
    assert np.log(fit.noise) == pytest.approx(found.x[0], abs=1e-2)


def test_log_evidence_is_the_dense_one():
    features, Y, statistics = make_regression(np.random.RandomState(0))
    exact = dense_evidence(features, Y, 0.2, 0.7)
    assert statistics.log_evidence(0.2, 0.7) == pytest.approx(exact, rel=1e-12)


def test_best_noise_keeps_the_floor_and_survives_perfect_fits():
    features, _, _ = make_regression(np.random.RandomState(0), n_rows=5, n_features=8)
    Y = features @ np.random.RandomState(1).standard_normal((8, 3))
    statistics = Statistics(features.T @ features, features.T @ Y, float(np.sum(Y**2)), 5, 3)
    fit = statistics.best_noise(1e-3)
    assert fit.ratio >= 1e-3 * (1 - 1e-9)
    assert fit.noise > 0
    assert np.isfinite(fit.log_evidence)


def test_posterior_weights_against_dense_conditioning():
    features, Y, statistics = make_regression(np.random.RandomState(0))
    noise, ratio = 0.1, 0.4
    mean, covariance = posterior_weights(statistics.gram, statistics.cross, ratio)
    prior = noise / ratio * np.eye(8)
    gain = prior @ features.T @ np.linalg.inv(features @ prior @ features.T + noise * np.eye(len(Y)))
    assert np.allclose(mean, gain @ Y, atol=1e-10)
    assert np.allclose(noise * covariance, prior - gain @ features @ prior, atol=1e-10)
    np.testing.assert_array_equal(posterior_covariance(statistics.gram, ratio), covariance)
