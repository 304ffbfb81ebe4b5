"""Low-rank fill of missing entries against data of known rank and probabilistic PCA."""

import numpy as np
import pytest

from srflvm.numerics import low_rank_fill as module
from srflvm.numerics.low_rank_fill import low_rank_fill


def low_rank(n_rows, n_columns, rank, noise=0.0, share=0.2, seed=0):
    """Return Y whole, and with missing entries."""
    random = np.random.default_rng(seed)
    Y = random.normal(size=(n_rows, rank)) @ random.normal(size=(rank, n_columns)) / np.sqrt(rank) + 2.0
    Y += noise * random.normal(size=Y.shape)
    return Y, np.where(random.uniform(size=Y.shape) < share, np.nan, Y)


@pytest.mark.parametrize("shape", [(200, 80), (80, 200)])
def test_data_of_low_rank_are_recovered_and_observed_entries_kept(shape):
    Y, incomplete = low_rank(*shape, 12)
    filled = low_rank_fill(incomplete, 12)
    seen = ~np.isnan(incomplete)
    assert filled.dtype == np.float64
    np.testing.assert_array_equal(filled[seen], Y[seen])
    # the iteration ends when it moves by 1e-3 of the spread, one, and goes at least a tenth of the way
    assert np.sqrt(np.mean((filled - Y)[~seen] ** 2)) < 1e-2


def test_data_of_low_rank_without_noise_are_recovered():
    random = np.random.default_rng(0)
    Y = random.normal(size=(100, 3)) @ random.normal(size=(3, 40))
    incomplete = np.where(random.uniform(size=Y.shape) < 0.2, np.nan, Y)
    assert np.sqrt(np.mean((low_rank_fill(incomplete, 2) - Y)[np.isnan(incomplete)] ** 2)) < 0.2 * Y.std()


def test_the_fill_is_a_fixed_point_of_probabilistic_pca(monkeypatch):
    """Check E y of a missing entry: the mean plus each direction's score times 1 - noise / variance."""
    monkeypatch.setattr(module, "_TOLERANCE", 1e-9)
    monkeypatch.setattr(module, "_MOST_ROUNDS", 2000)
    _, incomplete = low_rank(60, 40, 3, noise=0.3)
    filled = low_rank_fill(incomplete, 2)
    centre = filled.mean(axis=0)
    left, singular, right = np.linalg.svd(filled - centre, full_matrices=False)
    # ten directions, a quarter of the shorter side
    variances, noise = singular**2 / 60, np.mean(singular[10:] ** 2 / 60)
    expected = centre + (left[:, :10] * singular[:10] * (1.0 - noise / variances[:10])) @ right[:10]
    np.testing.assert_allclose(filled[np.isnan(incomplete)], expected[np.isnan(incomplete)], atol=1e-7)
    # a randomised decomposition finds nearly the same directions
    monkeypatch.setattr(module, "_LARGEST_EXACT", 20)
    np.testing.assert_allclose(low_rank_fill(incomplete, 2), filled, atol=0.02)


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_the_fill_has_the_units_of_the_data(scale):
    _, incomplete = low_rank(40, 30, 2, noise=0.1)
    np.testing.assert_allclose(
        low_rank_fill(scale * incomplete, 2), scale * low_rank_fill(incomplete, 2), rtol=1e-6
    )


def test_small_and_constant_data_are_filled_without_warnings():
    nan = np.nan
    for Y in (
        [[1.0, nan], [nan, 2.0]],
        [[5.0, 5.0, nan]] * 3 + [[5.0, nan, 5.0]],
        [[nan, 1.0, 2.0, 4.0], [3.0] * 4],
    ):
        filled = low_rank_fill(np.array(Y), 2)
        assert np.all(np.isfinite(filled))
        assert np.nanmin(Y) <= filled.min() <= filled.max() <= np.nanmax(Y)
    whole = low_rank(5, 4, 2)[0].astype(np.float32)
    np.testing.assert_array_equal(low_rank_fill(whole, 2), whole)
