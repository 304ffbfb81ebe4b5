"""Moves of RFLVM against the joint distribution (Geweke, 2004), formulas and NUTS.

If (theta, y) comes from the prior and the model, moves of theta given y that leave the posterior as it is,
followed by new data given theta, leave the joint distribution as it is, however often they are repeated. Many
short chains from exact draws, which are independent of each other, must therefore end with the distribution
they began with, and the standard errors are plain.
"""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.rflvm_joint import (
    BASE,
    N_CHAINS,
    N_COLUMNS,
    N_FREQUENCIES,
    N_ROWS,
    PRIOR,
    TRIALS,
    draw_data,
    draw_states,
)
from scipy import special, stats

from srflvm.numerics.jit import quickly_compiled
from srflvm_bench.baselines.rflvm import diagnostics, families, mixture, sweep
from srflvm_bench.baselines.rflvm.families import FAMILIES
from srflvm_bench.baselines.rflvm.gammas import draw_gamma
from srflvm_bench.baselines.rflvm.mixture import Components
from srflvm_bench.baselines.rflvm.model import Data, features, update_amplitude
from srflvm_bench.baselines.rflvm.start import make_data

STANDARD_ERRORS = 4.0
N_SWEEPS = 10


def functionals(state):
    """Compute numbers (chains, J) that depend on all parts of a state; logarithms shorten the tails."""
    size = np.log1p(np.sum(np.square(state.frequencies), axis=2))
    covariance = np.sum(np.square(state.components.root), axis=(2, 3))
    used = np.take_along_axis(covariance, state.assignments, axis=1)
    n_clusters = [len(set(row)) for row in np.asarray(state.assignments).tolist()]
    weights, latents = np.asarray(state.weights), np.asarray(state.latents)
    first_slot = np.asarray(state.assignments)[:, 0]
    f = np.einsum("cnl,cml->cnm", np.asarray(jax.vmap(features)(latents, state.frequencies)), weights)
    return {
        "x": latents[:, 0, 0],
        "x^2": np.sum(latents**2, axis=(1, 2)),
        "xx": latents[:, 0, 0] * latents[:, 1, 0],
        "w": size.mean(axis=1),
        "w_1": np.tanh(np.asarray(state.frequencies)[:, 0, 0]),
        "ww": np.prod(np.tanh(np.asarray(state.frequencies)[:, :2, 0]), axis=1),
        "clusters": np.array(n_clusters, float),
        "alpha": np.log(state.concentration),
        "Sigma": np.log(used).mean(axis=1),
        "mu": np.tanh(np.asarray(state.components.mean)[np.arange(N_CHAINS), first_slot, 0]),
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


def repeat(key, state, data, is_fresh, likelihood):
    """Sweeps given the data, which are drawn anew before each of them if `is_fresh`."""

    def step(state, key):
        data_key, family_key, amplitude_key = jax.random.split(key, 3)
        drawn = draw_data(data_key, state, likelihood)
        used = jax.tree.map(lambda new, old: jnp.where(is_fresh, new, old), drawn, data)
        state = FAMILIES[likelihood].sweep(family_key, state, used, PRIOR)
        return update_amplitude(amplitude_key, state, PRIOR), None

    return jax.lax.scan(step, state, jax.random.split(key, N_SWEEPS))[0]


def sweeps_of(likelihood):
    return quickly_compiled(jax.vmap(partial(repeat, likelihood=likelihood), in_axes=(0, 0, None, None)))


@pytest.fixture(scope="module")
def gaussian_sweeps():
    return sweeps_of("gaussian")


def chain_keys(seed):
    return jax.random.split(jax.random.key(seed), N_CHAINS)


def assert_same_distribution(before, after):
    """Compare distributions by the mean change of every functional over the chains."""
    first, last = functionals(before), functionals(after)
    scores = {name: z_score(last[name] - first[name]) for name in first}
    assert max(abs(score) for score in scores.values()) < STANDARD_ERRORS, scores


def z_score(changes):
    assert np.isfinite(changes).all()
    return changes.mean() / max(changes.std() / N_CHAINS**0.5, 1e-12)


def no_data(likelihood):
    shape = N_ROWS, N_COLUMNS
    trials = TRIALS if likelihood == "multinomial" else np.ones(())
    return Data(np.zeros(shape), np.ones(shape), trials)


@pytest.mark.parametrize("likelihood", ["gaussian", "multinomial", "negative_binomial", "poisson"])
def test_moves_leave_the_joint_distribution_as_it_is(likelihood, gaussian_sweeps):
    go = gaussian_sweeps if likelihood == "gaussian" else sweeps_of(likelihood)
    before = draw_states(0)
    assert_same_distribution(before, go(chain_keys(1), before, no_data(likelihood), True))


def test_moves_of_the_mixture_leave_its_joint_distribution_as_it_is():
    """Here the frequencies are the data: drawn anew given assignments, means and covariances."""

    def step(state, key):
        move_key, draw_key = jax.random.split(key)
        state = sweep.update_mixture(move_key, state, PRIOR)
        shocks = jax.random.normal(draw_key, state.frequencies.shape)
        spread = jnp.einsum("lqp,lp->lq", state.components.root[state.assignments], shocks)
        return state._replace(frequencies=state.components.mean[state.assignments] + spread), None

    def go(key, state):
        return jax.lax.scan(step, state, jax.random.split(key, 2 * N_SWEEPS))[0]

    before = draw_states(2)
    assert_same_distribution(before, quickly_compiled(jax.vmap(go))(chain_keys(3), before))


# ---- other truths -----------------------------------------------------------------------------------


def test_factors_counted_by_tails_are_those_of_the_entries():
    rng = np.random.RandomState(0)
    Y = rng.negative_binomial(2, 0.3, (40, 3)).astype(float)
    Y[rng.uniform(size=Y.shape) < 0.2] = np.nan
    data, r = make_data(Y, "negative_binomial"), np.array([0.01, 1.5, 70.0])
    assert data.tails is not None
    expected = np.nansum(special.gammaln(Y + r) - special.gammaln(r), axis=0)
    for known in (data, data._replace(tails=None)):
        np.testing.assert_allclose(families._log_rising_factorials(known, jnp.asarray(r)), expected)
    assert make_data(100.0 * Y, "negative_binomial").tails is None


def test_dispersions_of_large_counts_come_to_their_posterior_in_a_few_sweeps():
    """Chains agree with integration over log r and bias where f is a bias alone.

    Counts near 1000 determine the mean, so that log r = 0, where chains begin, is far off and correlated with
    the bias.
    """
    n_rows, n_chains = 20, 200
    y = np.random.RandomState(0).negative_binomial(20, 20 / 1020, (n_rows, 1)).astype(float)
    prior = PRIOR._replace(bias_variance=100.0, log_dispersion=(1.0, 1.5))
    log_r, bias = np.linspace(0.5, 5.5, 201), np.linspace(1.0, 7.0, 801)
    grid_r, grid_bias = np.meshgrid(log_r, bias, indexing="ij")
    log_density = -0.5 * ((grid_r - 1.0) / 1.5) ** 2 - 0.5 * grid_bias**2 / 100.0
    for count in y[:, 0]:
        log_density += stats.nbinom.logpmf(count, np.exp(grid_r), special.expit(-grid_bias))
    density = np.exp(log_density - log_density.max()).sum(axis=1)
    density /= density.sum()
    mean = density @ log_r
    deviation = np.sqrt(density @ (log_r - mean) ** 2)

    one = jax.tree.map(lambda part: jnp.asarray(part[0]), draw_states(7))
    start = one._replace(
        latents=jnp.zeros((n_rows, 2)),
        weights=jnp.zeros((1, 2 * N_FREQUENCIES + 1)).at[0, -1].set(np.log(y.mean())),
        amplitude=jnp.asarray(1e-20),
        log_dispersion=jnp.zeros(1),
    )
    data = make_data(y, "negative_binomial")

    def go(key):
        def step(state, key):
            return FAMILIES["negative_binomial"].sweep(key, state, data, prior), None

        return jax.lax.scan(step, start, jax.random.split(key, 30))[0].log_dispersion[0]

    found = np.asarray(quickly_compiled(jax.vmap(go))(jax.random.split(jax.random.key(0), n_chains)))
    assert abs(found.mean() - mean) < STANDARD_ERRORS * deviation / n_chains**0.5
    assert abs(found.std() / deviation - 1.0) < STANDARD_ERRORS * (2 * n_chains) ** -0.5


def test_gaussian_posterior_agrees_with_nuts(gaussian_sweeps):
    """X, W, H, noise and amplitude, with means, covariances and assignments of frequencies held fixed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numpyro_infer = pytest.importorskip("numpyro.infer")
    rng = np.random.default_rng(5)
    data = Data(rng.standard_normal((N_ROWS, N_COLUMNS)), np.ones((N_ROWS, N_COLUMNS)), np.ones(()))
    states = draw_states(6)
    means, roots = np.zeros_like(states.components.mean), np.zeros_like(states.components.root) + np.eye(2)
    states = states._replace(components=Components(means, roots))
    for seed in range(8):
        states = gaussian_sweeps(chain_keys(10 + seed), states, data, False)

    def potential(q):
        phase = q["x"] @ q["w"].T
        waves = jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], axis=1) / jnp.sqrt(N_FREQUENCIES)
        f = waves @ q["h"] + q["bias"]
        a, noise = jnp.exp(q["log_a"]), jnp.exp(q["log_noise"])
        energy = jnp.sum(q["x"] ** 2) + jnp.sum(q["w"] ** 2) + jnp.sum(q["bias"] ** 2) / PRIOR.bias_variance
        energy += jnp.sum(q["h"] ** 2) / a + q["h"].size * q["log_a"]
        energy += jnp.sum((data.y - f) ** 2) / noise + data.y.size * q["log_noise"]
        # the inverse gamma density times the derivative of exp
        for log_value, (shape, scale) in ((q["log_a"], PRIOR.amplitude), (q["log_noise"], PRIOR.noise)):
            energy += 2.0 * (shape * log_value + scale * jnp.exp(-log_value))
        return 0.5 * energy

    shapes = {
        "x": (N_ROWS, 2),
        "w": (N_FREQUENCIES, 2),
        "h": (2 * N_FREQUENCIES, N_COLUMNS),
        "bias": N_COLUMNS,
    }
    start = {name: jnp.asarray(rng.standard_normal(shape)) for name, shape in shapes.items()}
    start |= {"log_a": jnp.zeros(()), "log_noise": jnp.zeros(())}
    kernel = numpyro_infer.NUTS(potential_fn=potential)
    chain = numpyro_infer.MCMC(kernel, num_warmup=300, num_samples=3000, progress_bar=False)
    chain.run(jax.random.key(0), init_params=start)
    draws = {name: np.asarray(values) for name, values in chain.get_samples().items()}
    ours = _watched(states.latents, states.frequencies, states.amplitude, states.noise)
    theirs = _watched(draws["x"], draws["w"], np.exp(draws["log_a"]), np.exp(draws["log_noise"]))
    for name in ours:
        n_effective = diagnostics.effective_sample_size(theirs[name][None])
        error = np.hypot(np.std(ours[name]) / N_CHAINS**0.5, np.std(theirs[name]) / n_effective**0.5)
        assert abs(np.mean(ours[name]) - np.mean(theirs[name])) < STANDARD_ERRORS * error, name


def _watched(x, w, amplitude, noise):
    x = np.asarray(x)
    return {
        "distance": np.linalg.norm(x[:, 0] - x[:, 1], axis=1),
        "other distance": np.linalg.norm(x[:, 1] - x[:, 2], axis=1),
        "size": np.sum(x**2, axis=(1, 2)),
        "frequencies": np.sum(np.square(w), axis=(1, 2)),
        "amplitude": np.log(amplitude),
        "noise": np.log(noise),
    }


@pytest.mark.parametrize("shape", [0.3, 1.0, 7.5, 4000.0])
def test_gamma_draws(shape):
    draws = np.asarray(jax.jit(draw_gamma)(jax.random.key(0), jnp.full(20_000, shape)))
    assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > 1e-3


def test_predictive_densities_are_student_t():
    """After adding three frequencies and taking one away, against the formula with matrices made anew."""
    rng = np.random.default_rng(0)
    members, new = rng.standard_normal((3, 2)), np.array([0.4, -1.3])
    clusters = mixture.empty_clusters(2, 2, BASE)
    for sign, member in ((1.0, members[0]), (1.0, members[1]), (1.0, members[2]), (-1.0, members[1])):
        clusters = mixture.change_member(clusters, jnp.array(0), member, sign, BASE)
    kept = members[[0, 2]]
    kappa, nu, mean = BASE.kappa + 2.0, BASE.nu + 2.0, kept.sum(axis=0) / (BASE.kappa + 2.0)
    psi = BASE.scale * np.eye(2) + kept.T @ kept - kappa * np.outer(mean, mean)
    degrees = nu - 1.0
    after = stats.multivariate_t(mean, psi * (kappa + 1.0) / (kappa * degrees), degrees)
    degrees = BASE.nu - 1.0
    prior = stats.multivariate_t(
        np.zeros(2), BASE.scale * np.eye(2) * (BASE.kappa + 1.0) / (BASE.kappa * degrees), degrees
    )
    expected = [after.logpdf(new), prior.logpdf(new)]
    np.testing.assert_allclose(mixture.log_predictive(clusters, jnp.asarray(new), BASE), expected, rtol=1e-9)
