"""Zarr arrays. Needs the package zarr (the extra `files`)."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.free_memory import refuse_reading
from srflvm.sources import as_floats, check_pieces, check_table, rows_at_once


class ZarrSource:
    """A Zarr array of two dimensions.

    A chunk can only be decoded as a whole, so blocks of whole chunks are read and the last one is kept: rows
    that are read in order are decoded once.
    Attributes "columns" and "ids" of the array, lists of as many texts, are the names of columns and rows.
    """

    def __init__(self, array: Any, what: str = "The Zarr array"):
        check_table(array, what)
        check_pieces(array.shape, what)
        _check_chunks(array, what)
        self._array = array
        self._block_rows = _block_rows(array)
        self._kept: tuple[int, FloatArray] | None = None
        names = array.attrs.get("columns")
        self.names = tuple(names) if isinstance(names, list) and len(names) == array.shape[1] else None
        ids = array.attrs.get("ids")
        self.ids = tuple(ids) if isinstance(ids, list) and len(ids) == array.shape[0] else None

    @property
    def n_rows(self) -> int:
        return self._array.shape[0]

    @property
    def n_columns(self) -> int:
        return self._array.shape[1]

    def read(self, start: int, stop: int) -> FloatArray:
        parts, row = [], start
        while row < stop:
            number, inside = divmod(row, self._block_rows)
            parts.append(self._block(number)[inside : inside + stop - row])
            row += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def take(self, index: np.ndarray) -> FloatArray:
        return as_floats(np.asarray(self._array.oindex[index, slice(None)]))

    def _block(self, number: int) -> FloatArray:
        if self._kept is None or self._kept[0] != number:
            first = number * self._block_rows
            self._kept = None
            self._kept = number, as_floats(np.asarray(self._array[first : first + self._block_rows]))
        return self._kept[1]


def _block_rows(array: Any) -> int:
    """About a piece of rows, in whole chunks unless these are very high."""
    height, most = array.chunks[0], rows_at_once(array.shape[1])
    return most if height > 4 * most else height * max(1, most // height)


def _check_chunks(array: Any, what: str) -> None:
    """Refuse chunks that cannot be held. Their size is what the array says, whatever is stored of them."""
    sides = " x ".join(map(str, array.chunks))
    refuse_reading(
        f"{what} is stored in chunks of {sides} entries of type {array.dtype}, and one is read as a whole",
        float(math.prod(array.chunks) * array.dtype.itemsize),
        "Write the array again with smaller chunks: zarr.create_array(path, data=array, chunks=(1000, 100)).",
    )


def open_zarr(path: Path) -> ZarrSource:
    """The array at a path: a folder, a zip file, or a folder inside a store."""
    try:
        import zarr
        from zarr.storage import ZipStore
    except ImportError as error:
        raise ImportError(
            "Reading .zarr needs the package zarr: pip install 'srflvm[files]', or pip install zarr."
        ) from error
    packed = path.is_file() and zipfile.is_zipfile(path)
    store = ZipStore(path, mode="r") if packed else path
    try:
        found = zarr.open(store=store, mode="r")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"There is no Zarr array at {str(path)!r}.") from error
    if not isinstance(found, zarr.Array):
        listed = ", ".join(sorted(found.array_keys())) or "none"
        raise DataError(
            f"{path} is a group of Zarr arrays ({listed}), not an array. Give the path of one of them, or "
            "the array itself."
        )
    return ZarrSource(found, str(path))
