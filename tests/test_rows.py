"""Rows with any likelihood and any holes, placed and scored under known weights, against NumPy and SciPy."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import nbinom, norm

from srflvm import row_embedding, row_scoring, rowwise, scoring
from srflvm.compression import Columns
from srflvm.embedding import Embedding
from srflvm.likelihoods import Bernoulli, Gaussian, NegativeBinomial, Units
from srflvm.observations import Group, Layout
from srflvm.pairs import pack_form
from srflvm.row_embedding import embed_rows, similar_anchors
from srflvm.row_scoring import entry_log_density, log_density
from srflvm.rowwise import rows_of
from srflvm.site_posterior import SitePosterior

NAN = np.nan
LOCATION, SCALE = np.array([1.0, -2.0, 0.5]), 2.0
LOG_NOISE, DISPERSION = np.log(0.3), 2.5
PARAMETERS = ({"log_noise": np.array([LOG_NOISE])}, {}, {"log_dispersion": np.log([DISPERSION])})


def numpy_log_prob(y, f):
    """log p of the channels (..., 7): three Gaussian, two binary, two counts."""
    gaussian = norm.logpdf(y[..., :3], f[..., :3], np.exp(0.5 * LOG_NOISE))
    binary = log_expit(np.where(y[..., 3:5] > 0.0, 1.0, -1.0) * f[..., 3:5])
    chance = DISPERSION / (DISPERSION + np.exp(f[..., 5:]))
    return np.concatenate([gaussian, binary, nbinom.logpmf(y[..., 5:], DISPERSION, chance)], axis=-1)


@lru_cache
def known_model(n_latent):
    """A smooth function with uncertain weights, and raw rows at random latents: complete, with holes, with
    one group only, and empty."""
    random = np.random.default_rng(n_latent)
    frequencies = 0.7 * random.normal(size=(3, n_latent))
    weights, level = 1.5 * random.normal(size=(7, 7)), 0.3 * random.normal(size=7)
    roots = 0.15 * random.normal(size=(7, 7, 7))
    n_rows = 12
    sizes = np.log(random.uniform(0.5, 2.0, size=n_rows))
    f = numpy_features(frequencies, random.normal(size=(n_rows, n_latent))) @ weights + level
    f[:, 5:] += sizes[:, None]
    Y = np.empty(f.shape)
    Y[:, :3] = f[:, :3] + np.exp(0.5 * LOG_NOISE) * random.normal(size=(n_rows, 3))
    Y[:, 3:5] = random.uniform(size=(n_rows, 2)) < expit(f[:, 3:5])
    Y[:, 5:] = random.poisson(np.exp(f[:, 5:]) * random.gamma(DISPERSION, 1.0 / DISPERSION, size=(n_rows, 2)))
    Y[2:6][random.uniform(size=(4, 7)) < 0.4] = NAN
    Y[6, 3:] = Y[7, :3] = Y[7, 5:] = Y[8, :5] = Y[9] = NAN
    groups = tuple(
        Group(likelihood, np.arange(first, last), Units(*units), slice(first, last))
        for likelihood, first, last, *units in [
            (Gaussian(), 0, 3, LOCATION, np.full(3, SCALE)),
            (Bernoulli(), 3, 5, np.zeros(2), np.ones(2)),
            (NegativeBinomial(), 5, 7, np.zeros(2), np.ones(2)),
        ]
    )
    with jax.enable_x64(True):
        packed = np.asarray(pack_form(jnp.asarray(roots @ np.swapaxes(roots, 1, 2))))
    posterior = SitePosterior(
        columns=Columns(np.zeros(7), 1.0, np.eye(7)),
        frequencies=frequencies,
        anchors=random.normal(size=(20, n_latent)),
        anchor_scores=random.normal(size=(20, 7)),
        table=Layout(groups, np.ones(7)),
        weights=weights,
        packed_covariance=packed,
        level=level,
        amplitude=np.ones(7),
        parameters=PARAMETERS,
    )
    covariances = roots @ np.swapaxes(roots, 1, 2)
    raw = np.concatenate([LOCATION + SCALE * Y[:, :3], Y[:, 3:]], axis=1)
    return posterior, covariances, Y, raw, sizes


def numpy_features(frequencies, latents):
    phase = latents @ frequencies.T
    waves = np.concatenate([np.sin(phase), np.cos(phase)], axis=-1) / np.sqrt(len(frequencies))
    return np.concatenate([waves, np.ones((*waves.shape[:-1], 1))], axis=-1)


def function_of(row, n_latent=2):
    """f (7,) of a row at a latent, under the weights' mean."""
    posterior, _, _, _, sizes = known_model(n_latent)
    known = posterior.level + np.where(np.arange(7) >= 5, sizes[row], 0.0)
    return lambda x: numpy_features(posterior.frequencies, x) @ posterior.weights + known


def loss_of(row, n_latent=2):
    """-log p(y | f(x)) + |x|^2 / 2 over the observed entries of a row, under the weights' mean."""
    y, function = known_model(n_latent)[2][row], function_of(row, n_latent)
    seen = ~np.isnan(y)

    def loss(x):
        return 0.5 * x @ x - np.sum(numpy_log_prob(np.where(seen, y, 0.0), function(x))[seen])

    return loss


def precisions_of(row, x):
    """-l'' (7,) of a row's entries at a latent by differences, zero where nothing is observed."""
    y, f = known_model(len(x))[2][row], function_of(row, len(x))(x)
    seen = ~np.isnan(y)
    ahead, here, behind = (numpy_log_prob(np.where(seen, y, 0.0), f + s) for s in (1e-3, 0.0, -1e-3))
    return np.where(seen, -(ahead - 2.0 * here + behind) / 1e-6, 0.0)


def curvature_of(row, x):
    """I + J diag(-l'') J', with derivatives of f and of log p by differences."""
    function, step = function_of(row, len(x)), 1e-4
    moves = step * np.eye(len(x))
    jacobian = np.stack([function(x + m) - function(x - m) for m in moves]) / (2.0 * step)
    return np.eye(len(x)) + (jacobian * precisions_of(row, x)) @ jacobian.T


@lru_cache
def scipy_optima():
    random = np.random.default_rng(0)
    found = [minimize(loss_of(row), random.normal(size=2), options={"gtol": 1e-9}) for row in range(12)]
    return np.array([each.x for each in found])


def embedded(*starts, rows=slice(None), certain=True):
    """Rows embedded from three starts (n, Q), with the weights certain or not."""
    posterior, _, _, raw, sizes = known_model(starts[0].shape[1])
    frozen = posterior.frozen._replace(packed_covariance=None) if certain else posterior.frozen
    encoded = posterior.table.encode(raw[rows], sizes[rows])
    return embed_rows(posterior.likelihoods, frozen, rows_of(encoded), np.stack(starts, axis=1))


def test_rows_are_placed_at_the_optimum_of_the_loss():
    """From an optimum that scipy has found the solver does not move, and from near it moves towards it."""
    optima = scipy_optima()
    np.testing.assert_allclose(embedded(optima, optima, optima).mean, optima, atol=1e-6)
    near = embedded(optima + 30.0, optima + 0.05, optima - 40.0).mean
    for row, (best, x) in enumerate(zip(optima, near, strict=True)):
        loss = loss_of(row)
        assert loss(x) - loss(best) < 1e-3 * (loss(best + 0.05) - loss(best))


def test_the_covariance_is_the_inverse_of_prior_and_expected_curvature():
    optima = scipy_optima()
    roots = embedded(optima, optima, optima).cholesky
    for row, x in enumerate(optima):
        expected = np.linalg.inv(curvature_of(row, x))
        np.testing.assert_allclose(roots[row] @ roots[row].T, expected, rtol=1e-5, atol=1e-6)
        assert roots[row][0, 1] == 0.0


# ---- uncertain weights ----------------------------------------------------------------------------


def nearest_minimum(row, start, spread):
    """The minimum, found by scipy, of the loss at x averaged over x + spread (K, Q), with uncertain weights
    as seen from `start`; and the mean curvature there."""
    posterior, covariances = known_model(len(start))[:2]
    loss = loss_of(row, len(start))
    uncertain = np.einsum("c,cij->ij", precisions_of(row, start), covariances)

    def bound(x):
        phi = numpy_features(posterior.frequencies, x + spread)
        return np.mean([loss(x + step) for step in spread]) + 0.5 * np.mean(np.sum(phi @ uncertain * phi, -1))

    found = minimize(bound, start, method="BFGS", options={"gtol": 1e-8})
    curvatures = [curvature_of(row, found.x + step) for step in spread]
    return found.x, np.linalg.inv(np.mean(curvatures, axis=0))


def test_uncertain_weights_and_latents_move_rows_to_the_optimum_of_the_bound(monkeypatch):
    """From the best latent at certain weights: first to the best at uncertain ones, then to the best mean of
    a q(x) as wide as the curvature there says, each with the precisions of where it starts."""
    optima = scipy_optima()
    few_steps = embedded(optima, optima, optima, certain=False).mean
    monkeypatch.setattr(row_embedding, "_STEPS_OF_SPREAD", 40)
    placed = embedded(optima, optima, optima, certain=False)
    for row, start in enumerate(optima):
        first, covariance = nearest_minimum(row, start, np.zeros((1, 2)))
        steps = np.sqrt(2.0) * np.linalg.cholesky(covariance).T
        mean, covariance = nearest_minimum(row, first, np.concatenate([steps, -steps]))
        np.testing.assert_allclose(placed.mean[row], mean, atol=2e-4)
        np.testing.assert_allclose(placed.cholesky[row] @ placed.cholesky[row].T, covariance, atol=2e-4)
    assert np.max(np.abs(placed.mean - optima)) > 0.1
    assert np.max(np.abs(placed.mean - few_steps)) < 0.1


def row_bound(row, mean, root):
    """E log p(y, x) over q(x) and q(H), by 400 draws of q(x), the same for all calls, and a dense rule for
    f."""
    posterior, covariances, Y, _, _ = known_model(len(mean))
    y, seen = Y[row], ~np.isnan(Y[row])
    x = mean + np.random.default_rng(row).normal(size=(400, len(mean))) @ root.T
    phi = numpy_features(posterior.frequencies, x)
    z = np.linspace(-6.0, 6.0, 61)
    spread = np.sqrt(np.einsum("gl,clk,gk->gc", phi, covariances, phi))
    f = function_of(row, len(mean))(x)[:, None] + spread[:, None] * z[:, None]
    expected = np.einsum("gzc,z->gc", numpy_log_prob(np.where(seen, y, 0.0) + 0.0 * f, f), norm.pdf(z)) * 0.2
    return np.mean(np.sum(expected[:, seen], axis=1) - 0.5 * np.sum(x**2, axis=1))


def test_the_bound_is_higher_than_at_the_mode_of_certain_weights():
    optima = scipy_optima()
    placed = embedded(optima, optima, optima, certain=False)
    gains = [
        row_bound(row, placed.mean[row], root) - row_bound(row, optima[row], root)
        for row, root in enumerate(placed.cholesky)
    ]
    # the points of q(x) are exact for cubic functions, not for these
    assert np.median(gains) > 0.01
    assert np.min(gains) > -0.05
    assert np.sum(gains) > 0.3


def test_many_latents_are_placed_without_averaging_over_them():
    """Some rows lie between two optima, and scipy takes the other."""
    starts = np.random.default_rng(1).normal(size=(12, 9))
    placed = embedded(starts, starts, starts, certain=False)
    alike = 0
    for row, start in enumerate(starts):
        mean, covariance = nearest_minimum(row, start, np.zeros((1, 9)))
        if np.allclose(placed.mean[row], mean, atol=5e-3):
            alike += 1
            root = placed.cholesky[row]
            np.testing.assert_allclose(root @ root.T, covariance, atol=2e-3)
    assert alike >= 8


def test_a_row_with_nothing_observed_has_the_prior():
    """Of the starts the nearest to zero is taken."""
    starts = [np.array([start]) for start in ([3.0, 3.0], [1.0, -1.0], [-4.0, 0.0])]
    for certain in (True, False):
        placed = embedded(*starts, rows=[9], certain=certain)
        assert np.max(np.abs(placed.mean)) < 1e-5
        np.testing.assert_array_equal(placed.cholesky[0], np.eye(2))


def test_a_row_gets_the_same_place_alone_and_in_any_batch(monkeypatch):
    posterior, _, _, raw, sizes = known_model(2)
    whole = posterior.place(raw, sizes)
    monkeypatch.setattr(rowwise, "_CHUNKS", (5, 5))
    chunks = posterior.place(raw, sizes)
    for left, right in zip(whole, chunks, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)
    for row in (3, 11):
        for left, right in zip(chunks, posterior.place(raw[[row]], sizes[[row]]), strict=True):
            np.testing.assert_array_equal(left[row], right[0])


def test_anchors_are_the_nearest_in_the_observed_columns():
    random = np.random.default_rng(0)
    rows, anchors = random.normal(size=(5, 4)), random.normal(size=(9, 4))
    rows[random.uniform(size=rows.shape) < 0.4] = NAN
    found = similar_anchors(rows, anchors, 3)
    for row, chosen in zip(rows, found, strict=True):
        np.testing.assert_array_equal(chosen, np.argsort(np.nansum((anchors - row) ** 2, axis=1))[:3])
    assert similar_anchors(rows, anchors[:2], 3).shape == (5, 2)


# ---- densities under uncertain weights ------------------------------------------------------------


def entry_densities(latents, row):
    """log E p(y_c | f_c) at latents (g, 1) over f_c ~ N(phi'h_c, phi'V_c phi), by the trapezoid rule."""
    posterior, covariances, Y, _, sizes = known_model(1)
    phi = numpy_features(posterior.frequencies, latents)
    mean = phi @ posterior.weights + posterior.level + np.where(np.arange(7) >= 5, sizes[row], 0.0)
    deviation = np.sqrt(np.einsum("gl,clk,gk->gc", phi, covariances, phi))
    z = np.linspace(-8.0, 8.0, 161)
    f = mean[:, None] + deviation[:, None] * z[:, None]
    log_terms = numpy_log_prob(np.nan_to_num(Y[row]) + 0.0 * f, f) + norm.logpdf(z)[:, None]
    return logsumexp(log_terms, axis=1) + np.log(0.1)


GRID = np.linspace(-7.0, 7.0, 401)


@lru_cache
def row_posteriors():
    """For each row log p(y), and log p(y, x) with mean and deviation of p(x | y) on a grid of latents."""
    found = []
    for row, y in enumerate(known_model(1)[2]):
        log_joint = np.sum(entry_densities(GRID[:, None], row)[:, ~np.isnan(y)], axis=1) + norm.logpdf(GRID)
        total = logsumexp(log_joint)
        share = np.exp(log_joint - total)
        mean = share @ GRID
        found.append(
            (total + np.log(GRID[1] - GRID[0]), log_joint, mean, np.sqrt(share @ (GRID - mean) ** 2))
        )
    return found


def one_dimensional():
    posterior, _, _, raw, sizes = known_model(1)
    _, _, mean, deviation = (np.array(part) for part in zip(*row_posteriors(), strict=True))
    return posterior, Embedding(mean[:, None], deviation[:, None, None]), posterior.table.encode(raw, sizes)


def test_log_densities_of_rows_are_integrals_over_the_latent(monkeypatch):
    """With evenly spread draws the estimate is an integral. With random ones its log has the variance
    [E w^2 / (E w)^2 - 1] / draws, w = p(y, x) / q(x), which quadrature gives."""
    exact = np.array([row[0] for row in row_posteriors()])
    few = log_density(*one_dimensional())
    errors = []
    for log_total, log_joint, mean, deviation in row_posteriors():
        log_proposal = norm.logpdf(GRID, mean, scoring.WIDENING * deviation)
        second = logsumexp(2.0 * log_joint - log_proposal) + np.log(GRID[1] - GRID[0])
        errors.append(np.sqrt((np.exp(second - 2.0 * log_total) - 1.0) / scoring.N_DRAWS))
    # quasi-random draws are nearer than independent ones
    np.testing.assert_array_less(np.abs(few - exact), 0.3 * np.array(errors))
    assert np.max(errors) < 0.05
    even = norm.ppf((np.arange(64) + 0.5) / 64)[:, None]
    monkeypatch.setattr(row_scoring, "quasi_normals", lambda n_latent: even)
    np.testing.assert_allclose(log_density(*one_dimensional()), exact, atol=2e-3)


def test_log_densities_of_entries_are_averages_over_the_latent():
    """The latent's two cubature points are exact to the third order: the rest falls with its deviation^4."""
    posterior, placed, encoded = one_dimensional()
    found = entry_log_density(posterior, placed, encoded)
    narrow = Embedding(placed.mean, 0.1 * placed.cholesky)
    nearly = entry_log_density(posterior, narrow, encoded)
    t = np.linspace(-8.0, 8.0, 81)
    for row, y in enumerate(known_model(1)[2]):
        seen = ~np.isnan(y)
        two = entry_densities(placed.mean[row] + placed.cholesky[row] * [[-1.0], [1.0]], row)
        np.testing.assert_allclose(found[row, seen], (logsumexp(two, axis=0) - np.log(2.0))[seen], atol=1e-6)
        around = entry_densities(narrow.mean[row] + narrow.cholesky[row] * t[:, None], row)
        whole = logsumexp(around + norm.logpdf(t)[:, None], axis=0) + np.log(0.2)
        np.testing.assert_allclose(nearly[row, seen], whole[seen], atol=1e-4)
        assert np.all(np.isnan(found[row, ~seen]))
