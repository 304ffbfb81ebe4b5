"""Moves against the joint distribution (Geweke, 2004), integrals and NUTS; the estimator on made data.

If (theta, y) comes from the prior and the model, moves of theta given y that leave the posterior as it is,
followed by new data given theta, leave the joint distribution as it is, however often they are repeated. Many
short chains from exact draws, which are independent of each other, must therefore end with the distribution
they began with, and the standard errors are plain.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srflvm.baselines.rflvm import RFLVM, _diagnostics, _mixture, _sweep
from srflvm.baselines.rflvm._gammas import draw_gamma
from srflvm.baselines.rflvm._mixture import Base, Components
from srflvm.baselines.rflvm._model import Data, Prior, State, functions
from srflvm.compiling import quickly_compiled

STANDARD_ERRORS = 4.0
N_ROWS, N_COLUMNS, N_FREQUENCIES, N_COMPONENTS = 3, 2, 3, 2
N_CHAINS, N_SWEEPS, TRIALS = 4000, 12, 3.0
BASE = Base(kappa=0.7, nu=6.0, scale=2.0, shape=2.0, rate=1.5)
PRIOR = Prior(BASE, amplitude=(5.0, 4.0), noise=(4.0, 2.0), bias_variance=0.5, log_dispersion=(0.5, 0.7))


# ---- the joint distribution -------------------------------------------------------------------------


def draw_partition(rng, concentration):
    """Chinese restaurants, one per chain."""
    assignments = np.zeros((N_CHAINS, N_FREQUENCIES), np.int32)
    for index in range(1, N_FREQUENCIES):
        uniform = rng.random(N_CHAINS) * (index + concentration)
        # a uniform below `index` names one of those already seated, who is joined
        friend = np.minimum(uniform.astype(int), index - 1)
        joined = assignments[np.arange(N_CHAINS), friend]
        new = assignments[:, :index].max(axis=1) + 1
        assignments[:, index] = np.where(uniform < index, joined, new)
    return assignments


def draw_normal_inverse_wishart(rng):
    """Sigma^-1 as a sum of nu outer products; mu given Sigma."""
    shape = N_CHAINS, N_FREQUENCIES, N_COMPONENTS
    normals = rng.standard_normal((int(BASE.nu), *shape)) / np.sqrt(BASE.scale)
    covariance = np.linalg.inv(np.einsum("sckq,sckp->ckqp", normals, normals))
    root = np.linalg.cholesky(covariance)
    return Components(np.einsum("ckqp,ckp->ckq", root, rng.standard_normal(shape)) / BASE.kappa**0.5, root)


def draw_states(seed):
    rng = np.random.default_rng(seed)
    concentration = rng.gamma(BASE.shape, 1.0 / BASE.rate, N_CHAINS)
    assignments, components = draw_partition(rng, concentration), draw_normal_inverse_wishart(rng)
    chains = np.arange(N_CHAINS)[:, None]
    shocks = rng.standard_normal((N_CHAINS, N_FREQUENCIES, N_COMPONENTS))
    frequencies = components.mean[chains, assignments]
    frequencies = frequencies + np.einsum("clqp,clp->clq", components.root[chains, assignments], shocks)
    amplitude = PRIOR.amplitude[1] / rng.gamma(PRIOR.amplitude[0], 1.0, N_CHAINS)
    weights = rng.standard_normal((N_CHAINS, N_COLUMNS, 2 * N_FREQUENCIES + 1))
    weights[..., :-1] *= np.sqrt(amplitude)[:, None, None]
    weights[..., -1] *= np.sqrt(PRIOR.bias_variance)
    mean, std = PRIOR.log_dispersion
    return State(
        latents=rng.standard_normal((N_CHAINS, N_ROWS, N_COMPONENTS)),
        frequencies=frequencies,
        assignments=assignments,
        concentration=concentration,
        components=components,
        weights=weights,
        amplitude=amplitude,
        noise=PRIOR.noise[1] / rng.gamma(PRIOR.noise[0], 1.0, N_CHAINS),
        log_dispersion=mean + std * rng.standard_normal((N_CHAINS, N_COLUMNS)),
    )


def poisson(uniform, mean):
    """By its distribution function up to 200."""
    counts = jnp.arange(200.0)
    log_terms = counts * jnp.log(mean)[..., None] - mean[..., None] - jax.scipy.special.gammaln(counts + 1.0)
    return jnp.sum(jnp.cumsum(jnp.exp(log_terms), axis=-1) < uniform[..., None], axis=-1).astype(float)


def draw_data(key, state, likelihood):
    """Data given the state, one entry of which is not observed."""
    f = functions(state)
    first, second = jax.random.split(key)
    observed = jnp.ones_like(f).at[0, 0].set(0.0)
    if likelihood == "gaussian":
        return Data(f + jnp.sqrt(state.noise) * jax.random.normal(first, f.shape), observed, jnp.ones(()))
    if likelihood == "multinomial":
        uniform = jax.random.uniform(first, (int(TRIALS), *f.shape))
        trials = jnp.full_like(f, TRIALS)
        return Data(jnp.sum(uniform < jax.nn.sigmoid(f), axis=0).astype(float), observed, trials)
    if likelihood == "bernoulli":
        y = jax.random.uniform(first, f.shape) < jax.nn.sigmoid(f)
        return Data(y.astype(float), observed, jnp.ones(()))
    mean = jnp.exp(f)
    if likelihood == "negative_binomial":
        mean = mean * draw_gamma(second, jnp.broadcast_to(jnp.exp(state.log_dispersion), f.shape))
    return Data(poisson(jax.random.uniform(first, f.shape), mean), observed, jnp.ones(()))


def functionals(state):
    """Numbers (chains, J) that together see all parts of a state; tails are tamed by logarithms."""
    size = np.log1p(np.sum(np.square(state.frequencies), axis=2))
    covariance = np.sum(np.square(state.components.root), axis=(2, 3))
    used = np.take_along_axis(covariance, state.assignments, axis=1)
    n_clusters = [len(set(row)) for row in np.asarray(state.assignments).tolist()]
    weights, latents = np.asarray(state.weights), np.asarray(state.latents)
    f = np.asarray(jax.vmap(functions)(state))
    columns = {
        "x": latents[:, 0, 0],
        "x^2": np.sum(latents**2, axis=(1, 2)),
        "xx": latents[:, 0, 0] * latents[:, 1, 0],
        "w": size.mean(axis=1),
        "w_1": np.tanh(np.asarray(state.frequencies)[:, 0, 0]),
        "ww": np.prod(np.tanh(np.asarray(state.frequencies)[:, :2, 0]), axis=1),
        "clusters": np.array(n_clusters, float),
        "alpha": np.log(state.concentration),
        "Sigma": np.log(used).mean(axis=1),
        "mu": np.tanh(np.take_along_axis(np.asarray(state.components.mean)[:, :, 0], state.assignments, axis=1))[:, 0],
        "h": weights[:, 0, 0],
        "h^2": np.log(np.sum(weights[:, :, :-1] ** 2, axis=(1, 2))),
        "bias^2": np.sum(weights[:, :, -1] ** 2, axis=1),
        "a": np.log(state.amplitude),
        "noise": np.log(state.noise),
        "r": np.asarray(state.log_dispersion)[:, 0],
        "r^2": np.asarray(state.log_dispersion)[:, 0] ** 2,
        "f^2": np.log(np.sum(f**2, axis=(1, 2))),
        "fx": np.tanh(f[:, 1, 0] * latents[:, 1, 0]),
    }
    return columns


def repeat(key, state, likelihood, move, n_sweeps):
    def step(state, key):
        data_key, move_key = jax.random.split(key)
        return move(move_key, state, draw_data(data_key, state, likelihood)), None

    return jax.lax.scan(step, state, jax.random.split(key, n_sweeps))[0]


def z_scores(likelihood, move, seed=0, n_sweeps=N_SWEEPS):
    """Of the mean change of every functional from the first to the last state."""
    before = draw_states(seed)
    keys = jax.random.split(jax.random.key(seed + 1), N_CHAINS)
    go = partial(repeat, likelihood=likelihood, move=move, n_sweeps=n_sweeps)
    after = quickly_compiled(jax.vmap(go))(keys, before)
    first, last = functionals(before), functionals(after)
    changes = {name: last[name] - first[name] for name in first}
    assert all(np.isfinite(change).all() for change in changes.values())
    return {
        name: float(change.mean() / max(change.std() / N_CHAINS**0.5, 1e-12))
        for name, change in changes.items()
    }


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "negative_binomial", "poisson", "multinomial"])
def test_sweeps_leave_the_joint_distribution_as_it_is(likelihood):
    def move(key, state, data):
        return _sweep.sweep(key, state, data, PRIOR, likelihood)

    scores = z_scores(likelihood, move)
    assert max(abs(score) for score in scores.values()) < STANDARD_ERRORS, scores
