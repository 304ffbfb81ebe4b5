"""Statistics of batches against slow truths: explicit sums over points, dense solutions, sampled bounds."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from helpers.fitted_models import small_data, small_model
from helpers.model_files import made_up, model_of_all_kinds, rows_of_each_kind, table_of_all_kinds
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from srflvm.inference.statistics import (
    EpochSums,
    GaussianStatistics,
    RowSums,
    SiteStatistics,
    StreamState,
    statistics_for,
)
from srflvm.numerics import packed_symmetric
from srflvm.numerics.features import cubature_points, with_constant
from srflvm.numerics.shared_regression import posterior_weights
from srflvm.posterior.chunks import Embedding

SITES = SiteStatistics(np.dtype(np.float64), 16)


def points_and_features(posterior, embedding):
    points = cubature_points(embedding.mean, embedding.cholesky)
    return points, [posterior.features(point) for point in points]


# ---- sums over rows ---------------------------------------------------------------------------------


def test_totals_of_an_epoch_count_rows_once_they_are_all_visited():
    rows = np.random.RandomState(0).standard_normal((12, 3))
    epoch = EpochSums.after(12, RowSums(rows[:4].sum(axis=0), 4))
    np.testing.assert_allclose(epoch.totals, 3.0 * rows[:4].sum(axis=0))
    halfway = epoch.plus(rows[:6].sum(axis=0), 6)
    # two of the four rows before are left, and six are new: eight rows that stand for twelve
    np.testing.assert_allclose(halfway.totals, 12 / 8 * (0.5 * rows[:4].sum(axis=0) + rows[:6].sum(axis=0)))
    np.testing.assert_allclose(halfway.plus(rows[6:].sum(axis=0), 6).totals, rows.sum(axis=0))


def test_totals_in_later_epochs_keep_the_weight_of_all_rows():
    before = RowSums(np.array([10.0]), 5)
    epoch = EpochSums.after(5, before).plus(np.array([3.0]), 2)
    np.testing.assert_allclose(epoch.totals, [0.6 * 10.0 + 3.0])


def test_the_divergence_of_latents_is_that_of_gaussians():
    random = np.random.RandomState(0)
    cholesky = np.tril(0.3 * random.standard_normal((4, 3, 3)), -1) + np.eye(3) * 0.7
    embedding = Embedding(random.standard_normal((4, 3)), cholesky)
    expected = 0.0
    for mean, factor in zip(*embedding, strict=True):
        covariance = factor @ factor.T
        expected += 0.5 * (np.trace(covariance) + mean @ mean - 3 - np.linalg.slogdet(covariance)[1])
    assert embedding.divergence() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["gaussian", "sites"])
def test_statistics_and_bounds_of_batches_add_up_to_those_of_all_rows(kind):
    if kind == "gaussian":
        posterior, Y, rule = small_model()._posterior, small_data()[0], GaussianStatistics()
    else:
        posterior, Y, rule = model_of_all_kinds()._posterior, table_of_all_kinds(), SITES
        Y = np.array(Y, np.float64)
        Y[::7, ::3] = np.nan
    together = rule.gather(posterior, Y, None)
    order = np.random.RandomState(0).permutation(len(Y))
    parts = [rule.gather(posterior, Y[np.sort(order[i::4])], None) for i in range(4)]
    summed = jax.tree.map(lambda *arrays: sum(arrays), *(part.statistics for part in parts))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), summed, together.statistics
    )
    assert sum(part.bound for part in parts) == pytest.approx(together.bound, rel=1e-8)


# ---- Gaussian rows ----------------------------------------------------------------------------------


def test_shared_sums_and_what_follows_from_them_are_the_dense_solution():
    posterior, Y = small_model()._posterior, small_data()[0]
    gathered = GaussianStatistics().gather(posterior, Y, None)
    _, features = points_and_features(posterior, gathered.embedding)
    # the regression on all points, each with the weight of one over their number
    n_points = len(features)
    design = np.concatenate(features) / np.sqrt(n_points)
    targets = np.tile(posterior.columns.standardise(Y), (n_points, 1)) / np.sqrt(n_points)
    model = GaussianStatistics().refresh(posterior, gathered.statistics, len(Y)).posterior
    system = design.T @ design + model.ratio * np.eye(design.shape[1])
    np.testing.assert_allclose(model.weights, np.linalg.solve(system, design.T @ targets), atol=1e-7)
    np.testing.assert_allclose(model.weight_covariance, np.linalg.inv(system), rtol=1e-5, atol=1e-7)
    # the noise is where E|y - f|^2 per entry says
    second = model.weights @ model.weights.T + Y.shape[1] * model.noise * model.weight_covariance
    gram = design.T @ design
    residual = np.sum((targets - design @ model.weights) ** 2)
    residual += np.sum(gram * second) - np.sum(gram * (model.weights @ model.weights.T))
    assert model.noise == pytest.approx(residual / Y.size, rel=1e-3)


def test_the_bound_of_gaussian_rows_is_the_expected_log_density():
    posterior, Y = small_model()._posterior, small_data()[1][:5]
    gathered = GaussianStatistics().gather(posterior, Y, None)
    expected = -gathered.embedding.divergence()
    _, features = points_and_features(posterior, gathered.embedding)
    scale = posterior.columns.scale
    for phi in features:
        f = posterior.columns.mean + scale * (phi @ posterior.weights)
        spread = posterior.weight_variance(phi) / posterior.noise
        densities = norm.logpdf(Y, f, scale * np.sqrt(posterior.noise))
        expected += (np.sum(densities) - 0.5 * Y.shape[1] * np.sum(spread)) / len(features)
    assert gathered.bound == pytest.approx(expected, rel=1e-9)


def test_the_divergence_of_shared_weights_is_that_of_gaussians():
    posterior = small_model()._posterior
    size = len(posterior.weights)
    covariance = posterior.noise * posterior.weight_covariance
    amplitude = posterior.noise / posterior.ratio
    expected = 0.0
    for mean in posterior.weights.T:
        square = (np.trace(covariance) + mean @ mean) / amplitude
        expected += 0.5 * (square - size + size * np.log(amplitude) - np.linalg.slogdet(covariance)[1])
    assert posterior.weight_divergence() == pytest.approx(expected, rel=1e-8)


def test_the_bound_is_below_the_evidence():
    """log p(Y) by importance sampling over X, with the weights integrated out exactly."""
    posterior, Y = small_model()._posterior, small_data()[0][:6]
    first = GaussianStatistics().gather(posterior, Y, None).statistics
    weights, covariance = posterior_weights(first.gram, first.cross, posterior.ratio)
    kept, random = (
        replace(posterior, weights=weights, weight_covariance=covariance),
        np.random.RandomState(0),
    )
    gathered = GaussianStatistics().gather(kept, Y, None)
    bound = gathered.bound - kept.weight_divergence()
    standard, embedding = kept.columns.standardise(Y), gathered.embedding
    ratios = []
    for _ in range(4000):
        noise = random.standard_normal(embedding.mean.shape)
        latents = embedding.mean + 1.3 * np.einsum("nqr,nr->nq", embedding.cholesky, noise)
        log_q = np.sum(norm.logpdf(noise)) - np.sum(
            np.log(1.3 * np.diagonal(embedding.cholesky, axis1=1, axis2=2))
        )
        phi = kept.features(latents)
        covariance = kept.noise * (phi @ phi.T / kept.ratio + np.eye(len(Y)))
        log_p = np.sum(multivariate_normal(cov=covariance).logpdf(standard.T)) + np.sum(norm.logpdf(latents))
        ratios.append(log_p - log_q)
    evidence = logsumexp(ratios) - np.log(len(ratios)) - Y.size * np.log(kept.columns.scale)
    assert bound < evidence
    assert bound > evidence - Y.size


# ---- sites ------------------------------------------------------------------------------------------


def test_sums_of_gaussian_columns_with_missing_entries_give_each_column_its_own_regression():
    Y = rows_of_each_kind()["gaussian"].copy()
    Y[::3, 1] = np.nan
    posterior = made_up(Y, inference="sites")._posterior
    gathered = SITES.gather(posterior, Y, None)
    model = SITES.refresh(posterior, gathered.statistics, len(Y)).posterior
    _, features = points_and_features(posterior, gathered.embedding)
    encoded = posterior.layout.encode(Y)[0]
    precision = np.exp(-posterior.parameters[0]["log_noise"][0])
    for column in range(Y.shape[1]):
        rows = ~np.isnan(Y[:, column])
        phi = np.concatenate([with_constant(part[rows]) for part in features])
        target = np.tile(encoded.y[rows, column] - posterior.level[column], len(features))
        weight = precision / len(features)
        system = weight * phi.T @ phi + np.eye(phi.shape[1]) / posterior.amplitude[column]
        np.testing.assert_allclose(
            model.weights[:, column], np.linalg.solve(system, weight * phi.T @ target), atol=1e-7
        )
        packed = model.covariance.packed[column : column + 1].astype(np.float64)
        covariance = packed_symmetric.unpack(packed, len(system), form=True)[0]
        np.testing.assert_allclose(covariance, np.linalg.inv(system), atol=1e-5)


def test_sums_of_counts_follow_slope_and_curvature_of_every_point():
    Y = rows_of_each_kind()["poisson"]
    posterior = made_up(Y, likelihood="poisson", size_factors=None)._posterior
    gathered = SITES.gather(posterior, Y, None)
    points, features = points_and_features(posterior, gathered.embedding)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights /= np.sqrt(2.0 * np.pi)
    gram, cross, value = 0.0, 0.0, 0.0
    for point, phi in zip(points, map(with_constant, features), strict=True):
        mean, variance = (part[:, 2] for part in posterior.function_moments(point))
        f = mean[:, None] + np.sqrt(variance)[:, None] * nodes
        rate = np.exp(f) @ weights
        without_level = mean - posterior.level[2]
        gram += (phi * rate[:, None]).T @ phi / len(points)
        cross += phi.T @ (Y[:, 2] - rate + rate * without_level) / len(points)
        value += np.sum(Y[:, 2] * mean - rate) / len(points)
    sums = gathered.statistics
    np.testing.assert_allclose(packed_symmetric.unpack(sums.gram[2:3], 11)[0], gram, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums.cross[2], cross, rtol=1e-5, atol=1e-5)


def test_the_parameters_quadratic_has_the_slope_of_the_bound():
    Y = rows_of_each_kind()["negative_binomial"]
    posterior = made_up(Y, likelihood="negative_binomial", size_factors=None)._posterior
    encoded, embedding = posterior.layout.encode(Y), posterior.embed(Y)
    (name, before), step = next(iter(posterior.parameters[0].items())), 1e-4

    def value(change):
        moved = {name: before + change}
        changed = replace(posterior, parameters=(moved,))
        return SITES.sums_of_rows(changed, encoded, embedding)[1]

    sums, _ = SITES.sums_of_rows(posterior, encoded, embedding)
    slope = sums.slope_at_zero[0][name] - sums.curvature[0][name] * before
    assert np.sum(slope) == pytest.approx((value(step) - value(-step)) / (2.0 * step), rel=1e-4)
    moved = SITES.refresh(posterior, sums, len(Y)).posterior.parameters[0][name]
    expected = before + np.clip(slope / np.abs(sums.curvature[0][name]), -0.5, 0.5)
    np.testing.assert_allclose(moved, expected)


def test_the_bound_of_sites_is_that_of_its_own_gaussians():
    """E_q log p(Y, X, H) - log q(X, H) by sampling, for weights and latents that the sums give."""
    Y = rows_of_each_kind()["bernoulli"][:12]
    posterior = made_up(Y, likelihood="bernoulli")._posterior
    first = SITES.gather(posterior, Y, None)
    model = SITES.refresh(posterior, first.statistics, len(Y))
    # narrow latents, for which cubature is exact enough
    embedding = Embedding(first.embedding.mean, 0.1 * first.embedding.cholesky)
    kept, random = model.posterior, np.random.RandomState(1)
    value = SITES.sums_of_rows(kept, kept.layout.encode(Y), embedding)[1]
    bound = value - embedding.divergence() - model.divergence
    covariance = packed_symmetric.unpack(kept.covariance.packed.astype(np.float64), 11, form=True)
    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(11))
    draws = []
    for _ in range(4000):
        noise, more = random.standard_normal(embedding.mean.shape), random.standard_normal((Y.shape[1], 11))
        latents = embedding.mean + np.einsum("nqr,nr->nq", embedding.cholesky, noise)
        weights = kept.weights + np.einsum("cij,cj->ic", root, more)
        f = with_constant(kept.features(latents)) @ weights + kept.level
        log_p = np.sum(Y * f - np.logaddexp(0.0, f)) + np.sum(norm.logpdf(latents))
        log_p += np.sum(norm.logpdf(weights, scale=np.sqrt(kept.amplitude)))
        log_q = np.sum(norm.logpdf(noise)) - np.sum(np.log(np.diagonal(embedding.cholesky, axis1=1, axis2=2)))
        log_q += np.sum(norm.logpdf(more)) - np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)))
        draws.append(log_p - log_q)
    error = np.std(draws) / np.sqrt(len(draws))
    assert abs(bound - np.mean(draws)) < 4.0 * error + 1e-3 * Y.size
    assert bound < logsumexp(draws) - np.log(len(draws)) + 4.0 * error


# ---- streams ----------------------------------------------------------------------------------------


def test_a_posterior_has_the_statistics_of_its_kind():
    dtype = np.dtype(np.float32)
    assert statistics_for(small_model()._posterior, dtype, 7) == GaussianStatistics()
    assert statistics_for(model_of_all_kinds()._posterior, dtype, 7) == SiteStatistics(dtype, 7)


def test_a_stream_goes_on_from_the_sums_that_a_gaussian_posterior_follows_from():
    posterior, n_rows = small_model()._posterior, len(small_data()[0])
    stream = StreamState.behind(posterior, n_rows)
    again = GaussianStatistics().refresh(posterior, stream.sums.statistics, n_rows)
    np.testing.assert_allclose(again.posterior.weights, posterior.weights, rtol=1e-5, atol=1e-7)
    assert again.posterior.noise == pytest.approx(posterior.noise, rel=1e-5)
    assert stream.sums.n_rows == n_rows
    assert stream.divergence == pytest.approx(again.divergence, rel=1e-4)


def test_a_posterior_with_sites_does_not_tell_its_sums():
    with pytest.raises(ValueError, match="goes on from sums over all rows seen"):
        StreamState.behind(model_of_all_kinds()._posterior, 30)
