"""Missing entries of rows filled in, with their uncertainty."""

from __future__ import annotations

import numpy as np

from srflvm._types import FloatArray
from srflvm.likelihoods import Categorical, Likelihood, Multinomial
from srflvm.posterior import Posterior


def fill(posterior: Posterior, Y: FloatArray, log_sizes: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Y with its missing entries at their predictive means, and the predictive standard deviations there."""
    missing = np.isnan(Y)
    filled, std = np.array(Y, dtype=np.float64), np.zeros(Y.shape)
    rows = np.flatnonzero(missing.any(axis=1))
    if rows.size:
        some = None if log_sizes is None else log_sizes[rows]
        placed = posterior.place(Y[rows], some)
        decoded = posterior.decode_data(placed, Y[rows], some)
        filled[missing] = decoded.mean[missing[rows]]
        std[missing] = np.sqrt(np.broadcast_to(decoded.variance, decoded.mean.shape)[missing[rows]])
    return filled, std


def draw_filled(
    posterior: Posterior,
    Y: FloatArray,
    log_sizes: FloatArray | None,
    n_draws: int,
    rng: np.random.RandomState,
) -> FloatArray:
    """Copies of Y (n_draws, n, M) filled with draws: of the latents, of the function, of the entries."""
    missing = np.isnan(Y)
    copies = np.repeat(np.array(Y, dtype=np.float64)[None], n_draws, axis=0)
    rows = np.flatnonzero(missing.any(axis=1))
    if not rows.size:
        return copies
    some = None if log_sizes is None else log_sizes[rows]
    placed = posterior.place(Y[rows], some)
    for copy in copies:
        noise = rng.standard_normal(placed.mean.shape)
        latents = placed.mean + np.einsum("nqr,nr->nq", placed.cholesky, noise)
        copy[missing] = posterior.draw_data(latents, rng, Y[rows], some)[missing[rows]]
    return copies


def held_out_scores(
    posterior: Posterior, Y: FloatArray, truth: FloatArray, log_sizes: FloatArray | None
) -> FloatArray:
    """log p (n, M) of the entries of `truth` that are missing in Y, NaN elsewhere."""
    placed = posterior.place(Y, log_sizes)
    hidden = np.where(np.isnan(Y), truth, np.nan)
    channels = posterior.entry_log_density(placed, hidden, log_sizes)
    scores = np.full(Y.shape, np.nan)
    for group in posterior.layout.groups:
        if isinstance(group.likelihood, Categorical):
            continue
        refuse_vectors(group.likelihood)
        scores[:, group.columns] = channels[:, group.channels] - np.log(group.units.scale)
    for column, table in posterior.category_probabilities(placed.mean, placed.cholesky).items():
        rows = np.flatnonzero(~np.isnan(hidden[:, column]))
        scores[rows, column] = np.log(table[rows, hidden[rows, column].astype(int)])
    return scores


def refuse_vectors(likelihood: Likelihood) -> None:
    """Entries of a vector with a total have no scores of their own."""
    if isinstance(likelihood, Multinomial):
        raise ValueError(
            f"Entries of {likelihood.name!r} columns are not scored one by one: use score_samples."
        )
