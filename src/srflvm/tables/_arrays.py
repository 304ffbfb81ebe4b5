"""Arrays in files: .npy, .npz and Zarr."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.exceptions import DataError
from srflvm.file_sources import open_source
from srflvm.sources import ArraySource, as_floats, check_table
from srflvm.tables._table import Reading, Table, as_ids, check_asked

_COLUMNS, _IDS = "columns", "ids"


def read_stored(path: Path, how: Reading) -> Table:
    """A .npy file or a Zarr array, whose rows stay there until they are asked for."""
    source: Any = open_source(path)
    columns, ids = getattr(source, "names", None), getattr(source, "ids", None)
    _refuse_left_out(path, how, columns)
    return Table(source, columns, ids)


def read_npz(path: Path, how: Reading) -> Table:
    """A sparse matrix of `scipy.sparse.save_npz`, or the one dense array with two dimensions, which may have
    "columns" and "ids" beside it."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files if name in (_COLUMNS, _IDS)}
            others = [name for name in stored.files if name not in arrays]
            if {"format", "shape"} <= set(others):
                return read_stored(path, how)
            if len(others) != 1:
                raise DataError(f"{path} holds {len(others)} arrays ({', '.join(others)}); expected one.")
            values = stored[others[0]]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as arrays of numbers ({error}).") from error
    check_table(values, str(path))
    columns, ids = (as_ids(arrays[name]) if name in arrays else None for name in (_COLUMNS, _IDS))
    _refuse_left_out(path, how, columns)
    return Table(ArraySource(as_floats(values)), columns, ids)


def _refuse_left_out(path: Path, how: Reading, columns: Any) -> None:
    check_asked(how, columns, path)
    if how.id_column is not None or how.leave_out:
        raise DataError(f"{path} is one array of numbers: none of its columns can be left out or name rows.")


def write_npy(path: Path, temporary: Path, table: Table) -> None:
    """The entries only."""
    with temporary.open("wb") as file:
        np.save(file, table.values)


def write_npz(path: Path, temporary: Path, table: Table) -> None:
    """The entries, and the names of columns and rows."""
    names = {_COLUMNS: table.columns, _IDS: table.ids}
    arrays: dict[str, Any] = {"values": table.values}
    arrays |= {name: np.array(list(map(str, some))) for name, some in names.items() if some is not None}
    with temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def write_zarr(path: Path, temporary: Path, table: Table) -> None:
    """An array with the names of columns and rows as attributes."""
    try:
        import zarr
    except ImportError as error:
        raise ImportError("Writing .zarr needs the package zarr: pip install 'srflvm[files]'.") from error
    array = zarr.create_array(str(temporary), data=table.values)
    for name, some in ((_COLUMNS, table.columns), (_IDS, table.ids)):
        if some is not None:
            array.attrs[name] = [str(text) for text in some]
