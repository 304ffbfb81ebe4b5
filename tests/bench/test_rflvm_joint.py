"""Log joint density of RFLVM against SciPy's densities."""

import jax
import numpy as np
import pytest
from helpers.rflvm_joint import BASE, N_FREQUENCIES, PRIOR, draw_data, draw_states
from scipy import special, stats

from srflvm_bench.baselines.rflvm import sweep
from srflvm_bench.baselines.rflvm.model import functions


def log_marginal_of_frequencies(W, assignments):
    """Compute log p(W | z), with mu and Sigma integrated out, from normal-inverse-Wishart constants."""
    total = 0.0
    for cluster in np.unique(assignments):
        members = W[assignments == cluster]
        n, Q = members.shape
        kappa, nu, mean = BASE.kappa + n, BASE.nu + n, members.mean(axis=0)
        scatter = (members - mean).T @ (members - mean) + BASE.kappa * n / kappa * np.outer(mean, mean)
        psi = BASE.scale * np.eye(Q) + scatter
        total += special.multigammaln(0.5 * nu, Q) - special.multigammaln(0.5 * BASE.nu, Q)
        total += 0.5 * (BASE.nu * Q * np.log(BASE.scale) - nu * np.linalg.slogdet(psi)[1])
        total += 0.5 * Q * (np.log(BASE.kappa / kappa) - n * np.log(np.pi))
    return total


def log_partition(assignments, concentration):
    """Compute log p(z): frequency i joins a cluster of n with probability n / (i + alpha)."""
    total = 0.0
    for index, cluster in enumerate(assignments):
        n = np.sum(assignments[:index] == cluster)
        total += np.log((n or concentration) / (index + concentration))
    return total


def log_joint_by_scipy(state, data, likelihood):
    f, std = np.asarray(functions(state)), np.sqrt(state.noise)
    if likelihood == "gaussian":
        entries = stats.norm.logpdf(data.y, f, std)
        own = stats.invgamma.logpdf(state.noise, PRIOR.noise[0], scale=PRIOR.noise[1])
    else:
        entries = stats.nbinom.logpmf(data.y, np.exp(state.log_dispersion), special.expit(-f))
        own = stats.norm.logpdf(state.log_dispersion, *PRIOR.log_dispersion).sum()
    deviations = np.sqrt(np.append(np.full(2 * N_FREQUENCIES, state.amplitude), PRIOR.bias_variance))
    return (
        np.sum(entries * data.observed)
        + stats.norm.logpdf(state.latents).sum()
        + stats.norm.logpdf(state.weights, scale=deviations).sum()
        + stats.invgamma.logpdf(state.amplitude, PRIOR.amplitude[0], scale=PRIOR.amplitude[1])
        + stats.gamma.logpdf(state.concentration, BASE.shape, scale=1.0 / BASE.rate)
        + log_partition(state.assignments, state.concentration)
        + log_marginal_of_frequencies(state.frequencies, state.assignments)
        + own
    )


@pytest.mark.parametrize("likelihood", ["gaussian", "negative_binomial"])
def test_log_joint_density_is_that_of_scipy(likelihood):
    """Up to a constant: differences between states, with data in common."""
    with jax.enable_x64(True):
        states = [jax.tree.map(lambda part, i=i: np.asarray(part)[i], draw_states(5)) for i in range(8)]
        data = draw_data(jax.random.key(0), states[0], likelihood)
        ours = [float(sweep.log_joint(state, data, PRIOR, likelihood)) for state in states]
        expected = [log_joint_by_scipy(state, data, likelihood) for state in states]
    np.testing.assert_allclose(np.diff(ours), np.diff(expected), rtol=1e-9, atol=1e-8)
