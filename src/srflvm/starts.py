"""Where a fit may begin. The start decides which optimum of the bound is reached.

A start is a configuration of latents; for each, the scale of the frequencies, the noise and the
amplitude that explain the data best are found by comparing evidences, so no start is held back by
settings made for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.manifold import TSNE

from srflvm._types import FloatArray
from srflvm.blocks import StartingPoint
from srflvm.compression import Compressed
from srflvm.features import fourier_features
from srflvm.regression import Fit, Statistics, best_noise

# Scales tried in two dimensions. In Q dimensions they are sqrt(2 / Q) of these, since w'x sums over Q terms;
# the smallest make the function nearly linear.
FREQUENCY_SCALES = (0.35, 0.7, 1.4, 2.0, 3.0, 4.5, 7.0, 10.0)
NEARLY_LINEAR_SCALES = (0.05, 0.1, 0.2)

# A neighbour graph needs a few rows to say anything.
FEWEST_ROWS_FOR_NEIGHBOURS = 12

# t-SNE in more dimensions is slow, and PCA a good start there.
_MOST_NEIGHBOUR_DIMENSIONS = 3
_NEIGHBOUR_DIRECTIONS = 50
_NEIGHBOUR_STEPS = 350
_SCALE_ROWS = 2000
_SCALE_FREQUENCIES = 100
_LATENT_STD = 0.03


def pca_latents(data: Compressed, n_components: int, rng: np.random.RandomState) -> FloatArray:
    """The leading scores, each of unit variance; directions the data lack are filled with small noise."""
    latents = 0.1 * rng.standard_normal((len(data.scores), n_components))
    available = np.asarray(data.scores[:, :n_components], np.float64)
    spread = available.std(axis=0)
    latents[:, : available.shape[1]] = available / np.where(spread > 0.0, spread, 1.0)
    return latents


def neighbour_latents(data: Compressed, n_components: int, rng: np.random.RandomState) -> FloatArray:
    """t-SNE of the leading scores, to unit variance; dimensions past its third come from PCA."""
    dimensions = min(n_components, _MOST_NEIGHBOUR_DIMENSIONS)
    n_rows = len(data.scores)
    start: Any = 1e-4 * pca_latents(data, dimensions, rng).astype(np.float32)
    tsne = TSNE(
        n_components=dimensions,
        perplexity=min(30.0, (n_rows - 1) / 3.0),
        init=start,
        random_state=rng.randint(2**31 - 1),
        max_iter=_NEIGHBOUR_STEPS,
    )
    embedded = tsne.fit_transform(data.scores[:, :_NEIGHBOUR_DIRECTIONS].astype(np.float32))
    latents = 0.3 * pca_latents(data, n_components, rng)
    centred = embedded.astype(np.float64) - embedded.mean(axis=0)
    latents[:, :dimensions] = centred / centred.std()
    return latents


def random_latents(data: Compressed, n_components: int, rng: np.random.RandomState) -> FloatArray:
    """A draw from the prior."""
    return rng.standard_normal((len(data.scores), n_components))


def automatic_starts(n_rows: int, n_components: int) -> list[str]:
    """The starts that "auto" compares."""
    if n_components > _MOST_NEIGHBOUR_DIMENSIONS:
        return ["pca"]
    return ["pca", "neighbors" if n_rows >= FEWEST_ROWS_FOR_NEIGHBOURS else "random"]


LATENTS: dict[str, Callable[[Compressed, int, np.random.RandomState], FloatArray]] = {
    "pca": pca_latents,
    "neighbors": neighbour_latents,
    "random": random_latents,
}


def starting_point(
    name: str,
    latents: FloatArray,
    data: Compressed,
    rng: np.random.RandomState,
    *,
    n_frequencies: int,
    smallest_ratio: float,
) -> StartingPoint:
    """Find the frequency scale, noise and amplitude with the highest evidence for these latents."""
    n_rows = len(latents)
    index = np.sort(rng.permutation(n_rows)[:_SCALE_ROWS])
    sample = data.rows(index)
    placed = latents[index] + _LATENT_STD * rng.standard_normal((len(index), latents.shape[1]))
    shape = (min(n_frequencies, _SCALE_FREQUENCIES), latents.shape[1])
    unit = rng.standard_normal(shape) * np.exp(rng.uniform(-0.7, 0.7, size=(shape[0], 1)))
    floor = smallest_ratio * len(index) / n_rows
    fits = [(_fit_at(scale * unit, placed, sample, floor), scale) for scale in _scales(shape[1])]
    fit, scale = max(fits, key=lambda pair: pair[0].log_evidence)
    return StartingPoint(name, latents, scale, fit.noise, fit.ratio)


def _scales(n_components: int) -> list[float]:
    few = n_components <= _MOST_NEIGHBOUR_DIMENSIONS
    scales = FREQUENCY_SCALES if few else (*NEARLY_LINEAR_SCALES, *FREQUENCY_SCALES)
    return [scale * (2.0 / max(n_components, 2)) ** 0.5 for scale in scales]


def _fit_at(frequencies: FloatArray, latents: FloatArray, data: Compressed, smallest_ratio: float) -> Fit:
    features = fourier_features(latents, frequencies)
    gram, cross = features.T @ features, features.T @ data.scores
    n_rows, n_columns = len(data.scores), data.n_columns
    return best_noise(Statistics(gram, cross, data.total_square, n_rows, n_columns), smallest_ratio)
