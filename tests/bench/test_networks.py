import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, nbinom
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from srflvm.exceptions import DataError
from srflvm_bench.baselines import cvq_vae, dca, nbvae, vae
from srflvm_bench.baselines.networks import Layer, Training, apply_network, init_network, train


def neighbour_accuracy(Z, labels):
    return cross_val_score(KNeighborsClassifier(1), Z, labels, cv=5).mean()


@pytest.fixture(scope="module")
def count_clusters():
    """Negative binomial counts of 150 rows in five kinds, their labels, and their means."""
    rng = np.random.RandomState(0)
    labels = np.repeat(np.arange(5), 30)
    sizes = rng.uniform(0.5, 2.0, (150, 1))
    means = sizes * np.exp(1.0 + rng.standard_normal((5, 20)))[labels]
    return rng.poisson(means * rng.gamma(3.0, 1.0 / 3.0, means.shape)).astype(float), labels, means


@pytest.fixture(scope="module")
def clusters():
    """Draw two hundred rows in five clusters of twelve dimensions, and their labels."""
    rng = np.random.RandomState(0)
    labels = np.repeat(np.arange(5), 40)
    return 2.0 * rng.standard_normal((5, 12))[labels] + 0.5 * rng.standard_normal((200, 12)), labels


# ---- networks ---------------------------------------------------------------------------------------------


def test_a_network_is_its_formula():
    network = init_network(jax.random.key(0), (3, 4, 2))
    (W, b), (V, c) = (Layer(np.asarray(w), np.asarray(v) + 0.1) for w, v in network)
    y = np.random.RandomState(0).standard_normal((5, 3))
    np.testing.assert_allclose(
        apply_network((Layer(W, b), Layer(V, c)), y, jnp.tanh), np.tanh(y @ W + b) @ V + c
    )
    assert W.std() == pytest.approx((2.0 / 7.0) ** 0.5, rel=0.5)


class LeastSquares:
    """Linear regression, whose optimum is known; the state counts steps."""

    def loss(self, parameters, state, key, batch):
        x, y = batch
        return jnp.mean((y - x @ parameters) ** 2), state + 1

    def adjust(self, parameters, state):
        return parameters


def test_training_reaches_the_optimum_and_stops():
    rng = np.random.RandomState(0)
    x = rng.standard_normal((50, 2))
    y = x @ np.array([1.0, -2.0])
    data, start = (jnp.asarray(x), jnp.asarray(y)), jnp.zeros(2)
    fit = train(LeastSquares(), start, data, Training(400, 20, 0.05), jax.random.key(0), 0)
    np.testing.assert_allclose(fit.parameters, [1.0, -2.0], atol=1e-2)
    assert 50 < len(fit.losses) < 400
    assert fit.state == 8 * len(fit.losses)  # eight whole batches of 6 in 50 rows


def test_stops_when_little_was_gained_of_late():
    training = Training(100, 10, 0.1, patience=2, tolerance=0.01)
    assert not training.is_finished([10.0, 3.0, 3.0])
    assert training.is_finished([10.0, 1.0, 1.0, 0.99, 0.99])
    assert not training.is_finished([10.0, 1.0, 1.0, 0.5, 0.5])


# ---- VAE --------------------------------------------------------------------------------------------------


def test_divergence_from_the_prior_by_monte_carlo():
    encoding = vae.Encoding(jnp.array([[0.5, -1.0]]), jnp.log(jnp.array([[0.3, 1.7]])))
    x = np.asarray(vae.draw(jax.random.key(1), vae.Encoding(*(jnp.repeat(e, 40_000, 0) for e in encoding))))
    q = multivariate_normal([0.5, -1.0], np.diag([0.3, 1.7]))
    ratios = q.logpdf(x) - multivariate_normal(np.zeros(2)).logpdf(x)
    error = ratios.std() / len(x) ** 0.5
    assert abs(float(vae.divergence(encoding)[0]) - ratios.mean()) < 4.0 * error


@pytest.fixture(scope="module")
def linear_autoencoder():
    """Make a linear decoder with orthogonal directions, so that p(x | y) factorises, and p(x | y) as encoder.

    Its precision is I + W W' / noise = diag(1 + |w_q|^2 / noise), its mean (y - b) W' / noise / precision.
    """
    W, b, noise = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.7]]), np.array([0.5, -1.0, 2.0]), 0.3
    precision = 1.0 + np.sum(W**2, axis=1) / noise
    gain = W.T / noise / precision
    weights = np.hstack([gain, np.zeros((3, 2))])
    with jax.enable_x64(True):
        encoder = Layer(jnp.asarray(weights), jnp.asarray(np.r_[-b @ gain, -np.log(precision)]))
        decoder = Layer(jnp.asarray(W), jnp.asarray(b))
        return vae.Parameters((encoder,), (decoder,), jnp.log(noise)), multivariate_normal(
            b, W.T @ W + noise * np.eye(3)
        )


def mean_bound(parameters, y, n_draws=4000):
    keys = jax.random.split(jax.random.key(0), n_draws)
    bounds = np.asarray(
        jax.vmap(lambda key: vae.Autoencoder(False).bound(parameters, key, y, jnp.ones_like(y)))(keys)
    )
    return bounds.mean(axis=0), bounds.std(axis=0) / n_draws**0.5


def test_with_the_exact_posterior_the_bound_is_the_evidence(linear_autoencoder):
    parameters, marginal = linear_autoencoder
    y = np.random.RandomState(0).standard_normal((4, 3))
    bound, error = mean_bound(parameters, jnp.asarray(y))
    assert np.all(np.abs(bound - marginal.logpdf(y)) < 4.0 * error)


def test_the_bound_is_below_an_importance_sampled_likelihood(linear_autoencoder):
    parameters, marginal = linear_autoencoder
    (layer,) = parameters.encoder
    worse = parameters._replace(encoder=(Layer(0.7 * layer.weights, layer.bias + 0.3),))
    y = np.random.RandomState(0).standard_normal((4, 3))
    encoding = vae.encode(worse.encoder, jnp.asarray(y))
    wide = vae.Encoding(encoding.mean, encoding.log_variance + 1.0)
    draws = jax.vmap(lambda key: vae.draw(key, wide))(jax.random.split(jax.random.key(1), 20_000))
    likelihood = jax.vmap(lambda x: vae.Autoencoder(False).log_likelihood(worse, x, jnp.asarray(y), 1.0))(
        draws
    )
    square = (draws - wide.mean) ** 2 / jnp.exp(wide.log_variance)
    log_ratio = 0.5 * jnp.sum(square + wide.log_variance - draws**2, axis=-1)
    sampled = jax.scipy.special.logsumexp(likelihood + log_ratio, axis=0) - np.log(20_000)
    np.testing.assert_allclose(sampled, marginal.logpdf(y), atol=0.05)
    bound, error = mean_bound(worse, jnp.asarray(y))
    assert np.all(bound + 4.0 * error < np.asarray(sampled))


def test_vae_keeps_clusters_apart(clusters):
    Y, labels = clusters
    settings = {"hidden": (32,), "batch_size": 50, "learning_rate": 5e-3, "n_epochs": 80, "random_state": 0}
    model = vae.VAE(**settings)
    Z = model.fit_transform(Y)
    assert Z.shape == (200, 2)
    assert Z.dtype == np.float64
    assert neighbour_accuracy(Z, labels) > 0.9
    assert model.bound_history_[-1] > model.bound_history_[0]
    np.testing.assert_array_equal(vae.VAE(**settings).fit_transform(Y), Z)
    holes = np.random.default_rng(0).random(Y.shape) < 0.1
    filled = vae.VAE(**settings).reconstruct(np.where(holes, np.nan, Y))
    assert np.mean((filled - Y)[holes] ** 2) < 0.5 * np.mean((Y - Y.mean(axis=0))[holes] ** 2)


def test_vae_of_binary_rows(clusters):
    Y, labels = clusters
    model = vae.VAE(hidden=(32,), batch_size=50, learning_rate=5e-3, n_epochs=80, random_state=0)
    Z = model.fit_transform((Y > 0.0).astype(float))
    assert neighbour_accuracy(Z, labels) > 0.8
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        vae.VAE(likelihood="bernoulli").fit_transform(Y)


# ---- counts: NBVAE and DCA --------------------------------------------------------------------------------


def test_log_pmf_of_nbvae_is_that_of_scipy():
    y = np.array([0.0, 1.0, 7.0, 300.0])[:, None]
    log_r, logit_p = np.array([-1.0, 0.5, 3.0]), np.array([0.3, -2.0, 1.0])
    p = 1.0 / (1.0 + np.exp(-logit_p))
    expected = nbinom.logpmf(y, np.exp(log_r), 1.0 - p)
    np.testing.assert_allclose(
        nbvae.log_pmf(y, jnp.asarray(log_r), jnp.asarray(logit_p)), expected, rtol=1e-6
    )


def test_nbvae_separates_kinds_of_counts(count_clusters):
    Y, labels, _ = count_clusters
    model = nbvae.NBVAE(hidden=(32,), batch_size=50, learning_rate=5e-3, n_epochs=100, random_state=0)
    assert neighbour_accuracy(model.fit_transform(Y), labels) > 0.9
    assert model.bound_history_[-1] > model.bound_history_[0]


@pytest.mark.parametrize("system", [nbvae.NBVAE, dca.DCA])
def test_only_counts_are_taken_for_counts(system):
    with pytest.raises(DataError, match="whole number"):
        system().fit_transform(np.full((4, 2), 0.5))


def test_log_pmf_of_dca_is_that_of_scipy():
    y, mean, dispersion = (
        np.array([0.0, 2.0, 40.0])[:, None],
        np.array([0.2, 3.0, 50.0]),
        np.array([0.5, 2.0, 9.0]),
    )
    expected = nbinom.logpmf(y, dispersion, dispersion / (dispersion + mean))
    np.testing.assert_allclose(dca.log_pmf(y, jnp.log(mean), jnp.log(dispersion)), expected, rtol=1e-6)
    dropout = np.array([0.1, 0.5, 0.9])
    mixed = np.log((1.0 - dropout) * np.exp(expected) + dropout * (y == 0.0))
    value = dca.zero_inflated_log_pmf(
        y, jnp.log(mean), jnp.log(dispersion), jnp.log(dropout / (1.0 - dropout))
    )
    np.testing.assert_allclose(value, mixed, rtol=1e-6)


def test_zero_inflated_probabilities_sum_to_one():
    y = jnp.arange(4000.0)[:, None]
    values = dca.zero_inflated_log_pmf(
        y, jnp.log(jnp.array([0.5, 30.0])), jnp.array([0.0, 0.7]), jnp.array([-1.0, 0.4])
    )
    np.testing.assert_allclose(jnp.sum(jnp.exp(values), axis=0), 1.0, rtol=1e-9)


def test_sizes_are_totals_over_their_median():
    sizes = dca.row_sizes(np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0], [4.0, 2.0]]))
    np.testing.assert_allclose(sizes[:, 0], [0.5, 1.0, 1.0, 1.5])


@pytest.mark.parametrize("zero_inflated", [False, True])
def test_dca_denoises_counts_and_separates_their_kinds(count_clusters, zero_inflated):
    Y, labels, means = count_clusters
    if zero_inflated:
        Y = Y * (np.random.RandomState(1).uniform(size=Y.shape) < 0.8)
    model = dca.DCA(
        zero_inflated=zero_inflated,
        hidden=(32,),
        batch_size=50,
        learning_rate=5e-3,
        n_epochs=80,
        random_state=0,
    )
    assert neighbour_accuracy(model.fit_transform(Y), labels) > (0.8 if zero_inflated else 0.9)

    def error(estimate):
        return np.mean((np.log1p(estimate) - np.log1p(means)) ** 2)

    sizes = dca.row_sizes(Y)
    assert error(model.denoised_) < 0.5 * min(error(Y), error(sizes * np.mean(Y / sizes, axis=0)))
    if zero_inflated:
        # without dropout the mean includes the lost fifth of the counts
        assert np.sum(model.denoised_) == pytest.approx(means.sum(), rel=0.1)


# ---- CVQ-VAE ----------------------------------------------------------------------------------------------


def test_nearest_code_by_brute_force():
    rng = np.random.RandomState(0)
    x, codes = rng.standard_normal((6, 2)), rng.standard_normal((4, 2))
    expected = [[np.linalg.norm(a - e) ** 2 for e in codes] for a in x]
    np.testing.assert_allclose(
        cvq_vae.square_distances(jnp.asarray(x), jnp.asarray(codes)), expected, rtol=1e-12
    )


def test_the_gradient_passes_straight_through():
    x, code, slope = jnp.array([0.2, 0.9]), jnp.array([0.0, 1.0]), jnp.array([3.0, -2.0])
    np.testing.assert_allclose(cvq_vae.straight_through(x, code), code)
    through, to_code = jax.grad(lambda x, e: slope @ cvq_vae.straight_through(x, e) ** 2, (0, 1))(x, code)
    np.testing.assert_allclose(through, 2.0 * slope * code)
    np.testing.assert_allclose(to_code, 0.0)


def test_gradients_of_the_quantised_autoencoder_are_those_of_its_terms():
    """One row, linear maps, by hand: the reconstruction moves encoder and decoder, not the code."""
    y, A, D = np.array([[1.0, -0.5, 2.0]]), np.ones((3, 1)) * 0.3, np.array([[1.0, 2.0, -1.0]])
    codes = np.array([[0.5], [-3.0]])
    parameters = cvq_vae.Parameters(
        (Layer(jnp.asarray(A), jnp.zeros(1)),), (Layer(jnp.asarray(D), jnp.zeros(3)),), jnp.asarray(codes)
    )
    model = cvq_vae.QuantisedAutoencoder(commitment=0.25, decay=0.9, anchor="closest")
    usage = cvq_vae.Usage(jnp.array([0.2, 0.4]), jnp.zeros((2, 1)))
    loss = jax.value_and_grad(
        lambda p: model.loss(p, usage, jax.random.key(0), (jnp.asarray(y),)), has_aux=True
    )
    (value, state), slope = loss(parameters)
    x, e = y @ A, codes[:1]
    residual = y - e @ D
    np.testing.assert_allclose(value, np.mean(residual**2) + 1.25 * (e - x).item() ** 2)
    np.testing.assert_allclose(slope.codes, np.array([[2.0 * (e - x).item()], [0.0]]))
    on_latent = -2.0 / 3.0 * residual @ D.T + 0.25 * 2.0 * (x - e)
    np.testing.assert_allclose(slope.encoder[0].weights, y.T @ on_latent)
    np.testing.assert_allclose(state.average, [0.9 * 0.2 + 0.1, 0.9 * 0.4])
    np.testing.assert_allclose(state.anchors, np.repeat(x, 2, axis=0))


def test_only_unused_codes_are_pulled():
    codes, anchors = jnp.zeros((2, 1)), jnp.ones((2, 1))
    moved = cvq_vae.pull_codes(codes, cvq_vae.Usage(jnp.array([0.5, 0.0]), anchors), decay=0.99)
    np.testing.assert_allclose(moved[:, 0], [0.0, np.exp(-1e-3)], atol=1e-12)


def test_anchors_are_rows_and_near_ones_likelier():
    x, codes = jnp.array([[0.0], [1.0], [5.0]]), jnp.tile(jnp.array([[0.8]]), (5000, 1))
    distances = cvq_vae.square_distances(x, codes)
    np.testing.assert_array_equal(
        cvq_vae.choose_anchors(jax.random.key(0), x, distances, "closest"), codes * 0 + 1.0
    )
    drawn = np.asarray(cvq_vae.choose_anchors(jax.random.key(0), x, distances, "random"))
    chance = np.exp(-np.array([0.64, 0.04, 17.64]))
    chance /= chance.sum()
    for row, p in zip((0.0, 1.0, 5.0), chance, strict=True):
        assert abs(np.mean(drawn == row) - p) < 4.0 * (p * (1.0 - p) / 5000) ** 0.5


def test_fewer_codes_stay_dead_than_with_plain_quantisation(clusters):
    Y, labels = clusters
    used = {}
    for anchor in (None, "closest", "random"):
        model = cvq_vae.CVQVAE(
            n_codes=64,
            anchor=anchor,
            hidden=(32,),
            batch_size=50,
            learning_rate=5e-3,
            n_epochs=60,
            random_state=0,
        )
        Z = model.fit_transform(Y)
        used[anchor] = len(np.unique(model.code_of_row_))
        if anchor is not None:
            assert neighbour_accuracy(Z, labels) > 0.9
    assert 1.5 * used[None] < min(used["closest"], used["random"])


def test_cvq_vae_refuses_an_anchor_it_does_not_know():
    with pytest.raises(ValueError, match="farthest"):
        cvq_vae.CVQVAE(anchor="farthest").fit_transform(np.ones((4, 2)))
