"""Weights with covariances in a shared basis against dense Gaussians, quadrature and finite differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.site_cases import divergence, expected, log_negative_binomial
from scipy.special import log_expit
from scipy.stats import multivariate_normal

from srflvm.data.encoding import GroupRows
from srflvm.likelihoods import Bernoulli, Gaussian, NegativeBinomial
from srflvm.model import shared_basis
from srflvm.model.evidence_layers import GroupPlan
from srflvm.model.shared_basis import ColumnWeights, Rows, SharedBasisLayer, _transfer, chunk_rows, visit
from srflvm.numerics import features as feature_module
from srflvm.numerics.features import chunk_shape, layer_features

N_ROWS, N_COLUMNS = 40, 4
RANDOM = np.random.default_rng(0)
LATENTS = RANDOM.normal(size=(N_ROWS, 2))
FREQUENCIES = RANDOM.normal(size=(3, 2))
SCALES = np.array([0.9, 0.7, 1.2])
PHI = layer_features(LATENTS, FREQUENCIES, SCALES)
SIZE = PHI.shape[1]
LEVEL = 0.2 * RANDOM.normal(size=N_COLUMNS)
OFFSET = 0.3 * RANDOM.normal(size=N_ROWS)
OBSERVED = RANDOM.uniform(size=(N_COLUMNS, N_ROWS)) < 0.8
LOG_NOISE = np.log(np.array([0.2, 0.5, 1.0, 0.7]))
LOG_DISPERSION = np.array([0.3, 1.0, -0.2, 0.6])
F = RANDOM.normal(size=(N_COLUMNS, SIZE)) @ PHI.T + LEVEL[:, None] + OFFSET

DATA = {
    "gaussian": F + 0.5 * RANDOM.normal(size=F.shape),
    "bernoulli": (RANDOM.uniform(size=F.shape) < 0.5 * (1.0 + np.tanh(F / 2))).astype(float),
    "negative_binomial": RANDOM.poisson(np.exp(F) * RANDOM.gamma(2.0, 0.5, size=F.shape)).astype(float),
}
LIKELIHOODS = {
    "gaussian": (Gaussian("column"), {"log_noise": LOG_NOISE}),
    "bernoulli": (Bernoulli(), {}),
    "negative_binomial": (NegativeBinomial(), {"log_dispersion": LOG_DISPERSION}),
}


def log_probability(kind, column, y, f):
    """Return log p(y | f) of entries of a column."""
    if kind == "gaussian":
        noise = np.exp(LOG_NOISE[column])
        return -0.5 * ((y - f) ** 2 / noise + np.log(2.0 * np.pi * noise))
    if kind == "bernoulli":
        return log_expit(np.where(y > 0, f, -f))
    return log_negative_binomial(y, f, LOG_DISPERSION[column])


def weights_in_basis(seed=1):
    random = np.random.default_rng(seed)
    return ColumnWeights(
        jnp.asarray(0.3 * random.normal(size=(N_COLUMNS, SIZE))),
        jnp.asarray(random.uniform(0.5, 8.0, size=(N_COLUMNS, SIZE))),
        jnp.asarray(random.uniform(-0.5, 0.5, size=N_COLUMNS)),
        jnp.ones(N_COLUMNS),
    )


BASIS = np.linalg.eigh(PHI.T @ PHI)[1]


def rows_of(kind, hidden=1.0, batch=N_COLUMNS, pick=None, latents=LATENTS[None]):
    """Return all rows of the columns of a kind; the numbers under missing entries are `hidden`."""
    likelihood, learned = LIKELIHOODS[kind]
    y = np.where(OBSERVED, DATA[kind], hidden)
    rows = chunk_rows(GroupRows(y, OBSERVED, {}, OFFSET[None]), N_ROWS)
    data = ((jax.tree.map(jnp.asarray, rows), jnp.asarray(LEVEL)),)
    plan = GroupPlan(likelihood, N_COLUMNS, batch)
    pick = np.arange(batch) if pick is None else pick
    made = Rows((plan,), data, [jnp.asarray(pick)], *map(jnp.asarray, (latents, FREQUENCIES, SCALES)))
    return made, ({name: jnp.asarray(value)[pick] for name, value in learned.items()},)


@pytest.fixture(autouse=True)
def many_nodes(monkeypatch):
    """Leave the error of few nodes, which has a test of its own, out of the comparisons."""
    monkeypatch.setattr(shared_basis, "BOUND_NODES", 20)
    monkeypatch.setattr(shared_basis, "DIRECTION_NODES", 20)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def visited(kind, weights, moves_parameters=False, **changes):
    rows, learned = rows_of(kind, **changes)
    return jax.jit(lambda w, p: visit(rows, jnp.asarray(BASIS), w, p, moves_parameters))(weights, learned)


def dense_bound(kind, column, mean, covariance, log_amplitude, phi=PHI):
    """Compute the bound of a column for dense q(h): averages by the trapezoid rule."""
    f = phi @ mean + LEVEL[column] + OFFSET
    variance = np.einsum("ni,ij,nj->n", phi, covariance, phi)
    values = expected(partial(log_probability, kind, column), DATA[kind][column], f, variance)
    return values[OBSERVED[column]].sum() - divergence(mean, covariance, np.exp(log_amplitude))


def covariance_of(weights, column):
    return (BASIS * np.asarray(weights.spectrum)[column]) @ BASIS.T


# ---- one visit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_bound_and_its_gradient_are_those_of_dense_gaussians(kind):
    weights = weights_in_basis()
    seen = visited(kind, weights)
    means = np.asarray(seen.weights.mean) @ BASIS.T
    total = lambda latents, frequencies, scales: sum(  # noqa: E731
        dense_bound(
            kind,
            m,
            means[m],
            covariance_of(weights, m),
            weights.log_amplitude[m],
            layer_features(latents, frequencies, scales),
        )
        for m in range(N_COLUMNS)
    )
    at = [LATENTS, FREQUENCIES, SCALES]
    np.testing.assert_allclose(np.sum(seen.bound), total(*at), rtol=1e-6)
    found = [seen.gradient.latents[0], seen.gradient.frequencies, seen.gradient.scales]
    for number, gradient in enumerate(found):
        direction = np.random.default_rng(number).normal(size=at[number].shape)
        ends = []
        for step in (1e-5, -1e-5):
            moved = [a + step * direction if k == number else a for k, a in enumerate(at)]
            ends.append(total(*moved))
        slope = np.sum(np.asarray(gradient).reshape(direction.shape) * direction)
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_visits_end_at_the_best_mean_and_spectrum_and_never_above_the_evidence(kind):
    weights, bounds = weights_in_basis(), []
    rows, learned = rows_of(kind)
    step = jax.jit(lambda w: visit(rows, jnp.asarray(BASIS), w, learned, False))
    for _ in range(150):
        seen = step(weights)
        weights = seen.weights
        bounds.append(np.asarray(seen.bound))
    assert np.all(np.diff(bounds, axis=0)[3:] > -1e-6)
    for m in range(N_COLUMNS):
        mean, spectrum = np.asarray(weights.mean)[m], np.asarray(weights.spectrum)[m]

        def bound(shift=0.0, factor=0.0, mean=mean, spectrum=spectrum, m=m):
            covariance = (BASIS * (spectrum * np.exp(factor))) @ BASIS.T
            return dense_bound(kind, m, BASIS @ (mean + shift), covariance, weights.log_amplitude[m])

        for axis in np.eye(SIZE):
            for name, size in (("shift", 1e-4), ("factor", 1e-3)):
                slope = (bound(**{name: size * axis}) - bound(**{name: -size * axis})) / (2 * size)
                assert abs(slope) < 2e-3, (name, slope)
        if kind == "gaussian":
            seen_rows = OBSERVED[m]
            amplitude, noise = np.exp(weights.log_amplitude[m]), np.exp(LOG_NOISE[m])
            covariance = amplitude * PHI[seen_rows] @ PHI[seen_rows].T + noise * np.eye(seen_rows.sum())
            center = (LEVEL[m] + OFFSET)[seen_rows]
            exact = multivariate_normal.logpdf(DATA[kind][m][seen_rows], center, covariance)
            assert exact - 2.0 < bounds[-1][m] < exact + 1e-9


def test_a_basis_of_a_columns_own_makes_the_bound_the_evidence():
    """With one noise and no missing entries, all columns' covariances share the basis: nothing is lost."""
    y = DATA["gaussian"]
    rows = chunk_rows(GroupRows(y, np.ones(y.shape, bool), {}, OFFSET[None]), N_ROWS)
    data = ((jax.tree.map(jnp.asarray, rows), jnp.asarray(LEVEL)),)
    plan = GroupPlan(Gaussian("column"), N_COLUMNS, N_COLUMNS)
    picks = [jnp.arange(N_COLUMNS)]
    made = Rows((plan,), data, picks, *map(jnp.asarray, (LATENTS[None], FREQUENCIES, SCALES)))
    learned = ({"log_noise": jnp.asarray(LOG_NOISE)},)
    weights = weights_in_basis()
    step = jax.jit(lambda w: visit(made, jnp.asarray(BASIS), w, learned, False))
    for _ in range(300):
        seen = step(weights)
        weights = seen.weights
    for m in range(N_COLUMNS):
        covariance = np.exp(weights.log_amplitude[m]) * PHI @ PHI.T + np.exp(LOG_NOISE[m]) * np.eye(N_ROWS)
        exact = multivariate_normal.logpdf(y[m], LEVEL[m] + OFFSET, covariance)
        np.testing.assert_allclose(seen.bound[m], exact, rtol=1e-7)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_numbers_under_missing_entries_do_not_matter(kind):
    first = visited(kind, weights_in_basis(), moves_parameters=True)
    other = visited(kind, weights_in_basis(), moves_parameters=True, hidden=3.0)
    jax.tree.map(np.testing.assert_array_equal, first, other)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_chunks_of_rows_sum_up_to_all_rows(kind, monkeypatch):
    whole = visited(kind, weights_in_basis(), moves_parameters=True)
    monkeypatch.setattr(feature_module, "MOST_CHUNK_ROWS", 8)
    assert chunk_shape(N_ROWS)[0] > 3
    parts = visited(kind, weights_in_basis(), moves_parameters=True)
    for name in ("bound", "weights", "parameters"):
        left, right = jax.tree.leaves(getattr(whole, name)), jax.tree.leaves(getattr(parts, name))
        for one, other in zip(left, right, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    flat = np.asarray(parts.gradient.latents).reshape(-1, 2)[:N_ROWS]
    np.testing.assert_allclose(flat, np.asarray(whole.gradient.latents).reshape(-1, 2)[:N_ROWS], atol=1e-9)
    np.testing.assert_allclose(parts.gradient.frequencies, whole.gradient.frequencies, atol=1e-8)


def test_two_equal_sets_of_latents_count_as_one():
    once = visited("negative_binomial", weights_in_basis(), moves_parameters=True)
    twice = visited(
        "negative_binomial", weights_in_basis(), moves_parameters=True, latents=np.stack([LATENTS] * 2)
    )
    np.testing.assert_allclose(once.bound, twice.bound, rtol=1e-10)
    for one, other in zip(once.weights, twice.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_a_step_that_lowers_the_bound_is_taken_back_and_the_next_is_shorter(monkeypatch):
    monkeypatch.setattr(shared_basis, "_LARGEST_STEP", 1e6)
    weights = weights_in_basis()
    real = shared_basis._newton_step

    def too_far(rows, basis, weights, spectrum, parameters):
        moved, before = real(rows, basis, weights, spectrum, parameters)
        return moved._replace(mean=weights.mean + 50.0 * (moved.mean - weights.mean)), before

    monkeypatch.setattr(shared_basis, "_newton_step", too_far)
    after = visited("negative_binomial", weights).weights
    np.testing.assert_array_equal(after.mean, weights.mean)
    np.testing.assert_array_equal(after.precision, weights.precision)
    np.testing.assert_allclose(after.trust, 0.25)


@pytest.mark.parametrize("kind", ["bernoulli", "negative_binomial"])
def test_few_nodes_are_off_by_little(kind, monkeypatch):
    """Five nodes change the bound at plausible weights by less than 2e-3 nats an entry, three by 2e-2."""
    weights, found = weights_in_basis()._replace(precision=jnp.full((N_COLUMNS, SIZE), 20.0)), {}
    for nodes in (3, 5, 20):
        monkeypatch.setattr(shared_basis, "BOUND_NODES", nodes)
        found[nodes] = np.asarray(visited(kind, weights).bound) / N_ROWS
    assert np.max(np.abs(found[5] - found[20])) < 2e-3
    assert np.max(np.abs(found[3] - found[20])) < 2e-2


# ---- from one draw of the frequencies to the next -------------------------------------------------


def test_weights_move_on_to_the_function_nearest_to_the_old_one():
    rows, _ = rows_of("gaussian")
    random = np.random.default_rng(5)
    old_frequencies = FREQUENCIES + 0.1 * random.normal(size=FREQUENCIES.shape)
    old_phi = layer_features(LATENTS, old_frequencies, SCALES)
    old_basis = np.linalg.qr(random.normal(size=(SIZE, SIZE)))[0]
    u = random.uniform(0.5, 2.0, size=N_ROWS)
    n_chunks, size = chunk_shape(N_ROWS)
    padded = jnp.asarray(np.pad(u, (0, n_chunks * size - N_ROWS)).reshape(n_chunks, size))
    weights = weights_in_basis()
    basis, moved = _transfer(rows, jnp.asarray(old_frequencies), padded, jnp.asarray(old_basis), weights)
    basis = np.asarray(basis)
    np.testing.assert_allclose(basis @ basis.T, np.eye(SIZE), atol=1e-12)
    trace = np.sum(u[:, None] * old_phi**2)
    for m in range(N_COLUMNS):
        v = np.sum(weights.precision[m]) / trace
        old_f = old_phi @ old_basis @ np.asarray(weights.mean[m])
        system = v * PHI.T @ (u[:, None] * PHI) + np.exp(-weights.log_amplitude[m]) * np.eye(SIZE)
        expected_mean = np.linalg.solve(system, v * PHI.T @ (u * old_f))
        np.testing.assert_allclose(basis @ np.asarray(moved.mean[m]), expected_mean, atol=1e-9)
        covariance = (basis * np.asarray(moved.spectrum)[m]) @ basis.T
        np.testing.assert_allclose(covariance, np.linalg.inv(system), atol=1e-9)


# ---- the layer ------------------------------------------------------------------------------------


def layer_and_state(batch):
    likelihood, learned = LIKELIHOODS["negative_binomial"]
    weights = weights_in_basis()
    n_chunks, size = chunk_shape(N_ROWS)
    state = {
        "basis": jnp.asarray(BASIS),
        "basis_mean": weights.mean,
        "basis_precision": weights.precision,
        "basis_trust": weights.trust,
        "row_precision": jnp.ones((n_chunks, size)),
        "drawn_frequencies": jnp.asarray(FREQUENCIES),
        "frequency_key": jnp.zeros(4, jnp.uint32),
        "parameters": (jax.tree.map(jnp.asarray, learned),),
        "log_amplitude": (weights.log_amplitude,),
        "order": (jnp.arange(N_COLUMNS, dtype=jnp.int32),),
        "visit": jnp.asarray(1, jnp.int32),
        "log_affine": jnp.log(jnp.asarray(SCALES)),
    }
    layer = SharedBasisLayer((GroupPlan(likelihood, N_COLUMNS, batch),), has_affine=True)
    return layer, state, rows_of("negative_binomial")[0].data


def evidence_of(layer, state, data):
    def value(latents, frequencies):
        return layer.evidence(jax.random.key(0), latents, frequencies, state, data)

    point = jnp.asarray(LATENTS), jnp.asarray(FREQUENCIES)
    return jax.jit(jax.value_and_grad(value, argnums=(0, 1), has_aux=True))(*point)


def test_batches_of_columns_estimate_bound_and_gradient_without_bias():
    layer, state, data = layer_and_state(N_COLUMNS)
    (whole, _), slopes = evidence_of(layer, state, data)
    layer, state, data = layer_and_state(2)
    values, gradients = [], []
    for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
        # the visit is in the middle of a round, so that the order is kept
        own = {**state, "order": (jnp.asarray(order, jnp.int32),)}
        (value, carried), gradient = evidence_of(layer, own, data)
        values.append(value)
        gradients.append(gradient)
        still = [m for m in range(N_COLUMNS) if m not in (order[2], order[3])]
        np.testing.assert_array_equal(
            carried["basis_mean"][np.array(still)], state["basis_mean"][np.array(still)]
        )
    np.testing.assert_allclose(np.mean(values), whole, rtol=1e-10)
    for number, slope in enumerate(slopes):
        mean = np.mean([gradient[number] for gradient in gradients], axis=0)
        np.testing.assert_allclose(mean, slope, rtol=1e-8, atol=1e-9)


def test_a_draw_of_the_frequencies_is_held_for_some_visits():
    layer, state, _ = layer_and_state(N_COLUMNS)
    key = jax.random.key(3, impl="rbg")
    changed = []
    for number in range(1, 14):
        fresh = jax.random.fold_in(key, number)
        kept = layer.frequency_key(fresh, {**state, "visit": jnp.asarray(number)})
        changed.append(bool(np.any(jax.random.key_data(kept) != state["frequency_key"])))
    assert [number for number, is_new in zip(range(1, 14), changed, strict=True) if is_new] == [6, 12]
