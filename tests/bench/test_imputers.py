"""Rival imputers: they find entries of a matrix of low rank, and leave the others alone."""

import numpy as np
import pytest
from scipy import stats

from srflvm_bench.baselines import imputers


@pytest.fixture(scope="module")
def low_rank():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 12)) + 5.0
    holes = rng.random(Y.shape) < 0.15
    return Y, holes, np.where(holes, np.nan, Y)


def fills(name, Y):
    if name == "em-pca":
        return [imputers.em_pca(Y, 3)]
    if name == "bayesian-pca":
        return [imputers.em_pca(Y, 5, bayesian=True)]
    return [filled for _, filled in imputers.IMPUTERS[name](Y)]


# How much of the error of column means may be left.
@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("em-pca", 0.01),
        ("bayesian-pca", 0.02),
        ("soft-impute", 0.05),
        ("neighbours", 0.5),
        ("chained-ridge", 0.1),
    ],
)
def test_missing_entries_are_found(name, left, low_rank):
    Y, holes, seen = low_rank
    results = fills(name, seen)
    for filled in results:
        np.testing.assert_array_equal(filled[~holes], Y[~holes])
    error = min(np.mean((filled - Y)[holes] ** 2) for filled in results)
    plain = np.mean((imputers.column_mean(seen) - Y)[holes] ** 2)
    assert error < left * plain


def test_column_mean(low_rank):
    Y, holes, seen = low_rank
    filled = imputers.column_mean(seen)
    expected = [Y[~holes[:, m], m].mean() for m in range(Y.shape[1])]
    np.testing.assert_allclose(filled[holes], np.array(expected)[np.nonzero(holes)[1]])


@pytest.mark.parametrize("rank", [11, 12, 100])
def test_a_rank_beyond_the_columns_is_lowered(rank, low_rank):
    seen = low_rank[2]
    filled = imputers.em_pca(seen, rank, bayesian=True, max_iter=3)
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(filled, imputers.em_pca(seen, 11, bayesian=True, max_iter=3))


def noisy_table(n_rows, rank, share, noise=0.6, seed=1):
    """Draw a matrix of low rank with noise around means, and the same matrix with missing entries."""
    rng = np.random.default_rng(seed)
    clean = rng.standard_normal((n_rows, rank)) @ rng.standard_normal((rank, 8)) + rng.standard_normal(8)
    Y = clean + noise * rng.standard_normal(clean.shape)
    return clean, np.where(rng.random(Y.shape) < share, np.nan, Y)


def em_steps(Y, rank, n_steps):
    """Yield loadings, the mean last, and the noise after every step from a random start."""
    holes = np.isnan(Y)
    seen, target = (~holes).astype(np.float32), np.where(holes, 0.0, Y).astype(np.float32)
    W = np.random.default_rng(2).standard_normal((Y.shape[1], rank + 1))
    squares, noise = imputers._squares(W), 1.0
    for _ in range(n_steps):
        X, squares_x = imputers._scores(target, seen, W, squares, noise)
        W, squares, noise = imputers._loadings(target, seen, X, squares_x, noise, np.zeros(rank + 1), False)
        yield W, noise


def test_em_of_complete_data_ends_at_the_maximum_in_closed_form():
    """The noise is the mean of the other eigenvalues, and W W' + noise I has the leading ones.

    See Tipping and Bishop (1999).
    """
    _, Y = noisy_table(300, 2, 0.0)
    *_, (W, noise) = em_steps(Y, 2, 400)
    values, vectors = np.linalg.eigh(np.cov(Y.T, bias=True))
    assert abs(noise - values[:-2].mean()) < 1e-4
    leading = (vectors[:, -2:] * (values[-2:] - values[:-2].mean())) @ vectors[:, -2:].T
    np.testing.assert_allclose(W[:, :2] @ W[:, :2].T, leading, atol=2e-3)
    np.testing.assert_allclose(W[:, 2], Y.mean(axis=0), atol=2e-3)


def test_em_with_holes_never_lowers_the_likelihood():
    _, Y = noisy_table(80, 2, 0.3)
    likelihoods = []
    for W, noise in em_steps(Y, 2, 60):
        covariance = W[:, :2] @ W[:, :2].T + noise * np.eye(8)
        likelihoods.append(
            sum(
                stats.multivariate_normal(W[seen, 2], covariance[np.ix_(seen, seen)]).logpdf(row[seen])
                for row, seen in zip(Y, ~np.isnan(Y), strict=True)
                if seen.any()
            )
        )
    rises = np.diff(likelihoods)
    assert (rises > -1e-3).all()
    assert likelihoods[-1] - likelihoods[0] > 100.0 > 10.0 > rises[-1]


def test_the_prior_of_bayesian_pca_drops_what_is_not_needed():
    """Five superfluous columns of loadings change nothing.

    Without the prior they change the filled entries by a tenth of their spread.
    """
    _, Y = noisy_table(60, 1, 0.3)
    holes = np.isnan(Y)
    one, six = (imputers.em_pca(Y, rank, True, max_iter=2000, tol=1e-7)[holes] for rank in (1, 6))
    np.testing.assert_allclose(six, one, atol=1e-3 * one.std())


def test_soft_impute_ends_where_shrinking_changes_no_hole():
    _, Y = noisy_table(60, 2, 0.3)
    holes, centre = np.isnan(Y), np.nanmean(Y, axis=0)
    largest = np.linalg.norm(np.where(holes, 0.0, Y - centre), 2)
    ratios = (0.5, 0.2, 0.1)
    for ratio, filled in zip(ratios, imputers.soft_impute(Y, ratios, max_iter=3000, tol=1e-9), strict=True):
        left, values, right = np.linalg.svd(filled - centre, full_matrices=False)
        shrunk = (left * np.maximum(values - ratio * largest, 0.0)) @ right
        np.testing.assert_allclose(shrunk[holes], (filled - centre)[holes], atol=1e-6)
