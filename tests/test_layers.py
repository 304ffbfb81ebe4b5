"""Settling and the layer of sites against dense densities, quadrature and finite differences."""

from functools import partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import chisquare, multivariate_normal, norm
from test_sites import AMPLITUDE, CASES, KNOWN, PHI, divergence, expected, log_negative_binomial, slopes

from srflvm import entries, layers, settling
from srflvm.layers import GroupData, GroupPlan, SiteLayer
from srflvm.likelihoods import Bernoulli, Gaussian, NegativeBinomial, Poisson
from srflvm.pairs import unpack_form

N_ROWS = 30
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(N_ROWS, 2))
WHOLE = np.concatenate([FEATURES, np.ones((N_ROWS, 1))], axis=1)
OFFSET = 0.3 * RANDOM.normal(size=N_ROWS)


def group(kind, n_columns, seed=1):
    """Columns of a kind, a fifth of the entries not observed: the truth (c, N), and a layer's data."""
    random = np.random.default_rng(seed)
    level = random.normal(size=n_columns)
    f = random.normal(size=(n_columns, 3)) @ WHOLE.T + level[:, None] + OFFSET
    Y = {
        "gaussian": f + 0.5 * random.normal(size=f.shape),
        "bernoulli": (random.uniform(size=f.shape) < expit(f)).astype(float),
        "counts": random.poisson(np.exp(f) * random.gamma(2.0, 0.5, size=f.shape)).astype(float),
    }[kind]
    observed = random.uniform(size=f.shape) < 0.8
    given = np.where(observed, Y, 1.0)
    return Y, GroupData(*map(jnp.asarray, (given, observed)), {}, jnp.asarray(OFFSET), jnp.asarray(level))


def flat_state(data, learned):
    """Weak sites for each group, amplitudes of one."""
    return {
        "sites": tuple(entries.Sites(jnp.where(g.observed, 0.1, 0.0), jnp.zeros(g.y.shape)) for g in data),
        "parameters": tuple(jax.tree.map(jnp.asarray, mine) for mine in learned),
        "log_amplitude": tuple(jnp.zeros(len(g.y)) for g in data),
        "order": tuple(jnp.arange(len(g.y), dtype=jnp.int32) for g in data),
        "visit": jnp.zeros((), jnp.int32),
    }


# ---- settling -------------------------------------------------------------------------------------


def test_settled_columns_are_at_a_maximum_in_weights_dispersion_and_amplitude():
    """With two sets of features f has the mean and variance of the mixture over them."""
    Y, data = group("counts", 1)
    sets = np.stack([WHOLE, WHOLE + 0.1 * np.cos(np.arange(90.0)).reshape(N_ROWS, 3) * [1.0, 1.0, 0.0]])
    state = flat_state((data,), [{"log_dispersion": np.zeros(1)}])
    (end,) = settling.settle([GroupPlan(NegativeBinomial(), 1, 1)], sets, (data,), state, 100)
    best = {"log_r": end.parameters["log_dispersion"][0], "log_a": end.log_amplitude[0]}

    def bound(mean, covariance, log_r=best["log_r"], log_a=best["log_a"]):
        means = sets @ mean
        variance = np.einsum("kni,ij,knj->kn", sets, covariance, sets).mean(axis=0) + means.var(axis=0)
        known = OFFSET + float(data.level[0])
        values = expected(
            partial(log_negative_binomial, log_r=log_r), Y[0], means.mean(axis=0) + known, variance
        )
        return np.sum(values[np.asarray(data.observed[0])]) - divergence(mean, covariance, np.exp(log_a))

    here = end.weights[0], unpack_form(end.packed_covariance, 3)[0]
    np.testing.assert_allclose(end.bound[0], bound(*here), rtol=1e-9)
    np.testing.assert_allclose(slopes(bound, *here), 0.0, atol=1e-6)
    for name, value in best.items():
        ahead, behind = (bound(*here, **{name: value + step}) for step in (1e-4, -1e-4))
        assert abs(ahead - behind) / 2e-4 < 1e-6


@pytest.mark.parametrize("kind", ["counts", "gaussian"])
def test_columns_settle_alike_in_any_batches(kind, monkeypatch):
    """Also where they share a noise."""
    data = (group(kind, 5)[1],)
    likelihood, learned = (Poisson(), {}) if kind == "counts" else (Gaussian(), {"log_noise": np.zeros(1)})
    arguments = [GroupPlan(likelihood, 5, 5)], WHOLE[None], data, flat_state(data, [learned]), 5
    (whole,) = settling.settle(*arguments)
    monkeypatch.setattr(settling, "_COLUMNS_AT_ONCE", 2)
    (parts,) = settling.settle(*arguments)
    for left, right in zip(jax.tree.leaves(vars(whole)), jax.tree.leaves(vars(parts)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


# ---- sites in a layer -----------------------------------------------------------------------------


@partial(jax.jit, static_argnames="layer")
def evidence_of(layer, features, state, data):
    """Value, gradient in the features, and what is carried on."""

    def value(phi):
        return layer.at_features(jax.random.key(0), phi, state, data)

    (found, carried), gradient = jax.value_and_grad(value, has_aux=True)(features)
    return found, gradient, carried


def visited(layer, features, state, data, n_visits):
    """`evidence_of` after some visits with parameters and amplitudes held."""
    for _ in range(n_visits):
        state = {**state, "sites": evidence_of(layer, features, state, data)[2]["sites"]}
    return evidence_of(layer, features, state, data)


def test_sites_of_gaussian_entries_give_the_exact_evidence_and_its_gradient():
    Y, data = group("gaussian", 3)
    noise, amplitude = np.array([0.2, 0.5, 1.0]), np.array([0.7, 1.0, 2.0])
    observed, level = np.asarray(data.observed), np.asarray(data.level)

    def exact(features):
        phi, total = np.concatenate([features, np.ones((N_ROWS, 1))], axis=1), 0.0
        for y, seen, mean, v, a in zip(Y, observed, level, noise, amplitude, strict=True):
            covariance = a * phi[seen] @ phi[seen].T + v * np.eye(seen.sum())
            total += multivariate_normal.logpdf(y[seen], (mean + OFFSET)[seen], covariance)
        return total

    layer = SiteLayer((GroupPlan(Gaussian("column"), 3, 3),))
    state = flat_state((data,), [{"log_noise": np.log(noise)}])
    state["log_amplitude"] = (jnp.log(amplitude),)
    # a visit leaves 0.3 of the distance, which is 1e-16 after 30
    value, gradient, _ = visited(layer, jnp.asarray(FEATURES), state, (data,), 30)
    np.testing.assert_allclose(value, exact(FEATURES), rtol=1e-12)
    direction = np.sin(np.arange(60.0)).reshape(N_ROWS, 2)
    slope = (exact(FEATURES + 1e-5 * direction) - exact(FEATURES - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-8)


@pytest.mark.parametrize("route", ["sites", "polya_gamma"])
def test_gradients_are_differences_of_the_bound_with_the_weights_optimised_again(route):
    """The envelope theorem: at the best q(h) the bound changes with the features alone."""
    counts = route == "sites"
    data = (group("counts" if counts else "bernoulli", 2)[1],)
    layer = SiteLayer((GroupPlan(NegativeBinomial() if counts else Bernoulli(), 2, 2),), route)
    state = flat_state(data, [{"log_dispersion": np.log([1.5, 3.0])} if counts else {}])
    direction = np.sin(np.arange(60.0)).reshape(N_ROWS, 2)
    run = partial(visited, layer, state=state, data=data, n_visits=80)
    _, gradient, _ = run(jnp.asarray(FEATURES))
    ahead, behind = (run(jnp.asarray(FEATURES + step * direction))[0] for step in (1e-4, -1e-4))
    # errors of step^2, and 1e-6 from the nodes that average the log likelihood
    np.testing.assert_allclose(np.sum(gradient * direction), (ahead - behind) / 2e-4, rtol=2e-6)


def test_batches_estimate_value_and_gradient_without_bias():
    """The average over all pairs of five columns is the whole; the other group is always complete."""
    data = group("bernoulli", 5)[1], group("gaussian", 2)[1]
    learned = [{}, {"log_noise": np.array([-1.0])}]

    def plans(batch):
        return SiteLayer((GroupPlan(Bernoulli(), 5, batch), GroupPlan(Gaussian(), 2, 2)))

    state = flat_state(data, learned)
    shifts = (jnp.asarray(np.random.default_rng(4).normal(size=g.y.shape) * g.observed) for g in data)
    state["sites"] = tuple(s._replace(shift=shift) for s, shift in zip(state["sites"], shifts, strict=True))
    value, gradient, carried = evidence_of(plans(5), jnp.asarray(FEATURES), state, data)
    parts = []
    for pair in combinations(range(5), 2):
        pair, others = np.array(pair), np.setdiff1d(range(5), pair)
        # the second visit takes the third and fourth column of the order
        order = jnp.asarray([*others[:2], *pair, others[2]], jnp.int32), state["order"][1]
        turn = {**state, "order": order, "visit": jnp.ones((), jnp.int32)}
        *part, moved = evidence_of(plans(2), jnp.asarray(FEATURES), turn, data)
        parts.append(part)
        sites = moved["sites"][0], carried["sites"][0], state["sites"][0]
        for after, whole, before in zip(*sites, strict=True):
            np.testing.assert_allclose(after[pair], whole[pair], rtol=1e-11, atol=1e-13)
            np.testing.assert_array_equal(after[others], before[others])
    values, gradients = (np.stack(part) for part in zip(*parts, strict=True))
    assert np.std(values) > 1.0
    np.testing.assert_allclose(np.mean(values), value, rtol=1e-12)
    np.testing.assert_allclose(np.mean(gradients, axis=0), gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("n_columns", "batch"), [(6, 2), (7, 3), (3, 3)])
def test_all_columns_are_visited_before_the_order_is_shuffled_again(n_columns, batch):
    layer, n_batches = SiteLayer((GroupPlan(Bernoulli(), n_columns, batch),)), -(-n_columns // batch)
    runs = 60

    @jax.jit
    def take(keys):
        def turn(carry, key):
            order, (pick,) = layer._pick(key, *carry)
            return (order, carry[1] + 1), pick

        start = ((jnp.arange(n_columns, dtype=jnp.int32),), jnp.zeros((), jnp.int32))
        return jax.lax.scan(turn, start, keys)[1]

    picks = np.asarray(take(jax.random.split(jax.random.key(0), runs * n_batches)))
    for run in picks.reshape(runs, -1):
        # as many as there are columns before any comes again
        assert sorted(run[:n_columns]) == list(range(n_columns))
    assert all(len(set(pick)) == batch for pick in picks)
    counts = np.bincount(picks[::n_batches].ravel(), minlength=n_columns)
    assert chisquare(counts).pvalue > 1e-4


def test_draws_of_f_have_the_posterior_of_the_weights():
    """Of n draws the mean is off by sqrt(c_ii / n), the covariance by sqrt((c_ij^2 + c_ii c_jj) / n)."""
    n_draws, phi = 40_000, jnp.asarray(PHI @ [[1.0, 1.0, 0.5], [0.0, 0.3, 0.0], [0.0, 0.0, 1.0]])
    sites = entries.Sites(jnp.asarray([[3.0, 0.0, 1.0, 0.2, 2.0, 0.0]]), jnp.asarray(KNOWN)[None])
    weights = entries.solve(phi, sites, jnp.ones(1))
    many = jax.tree.map(lambda part: jnp.repeat(part, n_draws, axis=0), weights)
    draws = np.asarray(layers._draw(jax.random.key(0), phi, many))
    exact, variance = phi @ weights.covariance[0] @ phi.T, np.var(draws, axis=0)
    deviations = np.abs(np.mean(draws, axis=0) - phi @ weights.mean[0])
    assert np.all(deviations < 4.0 * np.sqrt(variance / n_draws))
    error = np.sqrt((exact**2 + np.outer(variance, variance)) / n_draws)
    assert np.all(np.abs(np.cov(draws.T) - exact) < 4.0 * error)


def test_the_gibbs_chain_has_the_exact_posterior_and_the_gradient_of_the_exact_evidence():
    """400 independent chains, as columns with the same entries. d log p(y) / dPhi = E (y - sigmoid(f)) h."""
    case, n_chains, n_before, n_visits = CASES["bernoulli"], 400, 20, 60
    along = np.arange(-7.0, 7.0, 0.2)
    z = np.stack(np.meshgrid(along, along, along, indexing="ij"), axis=-1).reshape(-1, 3)
    h = np.sqrt(AMPLITUDE) * z
    f = h @ PHI.T
    log_joint = np.sum(case.log_prob(case.y, f + KNOWN), axis=1) + np.sum(norm.logpdf(z), axis=1)
    share = softmax(log_joint)
    exact_gradient = np.einsum("h,hn,hl->nl", share, case.y - expit(f + KNOWN), h)[:, :2]
    Y = jnp.tile(jnp.asarray(case.y), (n_chains, 1))
    data = (GroupData(Y, jnp.ones(Y.shape, bool), {}, jnp.asarray(KNOWN), jnp.zeros(n_chains)),)
    layer = SiteLayer((GroupPlan(Bernoulli(), n_chains, n_chains),), "polya_gamma_sampled")
    start = flat_state(data, [{}])
    start["log_amplitude"] = (jnp.full(n_chains, np.log(AMPLITUDE)),)
    features = jnp.asarray(PHI[:, :2])

    def visit(sites, key):
        state = {**start, "sites": sites}
        mean = entries.solve(jnp.asarray(PHI), sites[0], jnp.exp(start["log_amplitude"][0])).mean
        pull = jax.grad(lambda phi: layer.at_features(key, phi, state, data), has_aux=True)
        gradient, carried = pull(features)
        return carried["sites"], (mean @ PHI.T, gradient / n_chains)

    keys = jax.random.split(jax.random.key(0), n_before + n_visits)
    means, gradients = jax.jit(lambda keys: jax.lax.scan(visit, start["sites"], keys)[1])(keys)
    per_chain = np.mean(means[n_before:], axis=0)
    error = np.std(per_chain, axis=0) / np.sqrt(n_chains)
    assert np.all(error < 0.02)
    np.testing.assert_array_less(np.abs(np.mean(per_chain, axis=0) - share @ f), 4.0 * error)
    # visits of a chain depend on each other, as if one in three was independent
    gradients = np.asarray(gradients[n_before:])
    error = np.std(gradients, axis=0) / np.sqrt(n_visits / 3)
    assert np.all(error < 0.005)
    np.testing.assert_array_less(np.abs(np.mean(gradients, axis=0) - exact_gradient), 4.0 * error)
