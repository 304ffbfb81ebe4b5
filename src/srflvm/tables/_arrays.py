"""Arrays in files: .npy, .npz and Zarr."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.exceptions import DataError
from srflvm.file_sources import UNREADABLE_ARCHIVE, check_archive, open_source
from srflvm.sources import ArraySource, as_floats, check_table
from srflvm.tables._table import Reading, Table, as_ids, check_asked, check_names

_COLUMNS, _IDS = "columns", "ids"


def read_stored(path: Path, how: Reading) -> Table:
    """A .npy file or a Zarr array, whose rows stay there until they are asked for."""
    source: Any = open_source(path)
    columns, ids = getattr(source, "names", None), getattr(source, "ids", None)
    _check_columns(path, how, columns)
    return Table(source, columns, ids)


def read_npz(path: Path, how: Reading) -> Table:
    """A sparse matrix of `scipy.sparse.save_npz`, or the one dense array with two dimensions, which may have
    "columns" and "ids" beside it."""
    check_archive(path)
    try:
        values, names = _dense(path)
    except DataError:
        raise
    except UNREADABLE_ARCHIVE as error:
        raise DataError(f"{path} cannot be read as arrays of numbers ({error}).") from error
    if values is None:
        return read_stored(path, how)
    check_table(values, str(path))
    n_rows, n_columns = values.shape
    columns, ids = _names(path, names, _COLUMNS, n_columns), _names(path, names, _IDS, n_rows)
    _check_columns(path, how, columns)
    return Table(ArraySource(as_floats(values)), columns, ids)


def _dense(path: Path) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """The one array of a file, or None if that is a sparse matrix, and the names beside it."""
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        raise DataError(f"{path} is one array, as .npy files are. Give it the ending .npy.")
    with found as stored:
        names = {name: stored[name] for name in stored.files if name in (_COLUMNS, _IDS)}
        others = [name for name in stored.files if name not in names]
        if {"format", "shape"} <= set(others):
            return None, names
        if len(others) != 1:
            raise DataError(f"{path} holds {len(others)} arrays ({', '.join(others)}); expected one.")
        return stored[others[0]], names


def _names(path: Path, names: dict[str, np.ndarray], key: str, n_named: int) -> tuple[str, ...] | None:
    if key not in names:
        return None
    if names[key].shape != (n_named,):
        raise DataError(
            f"{path} has {key!r} of shape {names[key].shape} beside a table that needs {n_named} of them. "
            "Give each a name, or leave them out."
        )
    return as_ids(names[key])


def _check_columns(path: Path, how: Reading, columns: Sequence[str] | None) -> None:
    if columns is not None:
        check_names(columns, path)
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
    zarr = require_zarr()
    array = zarr.create_array(str(temporary), data=table.values)
    for name, some in ((_COLUMNS, table.columns), (_IDS, table.ids)):
        if some is not None:
            array.attrs[name] = [str(text) for text in some]


def require_zarr() -> Any:
    """The package, or an error that says what to install."""
    try:
        import zarr
    except ImportError as error:
        raise ImportError("Writing .zarr needs the package zarr: pip install 'srflvm[files]'.") from error
    return zarr
