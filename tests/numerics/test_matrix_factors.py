"""Factors of wide matrices against loops over rows and columns, and a lower bound computed here."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from srflvm.numerics import matrix_factors
from srflvm.numerics.matrix_factors import MatrixFactors


def linear_rows(n_rows=60, n_columns=12, size=3, noise=0.3, share=0.3, seed=0):
    """Draw rows that are linear in `size` latents, with noise, levels and missing entries."""
    random = np.random.RandomState(seed)
    clean = random.standard_normal((n_rows, size)) @ random.standard_normal((size, n_columns))
    clean += random.standard_normal(n_columns)
    Y = clean + noise * random.standard_normal(clean.shape)
    missing = random.uniform(size=Y.shape) < share
    return Y, np.where(missing, np.nan, Y), missing


def first_guess(n_columns, size=4, seed=1):
    """Return factors that are no optimum, with uncertain loadings."""
    random = np.random.RandomState(seed)
    roots = 0.3 * random.standard_normal((n_columns, size, size))
    return MatrixFactors(
        random.standard_normal((n_columns, size)),
        roots @ roots.swapaxes(1, 2) + 0.01 * np.eye(size),
        random.standard_normal(n_columns),
        np.full(n_columns, 0.01),
        random.uniform(0.3, 0.6, n_columns),
        0.7,
    )


def placed_one_by_one(factors, Y):
    """Return means and covariances of the latents, row by row and entry by entry."""
    means, covariances = [], []
    size = factors.loadings.shape[1]
    for row in Y:
        precision, shift = np.eye(size), np.zeros(size)
        for m in np.flatnonzero(~np.isnan(row)):
            a = factors.loadings[m]
            precision += (np.outer(a, a) + factors.covariances[m]) / factors.noise[m]
            shift += a * (row[m] - factors.offset[m]) / factors.noise[m]
        covariances.append(np.linalg.inv(precision))
        means.append(covariances[-1] @ shift)
    return np.array(means), np.array(covariances)


def divergence(mean, covariance, prior):
    """Return the Kullback-Leibler divergence of a Gaussian from N(0, prior I)."""
    spread = (mean @ mean + np.trace(covariance)) / prior
    return 0.5 * (spread - len(mean) + len(mean) * np.log(prior) - np.linalg.slogdet(covariance)[1])


def lower_bound(factors, means, covariances, Y, offset, variance):
    """Return the bound of the log density of the observed entries, entry by entry."""
    total = 0.0
    for n, m in zip(*np.nonzero(~np.isnan(Y)), strict=True):
        x, a, s = means[n], factors.loadings[m], factors.noise[m]
        square = np.trace((np.outer(x, x) + covariances[n]) @ (np.outer(a, a) + factors.covariances[m]))
        r = Y[n, m] - offset[m]
        total -= 0.5 * (np.log(2.0 * np.pi * s) + (r**2 - 2.0 * r * a @ x + square) / s)
    total -= sum(divergence(x, X, 1.0) for x, X in zip(means, covariances, strict=True))
    pairs = zip(factors.loadings, factors.covariances, strict=True)
    return total - sum(divergence(a, A, variance) for a, A in pairs)


def unpacked(packed, size):
    whole = np.zeros((len(packed), size, size))
    rows, columns = np.tril_indices(size)
    whole[:, rows, columns] = whole[:, columns, rows] = packed
    return whole


def test_rows_are_placed_by_their_observed_entries_one_by_one(monkeypatch):
    _, Y, _ = linear_rows()
    Y[7] = np.nan
    guess = first_guess(Y.shape[1])
    means, covariances = placed_one_by_one(guess, Y)
    monkeypatch.setattr(matrix_factors, "_MOST_NUMBERS", 100)  # six rows at a time
    latents = guess.place(matrix_factors._Matrix.of(Y, np.float64))
    np.testing.assert_allclose(latents.means, means, rtol=1e-9, atol=1e-12)
    second = means[:, :, None] * means[:, None, :] + covariances
    np.testing.assert_allclose(unpacked(latents.packed, 4), second, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(latents.second, means.T @ means + covariances.sum(axis=0), rtol=1e-9)
    assert latents.log_determinant == pytest.approx(np.linalg.slogdet(covariances)[1].sum(), rel=1e-9)
    np.testing.assert_array_equal(latents.means[7], 0.0)


@pytest.mark.parametrize("one_noise", [True, False])
def test_factors_are_the_best_for_their_latents_and_the_bound_is_what_it_says(one_noise):
    _, Y, _ = linear_rows()
    guess, matrix = first_guess(Y.shape[1]), matrix_factors._Matrix.of(Y, np.float64)
    latents = guess.place(matrix)
    means, covariances = placed_one_by_one(guess, Y)
    better, bound = guess.improve(matrix, latents, one_noise=one_noise)
    for m, column in enumerate(Y.T):
        seen = ~np.isnan(column)
        sums = means[seen].T @ means[seen] + covariances[seen].sum(axis=0)
        covariance = np.linalg.inv(sums / guess.noise[m] + np.eye(4) / 0.7)
        mean = covariance @ means[seen].T @ (column[seen] - guess.offset[m]) / guess.noise[m]
        np.testing.assert_allclose(better.covariances[m], covariance, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(better.loadings[m], mean, rtol=1e-9)
        assert better.offset[m] == pytest.approx(np.mean((column - means @ mean)[seen]))
        assert better.offset_variance[m] == pytest.approx(better.noise[m] / seen.sum())
    dense = lower_bound(better, means, covariances, Y, guess.offset, 0.7)
    assert bound == pytest.approx(dense, rel=1e-10)
    # the noise is at its optimum, together or one by one
    for factor in (0.99, 1.01):
        other = replace(better, noise=factor * better.noise)
        assert lower_bound(other, means, covariances, Y, guess.offset, 0.7) < dense
    assert len(np.unique(better.noise)) == (1 if one_noise else Y.shape[1])


def test_balancing_keeps_the_function_and_raises_the_bound():
    _, Y, _ = linear_rows()
    guess, matrix = first_guess(Y.shape[1]), matrix_factors._Matrix.of(Y, np.float64)
    latents = guess.place(matrix)
    means, covariances = placed_one_by_one(guess, Y)
    better, _ = guess.improve(matrix, latents, one_noise=True)
    balanced = better.balanced(latents)
    # loadings A become A turn, and latents turn^-1 x
    turn = np.linalg.lstsq(better.loadings, balanced.loadings, rcond=None)[0]
    back = np.linalg.inv(turn)
    new_means, new_covariances = means @ back.T, back @ covariances @ back.T
    np.testing.assert_allclose(new_means @ balanced.loadings.T, means @ better.loadings.T, atol=1e-9)
    np.testing.assert_allclose(balanced.covariances, turn.T @ better.covariances @ turn, atol=1e-9)
    before = lower_bound(better, means, covariances, Y, guess.offset, better.variance)
    after = lower_bound(balanced, new_means, new_covariances, Y, guess.offset, balanced.variance)
    assert after > before
    # no other scale of a dimension, and no other prior variance, is better
    for q in range(4):
        for factor in (0.95, 1.05):
            scale = np.ones(4)
            scale[q] = factor
            other = replace(
                balanced,
                loadings=balanced.loadings * scale,
                covariances=balanced.covariances * scale[:, None] * scale,
            )
            moved = new_means / scale, new_covariances / (scale[:, None] * scale)
            assert lower_bound(other, *moved, Y, guess.offset, balanced.variance) < after
    for factor in (0.95, 1.05):
        variance = factor * balanced.variance
        assert lower_bound(balanced, new_means, new_covariances, Y, guess.offset, variance) < after


def test_bounds_rise_and_stay_below_the_evidence_of_a_known_model():
    _, Y, _ = linear_rows(200, 20, share=0.4)
    factors, bounds, *_ = MatrixFactors.fit(Y, 3, 40, 0.0, dtype=np.float64)
    assert (np.diff(bounds) > -1e-6 * np.abs(bounds[-1])).all()
    # given loadings at their means the evidence of the rows is exact, and above the bound
    total = 0.0
    for row in Y:
        seen = ~np.isnan(row)
        A = factors.loadings[seen]
        covariance = A @ A.T + np.diag(factors.noise[seen])
        total += multivariate_normal(factors.offset[seen], covariance).logpdf(row[seen])
    assert bounds[-1] < total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_missing_entries_are_found_nearly_as_well_as_with_the_true_function(dtype):
    Y, seen, missing = linear_rows(400, 80, size=4, noise=0.3)
    factors, _, converged, _ = MatrixFactors.fit(seen, 30, 60, 1e-3, one_noise=True, dtype=dtype)
    latents = factors.place(matrix_factors._Matrix.of(seen, dtype))
    error = np.mean((latents.means @ factors.loadings.T + factors.offset - Y)[missing] ** 2)
    assert converged
    assert error < 1.3 * 0.3**2
    assert factors.noise[0] == pytest.approx(0.3**2, rel=0.4)


def test_noise_has_no_dimensions():
    Y = np.random.RandomState(0).standard_normal((300, 80))
    missing = np.random.RandomState(1).uniform(size=Y.shape) < 0.3
    seen = np.where(missing, np.nan, Y)
    factors, *_ = MatrixFactors.fit(seen, 60, 40, 1e-4)
    filled = (
        factors.place(matrix_factors._Matrix.of(seen, np.float32)).means @ factors.loadings.T + factors.offset
    )
    assert factors.loadings.shape[1] <= 2
    np.testing.assert_allclose(filled, np.broadcast_to(np.nanmean(seen, axis=0), Y.shape), atol=0.02)


def test_a_matrix_that_rounding_has_spoiled_is_inverted_all_the_same():
    good = np.diag([4.0, 1.0]).astype(np.float32)
    spoiled = np.array([[1.0, 0.0], [1.0 + 1e-6, 1.0]], np.float32)
    matrices = np.stack([good, spoiled])
    total = matrix_factors._invert(matrices)
    np.testing.assert_allclose(matrices[0], np.diag([0.25, 1.0]))
    assert np.isfinite(total)
    assert (np.linalg.eigvalsh(matrices[1]) > 0.0).all()


def test_rounds_end_when_they_are_told_to():
    _, Y, _ = linear_rows()
    told = []

    def tell(bound):
        told.append(bound)
        return len(told) == 2

    _, bounds, converged, interrupted = MatrixFactors.fit(Y, 3, 10, 0.0, tell=tell)
    assert bounds == told
    assert len(bounds) == 2
    assert not converged
    assert not interrupted


def test_an_interrupt_after_the_first_round_keeps_the_factors():
    _, Y, _ = linear_rows(50, 12)
    told = []

    def tell(bound):
        told.append(bound)
        if len(told) == 3:
            raise KeyboardInterrupt
        return False

    factors, bounds, converged, interrupted = MatrixFactors.fit(Y, 3, 10, 0.0, tell=tell)
    assert interrupted
    assert not converged
    assert bounds == told
    expected, *_ = MatrixFactors.fit(Y, 3, 3, 0.0)
    np.testing.assert_array_equal(factors.loadings, expected.loadings)


def test_fits_begin_with_what_is_affordable():
    affordable = MatrixFactors.affordable_components
    assert affordable(2000, 400) == 200
    assert affordable(500, 100) == 75
    assert affordable(200, 1000) == 150
    # the largest number of dimensions whose products are within the bound
    size, work = affordable(60_000, 784), matrix_factors._PRODUCTS_OF_ROUND
    products = [q**2 * 60_000 * 784 + q**3 * 60_784 for q in (size, size + 1)]
    assert products[0] <= work < products[1]
    assert affordable(8, 100) == 6
    assert affordable(1_000_000, 784) == 0
    assert affordable(2000, 20_000) == 0
