"""Rows with any likelihood and any holes, placed and scored under known weights, against NumPy and SciPy."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import nbinom, norm

from srflvm import row_scoring, rowwise, scoring
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


def loss_of(row):
    """-log p(y | f(x)) + |x|^2 / 2 over the observed entries of a row, under the weights' mean."""
    posterior, _, Y, _, sizes = known_model(2)
    y, offset = Y[row], np.where(np.arange(7) >= 5, sizes[row], 0.0)
    seen = ~np.isnan(y)

    def loss(x):
        f = numpy_features(posterior.frequencies, x) @ posterior.weights + posterior.level + offset
        return 0.5 * x @ x - np.sum(numpy_log_prob(np.where(seen, y, 0.0), f)[seen])

    return loss


@lru_cache
def scipy_optima():
    random = np.random.default_rng(0)
    found = [minimize(loss_of(row), random.normal(size=2), options={"gtol": 1e-9}) for row in range(12)]
    return np.array([each.x for each in found])


def embedded(*starts, rows=slice(None)):
    """Rows embedded from three starts (n, Q)."""
    posterior, _, _, raw, sizes = known_model(2)
    encoded = posterior.table.encode(raw[rows], sizes[rows])
    return embed_rows(posterior.likelihoods, posterior.frozen, rows_of(encoded), np.stack(starts, axis=1))


def test_rows_are_placed_at_the_optimum_of_the_loss():
    """From an optimum that scipy has found the solver does not move, and from near it moves towards it."""
    optima = scipy_optima()
    np.testing.assert_allclose(embedded(optima, optima, optima).mean, optima, atol=1e-6)
    near = embedded(optima + 30.0, optima + 0.05, optima - 40.0).mean
    for row, (best, x) in enumerate(zip(optima, near, strict=True)):
        loss = loss_of(row)
        assert loss(x) - loss(best) < 1e-3 * (loss(best + 0.05) - loss(best))


def test_the_covariance_is_the_inverse_of_prior_and_expected_curvature():
    """I + J diag(-l'') J', with derivatives of f and of log p by differences."""
    posterior, _, Y, _, sizes = known_model(2)
    optima, step = scipy_optima(), 1e-4
    roots = embedded(optima, optima, optima).cholesky

    def function(x):
        return numpy_features(posterior.frequencies, x) @ posterior.weights + posterior.level

    for row, x in enumerate(optima):
        jacobian = np.stack([function(x + m) - function(x - m) for m in step * np.eye(2)]) / (2.0 * step)
        f, seen = function(x) + np.where(np.arange(7) >= 5, sizes[row], 0.0), ~np.isnan(Y[row])
        y = np.where(seen, Y[row], 0.0)
        ahead, here, behind = (numpy_log_prob(y, f + s) for s in (1e-3, 0.0, -1e-3))
        precision = np.where(seen, -(ahead - 2.0 * here + behind) / 1e-6, 0.0)
        expected = np.linalg.inv(np.eye(2) + (jacobian * precision) @ jacobian.T)
        np.testing.assert_allclose(roots[row] @ roots[row].T, expected, rtol=1e-5, atol=1e-6)
        assert roots[row][0, 1] == 0.0


def test_a_row_with_nothing_observed_has_the_prior():
    """Of the starts the nearest to zero is taken."""
    placed = embedded(*(np.array([start]) for start in ([3.0, 3.0], [1.0, -1.0], [-4.0, 0.0])), rows=[9])
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
