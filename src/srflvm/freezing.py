"""From a variational state to a `Posterior`: frequencies are drawn once and kept, q(H) is solved exactly.

Given q(X), the best q(H) is Gaussian with precision (E[Phi'Phi] + ratio I) / noise and mean
(E[Phi'Phi] + ratio I)^-1 E[Phi]'Y; both expectations are taken with the same cubature points of q(X), so
it is the exact posterior of a regression on those points.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from srflvm._types import FloatArray
from srflvm.bcd import State
from srflvm.blocks import Settings, sample_frequencies
from srflvm.compression import Compressed
from srflvm.embedding import Embedding, embed
from srflvm.features import fourier_features
from srflvm.posterior import Posterior, cubature_points, row_chunks
from srflvm.regression import Statistics, best_noise, posterior_weights

N_FREQUENCY_DRAWS = 4
MOST_ANCHORS = 20_000

_ROWS_TO_COMPARE_DRAWS = 3000

_FLOOR = float(np.finfo(np.float64).eps) * 100.0


def freeze(
    state: State,
    latents: Embedding,
    data: Compressed,
    Y: FloatArray,
    settings: Settings,
    rng: np.random.RandomState,
) -> tuple[Posterior, Embedding]:
    """Freeze the frequencies that explain the data best among a few draws, and solve for q(H).

    The embedding returned is the one that the posterior returned gives to these rows.
    """
    frequencies = _best_frequencies(state, latents, data, settings, rng)
    statistics = _statistics(frequencies, latents, data)
    fit = best_noise(statistics, _FLOOR * statistics.n_rows)
    weights, covariance = posterior_weights(
        statistics.gram, _full_cross(frequencies, latents, data, Y), fit.ratio
    )
    anchors = np.sort(rng.permutation(len(Y))[:MOST_ANCHORS])
    posterior = Posterior(
        columns=data.columns,
        frequencies=frequencies,
        weights=weights,
        weight_covariance=covariance,
        noise=fit.noise,
        ratio=fit.ratio,
        anchors=latents.mean[anchors],
        anchor_scores=data.scores[anchors],
    )
    return posterior, embed(posterior, data.columns.scores(Y))


def _best_frequencies(
    state: State, latents: Embedding, data: Compressed, settings: Settings, rng: np.random.RandomState
) -> FloatArray:
    """The draw with the highest evidence, on some of the rows if there are many."""
    rows = np.sort(rng.permutation(len(data.scores))[:_ROWS_TO_COMPARE_DRAWS])
    some_latents, some_data = Embedding(latents.mean[rows], latents.cholesky[rows]), data.rows(rows)

    def evidence(frequencies: FloatArray) -> float:
        statistics = _statistics(frequencies, some_latents, some_data)
        return best_noise(statistics, _FLOOR * statistics.n_rows).log_evidence

    keys = [jax.random.key(rng.randint(2**31 - 1), impl="rbg") for _ in range(N_FREQUENCY_DRAWS)]
    draws = [np.array(_draw_frequencies(key, state, settings), dtype=np.float64) for key in keys]
    return max(draws, key=evidence)


_draw_frequencies = partial(jax.jit, static_argnames="settings")(sample_frequencies)


def _statistics(frequencies: FloatArray, latents: Embedding, data: Compressed) -> Statistics:
    size = 2 * len(frequencies)
    gram, cross = np.zeros((size, size)), np.zeros((size, data.scores.shape[1]))
    for rows in row_chunks(len(data.scores)):
        points = _point_features(frequencies, latents, rows)
        gram += sum(phi.T @ phi for phi in points) / len(points)
        cross += np.mean(points, axis=0).T @ data.scores[rows]
    return Statistics(gram, cross, data.total_square, len(data.scores), data.n_columns)


def _full_cross(frequencies: FloatArray, latents: Embedding, data: Compressed, Y: FloatArray) -> FloatArray:
    """E[Phi]'Y with all M columns of the standardised data."""
    cross = np.zeros((2 * len(frequencies), data.n_columns))
    for rows in row_chunks(len(Y)):
        features = np.mean(_point_features(frequencies, latents, rows), axis=0)
        cross += features.T @ data.columns.standardise(Y[rows])
    return cross


def _point_features(frequencies: FloatArray, latents: Embedding, rows: slice) -> list[FloatArray]:
    points = cubature_points(latents.mean[rows], latents.cholesky[rows])
    return [fourier_features(point, frequencies) for point in points]
