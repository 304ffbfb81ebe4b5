"""Decoding, embedding and scoring with a fitted model, against slower truths."""

import jax
import numpy as np
import pytest
from helpers.fitted_models import one_dimensional_model, small_data, small_model
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import norm

from srflvm.model.elbo import cholesky_factor
from srflvm.numerics.features import cubature_points


def test_cubature_is_exact_for_cubic_polynomials():
    rng = np.random.RandomState(0)
    mean = rng.standard_normal((4, 3))
    cholesky = np.tril(rng.standard_normal((4, 3, 3)))
    points = cubature_points(mean, cholesky)
    assert points.shape == (6, 4, 3)
    assert np.allclose(points.mean(axis=0), mean)
    centred = points - mean
    second = np.einsum("pnq,pnr->nqr", centred, centred) / len(points)
    assert np.allclose(second, cholesky @ np.swapaxes(cholesky, 1, 2))
    assert np.allclose(np.mean(centred**3, axis=0), 0.0, atol=1e-12)


def test_decoding_with_latent_uncertainty_against_monte_carlo():
    model = small_model()
    rng = np.random.RandomState(0)
    Z, stds = model.embedding_[:3], np.array([[0.05, 0.08], [0.02, 0.02], [0.08, 0.03]])
    decoded = model.decode(Z, stds)
    draws = Z[None] + stds * rng.standard_normal((20_000, 3, 2))
    values = np.stack([model.inverse_transform(draws[:, row]) for row in range(3)], axis=1)
    error = values.std(axis=0) / np.sqrt(len(draws))
    scale = values.std(axis=0)
    assert np.all(np.abs(decoded.mean - values.mean(axis=0)) < 4 * error + 0.02 * scale)
    typical = values.var(axis=0).max(axis=1, keepdims=True)
    assert np.all(np.abs(decoded.latent_variance - values.var(axis=0)) < 0.1 * typical)


def test_variances_are_told_apart_and_add_up():
    model = small_model()
    Z = model.embedding_[:5]
    decoded = model.decode(Z)
    mean, std = model.inverse_transform(Z, return_std=True)
    assert np.array_equal(decoded.mean, mean)
    assert np.all(decoded.latent_variance == 0.0)
    assert decoded.weight_variance.shape == (5, 1)
    assert decoded.noise_variance == pytest.approx(model.noise_variance_)
    assert np.allclose(std**2, decoded.weight_variance + model.noise_variance_)
    far = model.decode(np.array([[40.0, -40.0]]))
    assert far.weight_variance[0, 0] > 3 * decoded.weight_variance.mean()
    assert far.weight_variance[0, 0] <= model.amplitude_ * (1 + 1e-9)


def test_decoding_is_deterministic_and_the_same_in_any_batch():
    model = small_model()
    Z = model.embedding_
    whole = model.inverse_transform(Z)
    assert np.array_equal(whole, model.inverse_transform(Z))
    assert np.allclose(whole[7:9], model.inverse_transform(Z[7:9]), rtol=1e-12)


def test_points_for_sums_of_many_latents_have_the_moments_of_the_rows():
    random = np.random.default_rng(0)
    factor = np.tril(0.2 * random.normal(size=(12, 12))) + np.eye(12)
    mean, cholesky = random.normal(size=(4000, 12)), np.broadcast_to(factor, (4000, 12, 12))
    points = cubature_points(mean, cholesky, 3)
    np.testing.assert_array_equal(points, cubature_points(mean, cholesky, 3))
    # opposite pairs have their mean exactly, up to rounding
    np.testing.assert_allclose(points.mean(axis=0), mean, atol=1e-14)
    deviations = (points - mean).reshape(-1, 12)
    # 32 000 independent deviations: standard errors of about 0.008 times the variances
    np.testing.assert_allclose(deviations.T @ deviations / len(deviations), factor @ factor.T, atol=0.06)


def test_weights_are_the_exact_posterior_of_the_regression_on_cubature_points():
    model = small_model()
    posterior, Y = model._posterior, small_data()[0]
    state = model._state
    mean = state["latent_mean"].astype(float)
    points = cubature_points(mean, cholesky_factor(state["latent_factor"].astype(float)))
    phi = np.concatenate([posterior.features(p) for p in points]) / np.sqrt(len(points))
    targets = np.concatenate([posterior.columns.standardise(Y)] * len(points)) / np.sqrt(len(points))
    system = phi.T @ phi + posterior.ratio * np.eye(phi.shape[1])
    assert np.allclose(posterior.weights, np.linalg.solve(system, phi.T @ targets), atol=1e-7)
    assert np.allclose(posterior.weight_covariance, np.linalg.inv(system), atol=1e-7)


def loss_of(posterior, y, x):
    residual = posterior.columns.standardise(y[None])[0] - posterior.features(x[None])[0] @ posterior.weights
    return 0.5 * (np.sum(residual**2) / posterior.noise + np.sum(x**2))


def test_embedded_rows_sit_at_a_local_optimum():
    model, new_rows = small_model(), small_data()[1]
    Z, Z_std = model.transform(new_rows, return_std=True)
    assert np.all((Z_std > 0) & (Z_std <= 1))
    slopes = [slope_of(model._posterior, y, x) for y, x in zip(new_rows, Z, strict=True)]
    # a Gauss-Newton method is slow where the residuals are large and the map is curved
    assert np.mean(np.array(slopes) < 0.01) >= 0.95


def slope_of(posterior, y, x, step=1e-5):
    moves = step * np.eye(len(x))
    rises = [loss_of(posterior, y, x + m) - loss_of(posterior, y, x - m) for m in moves]
    return np.abs(rises).max() / (2 * step)


def test_embedded_rows_are_at_least_as_likely_as_at_their_starting_points():
    model, new_rows = small_model(), small_data()[1]
    posterior, Z = model._posterior, model.transform(new_rows)
    distances = cdist(posterior.columns.scores(new_rows), posterior.anchor_scores)
    for y, x, nearest in zip(new_rows, Z, np.argsort(distances, axis=1)[:, :3], strict=True):
        starts = [loss_of(posterior, y, anchor) for anchor in posterior.anchors[nearest]]
        assert loss_of(posterior, y, x) <= min(starts) + 1e-9


def test_latent_covariance_is_the_inverse_gauss_newton_hessian():
    model, new_rows = small_model(), small_data()[1]
    posterior = model._posterior
    embedding = posterior.embed_scores(posterior.columns.scores(new_rows))
    step, x = 1e-5, embedding.mean[0]
    moves = [np.eye(2)[q] * step for q in range(2)]
    jacobian = np.stack(
        [
            (posterior.features((x + m)[None]) - posterior.features((x - m)[None]))[0] @ posterior.weights
            for m in moves
        ],
        axis=1,
    ) / (2 * step)
    expected = np.linalg.inv(np.eye(2) + jacobian.T @ jacobian / posterior.noise)
    assert np.allclose(embedding.cholesky[0] @ embedding.cholesky[0].T, expected, rtol=1e-5)


def test_a_row_gets_the_same_embedding_alone_and_in_any_batch():
    model, (Y, new_rows) = small_model(), small_data()
    whole = model.transform(np.concatenate([new_rows, Y]))
    assert np.allclose(whole[:20], model.transform(new_rows), atol=1e-9)
    assert np.allclose(whole[3:4], model.transform(new_rows[3:4]), atol=1e-9)
    order = np.random.RandomState(0).permutation(len(whole))
    assert np.allclose(model.transform(np.concatenate([new_rows, Y])[order]), whole[order], atol=1e-9)


def test_training_rows_get_the_same_embedding_from_transform():
    model, (Y, _) = small_model(), small_data()
    Z, Z_std = model.transform(Y, return_std=True)
    assert np.array_equal(Z, model.embedding_)
    assert np.array_equal(Z_std, model.embedding_std_)


def test_log_density_against_brute_force_integration():
    model, Y = one_dimensional_model()
    posterior = model._posterior
    grid = np.linspace(-6.0, 6.0, 20_001)
    phi = posterior.features(grid[:, None])
    variance = posterior.noise + posterior.weight_variance(phi)
    estimates = posterior.log_density(Y[:6])
    for y, estimate in zip(posterior.columns.standardise(Y[:6]), estimates, strict=True):
        log_lik = norm.logpdf(y, phi @ posterior.weights, np.sqrt(variance)[:, None]).sum(axis=1)
        exact = logsumexp(log_lik + norm.logpdf(grid)) + np.log(grid[1] - grid[0])
        exact -= 3 * np.log(posterior.columns.scale)
        assert estimate == pytest.approx(exact, abs=0.15)
        assert estimate < exact + 0.05


def test_scores_are_per_row_and_typical_rows_score_higher():
    model, (_, new_rows) = small_model(), small_data()
    scores = model.score_samples(new_rows)
    assert scores.shape == (20,)
    assert np.allclose(model.score_samples(new_rows[4:6]), scores[4:6], atol=1e-8)
    assert model.score(new_rows) == pytest.approx(scores.mean())
    noise = np.random.RandomState(0).standard_normal(new_rows.shape) * 3
    assert model.score(new_rows) > model.score(new_rows + noise) + 5


def test_samples_follow_the_predictive_distribution():
    model = small_model()
    Y, Z = model.sample(4000, latents="prior", random_state=0, return_latents=True)
    assert Y.shape == (4000, model.n_features_in_)
    assert np.abs(Z.mean(axis=0)).max() < 4 / np.sqrt(4000)
    assert Z.std(axis=0) == pytest.approx(1.0, abs=0.05)
    assert np.array_equal(Y, model.sample(4000, latents="prior", random_state=0))
    decoded = model.decode(Z)
    standardised = (Y - decoded.mean) / np.sqrt(decoded.variance)
    assert np.mean(standardised**2, axis=0) == pytest.approx(1.0, abs=5.0 * np.sqrt(2.0 / 4000))
    assert np.abs(np.mean(standardised, axis=0)).max() < 5.0 / np.sqrt(4000)


def test_samples_are_spread_like_the_training_rows():
    """Training rows need not be spread like the prior of their latents."""
    model, (rows, _) = small_model(), small_data()
    Y, Z = model.sample(4000, random_state=0, return_latents=True)
    error = 5.0 * Y.std(axis=0) / np.sqrt(4000)
    np.testing.assert_array_less(np.abs(Y.mean(axis=0) - rows.mean(axis=0)), error + 0.1 * rows.std(axis=0))
    assert Y.std(axis=0) == pytest.approx(rows.std(axis=0), rel=0.15)
    # every latent is drawn around that of a row
    nearest = np.min(np.abs(Z[:50, None] - model._state["latent_mean"]).max(axis=2), axis=1)
    assert np.median(nearest) < 2.0 * model.embedding_std_.max()


def test_kernel_of_the_mixture_and_of_the_features():
    model = small_model()
    Z = model.embedding_[:10]
    K = model.kernel(Z)
    assert K.shape == (10, 10)
    assert np.allclose(np.diag(K), model.amplitude_)
    assert np.linalg.eigvalsh(K).min() > -1e-9 * model.amplitude_
    assert np.allclose(K, model.kernel(Z, Z))
    estimated = model.kernel(Z, method="features")
    assert np.abs(estimated - K).max() < 5 * model.amplitude_ / np.sqrt(len(model.frequencies_))


def test_spectral_density_integrates_to_one_and_is_symmetric():
    model, _ = one_dimensional_model()
    reach = 12 * np.sqrt(model.mixture_covariances_.max()) + np.abs(model.mixture_means_).max()
    points = np.linspace(-reach, reach, 40_001)[:, None]
    density = model.spectral_density(points)
    assert np.trapezoid(density, points[:, 0]) == pytest.approx(1.0, abs=1e-6)
    assert np.allclose(density, density[::-1], rtol=1e-9)


def test_using_a_fitted_model_leaves_the_users_precision_alone():
    with jax.enable_x64(False):
        small_model().transform(small_data()[1])
        assert not jax.config.jax_enable_x64
