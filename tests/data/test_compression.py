"""Compression and the regression solved in float64, against dense algebra."""

import numpy as np
import pytest

from srflvm import DataError
from srflvm.data.compression import compress


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
