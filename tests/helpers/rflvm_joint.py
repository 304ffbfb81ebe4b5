"""Joint distribution of a small RFLVM: exact draws of its state and of data."""

import jax
import jax.numpy as jnp
import numpy as np

from srflvm_bench.baselines.rflvm.gammas import draw_gamma
from srflvm_bench.baselines.rflvm.mixture import Base, Components
from srflvm_bench.baselines.rflvm.model import Data, Prior, State, functions

N_ROWS, N_COLUMNS, N_FREQUENCIES, N_COMPONENTS = 3, 2, 3, 2
N_CHAINS = 2000
TRIALS = np.array([[1.0, 3.0]] * N_ROWS)  # Bernoulli, and a stick of a multinomial
BASE = Base(kappa=0.7, nu=6.0, scale=2.0, shape=2.0, rate=1.5)
PRIOR = Prior(BASE, amplitude=(5.0, 4.0), noise=(4.0, 2.0), bias_variance=0.5, log_dispersion=(0.5, 0.7))


def draw_partition(rng, concentration):
    """Draw a partition of the Chinese restaurant process for every chain."""
    assignments = np.zeros((N_CHAINS, N_FREQUENCIES), np.int32)
    for index in range(1, N_FREQUENCIES):
        uniform = rng.random(N_CHAINS) * (index + concentration)
        # a uniform below `index` names one of the frequencies before, whose cluster is joined
        friend = np.minimum(uniform.astype(int), index - 1)
        joined = assignments[np.arange(N_CHAINS), friend]
        new = assignments[:, :index].max(axis=1) + 1
        assignments[:, index] = np.where(uniform < index, joined, new)
    return assignments


def draw_normal_inverse_wishart(rng):
    """Draw Sigma^-1 as a sum of nu outer products, and mu given Sigma."""
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
    """Draw Poisson counts by the inverse of their distribution function, up to 200."""
    counts = jnp.arange(200.0)
    log_terms = counts * jnp.log(mean)[..., None] - mean[..., None] - jax.scipy.special.gammaln(counts + 1.0)
    return jnp.sum(jnp.cumsum(jnp.exp(log_terms), axis=-1) < uniform[..., None], axis=-1).astype(float)


def draw_data(key, state, likelihood):
    """Draw data given the state; one entry is not observed."""
    f = functions(state)
    first, second = jax.random.split(key)
    observed = jnp.ones_like(f).at[0, 0].set(0.0)
    if likelihood == "gaussian":
        return Data(f + jnp.sqrt(state.noise) * jax.random.normal(first, f.shape), observed, jnp.ones(()))
    if likelihood == "multinomial":
        hits = jax.random.uniform(first, (3, *f.shape)) < jax.nn.sigmoid(f)
        hits &= np.arange(3)[:, None, None] < TRIALS
        return Data(jnp.sum(hits, axis=0).astype(float), observed, jnp.asarray(TRIALS))
    mean = jnp.exp(f)
    if likelihood == "negative_binomial":
        mean = mean * draw_gamma(second, jnp.broadcast_to(jnp.exp(state.log_dispersion), f.shape))
    return Data(poisson(jax.random.uniform(first, f.shape), mean), observed, jnp.ones(()))
