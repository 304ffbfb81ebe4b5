"""Units of columns: whether some of them drown the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srflvm import parallel
from srflvm._likelihood_choice import Choice, describe
from srflvm._types import FloatArray
from srflvm.likelihoods import Gaussian, StudentT
from srflvm.likelihoods._observed import summary
from srflvm.sources import Source, rows_at_once
from srflvm.warning_location import warn_caller

# Columns whose standard deviation is so many times that of the middle column drown the others if they have
# more than half of all variance. Pixels at the edge of images vary little, but none of the others so much.
_LARGE_RATIO = 10.0


def warn_of_units(source: Source, choice: Choice, names: Sequence[str] | None) -> None:
    """Warn of continuous columns that vary far more than the others, which share one scale with them."""
    if not parallel.is_first():
        return
    first = source.read(0, min(source.n_rows, rows_at_once(source.n_columns)))
    for likelihood, columns in choice:
        if isinstance(likelihood, Gaussian | StudentT) and len(columns) > 1:
            _warn_of_group(first[:, columns], columns, names)


def _warn_of_group(values: FloatArray, columns: np.ndarray, names: Sequence[str] | None) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.sqrt(summary(np.asarray(values, np.float64)).variance)
    varying = np.flatnonzero(spread > 0.0)
    if len(varying) < 2 or not np.isfinite(spread).all():
        return
    order = varying[np.argsort(spread[varying])]
    middle, widest = order[(len(order) - 1) // 2], order[-1]
    wide = spread > _LARGE_RATIO * spread[middle]
    relative = spread / spread[widest]
    if np.sum(relative[wide] ** 2) > 0.5 * np.sum(relative**2):
        ratio = spread[widest] / spread[middle]
        one, other = (describe(int(columns[place]), names) for place in (widest, middle))
        warn_caller(
            f"Columns of Y have very different units: {one} varies {ratio:.0f} times as much as {other}. "
            "Continuous columns share one scale, so that little is learned of those that vary less. "
            "Standardise them first, for example by sklearn.preprocessing.StandardScaler. "
            "(SRFLVMImputer does so itself.)"
        )
