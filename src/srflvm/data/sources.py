"""Where the rows of Y come from: an array in memory, or something that is read a piece at a time.

A fit that only asks a source for some rows at a time never holds Y as a whole. See `file_sources` for files,
and `checked_source` for what refuses entries that cannot be used.

Tables and the names of their columns, where the two are not one data frame.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.sparse import as_sound_csr
from srflvm.exceptions import DataError
from srflvm.parallel.communicator import report

# Control groups (versions 2 and 1) that may allow a process less than the machine has: limit and use.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

# What is not read at once where the system does not tell how much memory is free.
_MOST_WHEN_UNKNOWN = 64e9

# Entries read at a time: 32 MB in float64.
ENTRIES_AT_ONCE = 4_000_000


@runtime_checkable
class Source(Protocol):
    """Give access to the rows of an N x M table of floats, NaN where an entry is missing.

    A source whose columns have names also has an attribute `names`, and `by_name` if a fitted model finds its
    columns by them, in any order and among others.
    """

    @property
    def n_rows(self) -> int: ...

    @property
    def n_columns(self) -> int: ...

    def read(self, start: int, stop: int) -> FloatArray:
        """Return the rows start, ..., stop - 1, dense (stop - start, M)."""
        ...

    def take(self, index: np.ndarray) -> FloatArray:
        """Return the rows of a sorted index without repeats, dense (len(index), M)."""
        ...


@dataclass(frozen=True)
class ArraySource:
    """Read rows of an array in memory."""

    Y: FloatArray
    in_memory = True

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
    """Read rows of anything of two dimensions whose rows can be sliced and indexed, such as a memory map."""

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
    """Read rows of a SciPy sparse matrix. Its zeros are data; only rows that are asked for are made dense."""

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
    """Read some columns of a source, in another order, with their names."""

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
    """Return float32 as it is, and all other numbers in float64, in the byte order of this machine."""
    single = values.dtype.kind == "f" and values.dtype.itemsize == 4
    return np.ascontiguousarray(values, dtype=np.float32 if single else np.float64)


def rows_at_once(n_columns: int) -> int:
    """Return how many rows make a piece."""
    return max(1, ENTRIES_AT_ONCE // n_columns)


def pieces(source: Source, start: int = 0, stop: int | None = None) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the rows start, ..., stop - 1 of a source in pieces, each with where it lies."""
    stop = source.n_rows if stop is None else stop
    size = rows_at_once(source.n_columns)
    for first in range(start, stop, size):
        last = min(first + size, stop)
        report(f"reading rows {first} to {last - 1}")
        yield slice(first, last), source.read(first, last)


def take_by_reading(source: Source, index: np.ndarray, largest_gap: int) -> FloatArray:
    """Return the rows of a sorted index by reading runs of rows.

    In a run no two wanted rows are further apart than `largest_gap`, and it is at most a piece.
    """
    piece = index // rows_at_once(source.n_columns)
    ends = np.flatnonzero((np.diff(index) > largest_gap) | (np.diff(piece) > 0)) + 1
    parts = [source.read(run[0], run[-1] + 1)[run - run[0]] for run in np.split(index, ends)]
    return np.concatenate(parts)


# Types of data frames, by the names of their libraries: the module that holds the type, and its name.
_FRAMES = {
    "pandas": ("pandas", "DataFrame"),
    "polars": ("polars", "DataFrame"),
    "pyarrow": ("pyarrow", "Table"),
    "file": ("srflvm.data.tables.frame", "Frame"),
}


def is_frame(Y: Any, library: str | None = None) -> bool:
    """Tell whether Y is a data frame of a library, by default of any, without importing it.

    "file" is the library of the frames that the command line reads from files.
    """
    kinds = _FRAMES.values() if library is None else [_FRAMES[library]]
    return any(isinstance(Y, getattr(sys.modules.get(module), name, ())) for module, name in kinds)


MOST_LISTED = 5


@dataclass(frozen=True)
class NamedTable:
    """Hold an array or a sparse matrix (N, M), and a name for each of its columns.

    With `by_name` a fitted model finds its columns by name, in any order and among others.
    """

    values: Any
    names: Sequence[str]
    by_name: bool = False

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)


def with_columns(table: Any, order: np.ndarray) -> NamedTable | Source:
    """Return some columns of a table or a source that has names, in another order."""
    names = [table.names[place] for place in order]
    if isinstance(table, NamedTable):
        return NamedTable(table.values[:, order], names)
    return ArrangedSource(table, order, names)


def places_of(known: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Return where the known names are in `names`, which has all of them."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[name] for name in known])


def repeated(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


def listed(names: Sequence[str]) -> str:
    """Return names for a message: the first few, and how many more there are."""
    first = ", ".join(repr(str(name)) for name in names[:MOST_LISTED])
    more = len(names) - MOST_LISTED
    return f"{first} and {more} more" if more > 0 else first


def like(name: str, others: Sequence[str]) -> str:
    """Return a hint at a name that may have been meant."""
    lower = {other.lower(): other for other in others}
    close = difflib.get_close_matches(name.lower(), lower, 1)
    return f" (there is {lower[close[0]]!r})" if close else ""


def available() -> float | None:
    """Return how many bytes this process may still take, as far as the system tells."""
    found = [_of_the_machine(), *(_of_the_group(*files) for files in _GROUPS)]
    known = [size for size in found if size is not None]
    return min(known) if known else None


def refuse_reading(what: str, n_bytes: float, remedy: str) -> None:
    """Raise a `DataError` where `what` takes more bytes, all at once, than are free."""
    room = available()
    if n_bytes > (_MOST_WHEN_UNKNOWN if room is None else room):
        free = "" if room is None else f", but only {in_gb(room)} are free"
        raise DataError(f"{what}, which takes {in_gb(n_bytes)} at once{free}. {remedy}")


def in_gb(size: float) -> str:
    """Return a number of bytes as text for a message."""
    return f"{size / 1e9:.2f} GB"


def _of_the_machine() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return None


def _of_the_group(limit: str, use: str) -> float | None:
    try:
        return float(int(Path(limit).read_text()) - int(Path(use).read_text()))
    except (OSError, ValueError):
        return None
