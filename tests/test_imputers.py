"""Rival imputers: they find entries of a matrix of low rank, and leave the others alone."""

import numpy as np
import pytest

from srflvm.baselines import imputers


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
    return [filled for _, filled in imputers.RIVALS[name](Y)]


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
