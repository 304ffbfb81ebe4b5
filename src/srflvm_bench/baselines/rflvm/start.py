"""Data, priors and first state of the sampler, from a table."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.compression import compress
from srflvm.inference.starts import LATENTS, starting_point
from srflvm_bench.baselines.rflvm.mixture import Base, Components
from srflvm_bench.baselines.rflvm.model import Data, Prior, State

# Biases of counts and of binary columns are on a logarithmic scale with an unknown origin.
_WIDE = 100.0
_SMALLEST_RATIO = 1e-4


def make_prior(n_components: int, likelihood: str) -> Prior:
    """Return weak priors: covariances of clusters with mean I, a Gamma(1, 1) concentration."""
    base = Base(kappa=1.0, nu=n_components + 2.0, scale=1.0, shape=1.0, rate=1.0)
    return Prior(base, bias_variance=1.0 if likelihood == "gaussian" else _WIDE)


def make_data(Y: FloatArray, likelihood: str) -> Data:
    """Convert a table to the data of the sampler.

    Gaussian columns are centred and divided by one common standard deviation. Rows of a multinomial become
    binomial sticks: y_m of the trials that the columns before m leave, for all columns but the last.
    """
    observed = ~np.isnan(Y)
    trials: Any = np.ones(())
    if likelihood == "gaussian":
        location, scale = gaussian_units(Y)
        Y = (Y - location) / scale
    elif likelihood == "multinomial":
        trials = np.cumsum(np.where(observed, Y, 0.0)[:, ::-1], axis=1)[:, ::-1][:, :-1]
        Y, observed = Y[:, :-1], observed[:, :-1]
    y = np.where(observed, Y, 0.0)
    tails = _tails(y) if likelihood == "negative_binomial" else None
    return Data(jnp.asarray(y), jnp.asarray(1.0 * observed), jnp.asarray(trials), tails)


def _tails(counts: FloatArray) -> Any:
    """Count the entries of each column above 0, 1, ..., up to the largest.

    Returns None if that is no shorter than the counts themselves.
    """
    largest = int(counts.max())
    if largest > len(counts):
        return None
    numbers = [np.bincount(column.astype(int), minlength=largest + 1)[1:] for column in counts.T]
    return jnp.asarray(np.cumsum(np.array(numbers)[:, ::-1], axis=1)[:, ::-1].astype(float))


def gaussian_units(Y: FloatArray) -> tuple[FloatArray, float]:
    """Compute the means of columns and one standard deviation around them, without NaN."""
    location = np.nanmean(Y, axis=0)
    return location, float(np.nanstd(Y - location)) or 1.0


def first_state(
    Y: FloatArray, data: Data, likelihood: str, n_components: int, n_frequencies: int, seed: int
) -> State:
    """Return the first state of a chain.

    Latents come from PCA of Y, of log(1 + Y) for counts, with column means for missing entries. Frequencies
    have the scale with the highest evidence for them and form one cluster. Weights are zero, and biases match
    the means of the columns.
    """
    rng = np.random.RandomState(seed)
    table = Y if likelihood in ("gaussian", "bernoulli") else np.log1p(Y)
    table = np.where(np.isnan(table), np.nanmean(table, axis=0), table)
    compressed = compress(table, "auto")
    latents = LATENTS["pca"](compressed, n_components, rng)
    found = starting_point(
        "pca", latents, compressed, rng, n_frequencies=n_frequencies, smallest_ratio=_SMALLEST_RATIO
    )
    n_columns = data.y.shape[1]
    weights = np.zeros((n_columns, 2 * n_frequencies + 1))
    weights[:, -1] = _first_biases(data, likelihood)
    slots = n_frequencies, n_components
    return State(
        latents=jnp.asarray(latents),
        frequencies=jnp.asarray(found.frequency_scale * rng.standard_normal(slots)),
        assignments=jnp.zeros(n_frequencies, jnp.int32),
        concentration=jnp.ones(()),
        components=Components(jnp.zeros(slots), jnp.zeros((*slots, n_components))),
        weights=jnp.asarray(weights),
        amplitude=jnp.ones(()),
        noise=jnp.full((), 0.5),
        log_dispersion=jnp.zeros(n_columns),
    )


def _first_biases(data: Data, likelihood: str) -> FloatArray:
    """Return the values of f that match the means of the columns, with r = 1 for negative binomials."""
    y, observed, trials = (np.asarray(part) for part in data[:3])
    mean = (y.sum(axis=0) + 0.5) / (np.maximum(observed.sum(axis=0), 1.0) + 1.0)
    if likelihood == "gaussian":
        return np.zeros(len(mean))
    if likelihood in ("negative_binomial", "poisson"):
        return np.log(mean)
    share = (y.sum(axis=0) + 0.5) / (np.sum(observed * trials, axis=0) + 1.0)
    return np.log(share) - np.log1p(-share)
