"""Compression and the regression solved in float64, against dense algebra."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from srflvm import DataError
from srflvm.compression import compress
from srflvm.regression import Statistics, best_noise, log_evidence, posterior_weights


@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (12, 12), (30, 1)])
def test_lossless_compression_keeps_all_inner_products(shape):
    Y = np.random.RandomState(0).standard_normal(shape) * 3 + 5
    data = compress(Y, "all")
    standardised = data.columns.standardise(Y)
    assert np.allclose(data.scores @ data.scores.T, standardised @ standardised.T, atol=1e-10)
    assert np.allclose(data.columns.scores(Y), data.scores, atol=1e-8)
    assert np.mean(standardised**2) == pytest.approx(1.0)
    assert data.total_square == pytest.approx(np.sum(data.scores**2))
    directions = data.columns.directions
    assert np.allclose(directions.T @ directions, np.eye(directions.shape[1]), atol=1e-8)


def test_truncated_compression_keeps_the_leading_part_and_the_whole_square():
    Y = np.random.RandomState(0).standard_normal((50, 20)) @ np.diag(np.arange(1.0, 21.0))
    data = compress(Y, 5)
    singular = np.linalg.svd(data.columns.standardise(Y), compute_uv=False)
    assert np.allclose(np.sum(data.scores**2, axis=0), singular[:5] ** 2)
    assert data.total_square == pytest.approx(np.sum(singular**2))
    assert compress(Y, "auto").scores.shape == (50, 20)
    assert compress(np.random.RandomState(0).standard_normal((150, 130)), "auto").scores.shape == (150, 100)


def test_scores_do_not_change_when_columns_are_rotated_or_scaled():
    rng = np.random.RandomState(0)
    Y = rng.standard_normal((30, 6)) @ np.diag([5, 4, 3, 2, 1, 0.5])
    rotation, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    scores = compress(Y, "all").scores
    assert np.allclose(compress(Y @ rotation, "all").scores, scores, atol=1e-8)
    assert np.allclose(compress(1e8 * Y + 7, "all").scores, scores, atol=1e-6)


def test_large_matrices_are_compressed_by_a_randomised_method():
    rng = np.random.RandomState(0)
    Y = rng.standard_normal((3001, 3)) @ rng.standard_normal((3, 3001))
    data = compress(Y, 3)
    assert np.sum(data.scores**2) == pytest.approx(data.total_square, rel=1e-8)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (np.ones((4, 3)), "All rows of Y are equal"),
        (np.array([[1e200, 1.0], [-1e200, 2.0]]), "Rescale Y"),
        (np.array([[1e-200], [2e-200]]), "Rescale Y"),
    ],
)
def test_data_without_usable_variation_are_refused(Y, message):
    with pytest.raises(DataError, match=message):
        compress(Y, "auto")


def test_rows_share_out_what_compression_missed():
    data = compress(np.random.RandomState(0).standard_normal((40, 10)), 4)
    halves = [data.rows(np.arange(20)), data.rows(np.arange(20, 40))]
    assert sum(half.total_square for half in halves) == pytest.approx(data.total_square)


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
    fit = best_noise(statistics, 1e-10)
    assert fit.log_evidence == pytest.approx(dense_evidence(features, Y, fit.noise, fit.ratio), rel=1e-10)
    found = minimize(
        lambda p: -dense_evidence(features, Y, *np.exp(p)), np.log([0.5, 0.5]), method="Nelder-Mead"
    )
    assert fit.log_evidence >= -found.fun - 1e-6
    assert np.log(fit.noise) == pytest.approx(found.x[0], abs=1e-2)


def test_log_evidence_is_the_dense_one():
    features, Y, statistics = make_regression(np.random.RandomState(0))
    exact = dense_evidence(features, Y, 0.2, 0.7)
    assert log_evidence(statistics, 0.2, 0.7) == pytest.approx(exact, rel=1e-12)


def test_best_noise_keeps_the_floor_and_survives_perfect_fits():
    features, _, _ = make_regression(np.random.RandomState(0), n_rows=5, n_features=8)
    Y = features @ np.random.RandomState(1).standard_normal((8, 3))
    statistics = Statistics(features.T @ features, features.T @ Y, float(np.sum(Y**2)), 5, 3)
    fit = best_noise(statistics, 1e-3)
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
