"""Sizes of numbers whose squares, and the variances made of them, are safely inside float64."""

from __future__ import annotations

import numpy as np

from srflvm.exceptions import DataError

# a NumPy number, for a plain one would be compared with float32 in float32, where it is infinite
LARGEST = np.float64(1e140)
SMALLEST_SPREAD = 1e-140


def refuse_small_spread(spread: float) -> None:
    """Refuse entries whose deviations from their columns' centres are too small to be squared."""
    if spread < SMALLEST_SPREAD:
        raise DataError(
            f"Entries of Y differ from their columns' centres by {spread:.1g}, and squares of numbers below "
            f"{SMALLEST_SPREAD:.0e} are lost. Rescale Y: divide it by a smaller unit."
        )


def refuse_large_spread(spread: float) -> None:
    """Refuse entries whose deviations from their columns' centres are too large to be squared."""
    if spread > LARGEST:
        raise DataError(
            f"Entries of Y differ from their columns' centres by {spread:.1g}, and squares of numbers beyond "
            f"{LARGEST:.0e} overflow. Rescale Y: divide it by a larger unit."
        )
