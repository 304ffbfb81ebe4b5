"""Bayesian PCA against scikit-learn, loops over rows, and a lower bound computed here."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA, FactorAnalysis

from srflvm.numerics import bayesian_pca
from srflvm.numerics.bayesian_pca import LinearFactors


def linear_rows(n_rows=300, n_columns=10, size=3, noise=0.1, share=0.0, seed=0):
    """Draw rows that are linear in `size` latents: without noise, and with noise and holes."""
    random = np.random.RandomState(seed)
    clean = random.standard_normal((n_rows, size)) @ random.standard_normal((size, n_columns))
    Y = clean + noise * random.standard_normal(clean.shape)
    holes = random.uniform(size=Y.shape) < share
    centre = Y.mean(axis=0)
    return clean - centre, np.where(holes, np.nan, Y - centre), holes


def parts(Y):
    observed = ~np.isnan(Y)
    return observed.astype(float), np.where(observed, Y, 0.0)


def first_guess(Y, size=4, seed=1):
    """Return factors that are no optimum, with uncertain loadings."""
    random, n_columns = np.random.RandomState(seed), Y.shape[1]
    roots = 0.3 * random.standard_normal((n_columns, size, size))
    return LinearFactors(
        np.zeros((len(Y), size)),
        np.zeros((len(Y), size, size)),
        random.standard_normal((n_columns, size)),
        roots @ roots.swapaxes(1, 2) + 0.01 * np.eye(size),
        random.uniform(0.3, 0.6, n_columns),
    )


def divergence(mean, covariance, prior):
    """Return the Kullback-Leibler divergence of a Gaussian from N(0, diag(prior))."""
    spread = np.sum((mean**2 + np.diag(covariance)) / prior)
    return 0.5 * (spread - len(mean) + np.sum(np.log(prior)) - np.linalg.slogdet(covariance)[1])


def lower_bound(factors, Y, relevance):
    """Return the bound of the log density of the observed entries, entry by entry."""
    total = 0.0
    for n, m in zip(*np.nonzero(~np.isnan(Y)), strict=True):
        x, a, s = factors.latents[n], factors.loadings[m], factors.noise[m]
        X, A = factors.latent_covariances[n], factors.loading_covariances[m]
        square = np.trace((np.outer(x, x) + X) @ (np.outer(a, a) + A))
        total -= 0.5 * (np.log(2.0 * np.pi * s) + (Y[n, m] ** 2 - 2.0 * Y[n, m] * a @ x + square) / s)
    for x, X in zip(factors.latents, factors.latent_covariances, strict=True):
        total -= divergence(x, X, np.ones(len(x)))
    for a, A in zip(factors.loadings, factors.loading_covariances, strict=True):
        total -= divergence(a, A, relevance)
    return total


def test_latents_of_rows_are_those_of_their_observed_entries_one_by_one():
    _, Y, _ = linear_rows(40, share=0.4)
    Y[7] = np.nan
    guess = first_guess(Y)
    placed = guess.placed(*parts(Y))
    for n, row in enumerate(Y):
        precision, shift = np.eye(4), np.zeros(4)
        for m in np.flatnonzero(~np.isnan(row)):
            a = guess.loadings[m]
            precision += (np.outer(a, a) + guess.loading_covariances[m]) / guess.noise[m]
            shift += a * row[m] / guess.noise[m]
        np.testing.assert_allclose(placed.latent_covariances[n], np.linalg.inv(precision), atol=1e-12)
        np.testing.assert_allclose(placed.latents[n], np.linalg.solve(precision, shift), atol=1e-11)
    # a row without an entry is at the prior
    np.testing.assert_allclose(placed.latents[7], 0.0, atol=1e-15)
    np.testing.assert_allclose(placed.latent_covariances[7], np.eye(4), atol=1e-15)


def test_loadings_and_noises_are_those_of_regressions_of_the_columns_one_by_one():
    _, Y, _ = linear_rows(40, share=0.4)
    guess = first_guess(Y).placed(*parts(Y))
    relevance = np.array([2.0, 1.0, 0.5, 0.1])
    found = guess._with_loadings(*parts(Y), relevance, np.ones(10))
    for m, column in enumerate(Y.T):
        precision, shift = np.diag(1.0 / relevance), np.zeros(4)
        rows = np.flatnonzero(~np.isnan(column))
        for n in rows:
            x = guess.latents[n]
            precision += (np.outer(x, x) + guess.latent_covariances[n]) / guess.noise[m]
            shift += x * column[n] / guess.noise[m]
        mean, covariance = np.linalg.solve(precision, shift), np.linalg.inv(precision)
        np.testing.assert_allclose(found.loadings[m], mean, atol=1e-11)
        np.testing.assert_allclose(found.loading_covariances[m], covariance, atol=1e-12)
        # E (y - a'x)^2, with a and x independent
        squares = 0.0
        for n in rows:
            x, X = guess.latents[n], guess.latent_covariances[n]
            squares += (column[n] - mean @ x) ** 2 + mean @ X @ mean + x @ covariance @ x
            squares += np.trace(X @ covariance)
        np.testing.assert_allclose(found.noise[m], squares / len(rows), rtol=1e-11)


def test_every_step_of_a_round_raises_the_bound():
    _, Y, _ = linear_rows(40, share=0.3)
    weights, filled = parts(Y)
    factors = first_guess(Y)
    relevance, values = factors.relevance, []
    for _ in range(12):
        factors = factors.placed(weights, filled)
        values.append(lower_bound(factors, Y, relevance))
        factors = factors._with_loadings(weights, filled, relevance, np.ones(10))
        values.append(lower_bound(factors, Y, relevance))
        values.append(lower_bound(factors, Y, factors.relevance))
        factors = factors._rotated()
        relevance = factors.relevance
        values.append(lower_bound(factors, Y, relevance))
    # the rotation adds 1e-12 of the trace for the sake of a root
    assert np.min(np.diff(values)) > -1e-8
    assert values[-1] > values[0] + 100.0


def test_the_best_loadings_and_noises_are_a_maximum_of_the_bound():
    _, Y, _ = linear_rows(40, share=0.3)
    relevance = np.array([2.0, 1.0, 0.5, 0.1])
    guess = first_guess(Y).placed(*parts(Y))
    best = replace(guess._with_loadings(*parts(Y), relevance, np.ones(10)), noise=guess.noise)
    top = lower_bound(best, Y, relevance)
    random = np.random.RandomState(2)
    for step in (1e-3, 1e-2):
        moved = replace(best, loadings=best.loadings + step * random.standard_normal(best.loadings.shape))
        assert lower_bound(moved, Y, relevance) < top
        wider = replace(best, loading_covariances=best.loading_covariances * (1.0 + step))
        assert lower_bound(wider, Y, relevance) < top


def test_rotations_leave_the_function_as_it_is_and_make_relevances_readable():
    _, Y, _ = linear_rows(40, share=0.3)
    factors = first_guess(Y).placed(*parts(Y))
    turned = factors._rotated()
    np.testing.assert_allclose(
        turned.latents @ turned.loadings.T, factors.latents @ factors.loadings.T, atol=1e-10
    )
    second = turned.latents.T @ turned.latents / 40 + turned.latent_covariances.mean(axis=0)
    np.testing.assert_allclose(second, np.eye(4), atol=1e-9)
    spread = turned.loadings.T @ turned.loadings + turned.loading_covariances.sum(axis=0)
    np.testing.assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-9 * np.trace(spread))
    np.testing.assert_allclose(turned.relevance, np.diag(spread) / 10, rtol=1e-9)
    assert np.all(np.diff(turned.relevance) <= 0.0)


def test_complete_rows_are_reconstructed_as_by_pca():
    """Reconstructions differ by what the noise leaves open: its share along 3 of 10 directions, over 300."""
    clean, Y, _ = linear_rows()
    factors = LinearFactors.fit(Y, 3, np.random.RandomState(0))
    pca = PCA(3).fit(Y)
    expected = pca.inverse_transform(pca.transform(Y))
    found = factors.latents @ factors.loadings.T
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.02
    # a noise for each column, where PCA has one for all, costs a little
    assert np.mean((found - clean) ** 2) < 1.05 * np.mean((expected - clean) ** 2)


def test_columns_with_noises_of_their_own_are_reconstructed_as_by_factor_analysis():
    random, angle = np.random.RandomState(3), np.pi * np.arange(20) / 20
    noise = np.linspace(0.4, 2.0, 20)[random.permutation(20)]
    clean = random.standard_normal((2000, 2)) @ np.stack([np.cos(angle), np.sin(angle)])
    Y = clean + noise * random.standard_normal(clean.shape)
    Y -= Y.mean(axis=0)
    factors = LinearFactors.fit(Y, 2, np.random.RandomState(0))
    analysis = FactorAnalysis(2, tol=1e-8, max_iter=5000).fit(Y)
    # the standard error that a variance of 2000 entries has
    np.testing.assert_allclose(factors.noise, analysis.noise_variance_, rtol=0.03)
    expected = analysis.transform(Y) @ analysis.components_
    found = factors.latents @ factors.loadings.T
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.02
    pca = PCA(2).fit(Y)
    by_pca = np.mean((pca.inverse_transform(pca.transform(Y)) - clean) ** 2)
    assert np.mean((found - clean) ** 2) < 0.8 * by_pca


def test_holes_are_filled_to_the_noise():
    clean, Y, holes = linear_rows(300, share=0.3)
    factors = LinearFactors.fit(Y, 3, np.random.RandomState(0))
    found = factors.latents @ factors.loadings.T
    error = np.sqrt(np.mean((found - clean)[holes] ** 2))
    # three latents from seven entries: an error of sqrt(3 / 7) of the noise at least, and 10 columns of zeros
    assert 0.05 < error < 0.15
    # the standard error of a variance of 2100 entries, less three latents a row, is 4 %
    np.testing.assert_allclose(np.mean(factors.noise), 0.01, rtol=0.12)


def test_dimensions_that_nothing_needs_have_no_relevance():
    _, Y, _ = linear_rows(300, size=3, noise=0.3)
    relevance = LinearFactors.fit(Y, 8, np.random.RandomState(0)).relevance
    assert np.all(relevance[:3] > 0.1)
    assert np.all(relevance[3:] < 1e-3)


@pytest.mark.parametrize("size", [2, 6])
def test_numbers_of_any_unit_and_columns_that_do_not_vary_are_taken(size):
    _, Y, _ = linear_rows(60, n_columns=4, size=2, share=0.1)
    plain = LinearFactors.fit(Y, size, np.random.RandomState(0))
    units = np.array([1.0, 1e4, 1e-3, 30.0])
    scaled = LinearFactors.fit(Y * units, 2, np.random.RandomState(0))
    assert np.isfinite(scaled.latents).all()
    with_constant = np.c_[Y, np.zeros(60)]
    flat = LinearFactors.fit(with_constant, size, np.random.RandomState(0))
    for factors in (plain, flat):
        assert all(np.isfinite(getattr(factors, name)).all() for name in ("latents", "loadings", "noise"))
        assert np.all(factors.noise > 0.0)
    assert np.max(np.abs(flat.latents @ flat.loadings[4])) < 1e-3


def test_rows_beyond_those_that_are_used_are_placed_by_them(monkeypatch):
    clean, Y, _ = linear_rows(300, share=0.2)
    monkeypatch.setattr(bayesian_pca, "_MOST_ROWS", 100)
    factors = LinearFactors.fit(Y, 3, np.random.RandomState(0))
    again = factors.placed(*parts(Y))
    np.testing.assert_array_equal(again.latents, factors.latents)
    assert factors.latents.shape == (300, 3)
    error = factors.latents @ factors.loadings.T - clean
    # the loadings are those of 100 rows
    assert np.sqrt(np.mean(error**2)) < 0.12
