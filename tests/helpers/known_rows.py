"""Model whose weights are known, with rows of every kind, and independent truths about them."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import nbinom, norm

from srflvm.data.encoding import Columns, Group, Layout
from srflvm.likelihoods import Bernoulli, Gaussian, NegativeBinomial, Units
from srflvm.numerics.packed_symmetric import pack_form
from srflvm.numerics.weight_covariances import PackedCovariances
from srflvm.posterior.embedding import embed_rows
from srflvm.posterior.sites import SitePosterior

NAN = np.nan
LOCATION, SCALE = np.array([1.0, -2.0, 0.5]), 2.0
LOG_NOISE, DISPERSION = np.log(0.3), 2.5
PARAMETERS = ({"log_noise": np.array([LOG_NOISE])}, {}, {"log_dispersion": np.log([DISPERSION])})


def numpy_log_prob(y, f):
    """Compute log p of the channels (..., 7): three Gaussian, two binary, two counts."""
    gaussian = norm.logpdf(y[..., :3], f[..., :3], np.exp(0.5 * LOG_NOISE))
    binary = log_expit(np.where(y[..., 3:5] > 0.0, 1.0, -1.0) * f[..., 3:5])
    chance = DISPERSION / (DISPERSION + np.exp(f[..., 5:]))
    return np.concatenate([gaussian, binary, nbinom.logpmf(y[..., 5:], DISPERSION, chance)], axis=-1)


@lru_cache
def known_model(n_latent):
    """Draw a smooth function with uncertain weights, and raw rows at random latents.

    Rows are complete, have missing entries, have one group only, or are empty.
    """
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
        covariance=PackedCovariances(packed),
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
    """Return f (7,) of a row as a function of its latent, under the weights' mean."""
    posterior, _, _, _, sizes = known_model(n_latent)
    known = posterior.level + np.where(np.arange(7) >= 5, sizes[row], 0.0)
    return lambda x: numpy_features(posterior.frequencies, x) @ posterior.weights + known


def loss_of(row, n_latent=2):
    """Return -log p(y | f(x)) + |x|^2 / 2 of a row's observed entries as a function of x."""
    y, function = known_model(n_latent)[2][row], function_of(row, n_latent)
    seen = ~np.isnan(y)

    def loss(x):
        return 0.5 * x @ x - np.sum(numpy_log_prob(np.where(seen, y, 0.0), function(x))[seen])

    return loss


def precisions_of(row, x):
    """Compute -l'' (7,) of a row's entries at a latent by differences, zero where nothing is observed."""
    y, f = known_model(len(x))[2][row], function_of(row, len(x))(x)
    seen = ~np.isnan(y)
    ahead, here, behind = (numpy_log_prob(np.where(seen, y, 0.0), f + s) for s in (1e-3, 0.0, -1e-3))
    return np.where(seen, -(ahead - 2.0 * here + behind) / 1e-6, 0.0)


def curvature_of(row, x):
    """Compute I + J diag(-l'') J', with derivatives of f and of log p by differences."""
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
    """Embed rows from three starts (n, Q), with the weights certain or not."""
    posterior, _, _, raw, sizes = known_model(starts[0].shape[1])
    function = posterior.function._replace(covariance=None) if certain else posterior.function
    filled = tuple(group.filled() for group in posterior.layout.encode(raw[rows], sizes[rows]))
    return embed_rows(posterior.channel_likelihoods, function, filled, np.stack(starts, axis=1))
