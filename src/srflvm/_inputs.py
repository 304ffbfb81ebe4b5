"""Data as users give them, to float arrays with NaN for what is missing, with checks that name the place."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from srflvm import _likelihood_choice as choosing
from srflvm._types import FloatArray
from srflvm.exceptions import DataError

_MOST_ROWS_LISTED = 5


def read_data(estimator: Any, Y: Any, mask: Any = None, *, reset: bool) -> FloatArray:
    """Y as (n, M) floats with NaN where it is NaN, NA or masked, or where `mask` is true."""
    hidden = _hidden(Y)
    values: Any = validate_data(
        estimator,
        Y,
        reset=reset,
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        ensure_min_samples=2 if reset else 1,
    )
    names = getattr(estimator, "feature_names_in_", None)
    if mask is not None:
        hidden = hidden | _read_mask(mask, values.shape)
    if np.any(hidden):
        values = np.where(hidden, np.nan, values)
    # one layout in memory, since sums round differently in another
    values = np.ascontiguousarray(values)
    _refuse_infinity(values, names)
    if reset:
        _refuse_empty_columns(values, names)
    _warn_of_empty_rows(values)
    return values


def _hidden(Y: Any) -> Any:
    return np.ma.getmaskarray(Y) if isinstance(Y, np.ma.MaskedArray) else np.False_


def _read_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    flags = np.asarray(mask)
    if flags.dtype != bool or flags.shape != shape:
        raise ValueError(
            f"mask must be boolean and of the shape of Y, {shape}, true where an entry is missing; it is "
            f"{flags.dtype} of shape {flags.shape}."
        )
    return flags


def _refuse_infinity(values: FloatArray, names: Any) -> None:
    bad = np.isinf(values)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"Y contains infinity at row {row}, {choosing.describe(column, names)}; {int(bad.sum())} of its "
            f"{values.size} entries are infinite. Use NaN for entries that were not observed."
        )


def _refuse_empty_columns(values: FloatArray, names: Any) -> None:
    empty = np.flatnonzero(np.isnan(values).all(axis=0))
    if empty.size:
        raise DataError(
            f"Y has no observed entry in {choosing.describe(int(empty[0]), names)} "
            f"({empty.size} such columns). Drop it: nothing can be learned about it."
        )


def _warn_of_empty_rows(values: FloatArray) -> None:
    empty = np.flatnonzero(np.isnan(values).all(axis=1))
    if empty.size:
        listed = ", ".join(str(row) for row in empty[:_MOST_ROWS_LISTED])
        more = ", ..." if empty.size > _MOST_ROWS_LISTED else ""
        warnings.warn(
            f"{empty.size} rows of Y have no observed entry (rows {listed}{more}): their latents keep the "
            "prior, and what is said of their entries is what is said of an average row.",
            UserWarning,
            stacklevel=4,
        )


def read_sizes(sizes: Any, n_rows: int) -> FloatArray:
    """Logarithms of given size factors."""
    values = np.asarray(sizes, dtype=np.float64)
    if values.shape != (n_rows,) or not np.all(np.isfinite(values)) or np.any(values <= 0.0):
        raise ValueError(f"sizes must be positive finite numbers, one for each of the {n_rows} rows of Y.")
    return np.log(values)
