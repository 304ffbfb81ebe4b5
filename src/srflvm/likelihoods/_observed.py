"""What likelihoods ask of their columns: statistics that skip NaN, and the check that entries are counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from srflvm._types import FloatArray
from srflvm.likelihoods._base import refuse


class Summary(NamedTuple):
    """Number of observed entries, their mean and their variance, each (c,); zeros for an empty column."""

    number: FloatArray
    mean: FloatArray
    variance: FloatArray


def summary(Y: FloatArray) -> Summary:
    """Statistics of the observed entries of each column of Y (N, c)."""
    seen = ~np.isnan(Y)
    number = seen.sum(axis=0).astype(float)
    mean = np.where(seen, Y, 0.0).sum(axis=0) / np.maximum(number, 1.0)
    square = np.where(seen, Y - mean, 0.0) ** 2
    return Summary(number, mean, square.sum(axis=0) / np.maximum(number, 1.0))


def check_counts(Y: FloatArray, columns: Sequence[str], likelihood: str) -> None:
    """Refuse entries that are not whole numbers of zero or more."""
    seen = ~np.isnan(Y)
    remedy = f"The {likelihood} likelihood describes raw counts: "
    refuse(
        seen & ((Y < 0.0) | np.isinf(Y)),
        Y,
        columns,
        "a count is finite and not negative",
        remedy + "use NaN for what was not observed, and likelihood='gaussian' for real numbers.",
    )
    refuse(
        seen & (np.floor(Y) != Y),
        Y,
        columns,
        "a count is a whole number",
        remedy + "undo normalisation or logarithms, or use likelihood='gaussian'.",
    )


def column_median(Y: FloatArray) -> FloatArray:
    """Median of the observed entries of each column (c,); zero for an empty column."""
    empty = np.isnan(Y).all(axis=0)
    return np.nanmedian(np.where(empty, 0.0, Y), axis=0)
