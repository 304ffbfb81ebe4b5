"""Sizes of rows for counts: whether the data have them, and by which method they are estimated."""

from __future__ import annotations

import numpy as np

from srflvm._types import FloatArray
from srflvm.observations import Layout, sizes_by

# A row's total says little about one entry where it sums over this many, and a median over this many ratios
# is hardly moved by one of them. Where most counts are small or zero a median of ratios is not informative.
FEWEST_COLUMNS_FOR_TOTALS = 50
FEWEST_COLUMNS_FOR_RATIOS = 5
SMALLEST_MEAN_FOR_RATIOS = 5.0

# Rows whose sizes are compared, and the correlation of their logarithms from which on sizes are taken.
# Latents that raise some columns and lower others leave it below.
_MOST_ROWS = 2000
_SMALLEST_CORRELATION = 0.8


def choose_method(size_factors: str | None, Y: FloatArray, layout: Layout) -> str | None:
    """Return how the sizes of rows are estimated: as asked for, or by what the training rows Y show.

    "auto" takes the method that suits the counts if sizes estimated from one half of the columns agree with
    those from the other half, and else none: where columns have nothing in common, an estimated size is
    noise, and makes the counts seem more certain than they are.
    """
    if size_factors != "auto":
        return size_factors
    method = suitable_method(layout)
    return method if method is not None and _halves_agree(Y, layout, method) else None


def suitable_method(layout: Layout) -> str | None:
    """Return "ratios" where counts are large enough for medians of them, "totals" where columns are many."""
    means = layout.count_means[layout.count_columns]
    if len(means) >= FEWEST_COLUMNS_FOR_RATIOS and np.median(means) >= SMALLEST_MEAN_FOR_RATIOS:
        return "ratios"
    return "totals" if len(means) >= FEWEST_COLUMNS_FOR_TOTALS else None


def _halves_agree(Y: FloatArray, layout: Layout, method: str) -> bool:
    step = -(-len(Y) // _MOST_ROWS)
    counts, means = Y[::step, layout.count_columns], layout.count_means[layout.count_columns]
    first, second = (sizes_by(method, counts[:, half::2], means[half::2]) for half in (0, 1))
    spread = np.std(first) * np.std(second)
    agreement = np.mean((first - first.mean()) * (second - second.mean()))
    return bool(agreement > _SMALLEST_CORRELATION * spread)
