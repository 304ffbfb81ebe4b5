"""Rows with any likelihood and any holes, placed and scored under known weights, against NumPy and SciPy."""

from functools import lru_cache

import numpy as np
from known_rows import (
    NAN,
    curvature_of,
    embedded,
    known_model,
    loss_of,
    numpy_features,
    numpy_log_prob,
    scipy_optima,
)
from scipy.special import logsumexp
from scipy.stats import norm

from srflvm import row_scoring, rowwise, scoring
from srflvm.embedding import Embedding
from srflvm.row_embedding import similar_anchors
from srflvm.row_scoring import entry_log_density, log_density


def test_rows_are_placed_at_the_optimum_of_the_loss():
    """From an optimum that scipy has found the solver does not move, and from near it moves towards it."""
    optima = scipy_optima()
    np.testing.assert_allclose(embedded(optima, optima, optima).mean, optima, atol=1e-6)
    near = embedded(optima + 30.0, optima + 0.05, optima - 40.0).mean
    for row, (best, x) in enumerate(zip(optima, near, strict=True)):
        loss = loss_of(row)
        assert loss(x) - loss(best) < 1e-3 * (loss(best + 0.05) - loss(best))


def test_the_covariance_is_the_inverse_of_prior_and_expected_curvature():
    optima = scipy_optima()
    roots = embedded(optima, optima, optima).cholesky
    for row, x in enumerate(optima):
        expected = np.linalg.inv(curvature_of(row, x))
        np.testing.assert_allclose(roots[row] @ roots[row].T, expected, rtol=1e-5, atol=1e-6)
        assert roots[row][0, 1] == 0.0


def test_a_row_with_nothing_observed_has_the_prior():
    """Of the starts the nearest to zero is taken."""
    starts = [np.array([start]) for start in ([3.0, 3.0], [1.0, -1.0], [-4.0, 0.0])]
    for certain in (True, False):
        placed = embedded(*starts, rows=[9], certain=certain)
        assert np.max(np.abs(placed.mean)) < 1e-5
        np.testing.assert_array_equal(placed.cholesky[0], np.eye(2))


def test_a_row_gets_the_same_place_alone_and_in_any_batch(monkeypatch):
    posterior, _, _, raw, sizes = known_model(2)
    whole = posterior.place(raw, sizes)
    monkeypatch.setattr(rowwise, "_CHUNKS", (5, 5))
    chunks = posterior.place(raw, sizes)
    for left, right in zip(whole, chunks, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)
    for row in (3, 11):
        for left, right in zip(chunks, posterior.place(raw[[row]], sizes[[row]]), strict=True):
            np.testing.assert_array_equal(left[row], right[0])


def test_anchors_are_the_nearest_in_the_observed_columns():
    random = np.random.default_rng(0)
    rows, anchors = random.normal(size=(5, 4)), random.normal(size=(9, 4))
    rows[random.uniform(size=rows.shape) < 0.4] = NAN
    found = similar_anchors(rows, anchors, 3)
    for row, chosen in zip(rows, found, strict=True):
        np.testing.assert_array_equal(chosen, np.argsort(np.nansum((anchors - row) ** 2, axis=1))[:3])
    assert similar_anchors(rows, anchors[:2], 3).shape == (5, 2)


# ---- densities under uncertain weights ------------------------------------------------------------


def entry_densities(latents, row):
    """log E p(y_c | f_c) at latents (g, 1) over f_c ~ N(phi'h_c, phi'V_c phi), by the trapezoid rule."""
    posterior, covariances, Y, _, sizes = known_model(1)
    phi = numpy_features(posterior.frequencies, latents)
    mean = phi @ posterior.weights + posterior.level + np.where(np.arange(7) >= 5, sizes[row], 0.0)
    deviation = np.sqrt(np.einsum("gl,clk,gk->gc", phi, covariances, phi))
    z = np.linspace(-8.0, 8.0, 161)
    f = mean[:, None] + deviation[:, None] * z[:, None]
    log_terms = numpy_log_prob(np.nan_to_num(Y[row]) + 0.0 * f, f) + norm.logpdf(z)[:, None]
    return logsumexp(log_terms, axis=1) + np.log(0.1)


GRID = np.linspace(-7.0, 7.0, 401)


@lru_cache
def row_posteriors():
    """For each row log p(y), and log p(y, x) with mean and deviation of p(x | y) on a grid of latents."""
    found = []
    for row, y in enumerate(known_model(1)[2]):
        log_joint = np.sum(entry_densities(GRID[:, None], row)[:, ~np.isnan(y)], axis=1) + norm.logpdf(GRID)
        total = logsumexp(log_joint)
        share = np.exp(log_joint - total)
        mean = share @ GRID
        found.append(
            (total + np.log(GRID[1] - GRID[0]), log_joint, mean, np.sqrt(share @ (GRID - mean) ** 2))
        )
    return found


def one_dimensional():
    posterior, _, _, raw, sizes = known_model(1)
    _, _, mean, deviation = (np.array(part) for part in zip(*row_posteriors(), strict=True))
    return posterior, Embedding(mean[:, None], deviation[:, None, None]), posterior.table.encode(raw, sizes)


def test_log_densities_of_rows_are_integrals_over_the_latent(monkeypatch):
    """With evenly spread draws the estimate is an integral. With random ones its log has the variance
    [E w^2 / (E w)^2 - 1] / draws, w = p(y, x) / q(x), which quadrature gives."""
    exact = np.array([row[0] for row in row_posteriors()])
    few = log_density(*one_dimensional())
    errors = []
    for log_total, log_joint, mean, deviation in row_posteriors():
        log_proposal = norm.logpdf(GRID, mean, scoring.WIDENING * deviation)
        second = logsumexp(2.0 * log_joint - log_proposal) + np.log(GRID[1] - GRID[0])
        errors.append(np.sqrt((np.exp(second - 2.0 * log_total) - 1.0) / scoring.N_DRAWS))
    # quasi-random draws are nearer than independent ones
    np.testing.assert_array_less(np.abs(few - exact), 0.3 * np.array(errors))
    assert np.max(errors) < 0.05
    even = norm.ppf((np.arange(64) + 0.5) / 64)[:, None]
    monkeypatch.setattr(row_scoring, "quasi_normals", lambda n_latent: even)
    np.testing.assert_allclose(log_density(*one_dimensional()), exact, atol=2e-3)


def test_log_densities_of_entries_are_averages_over_the_latent():
    """The latent's two cubature points are exact to the third order: the rest falls with its deviation^4."""
    posterior, placed, encoded = one_dimensional()
    found = entry_log_density(posterior, placed, encoded)
    narrow = Embedding(placed.mean, 0.1 * placed.cholesky)
    nearly = entry_log_density(posterior, narrow, encoded)
    t = np.linspace(-8.0, 8.0, 81)
    for row, y in enumerate(known_model(1)[2]):
        seen = ~np.isnan(y)
        two = entry_densities(placed.mean[row] + placed.cholesky[row] * [[-1.0], [1.0]], row)
        np.testing.assert_allclose(found[row, seen], (logsumexp(two, axis=0) - np.log(2.0))[seen], atol=1e-6)
        around = entry_densities(narrow.mean[row] + narrow.cholesky[row] * t[:, None], row)
        whole = logsumexp(around + norm.logpdf(t)[:, None], axis=0) + np.log(0.2)
        np.testing.assert_allclose(nearly[row, seen], whole[seen], atol=1e-4)
        assert np.all(np.isnan(found[row, ~seen]))
