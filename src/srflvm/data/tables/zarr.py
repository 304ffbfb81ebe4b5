"""Zarr arrays: folders, zip files and folders inside a store. Needs the package zarr (the extra `files`)."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.sources import as_floats, check_pieces, check_table, refuse_reading, rows_at_once
from srflvm.data.tables.table import Format, ReadOptions, Table
from srflvm.exceptions import DataError

# Attributes of an array that hold the names of columns and rows.
_COLUMNS, _IDS = "columns", "ids"


class ZarrSource:
    """Zarr array of two dimensions.

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
        self.names = _attribute(array, _COLUMNS, array.shape[1])
        self.ids = _attribute(array, _IDS, array.shape[0])

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


def _attribute(array: Any, name: str, length: int) -> tuple[str, ...] | None:
    found = array.attrs.get(name)
    return tuple(found) if isinstance(found, list) and len(found) == length else None


def _block_rows(array: Any) -> int:
    """Return how many rows a block has: about a piece, in whole chunks unless these are very high."""
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


class _Zarr(Format):
    def open_rows(self, path: Path) -> ZarrSource:
        import zarr
        from zarr.storage import ZipStore

        packed = path.is_file() and zipfile.is_zipfile(path)
        store = ZipStore(path, mode="r") if packed else path
        try:
            found = zarr.open(store=store, mode="r")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"There is no Zarr array at {str(path)!r}.") from error
        if not isinstance(found, zarr.Array):
            arrays = ", ".join(sorted(found.array_keys())) or "none"
            raise DataError(
                f"{path} is a group of Zarr arrays ({arrays}), not an array. Give the path of one of them, "
                "or the array itself."
            )
        return ZarrSource(found, str(path))

    def open_table(self, path: Path, options: ReadOptions) -> Table:
        source = self.open_rows(path)
        options.check_matrix(source.names, path)
        return Table(source, source.names, source.ids)

    def write(self, path: Path, temporary: Path, table: Table) -> None:
        """Write an array with the names of columns and rows as attributes."""
        import zarr

        array = zarr.create_array(str(temporary), data=table.values)
        for name, some in ((_COLUMNS, table.columns), (_IDS, table.ids)):
            if some is not None:
                array.attrs[name] = [str(text) for text in some]


ZARR = _Zarr()
