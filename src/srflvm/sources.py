"""Where the rows of Y come from: an array in memory, or something that is read a piece at a time.

A fit that only asks a source for some rows at a time never holds Y as a whole. See `file_sources` for files,
and `checked_source` for what refuses entries that cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from srflvm import parallel
from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.free_memory import refuse_reading
from srflvm.sparse_checks import as_sound_csr

# Entries read at a time: 32 MB in float64.
ENTRIES_AT_ONCE = 4_000_000


@runtime_checkable
class Source(Protocol):
    """Rows of an N x M table of floats, NaN where an entry is missing.

    A source whose columns have names also has an attribute `names`, and `by_name` if a fitted model finds its
    columns by them, in any order and among others.
    """

    @property
    def n_rows(self) -> int: ...

    @property
    def n_columns(self) -> int: ...

    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start, ..., stop - 1, dense (stop - start, M)."""
        ...

    def take(self, index: np.ndarray) -> FloatArray:
        """The rows of a sorted index without repeats, dense (len(index), M)."""
        ...


@dataclass(frozen=True)
class ArraySource:
    """An array in memory."""

    Y: FloatArray

    @property
    def n_rows(self) -> int:
        return self.Y.shape[0]

    @property
    def n_columns(self) -> int:
        return self.Y.shape[1]

    def read(self, start: int, stop: int) -> FloatArray:
        return self.Y[start:stop]

    def take(self, index: np.ndarray) -> FloatArray:
        return self.Y[index]


@dataclass(frozen=True)
class SlicedSource:
    """Anything of two dimensions whose rows can be sliced and indexed, such as a memory map."""

    table: Any

    @property
    def n_rows(self) -> int:
        return self.table.shape[0]

    @property
    def n_columns(self) -> int:
        return self.table.shape[1]

    def read(self, start: int, stop: int) -> FloatArray:
        return as_floats(np.asarray(self.table[start:stop]))

    def take(self, index: np.ndarray) -> FloatArray:
        return as_floats(np.asarray(self.table[index]))


class SparseSource:
    """A SciPy sparse matrix or array. Its zeros are data; only the rows that are asked for are made dense."""

    def __init__(
        self,
        matrix: Any,
        names: Sequence[str] | None = None,
        what: str = "The sparse matrix",
        *,
        by_name: bool = False,
    ):
        check_table(matrix, what)
        check_pieces(matrix.shape, what)
        self.names, self.by_name = names, by_name
        self._rows = as_sound_csr(matrix, what)

    @property
    def n_rows(self) -> int:
        return self._rows.shape[0]

    @property
    def n_columns(self) -> int:
        return self._rows.shape[1]

    def read(self, start: int, stop: int) -> FloatArray:
        return as_floats(self._rows[start:stop].toarray())

    def take(self, index: np.ndarray) -> FloatArray:
        return as_floats(self._rows[index].toarray())


@dataclass(frozen=True)
class ArrangedSource:
    """Some columns of a source, in another order, and their names."""

    source: Source
    order: np.ndarray
    names: Sequence[str] | None

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def n_columns(self) -> int:
        return len(self.order)

    @property
    def mapped(self) -> bool:
        return getattr(self.source, "mapped", False)

    def read(self, start: int, stop: int) -> FloatArray:
        return self.source.read(start, stop)[:, self.order]

    def take(self, index: np.ndarray) -> FloatArray:
        return self.source.take(index)[:, self.order]


def check_table(table: Any, what: str) -> None:
    """Refuse what is not a table of numbers."""
    if len(table.shape) != 2:
        raise DataError(f"{what} has {len(table.shape)} dimensions. Expected 2D array, rows by columns.")
    if table.dtype.kind not in "biuf":
        raise DataError(f"{what} has entries of type {table.dtype}. Give real numbers, integers or booleans.")


def check_pieces(shape: tuple[int, int], what: str) -> None:
    """Refuse a shape of which not even a piece can be held: few bytes of a file can tell of very many rows
    or columns that are zero throughout."""
    n_rows, n_columns = shape
    held = 8.0 * min(n_rows, rows_at_once(max(1, n_columns))) * n_columns + 8.0 * n_rows
    refuse_reading(
        f"{what} has {n_rows} rows and {n_columns} columns",
        held,
        "Check its shape, or give fewer rows or columns.",
    )


def as_floats(values: np.ndarray) -> FloatArray:
    """float32 as it is, and all other numbers in float64, in the order of this machine."""
    single = values.dtype.kind == "f" and values.dtype.itemsize == 4
    return np.ascontiguousarray(values, dtype=np.float32 if single else np.float64)


def rows_at_once(n_columns: int) -> int:
    """How many rows make a piece."""
    return max(1, ENTRIES_AT_ONCE // n_columns)


def pieces(source: Source, start: int = 0, stop: int | None = None) -> Iterator[tuple[slice, FloatArray]]:
    """The rows start, ..., stop - 1 of a source, some at a time, each piece with where it lies."""
    stop = source.n_rows if stop is None else stop
    size = rows_at_once(source.n_columns)
    for first in range(start, stop, size):
        last = min(first + size, stop)
        parallel.note(f"reading rows {first} to {last - 1}")
        yield slice(first, last), source.read(first, last)


def take_by_reading(source: Source, index: np.ndarray, largest_gap: int) -> FloatArray:
    """The rows of a sorted index, by reading runs of rows in which no two wanted ones are further apart than
    `largest_gap`. A run is at most a piece."""
    piece = index // rows_at_once(source.n_columns)
    ends = np.flatnonzero((np.diff(index) > largest_gap) | (np.diff(piece) > 0)) + 1
    parts = [source.read(run[0], run[-1] + 1)[run - run[0]] for run in np.split(index, ends)]
    return np.concatenate(parts)
