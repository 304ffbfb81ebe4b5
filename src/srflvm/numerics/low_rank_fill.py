"""First guess for missing entries: probabilistic PCA by iteration, for starts only.

Missing entries are replaced by their reconstruction from the leading directions, each shrunk by the share of
its variance that is noise, until little changes. The number of directions grows on the way: directions that
are there from the beginning would learn the first guess of the missing entries and keep it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from sklearn.utils.extmath import randomized_svd

from srflvm._typing import FloatArray

_FEWEST_DIRECTIONS = 10
_MOST_ROUNDS = 40
_TOLERANCE = 1e-3

# Above this many rows and columns a randomised decomposition is cheaper.
_LARGEST_EXACT = 1500


def low_rank_fill(Y: FloatArray, n_components: int) -> FloatArray:
    """Replace NaN in Y (N, M) and return it in float64; every column must have an observed entry."""
    missing = np.isnan(Y)
    filled = np.where(missing, np.nanmean(Y, axis=0, dtype=np.float64), np.asarray(Y, np.float64))
    if not missing.any():
        return filled
    # a quarter of the sides at most, and no more directions than a typical row has entries to determine
    observed = float(np.mean(np.sum(~missing, axis=1)))
    rank = max(n_components, _FEWEST_DIRECTIONS)
    rank = max(1, min(rank, min(Y.shape) // 4, int(observed / 2)))
    for used in _growing(rank):
        centre = filled.mean(axis=0)
        guess = centre + _shrunk(filled - centre, used)
        change = np.sqrt(np.mean((guess - filled)[missing] ** 2))
        filled[missing] = guess[missing]
        if used == rank and change <= _TOLERANCE * filled.std():
            break
    return filled


def leading_directions(Y: FloatArray, rank: int) -> tuple[FloatArray, FloatArray]:
    """Return leading directions (M, k) of Y, NaN where missing, and the spread (k,) along each; k <= rank."""
    filled = low_rank_fill(Y, rank)
    rank = min(rank, *filled.shape)
    _, singular, directions = _leading(filled - filled.mean(axis=0), rank)
    return directions.T, singular / np.sqrt(len(filled))


def _growing(rank: int) -> Iterator[int]:
    """Yield the number of directions of each round: from one by a quarter at a time, then all of them."""
    used = 1.0
    while used < rank:
        yield int(used)
        yield int(used)
        used = max(used * 1.25, used + 1.0)
    yield from itertools.repeat(rank, _MOST_ROUNDS)


def _shrunk(centred: FloatArray, rank: int) -> FloatArray:
    """Reconstruct data from the leading directions; the mean square of the others is taken for noise."""
    if min(centred.shape) > _LARGEST_EXACT:
        left, singular, right = randomized_svd(centred, rank, random_state=0)
    else:
        left, singular, right = _leading(centred, rank)
    rest = max(np.sum(centred**2) - np.sum(singular**2), 0.0)
    noise = rest / max(min(centred.shape) - rank, 1)
    kept = np.clip(1.0 - noise / np.maximum(singular**2, 1e-300), 0.0, 1.0)
    return (left * (singular * kept)) @ right


def _leading(centred: FloatArray, rank: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the leading singular triplets, from the smaller Gram matrix."""
    tall = centred if len(centred) >= centred.shape[1] else centred.T
    squares, directions = np.linalg.eigh(tall.T @ tall)
    directions = directions[:, ::-1][:, :rank]
    singular = np.sqrt(np.maximum(squares[::-1][:rank], 1e-300))
    left = tall @ directions / singular
    if tall is centred:
        return left, singular, directions.T
    return directions, singular, left.T
