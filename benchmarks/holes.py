"""Missing entries: the masks of the benchmarks that use them."""

from __future__ import annotations

import numpy as np


def missing(Y: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """A mask of Y's shape, True where an entry is missing, completely at random; the same at every call."""
    return np.random.RandomState(seed).rand(*Y.shape) < share


def with_holes(Y: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """A copy of Y with a share of its entries NaN."""
    return np.where(missing(Y, share, seed), np.nan, Y)
