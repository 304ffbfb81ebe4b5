"""Starts of a fit: where it may begin. The start decides which optimum of the bound is reached.

A start is a configuration of latents; for each, the scale of the frequencies, the noise and the
amplitude that explain the data best are found by comparing evidences, so no start is held back by
settings made for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.compression import Compressed
from srflvm.model.elbo import StartingPoint
from srflvm.numerics.features import fourier_features
from srflvm.numerics.shared_regression import Fit, Statistics

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


def _pca_latents(data: Compressed, n_components: int, rng: np.random.RandomState) -> FloatArray:
    """Return the leading scores, each of unit variance; directions that the data lack are small noise."""
    latents = 0.1 * rng.standard_normal((len(data.scores), n_components))
    available = np.asarray(data.scores[:, :n_components], np.float64)
    spread = available.std(axis=0)
    latents[:, : available.shape[1]] = available / np.where(spread > 0.0, spread, 1.0)
    return latents


def _neighbour_latents(data: Compressed, n_components: int, rng: np.random.RandomState) -> FloatArray:
    """Return t-SNE of the leading scores, of unit variance; dimensions past its third come from PCA."""
    # imported here, since predictions do without it
    from sklearn.manifold import TSNE

    dimensions = min(n_components, _MOST_NEIGHBOUR_DIMENSIONS)
    n_rows = len(data.scores)
    start: Any = 1e-4 * _pca_latents(data, dimensions, rng).astype(np.float32)
    tsne = TSNE(
        n_components=dimensions,
        perplexity=min(30.0, (n_rows - 1) / 3.0),
        init=start,
        random_state=rng.randint(2**31 - 1),
        max_iter=_NEIGHBOUR_STEPS,
    )
    embedded = tsne.fit_transform(data.scores[:, :_NEIGHBOUR_DIRECTIONS].astype(np.float32))
    latents = 0.3 * _pca_latents(data, n_components, rng)
    centred = embedded.astype(np.float64) - embedded.mean(axis=0)
    latents[:, :dimensions] = centred / centred.std()
    return latents


def _random_latents(data: Compressed, n_components: int, rng: np.random.RandomState) -> FloatArray:
    """Draw latents from the prior."""
    return rng.standard_normal((len(data.scores), n_components))


def automatic_starts(n_rows: int, n_components: int) -> list[str]:
    """Return the starts that "auto" compares."""
    if n_components > _MOST_NEIGHBOUR_DIMENSIONS:
        return ["pca"]
    return ["pca", "neighbors" if n_rows >= FEWEST_ROWS_FOR_NEIGHBOURS else "random"]


LATENTS: dict[str, Callable[[Compressed, int, np.random.RandomState], FloatArray]] = {
    "pca": _pca_latents,
    "neighbors": _neighbour_latents,
    "random": _random_latents,
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
    return Statistics(gram, cross, data.total_square, n_rows, n_columns).best_noise(smallest_ratio)
