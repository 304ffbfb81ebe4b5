"""Rows with any likelihood and any missing entries, embedded under known weights, against NumPy and SciPy."""

import numpy as np
from helpers.known_rows import (
    NAN,
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

from srflvm.posterior import chunks, embedding
from srflvm.posterior.embedding import AnchorIndex


def test_rows_are_embedded_at_the_optimum_of_the_loss():
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
        ended = embedded(*starts, rows=[9], certain=certain)
        assert np.max(np.abs(ended.mean)) < 1e-5
        np.testing.assert_array_equal(ended.cholesky[0], np.eye(2))


def test_a_row_gets_the_same_embedding_alone_and_in_any_batch(monkeypatch):
    posterior, _, _, raw, sizes = known_model(2)
    whole = posterior.embed(raw, sizes)
    monkeypatch.setattr(chunks, "_PADDED_SIZES", (5, 5))
    in_chunks = posterior.embed(raw, sizes)
    for left, right in zip(whole, in_chunks, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)
    for row in (3, 11):
        for left, right in zip(in_chunks, posterior.embed(raw[[row]], sizes[[row]]), strict=True):
            np.testing.assert_array_equal(left[row], right[0])


def test_anchors_are_the_nearest_in_the_observed_columns():
    random = np.random.default_rng(0)
    rows, anchors = random.normal(size=(5, 4)), random.normal(size=(9, 4))
    rows[random.uniform(size=rows.shape) < 0.4] = NAN
    found = AnchorIndex(anchors).nearest(rows, 3)
    for row, chosen in zip(rows, found, strict=True):
        np.testing.assert_array_equal(chosen, np.argsort(np.nansum((anchors - row) ** 2, axis=1))[:3])
    assert AnchorIndex(anchors[:2]).nearest(rows, 3).shape == (5, 2)
    assert AnchorIndex(anchors).nearest(rows[:0], 3).shape == (0, 3)


def test_the_first_of_equally_near_anchors_comes_first():
    anchors = np.array([[2.0], [1.0], [-1.0], [1.0], [-1.0], [0.5]])
    np.testing.assert_array_equal(AnchorIndex(anchors).nearest(np.zeros((1, 1)), 4), [[5, 1, 2, 3]])
    # also where several are as near as the last one
    np.testing.assert_array_equal(AnchorIndex(anchors).nearest(np.zeros((2, 1)), 2), [[5, 1], [5, 1]])
    np.testing.assert_array_equal(AnchorIndex(anchors).nearest(np.full((1, 1), NAN), 3), [[0, 1, 2]])


def test_the_smallest_are_those_of_a_stable_sort_in_every_row():
    """With many equal values, and with values that are infinite or no numbers."""
    values = np.random.default_rng(0).integers(0, 4, size=(200, 12)).astype(float)
    values[values == 2.0] = np.inf
    values[100:][values[100:] == 3.0] = NAN
    for count in (1, 3, 12):
        expected = np.argsort(values, axis=1, kind="stable")[:, :count]
        np.testing.assert_array_equal(embedding._smallest(values, count), expected)


# ---- uncertain weights ------------------------------------------------------------------------------


def nearest_minimum(row, start, spread):
    """Find the minimum by scipy of the loss averaged over x + spread (K, Q), and the mean curvature there.

    Weights are uncertain, as seen from `start`.
    """
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
    monkeypatch.setattr(embedding, "_STEPS_OF_SECOND_ROUND", 40)
    ended = embedded(optima, optima, optima, certain=False)
    for row, start in enumerate(optima):
        first, covariance = nearest_minimum(row, start, np.zeros((1, 2)))
        steps = np.sqrt(2.0) * np.linalg.cholesky(covariance).T
        mean, covariance = nearest_minimum(row, first, np.concatenate([steps, -steps]))
        np.testing.assert_allclose(ended.mean[row], mean, atol=2e-4)
        np.testing.assert_allclose(ended.cholesky[row] @ ended.cholesky[row].T, covariance, atol=2e-4)
    assert np.max(np.abs(ended.mean - optima)) > 0.1
    assert np.max(np.abs(ended.mean - few_steps)) < 0.1


def row_bound(row, mean, root):
    """Compute E log p(y, x) over q(x) and q(H).

    It is a mean over 400 draws of q(x), the same for all calls, with a dense rule for f.
    """
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
    ended = embedded(optima, optima, optima, certain=False)
    gains = [
        row_bound(row, ended.mean[row], root) - row_bound(row, optima[row], root)
        for row, root in enumerate(ended.cholesky)
    ]
    # the points of q(x) are exact for cubic functions, not for these
    assert np.min(gains) > -0.05
    assert np.sum(gains) > 0.3


def test_many_latents_are_embedded_without_averaging_over_them():
    """Rows may lie between two optima; where scipy takes the other, this one is an optimum all the same."""
    starts = np.random.default_rng(1).normal(size=(12, 9))
    ended = embedded(starts, starts, starts, certain=False)
    for row, start in enumerate(starts):
        mean, root = ended.mean[row], ended.cholesky[row]
        first, _ = nearest_minimum(row, start, np.zeros((1, 9)))
        second, covariance = nearest_minimum(row, first, np.zeros((1, 9)))
        if not np.allclose(mean, second, atol=5e-3):
            second, covariance = nearest_minimum(row, mean, np.zeros((1, 9)))
        np.testing.assert_allclose(mean, second, atol=2e-2)
        np.testing.assert_allclose(root @ root.T, covariance, atol=2e-2)
