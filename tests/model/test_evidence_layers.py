"""Layers of the model against dense densities, quadrature and finite differences."""

from functools import lru_cache, partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.site_cases import (
    AMPLITUDE,
    CASES,
    FEATURES,
    KNOWN,
    N_ROWS,
    OFFSET,
    PHI,
    WHOLE,
    flat_state,
    group,
)
from scipy.special import expit, softmax
from scipy.stats import chisquare, multivariate_normal, norm

from srflvm.data.encoding import GroupRows
from srflvm.likelihoods import Bernoulli, Gaussian, NegativeBinomial
from srflvm.model import evidence_layers
from srflvm.model.evidence_layers import FillingLayer, GroupPlan, IncompleteData, SiteLayer
from srflvm.model.sites import Function
from srflvm.numerics import site_regression
from srflvm.numerics.shared_regression import Targets, predict_and_evidence

# ---- the layer that fills -------------------------------------------------------------------------


def incomplete(hidden=0.0, share=0.3):
    """Draw four Gaussian columns, with any number where nothing is observed."""
    random = np.random.default_rng(4)
    Y = FEATURES @ random.normal(size=(2, 4)) + 0.5 * random.normal(size=(N_ROWS, 4))
    missing = np.random.default_rng(5).uniform(size=Y.shape) < share
    parts = np.where(missing, hidden, Y), missing, np.sum(~missing, dtype=float), 0.0
    return Y, missing, IncompleteData(*map(jnp.asarray, parts))


STATE = {"log_noise": np.log(0.4), "log_ratio": np.log(0.4 / 1.3)}


@jax.jit
def filled_bound(features, state, data):
    """Return value, gradient in the features, and what is carried on."""

    def value(phi):
        return FillingLayer().at_features(jax.random.key(0), phi, state, data)

    (found, carried), gradient = jax.value_and_grad(value, has_aux=True)(features)
    return found, gradient, carried


def test_a_filled_bound_is_below_the_evidence_of_the_observed_entries_and_rises_to_its_best_fill():
    Y, missing, data = incomplete()
    exact, best_fill = 0.0, np.zeros(Y.shape)
    for column, (y, seen) in enumerate(zip(Y.T, ~missing.T, strict=True)):
        covariance = 1.3 * FEATURES[seen] @ FEATURES[seen].T + 0.4 * np.eye(seen.sum())
        exact += multivariate_normal.logpdf(y[seen], cov=covariance)
        best_fill[:, column] = 1.3 * FEATURES @ FEATURES[seen].T @ np.linalg.solve(covariance, y[seen])
    fill, values = jnp.asarray(np.random.default_rng(6).normal(size=Y.shape)), []
    start = np.where(missing, 0.0, fill)
    for _ in range(150):
        value, _, carried = filled_bound(jnp.asarray(FEATURES), {**STATE, "fill": fill}, data)
        fill = carried["fill"]
        values.append(float(value))
    assert np.all(np.diff(values) > -1e-10)
    assert values[0] + 1.0 < values[-1] < exact
    np.testing.assert_allclose(fill[missing], best_fill[missing], atol=1e-10)
    np.testing.assert_array_equal(np.where(missing, 0.0, fill), start)
    # q(h) of a column has the precision of all rows, the exact posterior that of the observed ones only
    lost = 0.0
    for seen in ~missing.T:
        gram, part = FEATURES.T @ FEATURES, FEATURES[seen].T @ FEATURES[seen]
        ridge = 0.4 / 1.3 * np.eye(2)
        lost += 0.5 * (np.linalg.slogdet(gram + ridge)[1] - np.linalg.slogdet(part + ridge)[1])
    np.testing.assert_allclose(values[-1], exact - lost, rtol=1e-10)


def test_numbers_in_the_place_of_missing_entries_do_not_matter():
    state = {**STATE, "fill": jnp.zeros((N_ROWS, 4))}
    first, *others = (
        filled_bound(jnp.asarray(FEATURES), state, incomplete(h)[2]) for h in (0.0, 1e300, np.nan)
    )
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, first, other)


def test_without_missing_entries_it_is_the_evidence():
    Y, _, data = incomplete(share=0.0)
    value, gradient, _ = filled_bound(jnp.asarray(FEATURES), {**STATE, "fill": jnp.asarray(Y)}, data)
    targets = Targets(jnp.asarray(Y), jnp.asarray(np.sum(Y**2)), jnp.asarray(4.0))
    point = jnp.asarray(FEATURES), jnp.asarray(0.4), jnp.asarray(0.4 / 1.3), targets
    (exact, _), slope = jax.jit(jax.value_and_grad(predict_and_evidence, has_aux=True))(*point)
    np.testing.assert_allclose(value, exact, rtol=1e-13)
    np.testing.assert_allclose(gradient, slope, rtol=1e-12)


# ---- sites in a layer -----------------------------------------------------------------------------

# Features of the layer, the constant among them, are moved along this.
DIRECTION = np.sin(np.arange(90.0)).reshape(N_ROWS, 3)


@partial(jax.jit, static_argnames="layer")
def evidence_of(layer, features, state, data):
    """Return value, gradient in the features, and what is carried on."""

    def value(phi):
        return layer.at_features(jax.random.key(0), phi, state, data)

    (found, carried), gradient = jax.value_and_grad(value, has_aux=True)(features)
    return found, gradient, carried


def visited(layer, features, state, data, n_visits):
    """Return `evidence_of` after some visits with parameters and amplitudes held."""
    for _ in range(n_visits):
        state = {**state, "sites": evidence_of(layer, features, state, data)[2]["sites"]}
    return evidence_of(layer, features, state, data)


def test_sites_of_gaussian_entries_give_the_exact_evidence_and_its_gradient():
    Y, data = group("gaussian", 3)
    noise, amplitude = np.array([0.2, 0.5, 1.0]), np.array([0.7, 1.0, 2.0])
    observed, level = np.asarray(data[0].observed), np.asarray(data[1])

    def exact(features):
        total = 0.0
        for y, seen, mean, v, a in zip(Y, observed, level, noise, amplitude, strict=True):
            covariance = a * features[seen] @ features[seen].T + v * np.eye(seen.sum())
            total += multivariate_normal.logpdf(y[seen], (mean + OFFSET)[seen], covariance)
        return total

    layer = SiteLayer((GroupPlan(Gaussian("column"), 3, 3),))
    state = flat_state((data,), [{"log_noise": np.log(noise)}])
    state["log_amplitude"] = (jnp.log(amplitude),)
    # a visit leaves 0.3 of the distance, which is 1e-16 after 30
    value, gradient, _ = visited(layer, jnp.asarray(WHOLE), state, (data,), 30)
    np.testing.assert_allclose(value, exact(WHOLE), rtol=1e-12)
    slope = (exact(WHOLE + 1e-5 * DIRECTION) - exact(WHOLE - 1e-5 * DIRECTION)) / 2e-5
    np.testing.assert_allclose(np.sum(gradient * DIRECTION), slope, rtol=1e-8)


@pytest.mark.parametrize("route", ["sites", "polya_gamma"])
def test_gradients_are_differences_of_the_bound_with_the_weights_optimised_again(route):
    """The envelope theorem: at the best q(h) the bound changes with the features alone."""
    counts = route == "sites"
    data = (group("counts" if counts else "bernoulli", 2)[1],)
    layer = SiteLayer((GroupPlan(NegativeBinomial() if counts else Bernoulli(), 2, 2),), route)
    state = flat_state(data, [{"log_dispersion": np.log([1.5, 3.0])} if counts else {}])
    run = partial(visited, layer, state=state, data=data, n_visits=80)
    _, gradient, _ = run(jnp.asarray(WHOLE))
    ahead, behind = (run(jnp.asarray(WHOLE + step * DIRECTION))[0] for step in (1e-4, -1e-4))
    # errors of step^2, and 1e-6 from the nodes that average the log likelihood
    np.testing.assert_allclose(np.sum(gradient * DIRECTION), (ahead - behind) / 2e-4, rtol=2e-6)


def test_batches_estimate_value_and_gradient_without_bias():
    """The average over all pairs of five columns is the whole; the other group is always complete."""
    data = group("bernoulli", 5)[1], group("gaussian", 2)[1]
    learned = [{}, {"log_noise": np.array([-1.0])}]

    def plans(batch):
        return SiteLayer((GroupPlan(Bernoulli(), 5, batch), GroupPlan(Gaussian(), 2, 2)))

    state = flat_state(data, learned)
    shifts = (jnp.asarray(np.random.default_rng(4).normal(size=g.y.shape) * g.observed) for g, _ in data)
    state["sites"] = tuple(s._replace(shift=shift) for s, shift in zip(state["sites"], shifts, strict=True))
    value, gradient, carried = evidence_of(plans(5), jnp.asarray(WHOLE), state, data)
    parts = []
    for pair in combinations(range(5), 2):
        pair, others = np.array(pair), np.setdiff1d(range(5), pair)
        # the second visit takes the third and fourth column of the order
        order = jnp.asarray([*others[:2], *pair, others[2]], jnp.int32), state["order"][1]
        turn = {**state, "order": order, "visit": jnp.ones((), jnp.int32)}
        *part, moved = evidence_of(plans(2), jnp.asarray(WHOLE), turn, data)
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
            order, (pick,) = evidence_layers.pick_columns(layer.groups, key, *carry)
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
    sites = site_regression.Sites(jnp.asarray([[3.0, 0.0, 1.0, 0.2, 2.0, 0.0]]), jnp.asarray(KNOWN)[None])
    weights = site_regression.solve(phi, sites, jnp.ones(1))
    many = jax.tree.map(lambda part: jnp.repeat(part, n_draws, axis=0), weights)
    draws = np.asarray(evidence_layers._draw(jax.random.key(0), phi, many))
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
    exact_gradient = np.einsum("h,hn,hl->nl", share, case.y - expit(f + KNOWN), h)
    Y = jnp.tile(jnp.asarray(case.y), (n_chains, 1))
    rows = GroupRows(Y, jnp.ones(Y.shape, bool), {}, jnp.asarray(KNOWN)[None])
    data = ((rows, jnp.zeros(n_chains)),)
    layer = SiteLayer((GroupPlan(Bernoulli(), n_chains, n_chains),), "polya_gamma_sampled")
    start = flat_state(data, [{}])
    start["log_amplitude"] = (jnp.full(n_chains, np.log(AMPLITUDE)),)
    features = jnp.asarray(PHI)

    def visit(sites, key):
        state = {**start, "sites": sites}
        mean = site_regression.solve(features, sites[0], jnp.exp(start["log_amplitude"][0])).mean
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


# ---- an affine part -------------------------------------------------------------------------------


@lru_cache
def affine_case(size):
    """Return the exact evidence of columns with an affine part, a layer's bound of it, latents and scales."""
    random = np.random.default_rng(size)
    Y, data = group("gaussian", 3)
    noise, amplitude = np.array([0.2, 0.5, 1.0]), np.array([0.7, 1.0, 2.0])
    frequencies = random.normal(size=(2, size))
    observed, level = np.asarray(data[0].observed), np.asarray(data[1])

    def exact(latents, log_affine):
        """Return the log density of the observed entries, of Gaussian processes column by column."""
        scales = np.exp(log_affine)
        wave, *slopes = scales / np.sqrt(np.sum(scales**2))
        apart = latents[:, None] - latents[None]
        kernel = wave**2 * np.mean(np.cos(apart @ frequencies.T), axis=-1)
        kernel += latents @ np.diag(np.square(slopes)) @ latents.T + 1.0
        total = 0.0
        for y, seen, mean, v, a in zip(Y, observed, level, noise, amplitude, strict=True):
            covariance = a * kernel[np.ix_(seen, seen)] + v * np.eye(seen.sum())
            total += multivariate_normal.logpdf(y[seen], (mean + OFFSET)[seen], covariance)
        return total

    layer = SiteLayer((GroupPlan(Gaussian("column"), 3, 3),), has_affine=True)
    state = flat_state((data,), [{"log_noise": np.log(noise)}])
    state["log_amplitude"] = (jnp.log(amplitude),)
    log_affine = np.log(np.linspace(0.4, 1.1, 1 + size)) + 3.0  # their common size does not matter

    @jax.jit
    def visit(latents, log_affine, sites):
        def value(latents, log_affine):
            entries = {**state, "sites": sites, "log_affine": log_affine}
            return layer.evidence(jax.random.key(0), latents, jnp.asarray(frequencies), entries, (data,))

        return jax.value_and_grad(value, argnums=(0, 1), has_aux=True)(latents, log_affine)

    def bound(latents, log_affine, n_visits):
        """Return value and gradients in latents and scales, after some visits with the rest held."""
        sites = state["sites"]
        for _ in range(n_visits):
            (_, carried), _ = visit(latents, log_affine, sites)
            sites = carried["sites"]
        (value, _), gradients = visit(latents, log_affine, sites)
        return float(value), gradients

    return exact, bound, random.normal(size=(N_ROWS, size)), log_affine


@pytest.mark.parametrize("size", [2, 3])
def test_with_an_affine_part_the_bound_is_the_evidence_of_a_linear_and_a_wavy_kernel(size):
    exact, bound, latents, log_affine = affine_case(size)
    values = [bound(latents, log_affine, n_visits)[0] for n_visits in (0, 1, 3, 30)]
    truth = exact(latents, log_affine)
    # lower while the sites are not exact, and closer at each visit
    assert values[0] + 1.0 < values[1] < values[2] < truth + 1e-9
    np.testing.assert_allclose(values[-1], truth, rtol=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_in_latents_and_scales_are_differences_of_the_evidence(size):
    exact, bound, latents, log_affine = affine_case(size)
    _, (of_latents, of_scales) = bound(latents, log_affine, 30)
    step = 1e-5
    for place in range(len(log_affine)):
        move = step * np.eye(len(log_affine))[place]
        slope = (exact(latents, log_affine + move) - exact(latents, log_affine - move)) / (2 * step)
        np.testing.assert_allclose(of_scales[place], slope, rtol=1e-6, atol=1e-7)
    # the sum of squares of the scales is one: no gradient along their common size
    np.testing.assert_allclose(np.sum(of_scales), 0.0, atol=1e-9)
    direction = np.sin(np.arange(float(latents.size))).reshape(latents.shape)
    ahead, behind = (exact(latents + s * direction, log_affine) for s in (step, -step))
    np.testing.assert_allclose(np.sum(of_latents * direction), (ahead - behind) / (2 * step), rtol=1e-7)


def test_scales_are_of_length_one_in_numpy_and_in_jax_and_do_not_overflow():
    log_affine = np.array([400.0, 399.0, 300.0])
    expected = np.array([1.0, np.exp(-1.0), np.exp(-100.0)]) / np.sqrt(1.0 + np.exp(-2.0))
    for entry in (log_affine, jnp.asarray(log_affine)):
        scales = evidence_layers.affine_scales({"log_affine": entry}, np.float64)
        np.testing.assert_allclose(scales, expected, rtol=1e-14)
        assert evidence_layers.affine_scales({"log_affine": entry}, np.float32).dtype == np.float32
    assert evidence_layers.affine_scales({}, np.float64).shape == (0,)


def test_only_a_layer_with_an_affine_part_owns_its_scales():
    plans = (GroupPlan(Gaussian(), 3, 3),)
    assert SiteLayer(plans).owns == ()
    assert SiteLayer(plans, has_affine=True).owns == ("log_affine",)


def test_many_parameters_are_moved_at_some_visits_and_few_at_all():
    rows, level = group("gaussian", 3)[1]
    ones = jnp.ones(rows.y.shape)
    here = Function(0.1 * ones, 0.1 * ones, level[:, None] + rows.offset, 0.1 * ones)
    few = {"log_noise": jnp.zeros(3)}
    many = {**few, "one": jnp.zeros(3), "more": jnp.zeros(3)}
    for visit in range(7):
        for learned in (few, many):
            moved = evidence_layers._parameters_if_due(
                Gaussian("column"), rows, here, learned, jnp.asarray(visit)
            )
            is_due = len(learned) == 1 or visit % evidence_layers._VISITS_PER_JOINT_STEP == 0
            assert bool(np.any(moved["log_noise"] != 0.0)) == is_due
