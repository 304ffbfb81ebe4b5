"""Data that are not an array in memory, by what they are or by the name of their file.

Files are read, not mapped: mapped pages count as memory of the process for as long as the system keeps them.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy_format
from scipy import sparse

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.named import NamedTable
from srflvm.sources import (
    SlicedSource,
    Source,
    SparseSource,
    as_floats,
    check_table,
    rows_at_once,
    take_by_reading,
)

# What reading a damaged or foreign .npz file raises.
UNREADABLE_ARCHIVE = (
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
    """An array of numbers that is in a file from `offset` on, row by row or (`fortran`) column by column."""

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


def open_source(Y: Any) -> Source | None:
    """A source for a path, a memory map, a Zarr array or a sparse matrix, or Y itself if it is one;
    None for all others."""
    if isinstance(Y, Source):
        return Y
    if isinstance(Y, str | os.PathLike):
        return _open_path(Path(Y))
    if isinstance(Y, np.memmap):
        return _open_map(Y)
    if sparse.issparse(Y):
        return SparseSource(Y)
    if isinstance(Y, NamedTable) and sparse.issparse(Y.values):
        return SparseSource(Y.values, Y.names, by_name=Y.by_name)
    if "zarr" in sys.modules and isinstance(Y, sys.modules["zarr"].Array):
        from srflvm.zarr_source import ZarrSource

        return ZarrSource(Y)
    return None


def _open_path(path: Path) -> Source:
    if not path.exists() and not _is_inside_zarr(path):
        raise FileNotFoundError(f"Y is taken as the path of a file, but there is no {str(path)!r}.")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _open_npy(path)
    if suffix == ".npz":
        return SparseSource(_load_sparse(path), what=str(path))
    if suffix == ".parquet":
        from srflvm.parquet_source import ParquetSource

        return ParquetSource(path)
    if suffix == ".h5ad":
        from srflvm.anndata_source import open_h5ad

        return open_h5ad(path)
    if _is_inside_zarr(path) or path.name.lower().endswith(".zarr.zip"):
        from srflvm.zarr_source import open_zarr

        return open_zarr(path)
    raise ValueError(
        f"Y is the path {str(path)!r}, but only .npy, .npz (of a SciPy sparse matrix), .zarr, .parquet and "
        ".h5ad can be read from there. Convert the file, or read it into an array first."
    )


def _is_inside_zarr(path: Path) -> bool:
    """Whether the path is that of a store or of an array in one."""
    return any(part.lower().endswith(".zarr") for part in path.parts)


def _open_npy(path: Path) -> Source:
    """The mapping only serves to read the header; no page of it is touched."""
    mapped = load_array(path, mmap_mode="r")
    check_table(mapped, str(path))
    return _stored_array(mapped)


def load_array(path: Path, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """The array in a .npy file."""
    try:
        found = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as an array of numbers or texts ({error}).") from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise DataError(f"{path} is a zip file of arrays, as .npz files are. Give it the ending .npz.")
    return found


def _open_map(mapped: np.memmap) -> Source:
    """A whole file that cannot be written to is read; a part of one, or one that may change, is sliced."""
    check_table(mapped, "The memory map")
    whole = isinstance(mapped.base, mmap.mmap) and (mapped.flags.c_contiguous or mapped.flags.f_contiguous)
    if whole and mapped.mode == "r" and mapped.filename is not None and Path(mapped.filename).exists():
        return _stored_array(mapped)
    return SlicedSource(mapped)


def _stored_array(mapped: Any) -> StoredArraySource:
    fortran = not mapped.flags.c_contiguous
    return StoredArraySource(str(mapped.filename), mapped.offset, mapped.shape, mapped.dtype, fortran)


def _load_sparse(path: Path) -> Any:
    check_archive(path)
    try:
        return sparse.load_npz(path)
    except UNREADABLE_ARCHIVE as error:
        raise DataError(
            f"{path} is not a sparse matrix that scipy.sparse.save_npz wrote ({error}). "
            "Write dense arrays with numpy.save, as .npy."
        ) from error


def check_archive(path: Path) -> None:
    """Refuse a .npz file with arrays that are longer than what it holds of them, or with indices of a sparse
    matrix that are no integers, which SciPy would round. Only the beginnings of the arrays are read."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        is_sparse = "format" in members
        for name, member in members.items():
            try:
                with archive.open(member) as file:
                    shape, dtype = _read_beginning(file)
            except UNREADABLE_ARCHIVE as error:
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
