"""Rows placed under uncertain weights: the optimum of their part of the bound, against NumPy and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_rows import (
    curvature_of,
    embedded,
    function_of,
    known_model,
    loss_of,
    numpy_features,
    numpy_log_prob,
    precisions_of,
    scipy_optima,
)
from scipy.optimize import minimize
from scipy.stats import norm

from srflvm import row_embedding
from srflvm.pairs import pack_form


def nearest_minimum(row, start, spread):
    """The minimum, found by scipy, of the loss at x averaged over x + spread (K, Q), with uncertain weights
    as seen from `start`; and the mean curvature there."""
    posterior, covariances = known_model(len(start))[:2]
    loss = loss_of(row, len(start))
    uncertain = np.einsum("c,cij->ij", precisions_of(row, start), covariances)

    def bound(x):
        phi = numpy_features(posterior.frequencies, x + spread)
        return np.mean([loss(x + step) for step in spread]) + 0.5 * np.mean(np.sum(phi @ uncertain * phi, -1))

    found = minimize(bound, start, method="BFGS", options={"gtol": 1e-8})
    curvatures = [curvature_of(row, found.x + step) for step in spread]
    return found.x, np.linalg.inv(np.mean(curvatures, axis=0))


def test_uncertain_weights_and_latents_move_rows_to_the_optimum_of_the_bound(monkeypatch):
    """From the best latent at certain weights: first to the best at uncertain ones, then to the best mean of
    a q(x) as wide as the curvature there says, each with the precisions of where it starts."""
    optima = scipy_optima()
    few_steps = embedded(optima, optima, optima, certain=False).mean
    monkeypatch.setattr(row_embedding, "_STEPS_OF_SECOND_ROUND", 40)
    placed = embedded(optima, optima, optima, certain=False)
    for row, start in enumerate(optima):
        first, covariance = nearest_minimum(row, start, np.zeros((1, 2)))
        steps = np.sqrt(2.0) * np.linalg.cholesky(covariance).T
        mean, covariance = nearest_minimum(row, first, np.concatenate([steps, -steps]))
        np.testing.assert_allclose(placed.mean[row], mean, atol=2e-4)
        np.testing.assert_allclose(placed.cholesky[row] @ placed.cholesky[row].T, covariance, atol=2e-4)
    assert np.max(np.abs(placed.mean - optima)) > 0.1
    assert np.max(np.abs(placed.mean - few_steps)) < 0.1


def row_bound(row, mean, root):
    """E log p(y, x) over q(x) and q(H), by 400 draws of q(x), the same for all calls, and a dense rule for
    f."""
    posterior, covariances, Y, _, _ = known_model(len(mean))
    y, seen = Y[row], ~np.isnan(Y[row])
    x = mean + np.random.default_rng(row).normal(size=(400, len(mean))) @ root.T
    phi = numpy_features(posterior.frequencies, x)
    z = np.linspace(-6.0, 6.0, 61)
    spread = np.sqrt(np.einsum("gl,clk,gk->gc", phi, covariances, phi))
    f = function_of(row, len(mean))(x)[:, None] + spread[:, None] * z[:, None]
    expected = np.einsum("gzc,z->gc", numpy_log_prob(np.where(seen, y, 0.0) + 0.0 * f, f), norm.pdf(z)) * 0.2
    return np.mean(np.sum(expected[:, seen], axis=1) - 0.5 * np.sum(x**2, axis=1))


def test_the_bound_is_higher_than_at_the_mode_of_certain_weights():
    optima = scipy_optima()
    placed = embedded(optima, optima, optima, certain=False)
    gains = [
        row_bound(row, placed.mean[row], root) - row_bound(row, optima[row], root)
        for row, root in enumerate(placed.cholesky)
    ]
    # the points of q(x) are exact for cubic functions, not for these
    assert np.min(gains) > -0.05
    assert np.sum(gains) > 0.3


def test_many_latents_are_placed_without_averaging_over_them():
    """Rows may lie between two optima; where scipy takes the other, this one is an optimum all the same."""
    starts = np.random.default_rng(1).normal(size=(12, 9))
    placed = embedded(starts, starts, starts, certain=False)
    for row, start in enumerate(starts):
        mean, root = placed.mean[row], placed.cholesky[row]
        first, _ = nearest_minimum(row, start, np.zeros((1, 9)))
        second, covariance = nearest_minimum(row, first, np.zeros((1, 9)))
        if not np.allclose(mean, second, atol=5e-3):
            second, covariance = nearest_minimum(row, mean, np.zeros((1, 9)))
        np.testing.assert_allclose(mean, second, atol=2e-2)
        np.testing.assert_allclose(root @ root.T, covariance, atol=2e-2)


@pytest.mark.parametrize("most_converted", [6, 7 * 6, 10**6])
def test_covariances_are_summed_in_blocks_of_channels(most_converted, monkeypatch):
    """Of one channel, of several with some left over, and of all, in single precision."""
    random = np.random.default_rng(0)
    roots = random.normal(size=(20, 3, 3))
    covariances = (roots @ np.swapaxes(roots, 1, 2)).astype(np.float32)
    precisions = random.uniform(size=(5, 20))
    monkeypatch.setattr(row_embedding, "_MOST_CONVERTED", most_converted)
    with jax.enable_x64(True):
        packed = pack_form(jnp.asarray(covariances))
        found = row_embedding._summed_covariances(packed, 3, jnp.asarray(precisions))
        assert found.dtype == np.float64
    expected = np.einsum("nc,cij->nij", precisions, covariances.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
