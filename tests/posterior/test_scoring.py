"""Log densities of rows and entries under uncertain weights, against integrals on a grid."""

from functools import lru_cache

import numpy as np
from helpers.known_rows import known_model, numpy_features, numpy_log_prob
from scipy.special import logsumexp
from scipy.stats import norm

from srflvm.posterior import scoring
from srflvm.posterior.chunks import Embedding
from srflvm.posterior.scoring import entry_log_densities, entry_log_density, row_log_density


def entry_densities(latents, row):
    """Compute log E p(y_c | f_c) at latents (g, 1), f_c ~ N(phi'h_c, phi'V_c phi), by the trapezoid rule."""
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
    """Compute of each row log p(y), and on a grid of latents log p(y, x), mean and deviation of p(x | y)."""
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
    return posterior, Embedding(mean[:, None], deviation[:, None, None]), posterior.layout.encode(raw, sizes)


def test_log_densities_of_rows_are_integrals_over_the_latent(monkeypatch):
    """With evenly spread draws the estimate is an integral. With random ones its log has the variance
    [E w^2 / (E w)^2 - 1] / draws, w = p(y, x) / q(x), which quadrature gives."""
    exact = np.array([row[0] for row in row_posteriors()])
    few = row_log_density(*one_dimensional())
    errors = []
    for log_total, log_joint, mean, deviation in row_posteriors():
        log_proposal = norm.logpdf(GRID, mean, scoring._WIDENING * deviation)
        second = logsumexp(2.0 * log_joint - log_proposal) + np.log(GRID[1] - GRID[0])
        errors.append(np.sqrt((np.exp(second - 2.0 * log_total) - 1.0) / scoring._N_DRAWS))
    # quasi-random draws are nearer than independent ones
    np.testing.assert_array_less(np.abs(few - exact), 0.3 * np.array(errors))
    assert np.max(errors) < 0.05
    even = norm.ppf((np.arange(64) + 0.5) / 64)[:, None]
    monkeypatch.setattr(scoring, "_quasi_normals", lambda n_latent: even)
    np.testing.assert_allclose(row_log_density(*one_dimensional()), exact, atol=2e-3)


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


def test_many_rows_are_scored_in_larger_chunks_with_the_same_result(monkeypatch):
    posterior, placed, encoded = one_dimensional()
    whole = entry_log_density(posterior, placed, encoded), row_log_density(posterior, placed, encoded)
    sizes, function_moments = [], type(posterior).function_moments

    def watched(self, latents):
        sizes.append(len(latents))
        return function_moments(self, latents)

    monkeypatch.setattr(type(posterior), "function_moments", watched)
    monkeypatch.setattr(scoring, "_MANY_ROWS", 1)
    again = entry_log_density(posterior, placed, encoded), row_log_density(posterior, placed, encoded)
    assert sizes == [64 * 2, 64 * 64]
    for left, right in zip(whole, again, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12)
    # unless there would be too many numbers
    monkeypatch.setattr(scoring, "_MOST_NUMBERS", 1)
    entry_log_density(posterior, placed, encoded)
    assert sizes[2] == 8 * 2


def test_several_tables_of_the_same_rows_are_scored_as_each_of_them():
    posterior, placed, encoded = one_dimensional()
    other = tuple(rows._replace(y=np.where(rows.observed, 1.0 - rows.y, np.nan)) for rows in encoded)
    found = entry_log_densities(posterior, placed, [encoded, other])
    for table, expected in zip(found, (encoded, other), strict=True):
        np.testing.assert_array_equal(table, entry_log_density(posterior, placed, expected))
