"""What a page says of the rows: latents, labels, names, and columns of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from srflvm._inputs import read_data
from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.explore.packing import LARGEST_SINGLE, Block, block, codes, page_text, text_bytes
from srflvm.named import with_names_of
from srflvm.sources import SparseSource

# Up to so many different whole numbers are classes, as in the pictures of `srflvm.plot`.
_MOST_NUMBERED_CLASSES = 20
_MISSING_CODE = 65535

# Larger ones are named by their power of ten.
_WHOLE_NUMBERS_BELOW = 1e15


def latents(model: Any) -> dict[str, Block]:
    """Latents in single precision, and their standard deviations to a 65 534th of the largest."""
    return {"latents": block(model.embedding_, "float32"), "latent_std": codes(model.embedding_std_)}


def row_names(ids: Any, n_rows: int) -> list[str] | None:
    """The names of the rows as text."""
    if ids is None:
        return None
    return [page_text(name) for name in _column_of(ids, n_rows, "ids")]


def label_block(labels: Any, n_rows: int) -> dict[str, Any] | None:
    """Classes as names and codes in their order, or numbers."""
    if labels is None:
        return None
    values = _column_of(labels, n_rows, "labels")
    missing = np.array([_is_missing(value) for value in values])
    seen = values[~missing]
    numbers = _as_numbers(seen)
    if numbers is not None and not _are_classes(numbers):
        whole = np.full(n_rows, np.nan)
        whole[~missing] = numbers
        return {"kind": "numbers", "values": block(whole, _precision(numbers))}
    texts = np.array([page_text(value) for value in seen]) if numbers is None else numbers
    names, found = np.unique(texts, return_inverse=True)
    if len(names) >= _MISSING_CODE:
        raise DataError(f"labels have {len(names)} different values. Give classes, or numbers to colour by.")
    coded = np.full(n_rows, _MISSING_CODE)
    coded[~missing] = found
    return {"kind": "classes", "names": [_name(name) for name in names], "codes": block(coded, "uint16")}


def training_rows(model: Any, data: Any) -> FloatArray | None:
    """The data as floats with NaN for holes."""
    if data is None:
        return None
    if sparse.issparse(data):
        source = SparseSource(data, what="data")
        data = source.read(0, source.n_rows)
    values = read_data(model, with_names_of(model, data), reset=False)
    n_rows = len(model.embedding_)
    if len(values) != n_rows:
        raise DataError(
            f"data has {len(values)} rows but the model has latents of {n_rows}. Give the rows it was fitted "
            "to, in their order."
        )
    _refuse_large_entries(values)
    return values


def _refuse_large_entries(values: FloatArray) -> None:
    places = np.argwhere(np.abs(values) > LARGEST_SINGLE)
    if len(places):
        row, column = places[0].tolist()
        raise DataError(
            f"data has {values[row, column]:g} at row {row}, column {column}, and a page holds numbers up to "
            f"{LARGEST_SINGLE:.1e}. Give data in larger units, or no data."
        )


def data_columns(values: FloatArray | None, order: np.ndarray, room: int) -> dict[str, Any] | None:
    """The first columns in an order that there is room for."""
    if values is None:
        return None
    kept, blocks = [], []
    for column in order:
        coded = codes(values[:, column])
        room -= len(coded["codes"]["data"]) + 100
        if room < 0:
            break
        kept.append(int(column))
        blocks.append(coded)
    return {"columns": kept, "values": blocks}


def rows_bytes(n_rows: int, n_latent: int) -> int:
    """An estimate of the length of the latents, the labels and the numbers of rows in a page."""
    return text_bytes(n_rows * n_latent * 6) + text_bytes(n_rows * 8)


def _column_of(values: Any, n_rows: int, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (n_rows,):
        raise DataError(
            f"{what} must have one value for each of the {n_rows} rows of the model; the shape is "
            f"{array.shape}."
        )
    return array.astype(object)


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA, which is not equal to anything and not true either."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _as_numbers(values: np.ndarray) -> FloatArray | None:
    if any(isinstance(value, str | bool | np.bool_) for value in values):
        return None
    try:
        return values.astype(np.float64)
    except (OverflowError, TypeError, ValueError):
        return None


def _precision(numbers: FloatArray) -> str:
    """The type of numbers that holds the largest of these neither as infinity nor as zero."""
    largest = np.max(np.abs(numbers), where=np.isfinite(numbers), initial=0.0)
    return "float32" if largest == 0.0 or 1e-30 < largest < 1e38 else "float64"


def _are_classes(numbers: FloatArray) -> bool:
    return bool(np.all(numbers == np.round(numbers))) and len(np.unique(numbers)) <= _MOST_NUMBERED_CLASSES


def _name(name: Any) -> str:
    whole = isinstance(name, float) and abs(name) < _WHOLE_NUMBERS_BELOW
    return str(int(name)) if whole else str(name)
