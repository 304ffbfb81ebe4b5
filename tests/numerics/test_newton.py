"""Newton steps for the latents of rows, on losses whose minima are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srflvm.numerics.features import fourier_features, jacobian
from srflvm.numerics.newton import Search, inverse_root


def quadratic(centre, curvature):
    """Return the loss sum_q curvature_q (x_q - centre_q)^2 / 2, with one centre for each row."""

    def evaluate(latents):
        distance = latents - centre
        return 0.5 * jnp.sum(curvature * distance**2, axis=1), curvature * distance

    return evaluate


@pytest.mark.parametrize("share", [0.4, 0.5, 0.51, 1.0, 3.0])
def test_a_hessian_that_is_off_still_leads_to_the_minimum(share):
    """Check also half the true curvature, where a full step lands on the other side, no lower than before."""
    centre, curvature = jnp.array([[1.0, -2.0], [0.3, 0.0]]), jnp.array([1.0, 5.0])
    hessian = jnp.broadcast_to(share * jnp.diag(curvature), (2, 2, 2))
    search = Search.begin(jnp.zeros((2, 2)))
    ended, at_end = search.advance(quadratic(centre, curvature), lambda _: hessian)
    np.testing.assert_allclose(ended.latents, centre, atol=1e-4)
    np.testing.assert_array_equal(at_end, hessian)


def wavy(n_rows, n_latent):
    """Return a least-squares problem through random features, as rows have it."""
    random = np.random.default_rng(n_latent)
    frequencies = jnp.asarray(0.3 * random.normal(size=(40, n_latent)))
    weights = jnp.asarray(random.normal(size=(80, 60)))
    truth = random.normal(size=(n_rows, n_latent))
    targets = fourier_features(jnp.asarray(truth), frequencies) @ weights + 0.01 * random.normal(
        size=(n_rows, 60)
    )
    start = jnp.asarray(truth + 0.3 * random.normal(size=truth.shape))
    return frequencies, weights, targets, start


def searched(frequencies, weights, targets, start, n_steps_at_a_time=(40,)):
    def loss(latents):
        residual = fourier_features(latents, frequencies) @ weights - targets
        return 0.5 * (jnp.sum(residual**2, axis=1) / 1e-2 + jnp.sum(latents**2, axis=1))

    def evaluate(latents):
        return loss(latents), jax.grad(lambda at: jnp.sum(loss(at)))(latents)

    def hessian(latents):
        slopes = jacobian(frequencies, weights, latents)
        return jnp.eye(latents.shape[1]) + jnp.einsum("nqc,nrc->nqr", slopes, slopes) / 1e-2

    search, curvature = Search.begin(start), None
    for n_steps in n_steps_at_a_time:
        search, curvature = jax.jit(lambda now, n: now.advance(evaluate, hessian, n))(search, n_steps)
    gradient = evaluate(search.latents)[1]
    return np.asarray(search.latents), np.asarray(gradient), np.asarray(curvature)


@pytest.mark.parametrize("n_latent", [1, 3, 20])
def test_rows_end_where_the_gradient_vanishes_alone_and_together(n_latent):
    """Check also 20 latents, with which a Hessian is kept for two steps."""
    frequencies, weights, targets, start = wavy(9, n_latent)
    together, gradient, curvature = searched(frequencies, weights, targets, start)
    # what a full step would still gain, in nats
    left = 0.5 * np.einsum("nq,nq->n", gradient, np.linalg.solve(curvature, gradient[..., None])[..., 0])
    assert np.max(left) < 1e-6
    alone = searched(frequencies, weights, targets[4:5], start[4:5])[0]
    np.testing.assert_allclose(together[4:5], alone, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_latent", [2, 20])
def test_stopping_and_advancing_again_changes_nothing(n_latent):
    problem = wavy(5, n_latent)
    for whole, stopped in zip(
        searched(*problem), searched(*problem, n_steps_at_a_time=(2, 4, 34)), strict=True
    ):
        np.testing.assert_allclose(stopped, whole, rtol=1e-12, atol=1e-12)


def test_the_inverse_root_is_a_factor_of_the_inverse():
    hessian = np.array([[[4.0, 1.0], [1.0, 2.0]]])
    root = np.asarray(inverse_root(jnp.asarray(hessian)))
    np.testing.assert_allclose(root @ root.swapaxes(1, 2), np.linalg.inv(hessian), rtol=1e-12)
    assert root[0, 0, 1] == 0.0


def test_curvature_that_the_hessian_leaves_out_is_learned_from_gradients():
    """With residuals ten times the weights' outputs, Hessians of Gauss and Newton alone need more steps."""
    frequencies, weights, targets, start = wavy(50, 2)
    noise = np.random.default_rng(0).normal(size=targets.shape)
    _ended, gradient, curvature = searched(frequencies, weights, targets + 6.0 * noise, start, (12,))
    left = 0.5 * np.einsum("nq,nq->n", gradient, np.linalg.solve(curvature, gradient[..., None])[..., 0])
    assert np.mean(left < 1e-3) > 0.95
