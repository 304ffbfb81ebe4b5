"""Parquet files. Needs the package pyarrow (the extra `files`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.sources import as_floats, rows_at_once, take_by_reading

# Bytes of a column that are read from the file at a time, so that no row group is held as a whole.
_BUFFER = 65_536


class ParquetSource:
    """The numeric columns of a Parquet file, without pandas' index; nulls are missing.

    `leave_out` names columns that are not data. A row group can only be decoded from its beginning. Rows
    that are read in order are decoded once, a batch at a time.
    """

    def __init__(self, path: Path, leave_out: Sequence[str] = ()):
        self._path = path
        self._file = open_parquet(path)
        self._columns = _data_columns(self._file.schema_arrow, path, leave_out)
        fields = [self._file.schema_arrow.field(name) for name in self._columns]
        self._dtype = np.result_type(*[_numpy_type(field, path) for field in fields])
        metadata = self._file.metadata
        heights = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
        self._group_starts = np.concatenate([[0], np.cumsum(heights)]).astype(int)
        self._position = 0
        self._batches = self._batches_from(0)
        self._rest = self._no_rows()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def n_rows(self) -> int:
        return int(self._group_starts[-1])

    @property
    def n_columns(self) -> int:
        return len(self._columns)

    def read(self, start: int, stop: int) -> FloatArray:
        self._go_to(start)
        return as_floats(self._next_rows(stop - start))

    def take(self, index: np.ndarray) -> FloatArray:
        return take_by_reading(self, index, largest_gap=rows_at_once(self.n_columns))

    def _go_to(self, row: int) -> None:
        """On to a row of the group that is being read, or to the beginning of another group and on."""
        here, there = (
            np.searchsorted(self._group_starts, r, side="right") - 1 for r in (self._position, row)
        )
        if row < self._position or there != here:
            self._position = int(self._group_starts[there])
            self._batches, self._rest = self._batches_from(int(there)), self._no_rows()
        while self._position < row:
            self._next_rows(min(row - self._position, rows_at_once(self.n_columns)))

    def _next_rows(self, count: int) -> np.ndarray:
        parts, n_found = [self._rest[:count]], min(count, len(self._rest))
        self._rest = self._rest[count:]
        while n_found < count:
            batch = self._as_array(next(self._batches))
            parts.append(batch[: count - n_found])
            self._rest = batch[count - n_found :]
            n_found += len(parts[-1])
        self._position += count
        return np.concatenate(parts)

    def _batches_from(self, group: int) -> Iterator[Any]:
        groups = list(range(group, len(self._group_starts) - 1))
        size = rows_at_once(self.n_columns)
        return self._file.iter_batches(batch_size=size, row_groups=groups, columns=self._columns)

    def _as_array(self, batch: Any) -> np.ndarray:
        values = np.empty((batch.num_rows, self.n_columns), self._dtype)
        for number, name in enumerate(self._columns):
            values[:, number] = _column_values(batch.column(name))
        return values

    def _no_rows(self) -> np.ndarray:
        return np.empty((0, self.n_columns), self._dtype)


def open_parquet(path: Path) -> Any:
    """The open file, with errors that say what is wrong."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "Reading .parquet needs the package pyarrow: pip install 'srflvm[files]', or pip install pyarrow."
        ) from error
    if path.is_dir():
        raise DataError(f"{path} is a folder of Parquet files. Give the path of one file.")
    try:
        return parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as a Parquet file ({error}).") from error


def index_columns(schema: Any) -> list[str]:
    """The columns that hold the index of a pandas frame."""
    described = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    return [name for name in described.get("index_columns", []) if isinstance(name, str)]


def _data_columns(schema: Any, path: Path, leave_out: Sequence[str]) -> list[str]:
    not_data = {*index_columns(schema), *leave_out}
    columns = [name for name in schema.names if name not in not_data]
    if len(set(columns)) < len(columns) or not columns:
        raise DataError(
            f"{path} has no columns, or two of the same name. Give every column a name of its own."
        )
    return columns


def _numpy_type(field: Any, path: Path) -> np.dtype:
    """The type of a column as an array; with nulls integers are float64."""
    from pyarrow import types

    kind = field.type
    if types.is_boolean(kind):
        return np.dtype(np.float64)
    if types.is_integer(kind) or types.is_floating(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
        return dtype if dtype.kind == "f" else np.dtype(np.float64)
    raise DataError(
        f"{path} has the column {field.name!r} of type {kind}, which is not numeric. Turn it into numbers or "
        "leave it out."
    )


def _column_values(column: Any) -> np.ndarray:
    import pyarrow

    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    return column.to_numpy(zero_copy_only=False)
