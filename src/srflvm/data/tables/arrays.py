"""Arrays in the files of NumPy and SciPy: .npy and .npz.

Files are read, not mapped: mapped pages count as memory of the process for as long as the system keeps them.
"""

from __future__ import annotations

import math
import mmap
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy_format

from srflvm._typing import FloatArray
from srflvm.data.sources import (
    ArraySource,
    SlicedSource,
    Source,
    SparseSource,
    as_floats,
    check_table,
    rows_at_once,
    take_by_reading,
)
from srflvm.data.tables.labels import LabelColumns
from srflvm.data.tables.table import Format, ReadOptions, Table
from srflvm.exceptions import DataError

# Names of the arrays that hold the names of columns and rows.
_COLUMNS, _IDS = "columns", "ids"

# Errors of reading a damaged or foreign .npz file.
_UNREADABLE = (
    ValueError,
    KeyError,
    OSError,
    TypeError,
    AttributeError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)

# Arrays in a .npz file that say where the entries of a sparse matrix are.
_INDICES = ("indices", "indptr", "row", "col", "coords", "offsets")

# Reading this many bytes takes about as long as asking for other ones.
_BYTES_OF_A_GAP = 65_536


@dataclass(frozen=True)
class StoredArraySource:
    """Array of numbers in a file from `offset` on, row by row or (`fortran`) column by column."""

    path: str
    offset: int
    shape: tuple[int, int]
    dtype: np.dtype
    fortran: bool

    @property
    def n_rows(self) -> int:
        return self.shape[0]

    @property
    def n_columns(self) -> int:
        return self.shape[1]

    def read(self, start: int, stop: int) -> FloatArray:
        if not self.fortran:
            entries = self._entries(start * self.n_columns, (stop - start) * self.n_columns)
            return as_floats(entries.reshape(stop - start, self.n_columns))
        columns = [self._entries(c * self.n_rows + start, stop - start) for c in range(self.n_columns)]
        return as_floats(np.stack(columns, axis=1))

    def take(self, index: np.ndarray) -> FloatArray:
        if self.fortran:
            return take_by_reading(self, index, largest_gap=rows_at_once(self.n_columns))
        row_bytes = self.n_columns * self.dtype.itemsize
        return take_by_reading(self, index, largest_gap=max(1, _BYTES_OF_A_GAP // row_bytes))

    def _entries(self, first: int, count: int) -> np.ndarray:
        entries = np.fromfile(self.path, self.dtype, count, offset=self.offset + first * self.dtype.itemsize)
        if len(entries) < count:
            raise DataError(f"{self.path} ends before its last row: it was cut short. Write it again.")
        return entries


def open_memory_map(mapped: np.memmap) -> Source:
    """Return a source that reads a whole file that cannot change, and slices a part of one, or any other."""
    check_table(mapped, "The memory map")
    whole = isinstance(mapped.base, mmap.mmap) and (mapped.flags.c_contiguous or mapped.flags.f_contiguous)
    if whole and mapped.mode == "r" and mapped.filename is not None and Path(mapped.filename).exists():
        return _stored_array(mapped)
    return SlicedSource(mapped)


def _stored_array(mapped: Any) -> StoredArraySource:
    fortran = not mapped.flags.c_contiguous
    return StoredArraySource(str(mapped.filename), mapped.offset, mapped.shape, mapped.dtype, fortran)


class _Npy(Format):
    def open_rows(self, path: Path) -> StoredArraySource:
        # the mapping only serves to read the header; no page of it is touched
        mapped = _load_array(path, mmap_mode="r")
        check_table(mapped, str(path))
        return _stored_array(mapped)

    def open_table(self, path: Path, options: ReadOptions) -> Table:
        source = self.open_rows(path)
        options.check_matrix(None, path)
        return Table(source)

    def label_columns(self, path: Path, n_rows: int) -> LabelColumns:
        labels = _load_array(path)
        if labels.ndim != 1:
            raise DataError(f"{path} has {labels.ndim} dimensions. Labels are an array of one.")
        return LabelColumns(path, 1, lambda _: labels)

    def write(self, path: Path, temporary: Path, table: Table) -> None:
        """Write the entries only."""
        with temporary.open("wb") as file:
            np.save(file, table.values)


class _Npz(Format):
    def open_rows(self, path: Path) -> Source:
        """Open a sparse matrix of `scipy.sparse.save_npz`."""
        from scipy import sparse

        _check_archive(path)
        try:
            matrix = sparse.load_npz(path)
        except _UNREADABLE as error:
            raise DataError(
                f"{path} is not a sparse matrix that scipy.sparse.save_npz wrote ({error}). "
                "Write dense arrays with numpy.save, as .npy."
            ) from error
        return SparseSource(matrix, what=str(path))

    def open_table(self, path: Path, options: ReadOptions) -> Table:
        """Open a sparse matrix, or the one dense array of two dimensions with its "columns" and "ids"."""
        _check_archive(path)
        try:
            values, names = _read_dense(path)
        except DataError:
            raise
        except _UNREADABLE as error:
            raise DataError(f"{path} cannot be read as arrays of numbers ({error}).") from error
        if values is None:
            source, columns, ids = self.open_rows(path), None, None
        else:
            check_table(values, str(path))
            n_rows, n_columns = values.shape
            columns, ids = _names(path, names, _COLUMNS, n_columns), _names(path, names, _IDS, n_rows)
            source = ArraySource(as_floats(values))
        options.check_matrix(columns, path)
        return Table(source, columns, ids)

    def write(self, path: Path, temporary: Path, table: Table) -> None:
        """Write the entries, and the names of columns and rows."""
        names = {_COLUMNS: table.columns, _IDS: table.ids}
        arrays: dict[str, Any] = {"values": table.values}
        arrays |= {name: np.array(list(map(str, some))) for name, some in names.items() if some is not None}
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)


NPY, NPZ = _Npy(), _Npz()


def _load_array(path: Path, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """Load the array in a .npy file."""
    try:
        found = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as an array of numbers or texts ({error}).") from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise DataError(f"{path} is a zip file of arrays, as .npz files are. Give it the ending .npz.")
    return found


def _read_dense(path: Path) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """Return the one array of a file, None if that is a sparse matrix, and the names beside it."""
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
    return tuple(map(str, names[key].tolist()))


def _check_archive(path: Path) -> None:
    """Refuse a .npz file whose arrays are longer than what is stored, or with indices that are no integers.

    SciPy would round such indices of a sparse matrix. Only the beginnings of the arrays are read.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        is_sparse = "format" in members
        for name, member in members.items():
            try:
                with archive.open(member) as file:
                    shape, dtype = _read_beginning(file)
            except _UNREADABLE as error:
                raise DataError(
                    f"{path} is damaged: {name!r} cannot be read as an array ({error})."
                ) from error
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise DataError(
                    f"{path} is damaged: {name!r} is said to have shape {shape} and type {dtype}, which is "
                    f"more than the {member.file_size} bytes that are there. Write it again."
                )
            if is_sparse and name in _INDICES and dtype.kind not in "iu":
                raise DataError(
                    f"{path} is not a sound sparse matrix: {name!r} is of type {dtype} in place of integers. "
                    "Write it again."
                )


def _read_beginning(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and the type of an array in the format of NumPy."""
    version = npy_format.read_magic(file)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype
