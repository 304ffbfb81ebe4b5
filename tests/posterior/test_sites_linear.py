"""Rows under a linear function against dense formulas, and against the search that serves all functions."""

import numpy as np
import pytest

from srflvm.numerics import packed_symmetric
from srflvm.numerics.features import cubature_points, layer_features
from srflvm.numerics.weight_covariances import PackedCovariances
from srflvm.posterior import sites
from srflvm.posterior.embedding import FrozenFunction


def frozen(n_latent, n_channels=7, seed=0):
    """Return a function without waves whose weights are uncertain, and their covariances."""
    random = np.random.RandomState(seed)
    size = 3 + n_latent + n_latent % 2
    roots = 0.3 * random.standard_normal((n_channels, size, size))
    covariances = roots @ roots.swapaxes(1, 2) + 0.05 * np.eye(size)
    packed = np.asarray(packed_symmetric.pack_form(covariances))
    affine = np.append(0.0, random.uniform(0.5, 1.5, n_latent))
    weights = random.standard_normal((size, n_channels))
    level = random.standard_normal(n_channels)
    frequencies = random.standard_normal((1, n_latent))
    return FrozenFunction(frequencies, affine, weights, level, (), PackedCovariances(packed)), covariances


@pytest.mark.parametrize("n_latent", [2, 3])
def test_rows_are_embedded_as_the_dense_formulas_say(n_latent, monkeypatch):
    monkeypatch.setattr(sites, "_MOST_NUMBERS", 100)  # a few rows at a time
    function, covariances = frozen(n_latent)
    random = np.random.RandomState(1)
    rows = random.standard_normal((9, 7))
    rows[random.uniform(size=rows.shape) < 0.4] = np.nan
    rows[4] = np.nan
    precision = random.uniform(1.0, 4.0, 7)
    found = sites._embed_linear(function, rows, precision)
    inside, scales = slice(2, 2 + n_latent), function.affine[1:]
    for n, row in enumerate(rows):
        inverse, shift = np.eye(n_latent), np.zeros(n_latent)
        for m in np.flatnonzero(~np.isnan(row)):
            second = covariances[m] + np.outer(function.weights[:, m], function.weights[:, m])
            inverse += precision[m] * np.outer(scales, scales) * second[inside, inside]
            shift += precision[m] * scales * (row[m] * function.weights[inside, m] - second[inside, -1])
        covariance = np.linalg.inv(inverse)
        np.testing.assert_allclose(found.mean[n], covariance @ shift, rtol=1e-9, atol=1e-12)
        root = found.cholesky[n]
        np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(root, np.tril(root))


@pytest.mark.parametrize("n_latent", [2, 3])
def test_moments_are_averages_over_points_of_the_latents(n_latent, monkeypatch):
    monkeypatch.setattr(sites, "_MOST_NUMBERS", 100)
    function, covariances = frozen(n_latent)
    random = np.random.RandomState(2)
    means = random.standard_normal((9, n_latent))
    roots = np.tril(0.5 * random.standard_normal((9, n_latent, n_latent)))
    mean, of_latents, of_weights = sites._linear_moments(function, means, roots)
    # cubature points are exact for squares of what is linear
    points = cubature_points(means, roots)
    features = np.stack([layer_features(point, function.frequencies, function.affine) for point in points])
    f = features @ function.weights + function.level
    np.testing.assert_allclose(mean, f.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(of_latents, f.var(axis=0), atol=1e-9)
    spread = np.einsum("kni,mij,knj->knm", features, covariances, features).mean(axis=0)
    np.testing.assert_allclose(of_weights, spread, rtol=1e-5)
    at_means = sites._linear_moments(function, means, None)
    np.testing.assert_array_equal(at_means[1], 0.0)
    features = layer_features(means, function.frequencies, function.affine)
    spread = np.einsum("ni,mij,nj->nm", features, covariances, features)
    np.testing.assert_allclose(at_means[2], spread, rtol=1e-5)
