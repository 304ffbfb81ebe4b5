"""The model's bound: below the evidence, differentiated rightly, never lowered by a closed-form block."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import gamma, multivariate_normal

from srflvm import blocks
from srflvm.blocks import Settings, StartingPoint, free_factor
from srflvm.chunked import chunk_targets
from srflvm.layers import SharedData, noise_of

FLOAT64 = np.dtype(np.float64)


def make_state(rng, n_rows, n_latent, n_frequencies=5, n_mixture=3, kind="full"):
    start = StartingPoint("test", rng.standard_normal((n_rows, n_latent)), 1.3, 0.3, 0.5)
    state = blocks.initial_state(
        start,
        rng,
        n_frequencies=n_frequencies,
        n_mixture=n_mixture,
        covariance_type=kind,
        latent_covariance_type=kind,
        dtype=FLOAT64,
    )
    state |= {"log_noise": np.log(start.noise), "log_ratio": np.log(start.ratio)}
    for name in ("latent_factor", "mixture_factor", "mixture_mean", "logits"):
        state[name] = state[name] + 0.3 * rng.standard_normal(state[name].shape)
    return jax.tree.map(jnp.asarray, state)


def make_data(Y, floor=1e-9):
    return SharedData(chunk_targets(Y, np.sum(Y**2), Y.shape[1], FLOAT64), jnp.asarray(floor))


def prior_component_weights(n_mixture):
    """p(z = k) for K <= 2, with v and alpha integrated out numerically: E[v] = E[1 / (1 + alpha)]."""
    if n_mixture == 1:
        return np.ones(1)
    first = quad(lambda a: gamma.pdf(a, 1.0) / (1.0 + a), 0.0, np.inf)[0]
    return np.array([first, 1.0 - first])


def log_evidence_by_quadrature(Y, state, floor, n_nodes=22):
    """log p(Y) for Q = 1 and one frequency: all of X and W on a Gauss-Hermite grid, z summed."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    log_weights = np.log(weights / weights.sum())
    n_rows = len(Y)
    grids = np.meshgrid(*[np.arange(n_nodes)] * (n_rows + 1), indexing="ij")
    index = np.stack([grid.ravel() for grid in grids], axis=1)
    log_weight = log_weights[index].sum(axis=1)
    mixture = blocks.mixture_of(state)
    noise, ratio = (float(value) for value in noise_of(state, floor))
    terms = []
    for k, probability in enumerate(prior_component_weights(len(mixture.means))):
        frequency = float(mixture.means[k, 0]) + float(mixture.choleskys[k, 0, 0]) * nodes[index[:, -1]]
        X = nodes[index[:, :-1]]
        difference = X[:, :, None] - X[:, None, :]
        covariance = (noise / ratio) * np.cos(frequency[:, None, None] * difference) + noise * np.eye(n_rows)
        log_det = np.linalg.slogdet(covariance)[1]
        solved = np.linalg.solve(covariance, np.broadcast_to(Y, (len(X), *Y.shape)))
        square = np.sum(solved * Y, axis=(1, 2))
        log_lik = -0.5 * (Y.shape[1] * (log_det + n_rows * np.log(2 * np.pi)) + square)
        terms.append(np.log(probability) + logsumexp(log_lik + log_weight))
    return logsumexp(terms)


@pytest.mark.parametrize("seed", [0, 1])
def test_elbo_is_below_the_evidence(seed):
    rng = np.random.RandomState(seed)
    Y = rng.standard_normal((2, 2))
    state = make_state(rng, 2, 1, n_frequencies=1, n_mixture=2)
    data = make_data(Y)
    exact = log_evidence_by_quadrature(Y, state, 1e-9)
    keys = jax.random.split(jax.random.key(seed), 4000)
    bounds = np.asarray(jax.vmap(lambda key: blocks.elbo(key, state, data, Settings()))(keys))
    error = bounds.std() / np.sqrt(len(bounds))
    assert bounds.mean() <= exact + 3 * error
    assert error < 0.1


def test_elbo_reaches_the_evidence_when_q_is_the_posterior():
    """With noise that drowns the signal the posterior is the prior, and the bound is tight."""
    rng = np.random.RandomState(0)
    Y = rng.standard_normal((2, 2))
    state = make_state(rng, 2, 1, n_frequencies=1, n_mixture=1)
    state |= {"latent_mean": jnp.zeros((2, 1)), "latent_factor": jnp.zeros((2, 1, 1))}
    state |= {"log_noise": jnp.log(1.0), "log_ratio": jnp.log(1e5)}
    exact = log_evidence_by_quadrature(Y, state, 1e-9)
    bound = float(blocks.elbo(jax.random.key(0), state, make_data(Y), Settings()))
    assert bound == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_gradient_of_the_bound_against_finite_differences(kind):
    rng = np.random.RandomState(0)
    state = make_state(rng, 7, 2, kind=kind)
    data = make_data(rng.standard_normal((7, 3)))
    key = jax.random.key(3)

    def bound(entries):
        return blocks.local_bound(key, {**state, **entries}, data, Settings(n_samples=2))

    names = blocks.build_model(Settings()).blocks[0].owns
    gradient = jax.grad(bound)({name: state[name] for name in names})
    for name in names:
        direction = jnp.asarray(rng.standard_normal(state[name].shape))
        if name.endswith("factor") and kind == "full":
            direction = jnp.tril(direction)
        step = 1e-5
        higher = bound({name: state[name] + step * direction})
        lower = bound({name: state[name] - step * direction})
        expected = float((higher - lower) / (2 * step))
        assert float(jnp.sum(gradient[name] * direction)) == pytest.approx(expected, rel=2e-6, abs=1e-6)


def test_closed_form_blocks_never_lower_the_elbo():
    rng = np.random.RandomState(1)
    state = make_state(rng, 6, 2)
    data = make_data(rng.standard_normal((6, 4)))
    key = jax.random.key(0)
    before = float(blocks.elbo(key, state, data, Settings()))
    for update in (blocks._solve_sticks, blocks._solve_concentration) * 3:
        state = {**state, **update(key, state, data)}
        after = float(blocks.elbo(key, state, data, Settings()))
        assert after >= before - 1e-9
        before = after


def test_more_draws_average_to_the_same_bound():
    rng = np.random.RandomState(2)
    state = make_state(rng, 5, 1)
    data = make_data(rng.standard_normal((5, 2)))
    keys = jax.random.split(jax.random.key(0), 2000)
    one, four = (
        np.asarray(jax.vmap(lambda key, s=s: blocks.elbo(key, state, data, s))(keys))
        for s in (Settings(n_samples=1), Settings(n_samples=4))
    )
    error = np.hypot(one.std(), four.std()) / np.sqrt(len(keys))
    assert abs(one.mean() - four.mean()) < 4 * error
    assert four.std() == pytest.approx(one.std() / 2, rel=0.15)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_latent_divergence_and_draws(kind):
    rng = np.random.RandomState(0)
    state = make_state(rng, 3, 2, kind=kind)
    cholesky = np.asarray(blocks.cholesky_factor(state["latent_factor"]))
    covariance = cholesky @ np.swapaxes(cholesky, 1, 2)
    mean = np.asarray(state["latent_mean"])
    expected = 0.5 * (
        np.trace(covariance, axis1=1, axis2=2)
        + np.sum(mean**2, axis=1)
        - np.linalg.slogdet(covariance)[1]
        - 2
    )
    assert float(blocks.latent_divergence(state)) == pytest.approx(expected.sum(), rel=1e-12)
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.vmap(lambda key: blocks.sample_latents(key, state))(keys))
    for row in range(3):
        deviation = np.cov(draws[:, row].T) - covariance[row]
        assert np.abs(deviation).max() < 6 * np.abs(covariance[row]).max() / np.sqrt(len(draws)) * 1.5
        assert multivariate_normal(mean[row], covariance[row]).logpdf(draws[:, row].mean(0)) > -20
    assert np.allclose(cholesky, blocks.cholesky_factor(jnp.asarray(free_factor(cholesky, kind == "diag"))))


def test_noise_over_amplitude_keeps_its_floor():
    state = make_state(np.random.RandomState(0), 3, 1)
    state["log_ratio"] = jnp.asarray(-1000.0)
    assert float(noise_of(state, 0.25)[1]) == 0.25
