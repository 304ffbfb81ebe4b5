"""Reading of data as users give them: to floats with NaN where missing, with checks that name the place.

Arrays are checked at once, files and sparse matrices as they are read. Then come sizes of rows, names of
columns, frames and objects as numbers, and entries, columns and rows that cannot be used.
"""

from __future__ import annotations

import datetime
import reprlib
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from srflvm._typing import FloatArray
from srflvm.data.encoding import LARGEST, Group, Layout
from srflvm.data.files import open_source
from srflvm.data.schema import Schema
from srflvm.data.sources import (
    ArraySource,
    NamedTable,
    Source,
    is_frame,
    listed,
    places_of,
    repeated,
    rows_at_once,
    with_columns,
)
from srflvm.exceptions import DataError, warn_caller
from srflvm.likelihoods.base import Likelihood
from srflvm.likelihoods.columns import AUTO, OWN_UNITS, Choice, describe, standard_name


def read_source(
    estimator: BaseEstimator, Y: Any, mask: Any = None, *, reset: bool, unknown_levels: str = "error"
) -> Source:
    """Return Y as a source: an array that has been checked, or what is checked as it is read.

    Frames are read by the rule of `Schema`, which an estimator keeps as `columns_` when it is fitted to one.
    """
    Y = _unpacked(Y)
    if reset:
        vars(estimator).pop("columns_", None)
    if is_frame(Y) and (reset or hasattr(estimator, "columns_")):
        return ArraySource(_read_frame(estimator, Y, mask, reset, unknown_levels))
    mapped = isinstance(Y, np.memmap) or getattr(Y, "mapped", False)
    is_plain = isinstance(Y, np.ndarray) and not mapped
    source = None if is_plain or (mapped and mask is not None) else open_source(Y)
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
    return _CheckedSource(source, names, fitting=reset, in_memory=mapped)


def _read_frame(estimator: Any, frame: Any, mask: Any, reset: bool, unknown_levels: str) -> FloatArray:
    """Return a frame as floats (n, M) with codes in the place of levels; a fit decides what columns are."""
    validate_data(estimator, frame, reset=reset, skip_check_array=True)
    if reset:
        estimator.columns_ = Schema.of(frame, _given_kinds(estimator.likelihood, estimator.n_features_in_))
    values = estimator.columns_.encode(frame, unknown_levels=unknown_levels)
    fewest = 2 if reset else 1
    if len(values) < fewest:
        raise ValueError(
            f"Y has {len(values)} sample(s) (shape={values.shape}) while a minimum of {fewest} is required "
            f"by {type(estimator).__name__}."
        )
    if mask is not None:
        values[_read_mask(mask, values.shape)] = np.nan
    return _checked(values, getattr(estimator, "feature_names_in_", None), reset)


def _given_kinds(likelihood: Any, n_columns: int) -> dict[Any, Any]:
    """Return what the parameter `likelihood` says of columns, "auto" left out."""
    if not isinstance(likelihood, Mapping):
        likelihood = {tuple(range(n_columns)): likelihood}
    return {key: single for key, single in likelihood.items() if standard_name(single) != AUTO}


def automatic_likelihoods(estimator: Any, source: Source) -> list[Likelihood | str]:
    """Return the likelihoods of columns for which the user has chosen none.

    In a frame it is that of the column's kind, and numbers have a unit and a noise each. An array is one
    matrix of numbers with one unit and one noise, unless some columns vary so much more than the others that
    they plainly have other units.
    """
    schema = getattr(estimator, "columns_", None)
    if schema is not None:
        return [
            OWN_UNITS if column.likelihood == "gaussian" else column.likelihood for column in schema.columns
        ]
    own_units = False
    if getattr(source, "in_memory", False) and source.n_rows * source.n_columns <= _MOST_ENTRIES_WITH_UNITS:
        first = source.read(0, min(source.n_rows, rows_at_once(source.n_columns)))
        own_units = _differing_units(first) is not None
    return [OWN_UNITS if own_units else "gaussian"] * source.n_columns


def plain_table(Y: Any) -> tuple[Any, FloatArray]:
    """Return Y in memory, with the names of its columns if it has any, and its entries in float64.

    Entries are NaN where they are missing. Rows without an observed entry are warned of.
    """
    Y = _in_memory(_unpacked(Y))
    plain = np.ma.filled(Y.astype(np.float64), np.nan) if isinstance(Y, np.ma.MaskedArray) else Y
    plain = plain.values if isinstance(plain, NamedTable) else plain
    table = check_array(_numeric(plain), dtype="float64", ensure_all_finite=False)
    _warn_of_empty_rows(np.flatnonzero(np.isnan(table).all(axis=1)).tolist())
    return Y, table


def read_data(estimator: BaseEstimator, Y: Any, mask: Any = None, *, reset: bool) -> FloatArray:
    """Return Y as (n, M) floats with NaN where it is NaN, NA or masked, or where `mask` is true."""
    hidden = _hidden(Y)
    Y, mask = _matched(estimator, _unpacked(Y), mask, reset)
    values: Any = _validated(estimator, _in_memory(Y), reset)
    names = getattr(estimator, "feature_names_in_", None)
    if mask is not None:
        hidden = hidden | _read_mask(mask, values.shape)
    if np.any(hidden):
        values = np.where(hidden, np.nan, values)
    return _checked(values, names, reset)


def _checked(values: FloatArray, names: Any, reset: bool) -> FloatArray:
    """Return numbers that a model can work with; refuse others, and warn of rows without an entry."""
    # one layout in memory, since sums round differently in another
    values = np.ascontiguousarray(values)
    _refuse_extremes(values, names)
    holes = np.isnan(values)
    if reset:
        _refuse_empty_columns(np.asarray(holes.all(axis=0)), names)
    _warn_of_empty_rows(np.flatnonzero(holes.all(axis=1)).tolist())
    return values


def _matched(estimator: BaseEstimator, Y: Any, mask: Any, reset: bool) -> tuple[Any, Any]:
    """Return a table whose columns are found by name, and its mask, with the columns of the fit in order.

    Anything else is returned as it is.
    """
    order = None if reset else _order_by_name(estimator, Y)
    if order is None:
        return Y, mask
    shape = Y.values.shape if isinstance(Y, NamedTable) else (Y.n_rows, Y.n_columns)
    return with_columns(Y, order), None if mask is None else _read_mask(mask, shape)[:, order]


def _validated(estimator: BaseEstimator, Y: Any, reset: bool) -> Any:
    """Return numbers in two dimensions; keep the names of the columns, or compare them with the fit's."""
    rules: Any = {
        "dtype": [np.float64, np.float32],
        "ensure_all_finite": False,
        "ensure_min_samples": 2 if reset else 1,
    }
    if not isinstance(Y, NamedTable):
        return validate_data(estimator, _numeric(Y, fitting=reset), reset=reset, **rules)
    table = _numeric(Y.values, Y.names, fitting=reset)
    values = check_array(table, estimator=estimator, input_name="Y", **rules)
    _take_names(estimator, Y.names, reset=reset)
    return values


def _refuse_few_rows(estimator: BaseEstimator, source: Source, fewest: int) -> None:
    if source.n_rows < fewest or source.n_columns < 1:
        raise ValueError(
            f"Y has {source.n_rows} sample(s) and {source.n_columns} feature(s), while a minimum of {fewest} "
            f"and 1 is required by {type(estimator).__name__}."
        )


def _take_header(estimator: BaseEstimator, source: Source, reset: bool) -> None:
    """Take over the number of a source's columns and their names, if they have any."""
    names = getattr(source, "names", None)
    if names is not None:
        _take_names(estimator, names, reset=reset)
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
    """Return the logarithms of given size factors."""
    values = np.asarray(sizes, dtype=np.float64)
    if values.shape != (n_rows,) or not np.all(np.isfinite(values)) or np.any(values <= 0.0):
        raise ValueError(f"sizes must be positive finite numbers, one for each of the {n_rows} rows of Y.")
    return np.log(values)


def row_log_sizes(layout: Layout | None, Y: FloatArray, sizes: Any, size_factors: Any) -> FloatArray | None:
    """Return the logarithms of the sizes of rows, given or estimated, or None where rows have no sizes.

    Sizes are refused for likelihoods without a log mean, to which they mean nothing; None as a layout says
    that there are no others.
    """
    if layout is None or len(layout.count_columns) == 0:
        _refuse_sizes(sizes, size_factors)
        return None
    if sizes is not None:
        return read_sizes(sizes, len(Y))
    return layout.log_sizes(Y)


def _refuse_sizes(sizes: Any, size_factors: Any) -> None:
    if sizes is not None or size_factors in ("totals", "ratios"):
        raise ValueError(
            "Size factors are for counts: no column has the likelihood 'negative_binomial' or 'poisson'."
        )


def _in_memory(Y: Any) -> Any:
    """Return the file of an AnnData object as an array with names, and anything else as it is."""
    names = getattr(Y, "names", None)
    return NamedTable(Y.read(0, Y.n_rows), names) if isinstance(Y, Source) and names is not None else Y


# ---- names of columns ------------------------------------------------------------------------------


def _unpacked(Y: Any) -> Any:
    """Return the matrix of an AnnData object with the names of its variables, and anything else as it is.

    A matrix in a file is read in pieces.
    """
    if not isinstance(Y, getattr(sys.modules.get("anndata"), "AnnData", ())):
        return Y
    from srflvm.data.tables.h5ad import open_matrix

    return open_matrix(Y)


def with_names_of(model: Any, Y: Any) -> Any:
    """Return the rows Y so that a fitted model takes them without a warning where only one of the two has
    names of columns; where both have names they are still compared."""
    Y = _unpacked(Y)
    own, known = _names(Y), getattr(model, "feature_names_in_", None)
    names = known if own is None else own
    if names is None or (own is not None and known is not None):
        return Y
    _check_number(model, np.shape(Y)[-1])
    return NamedTable(Y, list(names))


def _names(Y: Any) -> list[str] | None:
    """Return the names of the columns; labels that are no texts are none, as in scikit-learn."""
    names = list(Y.names if isinstance(Y, NamedTable) else getattr(Y, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def _take_names(estimator: BaseEstimator, names: Sequence[str], *, reset: bool) -> None:
    """Give an estimator the names of the columns, or compare them with those that it has."""
    if reset:
        names_in = np.array(names, dtype=object)
        vars(estimator).update(feature_names_in_=names_in, n_features_in_=len(names))
        return
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and list(names) != list(known):
        raise ValueError(f"The feature names should match those of the fit: {_difference(names, known)}.")
    _check_number(estimator, len(names))


def _check_number(estimator: BaseEstimator, n_columns: int) -> None:
    known = vars(estimator)["n_features_in_"]
    if n_columns != known:
        raise ValueError(
            f"Y has {n_columns} features, but {type(estimator).__name__} is expecting {known} features as "
            "input."
        )


def _order_by_name(estimator: BaseEstimator, table: Any) -> np.ndarray | None:
    """Return where the columns of a fitted model are in a table whose columns are found by name.

    None says that they are all of its columns in their order, or are not found by name.
    """
    known, names = getattr(estimator, "feature_names_in_", None), getattr(table, "names", None)
    if known is None or names is None or not getattr(table, "by_name", False) or list(names) == list(known):
        return None
    wanted, found = set(known), set(names)
    twice = [name for name in (*repeated(known), *repeated(names)) if name in wanted]
    if twice:
        raise DataError(
            "The variables of the AnnData object are not those of the fit, so they are to be found by name, "
            f"but several have the name {listed(twice)}. Make the names unique, here and before the fit, "
            "with adata.var_names_make_unique()."
        )
    missing = [name for name in known if name not in found]
    if missing:
        raise DataError(
            f"The AnnData object has no variable {listed(missing)}, to which the model was fitted "
            f"({len(missing)} of {len(known)} are missing). Give all of them, with NaN where they were not "
            "observed."
        )
    return places_of(known, names)


def _difference(names: Sequence[str], known: Sequence[str]) -> str:
    now, before = set(names), set(known)
    parts = {
        "not seen there": [name for name in names if name not in before],
        "missing now": [name for name in known if name not in now],
    }
    return "; ".join(f"{what} {listed(some)}" for what, some in parts.items() if some) or "another order"


# ---- frames, lists and arrays of objects as numbers ------------------------------------------------

_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


@dataclass(frozen=True)
class _Column:
    """Hold a column that may have other entries than numbers: `values` are its entries, None for dates."""

    place: int
    name: Any
    values: np.ndarray | None

    def __str__(self) -> str:
        return f"Column {self.place}" if self.name is None else f"Column {self.place} ({self.name!r})"


def _numeric(Y: Any, names: Sequence[str] | None = None, *, fitting: bool = True) -> Any:
    """Return Y if it can become numbers, with NaN for NA in columns of objects of a pandas frame.

    Parameters
    ----------
    Y : array-like of shape (n, M)
    names : sequence of str, default=None
        Names of the columns, if Y itself has none.
    fitting : bool, default=True
        Whether a model is to be fitted to Y, so that a column may be left out.

    Raises
    ------
    DataError
        A column holds texts, or dates, which would become numbers of days or nanoseconds.
    TypeError
        An entry is neither a number nor a text.
    """
    for column in _doubtful_columns(Y, names):
        _refuse_dates(column, column.values is None)
        _refuse_texts(column, fitting)
    return _without_na(Y) if _is_frame(Y, "pandas") else Y


def _is_frame(Y: Any, library: str) -> bool:
    return isinstance(Y, getattr(sys.modules.get(library), "DataFrame", ()))


def _doubtful_columns(Y: Any, names: Sequence[str] | None) -> Iterator[_Column]:
    """Yield the columns whose type does not say that they hold numbers."""
    if _is_frame(Y, "pandas"):
        for place, (name, dtype) in enumerate(zip(Y.columns, Y.dtypes, strict=True)):
            if dtype.kind in "mM":
                yield _Column(place, name, None)
            elif dtype.kind == "O":
                yield _Column(place, name, _with_none(Y.iloc[:, place]))
    elif _is_frame(Y, "polars"):
        for place, series in enumerate(Y.get_columns()):
            if series.dtype.is_temporal():
                yield _Column(place, series.name, None)
            elif not series.dtype.is_numeric():
                yield _Column(place, series.name, _objects(series.to_list()))
    else:
        array = _array(Y)
        for place in range(array.shape[1] if array.ndim == 2 else 0):
            values = None if array.dtype.kind in "mM" else array[:, place]
            yield _Column(place, None if names is None else names[place], values)


def _array(Y: Any) -> np.ndarray:
    """Return an array or a list as an array, empty if its type says that it holds numbers."""
    if isinstance(Y, list | tuple):
        try:
            np.asarray(Y, dtype=np.float64)
        except (TypeError, ValueError):
            return np.array(Y, dtype=object)
    return Y if isinstance(Y, np.ndarray) and Y.dtype.kind in "OUSmM" else np.empty(0)


def _with_none(column: Any) -> np.ndarray:
    """Return the entries of a pandas column, None where one is missing."""
    values = np.array(column, dtype=object)
    values[np.asarray(column.isna())] = None
    return values


def _objects(values: Sequence[Any]) -> np.ndarray:
    """Return an array of one dimension, also if the values are sequences."""
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _refuse_dates(column: _Column, found: bool) -> None:
    if found:
        raise DataError(
            f"{column} holds dates or times. Turn them into numbers first, such as days since a date, or "
            "drop the column."
        )


def _refuse_texts(column: _Column, fitting: bool) -> None:
    """Refuse the first entry of a column that is no number."""
    values: Any = column.values
    try:
        np.asarray(values, dtype=np.float64)
        return
    except (TypeError, ValueError):
        wrong = ((row, value) for row, value in enumerate(values) if _fault(value) is not None)
    row, value = next(wrong)
    _refuse_dates(column, isinstance(value, _TIMES))
    place = f"{reprlib.repr(str(value) if isinstance(value, str) else value)} at row {row}"
    if not isinstance(value, str | bytes):
        raise TypeError(
            f"{column} holds {place}, which is no number: {_fault(value)}. Use NaN for entries that were not "
            "observed."
        )
    some_numbers = any(other is not None and _fault(other) is None for other in values)
    hint = "Put NaN in its place if it stands for a missing entry; otherwise: " if some_numbers else ""
    raise DataError(f"{column} holds text: {place} is not a number. {hint}{_remedy(column, fitting)}")


def _fault(value: Any) -> str | None:
    """Return why an entry is no number, or None; None itself is a missing entry."""
    try:
        float("nan" if value is None else value)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def _remedy(column: _Column, fitting: bool) -> str:
    if not fitting:
        return "Give the column the numbers or codes that it had in the fit."
    # names that are no texts are not kept, and columns are then told by their place
    key = column.name if isinstance(column.name, str) else column.place
    return (
        "Drop the column, or encode its values as codes 0, 1, 2, ... and name it in "
        f"likelihood={{{key!r}: 'categorical', ...}}, with a likelihood for each of the other columns, too."
    )


def _without_na(Y: Any) -> Any:
    """Return a pandas frame with NaN for NA in columns of objects, which would not become numbers."""
    objects = [place for place, dtype in enumerate(Y.dtypes) if dtype.kind == "O"]
    if any(Y.iloc[:, place].isna().any() for place in objects):
        Y = Y.copy()
        for place in objects:
            column = Y.iloc[:, place]
            Y.isetitem(place, column.where(column.notna(), np.nan))
    return Y


# ---- entries, columns and rows that cannot be used -------------------------------------------------

# Whether the user has been told, or need not be told, of rows without an observed entry.
_EMPTY_ROWS_ARE_KNOWN: ContextVar[bool] = ContextVar("empty rows are known", default=False)


def _refuse_extremes(values: FloatArray, names: Any, rows: np.ndarray | None = None) -> None:
    """Refuse infinity, and numbers whose squares overflow. `rows` are the numbers of the rows, if they are
    some of Y and not all."""
    if not values.size or -LARGEST <= np.fmin.reduce(values, None) <= np.fmax.reduce(values, None) <= LARGEST:
        return
    among = f"its {values.size} entries" if rows is None else f"the {values.size} entries read with it"
    infinite = np.isinf(values)
    if infinite.any():
        raise DataError(
            f"Y contains infinity at {_first_place(infinite, names, rows)}; {int(infinite.sum())} of {among} "
            "are infinite. Use NaN for entries that were not observed."
        )
    bad = np.abs(values) > LARGEST
    if bad.any():
        raise DataError(
            f"Y has {values[bad][0]:g} at {_first_place(bad, names, rows)}: squares of numbers beyond "
            f"{LARGEST:.0e} overflow ({int(bad.sum())} of {among}). Rescale Y: divide it by a larger unit. "
            "Use NaN for entries that were not observed."
        )


def _first_place(bad: np.ndarray, names: Any, rows: np.ndarray | None) -> str:
    row, column = (int(i) for i in np.argwhere(bad)[0])
    return f"row {row if rows is None else rows[row]}, {describe(column, names)}"


def refuse_far_entries(values: FloatArray, groups: Sequence[Group], names: Any, first_row: int = 0) -> None:
    """Refuse entries so far from the training data, in units of their spread, that squares overflow; `values`
    are the rows from `first_row` on."""
    for group in groups:
        units = group.units
        bad = np.abs(values[:, group.columns] - units.location) / units.scale > LARGEST
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            at = int(group.columns[column])
            raise DataError(
                f"Y has {values[row, at]:g} at row {first_row + row}, {describe(at, names)}: that "
                f"is more than {LARGEST:.0e} times the spread of the training data "
                f"({units.scale[column]:.1g}) away from their centre, and its square overflows. "
                "Give Y in the units of the training data."
            )


def _refuse_empty_columns(is_empty: np.ndarray, names: Any) -> None:
    """Refuse columns without an observed entry, about which nothing can be learned."""
    empty = np.flatnonzero(is_empty)
    if empty.size:
        raise DataError(
            f"Y has no observed entry in {describe(int(empty[0]), names)} "
            f"({empty.size} such columns). Drop it: nothing can be learned about it."
        )


def _warn_of_empty_rows(rows: Sequence[int]) -> None:
    """Warn of rows without an observed entry; `rows` are their numbers."""
    if not len(rows) or _EMPTY_ROWS_ARE_KNOWN.get():
        return
    if len(rows) == 1:
        found, them, their = f"1 row of Y has no observed entry: row {rows[0]}", "it", "its"
    else:
        found = f"{len(rows)} rows of Y have no observed entry, the first is row {rows[0]}"
        them, their = "them", "their"
    warn_caller(
        f"{found}. The model places {them} at the prior, so that {their} imputed values are those of an "
        "average row."
    )


@contextmanager
def empty_rows_are_known() -> Iterator[None]:
    """Warn of no empty rows: a method that calls others has done so, or they are no rows of the user's Y."""
    token = _EMPTY_ROWS_ARE_KNOWN.set(True)
    try:
        yield
    finally:
        _EMPTY_ROWS_ARE_KNOWN.reset(token)


# Columns whose standard deviation is so many times that of the middle column drown the others if they have
# more than half of all variance. Pixels at the edge of images vary little, but none of the others so much.
_LARGE_RATIO = 10.0


# More entries than this are fitted in one unit: a unit for each column has a regression for each.
_MOST_ENTRIES_WITH_UNITS = 1_000_000


def warn_of_units(source: Source, choice: Choice, names: Sequence[str] | None) -> None:
    """Warn of continuous columns that vary far more than the others, which share one scale with them."""
    first = source.read(0, min(source.n_rows, rows_at_once(source.n_columns)))
    for likelihood, columns in choice:
        if likelihood.has_units and getattr(likelihood, "scale", "shared") == "shared" and len(columns) > 1:
            _warn_of_group(first[:, columns], columns, names)


def _differing_units(values: FloatArray) -> tuple[float, int, int] | None:
    """Return the ratio of the spreads of the widest and the middle column, and which they are.

    None says that no column varies so much more than the others that these hardly count.
    """
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns that are empty here
        spread = np.nan_to_num(np.nanstd(np.asarray(values, np.float64), axis=0), nan=0.0, posinf=np.inf)
    varying = np.flatnonzero(spread > 0.0)
    if len(varying) < 2 or not np.isfinite(spread).all():
        return None
    order = varying[np.argsort(spread[varying])]
    middle, widest = order[(len(order) - 1) // 2], order[-1]
    wide = spread > _LARGE_RATIO * spread[middle]
    relative = spread / spread[widest]
    if np.sum(relative[wide] ** 2) > 0.5 * np.sum(relative**2):
        return float(spread[widest] / spread[middle]), int(widest), int(middle)
    return None


def _warn_of_group(values: FloatArray, columns: np.ndarray, names: Sequence[str] | None) -> None:
    found = _differing_units(values)
    if found is not None:
        ratio, widest, middle = found
        one, other = (describe(int(columns[place]), names) for place in (widest, middle))
        warn_caller(
            f"Columns of Y have very different units: {one} varies {ratio:.0f} times as much as {other}. "
            "Continuous columns share one scale, so that little is learned of those that vary less. "
            "Use likelihood=srflvm.likelihoods.Gaussian(noise='column', scale='column'), or standardise "
            "them first, for example by sklearn.preprocessing.StandardScaler."
        )


class _CheckedSource:
    """Read a user's rows, and refuse infinity and numbers whose squares overflow by row and column.

    When all rows have been read in order for the first time, columns without an entry are refused
    (`fitting`) and rows without one are warned of. `in_memory` says that the user gave a memory map, which is
    an array too.
    """

    def __init__(self, source: Source, names: np.ndarray | None, *, fitting: bool, in_memory: bool):
        self._source, self._names, self._fitting = source, names, fitting
        self.in_memory = in_memory
        self._n_seen = 0
        self._observed = np.zeros(source.n_columns, bool)
        self._empty_rows: list[int] = []

    @property
    def n_rows(self) -> int:
        return self._source.n_rows

    @property
    def n_columns(self) -> int:
        return self._source.n_columns

    def read(self, start: int, stop: int) -> FloatArray:
        values = self._source.read(start, stop)
        _refuse_extremes(values, self._names, np.arange(start, stop))
        if start <= self._n_seen < stop:
            self._note(values[self._n_seen - start :])
            self._n_seen = stop
            if stop == self.n_rows:
                self._conclude()
        return values

    def take(self, index: np.ndarray) -> FloatArray:
        values = self._source.take(index)
        _refuse_extremes(values, self._names, index)
        return values

    def _note(self, values: FloatArray) -> None:
        """Note which columns have entries and which rows have none, in rows that are read the first time."""
        missing = np.isnan(values)
        self._observed |= ~missing.all(axis=0)
        self._empty_rows.extend((self._n_seen + np.flatnonzero(missing.all(axis=1))).tolist())

    def _conclude(self) -> None:
        if self._fitting:
            _refuse_empty_columns(~self._observed, self._names)
        _warn_of_empty_rows(self._empty_rows)
