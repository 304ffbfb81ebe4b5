"""Bound of the model: below the evidence, differentiated rightly, never lowered by a closed-form block."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import gamma, multivariate_normal

from srflvm.model import elbo
from srflvm.model.chunked_evidence import chunk_targets
from srflvm.model.elbo import Settings, StartingPoint, cholesky_factor, free_factor
from srflvm.model.evidence_layers import SharedData, SharedLayer

FLOAT64 = np.dtype(np.float64)
SETTINGS = Settings(SharedLayer())


def make_state(rng, n_rows, n_latent, n_frequencies=5, n_mixture=3, kind="full"):
    start = StartingPoint("test", rng.standard_normal((n_rows, n_latent)), 1.3, 0.3, 0.5)
    state = elbo.initial_state(
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


FLOOR = 1e-9


def make_data(Y):
    return SharedData(chunk_targets(Y, np.sum(Y**2), Y.shape[1], FLOAT64), jnp.asarray(FLOOR))


def local_bound(key, state, data, settings):
    """Return the objective of the gradient blocks."""
    return elbo.build_model(settings).blocks[0].objective(key, state, data)


def whole_bound(key, state, data, settings):
    """Return an unbiased estimate of the whole evidence lower bound."""
    model = elbo.build_model(settings)
    return model.blocks[0].objective(key, state, data) + model.elbo(key, state, data)


def prior_component_weights(n_mixture):
    """Return p(z = k) for K <= 2, with v and alpha integrated out: E[v] = E[1 / (1 + alpha)]."""
    if n_mixture == 1:
        return np.ones(1)
    first = quad(lambda a: gamma.pdf(a, 1.0) / (1.0 + a), 0.0, np.inf)[0]
    return np.array([first, 1.0 - first])


def log_evidence_by_quadrature(Y, state, n_nodes=22):
    """Return log p(Y) for Q = 1 and one frequency: all of X and W on a Gauss-Hermite grid, z summed."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    log_weights = np.log(weights / weights.sum())
    n_rows = len(Y)
    grids = np.meshgrid(*[np.arange(n_nodes)] * (n_rows + 1), indexing="ij")
    index = np.stack([grid.ravel() for grid in grids], axis=1)
    log_weight = log_weights[index].sum(axis=1)
    mixture = elbo.mixture_of(state)
    noise, ratio = float(np.exp(state["log_noise"])), FLOOR + float(np.exp(state["log_ratio"]))
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
    exact = log_evidence_by_quadrature(Y, state)
    keys = jax.random.split(jax.random.key(seed), 4000)
    bounds = np.asarray(jax.vmap(lambda key: whole_bound(key, state, data, SETTINGS))(keys))
    error = bounds.std() / np.sqrt(len(bounds))
    assert bounds.mean() <= exact + 3 * error
    assert error < 0.1


def test_elbo_reaches_the_evidence_when_q_is_the_posterior():
    """Check noise that drowns the signal: the posterior is the prior, and the bound is tight."""
    rng = np.random.RandomState(0)
    Y = rng.standard_normal((2, 2))
    state = make_state(rng, 2, 1, n_frequencies=1, n_mixture=1)
    state |= {"latent_mean": jnp.zeros((2, 1)), "latent_factor": jnp.zeros((2, 1, 1))}
    state |= {"log_noise": jnp.log(1.0), "log_ratio": jnp.log(1e5)}
    exact = log_evidence_by_quadrature(Y, state)
    bound = float(whole_bound(jax.random.key(0), state, make_data(Y), SETTINGS))
    assert bound == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_gradient_of_the_bound_against_finite_differences(kind):
    rng = np.random.RandomState(0)
    state = make_state(rng, 7, 2, kind=kind)
    data = make_data(rng.standard_normal((7, 3)))
    key = jax.random.key(3)

    def bound(entries):
        return local_bound(key, {**state, **entries}, data, Settings(SharedLayer(), n_samples=2))

    names = elbo.build_model(SETTINGS).blocks[0].owns
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
    before = float(whole_bound(key, state, data, SETTINGS))
    for block in elbo.build_model(SETTINGS).blocks[2:] * 3:
        state = {**state, **block.update(key, state, data)}
        after = float(whole_bound(key, state, data, SETTINGS))
        assert after >= before - 1e-9
        before = after


def test_more_draws_average_to_the_same_bound():
    rng = np.random.RandomState(2)
    state = make_state(rng, 5, 1)
    data = make_data(rng.standard_normal((5, 2)))
    keys = jax.random.split(jax.random.key(0), 2000)
    one, four = (
        np.asarray(jax.vmap(lambda key, s=s: whole_bound(key, state, data, s))(keys))
        for s in (Settings(SharedLayer(), n_samples=1), Settings(SharedLayer(), n_samples=4))
    )
    error = np.hypot(one.std(), four.std()) / np.sqrt(len(keys))
    assert abs(one.mean() - four.mean()) < 4 * error
    assert four.std() == pytest.approx(one.std() / 2, rel=0.15)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_latent_divergence_and_draws(kind):
    rng = np.random.RandomState(0)
    state = make_state(rng, 3, 2, kind=kind)
    cholesky = np.asarray(cholesky_factor(state["latent_factor"]))
    covariance = cholesky @ np.swapaxes(cholesky, 1, 2)
    mean = np.asarray(state["latent_mean"])
    expected = 0.5 * (
        np.trace(covariance, axis1=1, axis2=2)
        + np.sum(mean**2, axis=1)
        - np.linalg.slogdet(covariance)[1]
        - 2
    )
    assert float(elbo._latent_divergence(state)) == pytest.approx(expected.sum(), rel=1e-12)
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.vmap(lambda key: elbo._sample_latents(key, state))(keys))
    for row in range(3):
        deviation = np.cov(draws[:, row].T) - covariance[row]
        assert np.abs(deviation).max() < 6 * np.abs(covariance[row]).max() / np.sqrt(len(draws)) * 1.5
        assert multivariate_normal(mean[row], covariance[row]).logpdf(draws[:, row].mean(0)) > -20
    assert np.allclose(cholesky, cholesky_factor(jnp.asarray(free_factor(cholesky, kind == "diag"))))
