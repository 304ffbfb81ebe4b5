"""From a variational state to a `Posterior`: frequencies are drawn once and kept, q(H) is solved exactly.

Given q(X), the best q(H) is Gaussian with precision (E[Phi'Phi] + ratio I) / noise and mean
(E[Phi'Phi] + ratio I)^-1 E[Phi]'Y; both expectations are taken with the same points of q(X), so it
is the exact posterior of a regression on those points.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import numpy as np

from srflvm import parallel
from srflvm._types import FloatArray
from srflvm.bcd import State
from srflvm.blocks import Settings, frequency_sampler
from srflvm.compiling import quickly_compiled
from srflvm.compression import Compressed
from srflvm.cubature import points_for_sums
from srflvm.dealing import pick
from srflvm.embedding import Embedding
from srflvm.evidence import smallest_ratio
from srflvm.features import fourier_features
from srflvm.gaussian_posterior import GaussianPosterior
from srflvm.posterior import row_chunks
from srflvm.regression import (
    Fit,
    Statistics,
    best_noise,
    log_evidence,
    posterior_covariance,
    posterior_weights,
)
from srflvm.sources import Source, pieces

N_FREQUENCY_DRAWS = 4
MOST_ANCHORS = 20_000

_ROWS_TO_COMPARE_DRAWS = 3000
_FILLING_ROUNDS = 20

_LARGEST_LEVERAGE = 0.9

_FLOOR = float(np.finfo(np.float64).eps) * 100.0


def smallest_frozen_ratio(n_rows: float) -> float:
    """The floor of noise / amplitude for sums over so many rows in float64."""
    return _FLOOR * n_rows


def freeze_shared(
    state: State,
    latents: Embedding,
    data: Compressed,
    source: Source,
    settings: Settings,
    rng: np.random.RandomState,
) -> GaussianPosterior:
    """Freeze the frequencies that explain complete data best among a few draws, and solve for q(H)."""
    frequencies = parallel.from_first(_best_frequencies(state, latents, data, settings, rng))
    own = _statistics(frequencies, latents, data)
    full_cross = parallel.together(lambda: _full_cross(frequencies, latents, source, data))
    gram, cross, full_cross = parallel.sum_over_processes(own.gram, own.cross, full_cross)
    statistics = replace(own, gram=gram, cross=cross, n_rows=data.n_rows)
    fit = best_noise(statistics, smallest_frozen_ratio(statistics.n_rows))
    weights, covariance = posterior_weights(gram, full_cross, fit.ratio)
    anchors = np.sort(rng.permutation(source.n_rows)[:MOST_ANCHORS])
    return GaussianPosterior(
        columns=data.columns,
        frequencies=frequencies,
        weights=weights,
        weight_covariance=covariance,
        noise=fit.noise,
        ratio=fit.ratio,
        anchors=pick(anchors, latents.mean, data.start),
        anchor_scores=np.asarray(pick(anchors, data.scores, data.start), np.float64),
    )


def freeze_filled(
    state: State,
    latents: Embedding,
    data: Compressed,
    filled: FloatArray,
    missing: np.ndarray,
    settings: Settings,
    rng: np.random.RandomState,
) -> GaussianPosterior:
    """The same for data with holes, `filled` (N, M) and standardised.

    The weights' mean is the fixed point of filling the holes with E[Phi] H and solving for H. Its covariance,
    one for all columns, counts every row by its share of observed entries. The noise is that of the fit,
    times `_inflation`.
    """
    compressed = replace(data, scores=filled @ data.columns.directions, total_square=float(np.sum(filled**2)))
    frequencies = _best_frequencies(state, latents, compressed, settings, rng)
    fit = _noise_of_the_fit(state, len(filled))
    filled, weights, covariance, fit = _solve_filled(frequencies, latents, filled, missing, fit)
    anchors = np.sort(rng.permutation(len(filled))[:MOST_ANCHORS])
    return GaussianPosterior(
        columns=data.columns,
        frequencies=frequencies,
        weights=weights,
        weight_covariance=covariance,
        noise=fit.noise,
        ratio=fit.ratio,
        anchors=latents.mean[anchors],
        anchor_scores=filled[anchors] @ data.columns.directions,
    )


def _solve_filled(
    frequencies: FloatArray, latents: Embedding, filled: FloatArray, missing: np.ndarray, fit: Fit
) -> tuple[FloatArray, FloatArray, FloatArray, Fit]:
    """The holes, the weights' mean and covariance, and noise and ratio, going on from given ones."""
    share, n_observed = np.mean(~missing, axis=1), missing.size - np.sum(missing)
    features, gram = _mean_features(frequencies, latents), _gram(frequencies, latents)
    observed_gram = _gram(frequencies, latents, share)
    hidden_gram = observed_gram - (features.T * share) @ features
    ratio, noise, by_latents, by_weights = fit.ratio, fit.noise, 0.0, 0.0
    weights, covariance = posterior_weights(gram, features.T @ filled, ratio)
    for _ in range(_FILLING_ROUNDS):
        mean = features @ weights
        filled = np.where(missing, mean, filled)
        covariance = posterior_covariance(observed_gram, ratio)
        # E|y - f|^2 over the observed entries: residual, spread of f over q(X), and spread over q(H)
        by_latents = np.sum(hidden_gram * (weights @ weights.T)) / n_observed
        by_weights = noise * filled.shape[1] * np.sum(observed_gram * covariance) / n_observed
        updated = np.sum((filled - mean) ** 2) / n_observed + by_latents + by_weights
        ratio, noise = ratio * updated / noise, updated
        weights, _ = posterior_weights(gram, features.T @ filled, ratio)
    more = _inflation(by_latents / noise, by_weights / noise)
    covariance = posterior_covariance(observed_gram, ratio * more)
    return filled, weights, covariance, Fit(float(noise * more), float(ratio * more), 0.0)


def _inflation(latent_share: float, weight_share: float) -> float:
    """The variance of a missing entry given all others, relative to what q(X) q(H) says it is.

    An observed entry pulls its own prediction by its leverage, the variance of f per unit of noise; left out,
    it is predicted with variance noise / (1 - leverage). The leverages a through X and b through H add up,
    but under independent q(X) and q(H) the variance is only noise {1 + a / (1 - a) + b / (1 - b)}.
    """
    both = min(latent_share + weight_share, _LARGEST_LEVERAGE)
    apart = (share / (1.0 - min(share, _LARGEST_LEVERAGE)) for share in (latent_share, weight_share))
    return max(1.0 / (1.0 - both) / (1.0 + sum(apart)), 1.0)


def _noise_of_the_fit(state: State, n_rows: int) -> Fit:
    floor = smallest_ratio(n_rows, state["latent_mean"].dtype)
    return Fit(float(np.exp(state["log_noise"])), floor + float(np.exp(state["log_ratio"])), 0.0)


def _best_frequencies(
    state: State, latents: Embedding, data: Compressed, settings: Settings, rng: np.random.RandomState
) -> FloatArray:
    """The draw with the highest evidence at the fit's noise and the means of q(X), on some of the rows if
    there are many."""
    rows = np.sort(rng.permutation(data.n_rows)[:_ROWS_TO_COMPARE_DRAWS])
    mean, some_data = pick(rows, latents.mean, data.start), data.rows(rows)
    fit = _noise_of_the_fit(state, data.n_rows)

    def evidence(frequencies: FloatArray) -> float:
        features = fourier_features(mean, frequencies)
        gram, cross = features.T @ features, features.T @ some_data.scores
        return log_evidence(_with_sizes(gram, cross, some_data), fit.noise, fit.ratio)

    return max(draw_frequencies(state, settings, rng), key=evidence)


def draw_frequencies(state: State, settings: Settings, rng: np.random.RandomState) -> list[FloatArray]:
    """A few draws of W from q(W), to choose from."""
    keys = [jax.random.key(rng.randint(2**31 - 1), impl="rbg") for _ in range(N_FREQUENCY_DRAWS)]
    needed = {name: state[name] for name in ("mixture_mean", "mixture_factor", "logits")}
    return [np.array(_draw_frequencies(key, needed, settings), dtype=np.float64) for key in keys]


@partial(quickly_compiled, static_argnames="settings")
def _draw_frequencies(key: jax.Array, state: State, settings: Settings) -> jax.Array:
    return frequency_sampler(state, settings)(key)


def _statistics(frequencies: FloatArray, latents: Embedding, data: Compressed) -> Statistics:
    return _with_sizes(*frozen_statistics(frequencies, latents, data.scores), data)


def _with_sizes(gram: FloatArray, cross: FloatArray, data: Compressed) -> Statistics:
    return Statistics(gram, cross, data.total_square, len(data.scores), data.n_columns)


def frozen_statistics(
    frequencies: FloatArray, latents: Embedding, targets: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """E[Phi'Phi] (L, L) and E[Phi]'targets over q(X)."""
    size = 2 * len(frequencies)
    gram, cross = np.zeros((size, size)), np.zeros((size, targets.shape[1]))
    for rows in row_chunks(len(targets)):
        points = _point_features(frequencies, latents, rows)
        gram += sum(phi.T @ phi for phi in points) / len(points)
        cross += np.mean(points, axis=0).T @ targets[rows]
    return gram, cross


def _full_cross(frequencies: FloatArray, latents: Embedding, source: Source, data: Compressed) -> FloatArray:
    """E[Phi]'Y with all M columns, standardised. The points of q(X) belong to chunks of rows, as in
    `_statistics`; a chunk of wide rows is read in several pieces."""
    cross = np.zeros((2 * len(frequencies), source.n_columns))
    for rows in row_chunks(len(data.scores)):
        features = np.mean(_point_features(frequencies, latents, rows), axis=0)
        first = data.start + rows.start
        for part, piece in pieces(source, first, data.start + rows.stop):
            inside = slice(part.start - first, part.stop - first)
            cross += features[inside].T @ data.columns.standardise(piece)
    return cross


def _mean_features(frequencies: FloatArray, latents: Embedding) -> FloatArray:
    """E[Phi] (N, L)."""
    parts = [
        np.mean(_point_features(frequencies, latents, rows), axis=0) for rows in row_chunks(len(latents.mean))
    ]
    return np.concatenate(parts)


def _gram(frequencies: FloatArray, latents: Embedding, weights: FloatArray | None = None) -> FloatArray:
    """E[Phi' diag(weights) Phi] (L, L)."""
    size = 2 * len(frequencies)
    gram = np.zeros((size, size))
    for rows in row_chunks(len(latents.mean)):
        points = _point_features(frequencies, latents, rows)
        root = 1.0 if weights is None else np.sqrt(weights[rows])[:, None]
        gram += sum((root * phi).T @ (root * phi) for phi in points) / len(points)
    return gram


def _point_features(frequencies: FloatArray, latents: Embedding, rows: slice) -> list[FloatArray]:
    parallel.note(f"freezing rows from {rows.start} on")
    points = points_for_sums(latents.mean[rows], latents.cholesky[rows], rows.start)
    return [fourier_features(point, frequencies) for point in points]
