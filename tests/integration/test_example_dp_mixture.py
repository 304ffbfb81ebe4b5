import importlib.util
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.special import betaln, digamma, gammaln, logsumexp, softmax
from scipy.stats import multivariate_t
from sklearn.metrics import adjusted_rand_score

from srflvm.model import spectral

_PATH = Path(__file__).parents[2] / "examples" / "dp_gaussian_mixture.py"
_SPEC = importlib.util.spec_from_file_location("dp_gaussian_mixture", _PATH)
example = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(example)

KEY = jax.random.key(0)
UPDATES = {block.name: block.update for block in example.MIXTURE.blocks}
CONCENTRATION = 0.7
N_COMPONENTS = 8


@pytest.fixture
def data():
    points, _ = example.toy_points(seed=3)
    return example.default_data(points, CONCENTRATION)


@pytest.fixture
def random_state(data):
    """Draw factors that are the optimum of no block."""
    first, second, third = (np.random.default_rng(seed) for seed in range(3))
    shares = first.dirichlet(np.full(N_COMPONENTS, 0.5), len(data.points))
    state = example.initial_state(jnp.asarray(shares), data)
    sticks = spectral.Sticks(*jnp.asarray(second.uniform(0.5, 9.0, (2, N_COMPONENTS - 1))))
    mean = jnp.asarray(third.normal(size=(N_COMPONENTS, 2)))
    return {**state, "sticks": sticks, "components": state["components"]._replace(mean=mean)}


def scikit_learn_start(data, seed=0):
    """Return a mixture after the update of sticks and components from its k-means start."""
    options = {"n_components": N_COMPONENTS, "random_state": seed, "max_iter": 0}
    return example.scikit_learn_mixture(data, **options).fit(np.asarray(data.points))


def our_start(data, seed=0):
    points = np.asarray(data.points)
    return example.initial_state(example.k_means_responsibilities(points, N_COMPONENTS, seed), data)


def test_sticks_and_components_are_those_of_scikit_learn(data):
    ours, theirs = our_start(data), scikit_learn_start(data)
    components = ours["components"]
    covariances = components.inverse_scale / components.degrees_of_freedom[:, None, None]
    np.testing.assert_allclose(components.mean, theirs.means_, rtol=1e-10)
    np.testing.assert_allclose(components.mean_precision, theirs.mean_precision_, rtol=1e-10)
    np.testing.assert_allclose(components.degrees_of_freedom, theirs.degrees_of_freedom_, rtol=1e-10)
    np.testing.assert_allclose(covariances, theirs.covariances_, rtol=1e-9)
    np.testing.assert_allclose(ours["sticks"].a, theirs.weight_concentration_[0][:-1], rtol=1e-10)
    np.testing.assert_allclose(ours["sticks"].b, theirs.weight_concentration_[1][:-1], rtol=1e-10)


def test_responsibilities_differ_from_scikit_learn_in_the_last_stick_only(data):
    state, theirs = our_start(data), scikit_learn_start(data)
    ours = np.asarray(UPDATES["responsibilities"](KEY, state, data)["responsibilities"])
    last_a, last_b = theirs.weight_concentration_[0][-1], theirs.weight_concentration_[1][-1]
    last_log_stick = np.r_[np.zeros(N_COMPONENTS - 1), digamma(last_a) - digamma(last_a + last_b)]
    expected = theirs.predict_proba(np.asarray(data.points))
    np.testing.assert_allclose(
        softmax(np.log(ours) + last_log_stick, axis=1), expected, rtol=1e-8, atol=1e-14
    )


def test_the_fit_agrees_with_scikit_learn(data):
    points = np.asarray(data.points)
    run, theirs, bounds = example.fit_both(points, N_COMPONENTS, n_sweeps=150, seed=0)
    weights = np.asarray(run.state["sticks"].expected_weights())
    labels = np.argmax(np.asarray(run.state["responsibilities"]), axis=1)
    assert example.rises(run.history)
    assert example.rises(bounds)
    assert len(set(labels)) == len(set(theirs.predict(points))) == 4
    assert adjusted_rand_score(labels, theirs.predict(points)) == 1.0
    np.testing.assert_allclose(run.state["components"].mean, theirs.means_, atol=1e-6)
    np.testing.assert_allclose(weights, theirs.weights_, atol=1e-6)


def test_the_bound_is_scikit_learns_plus_the_constants_it_drops(data):
    size, alpha, seed = 2, 0.1, 0
    points = np.asarray(data.points)
    run, theirs, bounds = example.fit_both(points, N_COMPONENTS, n_sweeps=150, seed=seed)
    prior = data.prior
    freedom = float(prior.degrees_of_freedom)
    log_det = np.linalg.slogdet(prior.inverse_scale)[1]
    log_volume = (
        0.5 * freedom * (size * np.log(2.0) - log_det) + gammaln(0.5 * (freedom - np.arange(size))).sum()
    )
    per_component = 0.5 * size * np.log(float(prior.mean_precision)) - log_volume
    last_count = theirs.weight_concentration_[0][-1]
    sticks = betaln(last_count, alpha) + (N_COMPONENTS - 1) * betaln(1.0, alpha)
    constants = N_COMPONENTS * per_component - sticks - 0.5 * points.size * np.log(2.0 * np.pi)
    np.testing.assert_allclose(run.history[-1], bounds[-1] + constants, rtol=1e-8)


def test_no_block_ever_lowers_the_bound(data, random_state):
    state, before = random_state, float(example.elbo(KEY, random_state, data))
    start = before
    for _ in range(15):
        for update in UPDATES.values():
            state = {**state, **update(KEY, state, data)}
            after = float(example.elbo(KEY, state, data))
            assert after >= before - 1e-11 * abs(before)
            before = after
    assert before > start + 100.0


def test_every_block_ends_where_the_bound_is_stationary(data, random_state):
    @jax.jit
    def largest_gradients(state, data):
        def bound(logits, sticks, components):
            shares = jax.nn.softmax(logits, axis=1)
            new = {"responsibilities": shares, "sticks": sticks, "components": components}
            return example.elbo(KEY, new, data)

        factors = jnp.log(state["responsibilities"]), state["sticks"], state["components"]
        gradients = jax.grad(bound, argnums=(0, 1, 2))(*factors)
        return [jnp.abs(ravel_pytree(part)[0]).max() for part in gradients]

    before = largest_gradients(random_state, data)
    assert min(before) > 0.1
    for index, update in enumerate(UPDATES.values()):
        improved = {**random_state, **update(KEY, random_state, data)}
        assert largest_gradients(improved, data)[index] < 1e-10 * before[index]


def log_marginal(points, prior):
    """Compute log p(points of one cluster) as a product of Student predictive densities."""
    mean, precision, freedom, inverse_scale = (np.asarray(value) for value in prior)
    total, size = 0.0, points.shape[1]
    for point in points:
        shape = inverse_scale * (precision + 1.0) / (precision * (freedom - size + 1.0))
        total += multivariate_t(mean, shape, df=freedom - size + 1.0).logpdf(point)
        inverse_scale = inverse_scale + precision / (precision + 1.0) * np.outer(point - mean, point - mean)
        mean = (precision * mean + point) / (precision + 1.0)
        precision, freedom = precision + 1.0, freedom + 1.0
    return total


def log_joint(labels, n_components, data):
    """Compute log p(points, labels), with everything else integrated out."""
    counts = np.bincount(labels, minlength=n_components)
    beyond = counts.sum() - np.cumsum(counts)
    alpha = float(data.concentration)
    log_labels = np.sum(betaln(1 + counts[:-1], alpha + beyond[:-1]) - betaln(1, alpha))
    points = np.asarray(data.points)
    return log_labels + sum(log_marginal(points[labels == k], data.prior) for k in range(n_components))


def test_the_bound_is_exact_for_known_labels_and_below_the_evidence_otherwise():
    n_points, n_components = 4, 3
    random = np.random.default_rng(0)
    data = example.default_data(random.normal(size=(n_points, 2)) * [2.0, 0.5] + [1.0, -1.0], CONCENTRATION)
    all_labels = [np.array(z) for z in itertools.product(range(n_components), repeat=n_points)]
    joint = np.array([log_joint(labels, n_components, data) for labels in all_labels])

    def bound(shares):
        return example.elbo(KEY, example.initial_state(shares, data), data)

    hard = np.array([bound(jnp.eye(n_components)[labels]) for labels in all_labels])
    np.testing.assert_allclose(hard, joint, rtol=1e-11)
    evidence = logsumexp(joint)
    for share in jnp.asarray(random.dirichlet(np.ones(n_components), (5, n_points))):
        run = example.fit(share, data, n_sweeps=30)
        assert bound(share) < run.history[0]
        assert run.history[-1] < evidence


def test_the_example_runs(capsys):
    example.main(n_components=N_COMPONENTS, n_sweeps=100)
    printed = capsys.readouterr().out
    assert "bound never falls      srflvm True, scikit-learn True" in printed
    assert "clusters in use        srflvm 4, scikit-learn 4" in printed
