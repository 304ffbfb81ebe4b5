"""Groups of columns under several likelihoods, with expectations and divergences by slow ways."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, gammaln, log_expit
from scipy.stats import norm

from srflvm.data.encoding import GroupRows
from srflvm.likelihoods import Bernoulli, NegativeBinomial, Poisson
from srflvm.numerics.site_regression import Sites

# Six rows, two features and the constant; terms of f that are known; a dispersion.
X = np.array([-1.5, -0.8, -0.1, 0.4, 1.1, 1.9])
PHI = np.stack([X, np.sin(2.0 * X), np.ones(6)], axis=1)
KNOWN = np.array([0.3, -0.2, 0.5, 0.1, -0.4, 0.2])
AMPLITUDE, DISPERSION = 1.5, 1.7
LOG_DISPERSION = np.log(DISPERSION)
GRID = np.linspace(-9.0, 9.0, 721)
GRID_WEIGHTS = norm.pdf(GRID) * (GRID[1] - GRID[0])


def log_negative_binomial(y, f, log_r=LOG_DISPERSION):
    r, odds = np.exp(log_r), f - log_r
    return gammaln(y + r) - gammaln(r) - gammaln(y + 1) + y * log_expit(odds) + r * log_expit(-odds)


class Case(NamedTuple):
    likelihood: object
    y: np.ndarray
    log_prob: object
    learned: dict = {}  # noqa: RUF012


COUNTS = np.array([0.0, 3.0, 1.0, 0.0, 7.0, 2.0])
CASES = {
    "bernoulli": Case(
        Bernoulli(), np.array([0.0, 1.0, 0.0, 1.0, 1.0, 1.0]), lambda y, f: log_expit(np.where(y > 0, f, -f))
    ),
    "negative_binomial": Case(
        NegativeBinomial(), COUNTS, log_negative_binomial, {"log_dispersion": np.array([LOG_DISPERSION])}
    ),
    "poisson": Case(Poisson(), COUNTS, lambda y, f: y * f - np.exp(f) - gammaln(y + 1)),
}


def expected(log_prob, y, mean, variance):
    """Compute E log p(y | f) of each entry, by the trapezoid rule."""
    f = mean[..., None] + np.sqrt(variance)[..., None] * GRID
    return log_prob(y[..., None], f) @ GRID_WEIGHTS


def divergence(mean, covariance, amplitude):
    square = (mean @ mean + np.trace(covariance)) / amplitude
    size = len(mean)
    return 0.5 * (square - size + size * np.log(amplitude) - np.linalg.slogdet(covariance)[1])


def slopes(function, mean, covariance, step=1e-4):
    """Return central differences of function(mean, covariance) in units of the Gaussian's own spread."""
    root = np.linalg.cholesky(covariance)
    moves = [(step * root @ e, 0.0) for e in np.eye(3)]
    for i, j in zip(*np.tril_indices(3), strict=True):
        outer = np.outer(root[:, i], root[:, j])
        moves.append((0.0, step * (outer + outer.T)))
    return [
        (function(mean + m, covariance + c) - function(mean - m, covariance - c)) / (2 * step)
        for m, c in moves
    ]


# Thirty rows, two features and the constant, and offsets of the rows.
N_ROWS = 30
_RANDOM = np.random.default_rng(0)
FEATURES = _RANDOM.normal(size=(N_ROWS, 2))
WHOLE = np.concatenate([FEATURES, np.ones((N_ROWS, 1))], axis=1)
OFFSET = 0.3 * _RANDOM.normal(size=N_ROWS)


def group(kind, n_columns, seed=1):
    """Draw columns of a kind, a fifth of the entries not observed: the truth (c, N), and a layer's data."""
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
    rows = GroupRows(*map(jnp.asarray, (given, observed)), {}, jnp.asarray(OFFSET)[None])
    return Y, (rows, jnp.asarray(level))


def flat_state(data, learned):
    """Return weak sites for each group, and amplitudes of one."""
    groups = [rows for rows, _ in data]
    return {
        "sites": tuple(Sites(jnp.where(g.observed, 0.1, 0.0), jnp.zeros(g.y.shape)) for g in groups),
        "parameters": tuple(jax.tree.map(jnp.asarray, mine) for mine in learned),
        "log_amplitude": tuple(jnp.zeros(len(g.y)) for g in groups),
        "order": tuple(jnp.arange(len(g.y), dtype=jnp.int32) for g in groups),
        "visit": jnp.zeros((), jnp.int32),
    }
