"""Missing entries, completely at random: the masks of the benchmarks that use them."""

from __future__ import annotations

import numpy as np


def missing_mask(Y: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """Draw a mask of Y's shape, True where an entry is missing; the same at every call."""
    return np.random.RandomState(seed).rand(*Y.shape) < share


def hide_entries(Y: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """Return a copy of Y with a share of its entries NaN."""
    return np.where(missing_mask(Y, share, seed), np.nan, Y)
