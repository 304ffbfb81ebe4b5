"""Data as users give them, to floats with NaN for what is missing, with checks that name the place."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from srflvm import _entry_checks as entry
from srflvm._numeric import numeric
from srflvm._types import FloatArray
from srflvm.checked_source import CheckedSource
from srflvm.file_sources import open_source
from srflvm.named import NamedTable, order_by_name, take_names, unpacked, with_columns
from srflvm.sources import ArraySource, Source


def read_data(estimator: Any, Y: Any, mask: Any = None, *, reset: bool) -> FloatArray:
    """Y as (n, M) floats with NaN where it is NaN, NA or masked, or where `mask` is true."""
    hidden = _hidden(Y)
    Y, mask = _matched(estimator, unpacked(Y), mask, reset)
    values: Any = _validated(estimator, in_memory(Y), reset)
    names = getattr(estimator, "feature_names_in_", None)
    if mask is not None:
        hidden = hidden | _read_mask(mask, values.shape)
    if np.any(hidden):
        values = np.where(hidden, np.nan, values)
    # one layout in memory, since sums round differently in another
    values = np.ascontiguousarray(values)
    entry.refuse_extremes(values, names)
    holes = np.isnan(values)
    if reset:
        entry.refuse_empty_columns(holes.all(axis=0), names)
    entry.warn_of_empty_rows(np.flatnonzero(holes.all(axis=1)).tolist())
    return values


def _matched(estimator: Any, Y: Any, mask: Any, reset: bool) -> tuple[Any, Any]:
    """A table whose columns are found by name, and its mask, with the columns of the fit in their order;
    anything else as it is."""
    order = None if reset else order_by_name(estimator, Y)
    if order is None:
        return Y, mask
    shape = Y.values.shape if isinstance(Y, NamedTable) else (Y.n_rows, Y.n_columns)
    return with_columns(Y, order), None if mask is None else _read_mask(mask, shape)[:, order]


def in_memory(Y: Any) -> Any:
    """An AnnData object's file as an array with names; anything else as it is."""
    names = getattr(Y, "names", None)
    return NamedTable(Y.read(0, Y.n_rows), names) if isinstance(Y, Source) and names is not None else Y


def _validated(estimator: Any, Y: Any, reset: bool) -> Any:
    """Numbers in two dimensions; the names of the columns are kept, or compared with those of the fit."""
    rules: Any = {
        "dtype": [np.float64, np.float32],
        "ensure_all_finite": False,
        "ensure_min_samples": 2 if reset else 1,
    }
    if not isinstance(Y, NamedTable):
        return validate_data(estimator, numeric(Y, fitting=reset), reset=reset, **rules)
    table = numeric(Y.values, Y.names, fitting=reset)
    values = check_array(table, estimator=estimator, input_name="Y", **rules)
    take_names(estimator, Y.names, reset=reset)
    return values


def read_source(estimator: Any, Y: Any, mask: Any = None, *, reset: bool) -> Source:
    """Y as a source: an array that has been checked, or what is checked as it is read."""
    Y = unpacked(Y)
    mapped = isinstance(Y, np.memmap) or getattr(Y, "mapped", False)
    source = None if mapped and mask is not None else open_source(Y)
    if source is None:
        return ArraySource(read_data(estimator, Y, mask, reset=reset))
    if mask is not None:
        raise ValueError(
            "mask= is for arrays in memory. Put NaN where an entry of a file or a sparse matrix is missing."
        )
    source, _ = _matched(estimator, source, None, reset)
    _refuse_few_rows(estimator, source, 2 if reset else 1)
    _take_header(estimator, source, reset)
    names = getattr(estimator, "feature_names_in_", None)
    return CheckedSource(source, names, fitting=reset, mapped=mapped)


def _refuse_few_rows(estimator: Any, source: Source, fewest: int) -> None:
    if source.n_rows < fewest or source.n_columns < 1:
        raise ValueError(
            f"Y has {source.n_rows} sample(s) and {source.n_columns} feature(s), while a minimum of {fewest} "
            f"and 1 is required by {type(estimator).__name__}."
        )


def _take_header(estimator: Any, source: Source, reset: bool) -> None:
    """The number of a source's columns and their names, if they have any."""
    names = getattr(source, "names", None)
    if names is not None:
        take_names(estimator, names, reset=reset)
    else:
        header: Any = np.empty((0, source.n_columns))
        validate_data(estimator, header, reset=reset, skip_check_array=True)


def _hidden(Y: Any) -> Any:
    Y = Y.values if isinstance(Y, NamedTable) else Y
    return np.ma.getmaskarray(Y) if isinstance(Y, np.ma.MaskedArray) else np.False_


def _read_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    flags = np.asarray(mask)
    if flags.dtype != bool or flags.shape != shape:
        raise ValueError(
            f"mask must be boolean and of the shape of Y, {shape}, true where an entry is missing; it is "
            f"{flags.dtype} of shape {flags.shape}."
        )
    return flags


def read_sizes(sizes: Any, n_rows: int) -> FloatArray:
    """Logarithms of given size factors."""
    values = np.asarray(sizes, dtype=np.float64)
    if values.shape != (n_rows,) or not np.all(np.isfinite(values)) or np.any(values <= 0.0):
        raise ValueError(f"sizes must be positive finite numbers, one for each of the {n_rows} rows of Y.")
    return np.log(values)
