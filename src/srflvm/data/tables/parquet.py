"""Parquet tables. Needs the package pyarrow (the extra `files`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.sources import as_floats, rows_at_once, take_by_reading
from srflvm.data.tables.frame import TRUTH, ArrowEntries, Entries, Frame, Part
from srflvm.data.tables.labels import LabelColumns
from srflvm.data.tables.table import Format, ReadOptions, Table
from srflvm.exceptions import DataError

# Bytes of a column that are read from the file at a time, so that no row group is held as a whole.
_BUFFER = 65_536


class _ParquetSource:
    """Numeric columns of a Parquet file, without pandas' index; nulls are missing.

    `leave_out` names columns that are not data. A row group can only be decoded from its beginning. Rows
    that are read in order are decoded once, a batch at a time.
    """

    def __init__(self, path: Path, leave_out: Sequence[str] = ()):
        self._file = _open_file(path)
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
        """Go on to a row of the group that is being read, or to the beginning of another group and on."""
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


class _Parquet(Format):
    def open_rows(self, path: Path) -> _ParquetSource:
        return _ParquetSource(path)

    def open_table(self, path: Path, options: ReadOptions) -> Table:
        """Open the columns of data: as a frame, or numbers whose rows stay in the file."""
        file = _open_file(path)
        schema = file.schema_arrow
        options.check_columns(schema.names, path)
        id_column = options.id_column or _id_column(file, options)
        left_out = [*options.leave_out, *([] if id_column is None else [id_column])]
        ignored = options.ignored_columns(schema.names, [*left_out, *_index_columns(schema)])
        notes = () if id_column is None else (f"row ids: column {id_column!r}",)
        if options.leave_out:
            notes = (*notes, f"left out: {', '.join(map(repr, options.leave_out))}")
        columns = tuple(_data_columns(schema, path, [*left_out, *ignored]))
        has_texts = not all(_is_numeric(schema.field(name).type) for name in columns)
        if options.wants_frame(file.metadata.num_rows * len(columns), has_texts=has_texts):
            read = file.read(list(columns))
            rows = Frame(columns, tuple(ArrowEntries(read.column(name)) for name in columns))
        else:
            rows = _ParquetSource(path, [*left_out, *ignored])
        ids = None
        if id_column is not None:
            ids = tuple(map(str, file.read([id_column]).column(0).to_numpy().tolist()))
        id_name = "id" if id_column is None or id_column.startswith("__") else id_column
        original = _ParquetFile(path, columns) if options.keep else None
        return Table(rows, columns, ids, id_name, notes, original, ignored=ignored)

    def label_columns(self, path: Path, n_rows: int) -> LabelColumns:
        file = _open_file(path)
        names = list(file.schema_arrow.names)
        return LabelColumns(path, len(names), lambda i: file.read([names[i]]).column(0).to_pylist(), names)

    def write(self, path: Path, temporary: Path, table: Table) -> None:
        """Write the columns, after one of row ids if rows have names."""
        import pyarrow
        from pyarrow import parquet

        frame = table.frame or Frame.of_numbers(None, table.values)
        columns = [f"column{i}" for i in range(table.shape[1])] if table.columns is None else table.columns
        named = {} if table.ids is None else {table.id_name: pyarrow.array(list(table.ids))}
        named |= {str(name): _as_arrow(part) for name, part in zip(columns, frame.parts, strict=True)}
        parquet.write_table(pyarrow.table(named), temporary)


PARQUET = _Parquet()


@dataclass(frozen=True)
class _ParquetFile:
    """Parquet file, and the names of its columns that are data."""

    path: Path
    columns: tuple[str, ...]

    @property
    def format(self) -> Format:
        return PARQUET

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray | Frame) -> None:
        from pyarrow import parquet

        whole, new_types = parquet.read_table(self.path), {}
        for number, name in enumerate(self.columns):
            position = whole.schema.get_field_index(name)
            old = whole.column(position)
            if ArrowEntries(old).is_missing().any():
                values = _filled(old, filled, number)
                whole = whole.set_column(position, name, values)
                if values.type != old.type:
                    new_types[name] = "float64" if str(values.type) == "double" else str(values.type)
        metadata = _with_types(whole.schema.metadata, new_types)
        parquet.write_table(whole.replace_schema_metadata(metadata), temporary)


def _filled(column: Any, filled: FloatArray | Frame, number: int) -> Any:
    """Return a column of a filled table: that of a frame, or numbers in single precision if it had them."""
    import pyarrow

    if isinstance(filled, Frame):
        return _as_arrow(filled.parts[number])
    single = pyarrow.types.is_float32(column.type)
    return pyarrow.array(filled[:, number].astype(np.float32 if single else np.float64))


def _as_arrow(part: Part) -> Any:
    """Return the entries of a column as an array of pyarrow."""
    import pyarrow

    if isinstance(part, ArrowEntries):
        return part.chunked
    if part.has_texts:
        return pyarrow.array(part.texts(), pyarrow.string())
    is_truth = isinstance(part, Entries) and part.form == TRUTH
    if not is_truth:
        return pyarrow.array(part.floats())
    return pyarrow.array(part.floats() == 1.0, pyarrow.bool_(), mask=part.is_missing())


def _open_file(path: Path) -> Any:
    """Open a Parquet file, with errors that say what is wrong."""
    import pyarrow
    from pyarrow import parquet

    if path.is_dir():
        raise DataError(f"{path} is a folder of Parquet files. Give the path of one file.")
    try:
        return parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as a Parquet file ({error}).") from error


def _with_types(metadata: dict[bytes, bytes] | None, new_types: dict[str, str]) -> Any:
    """Return the metadata of a file, in which pandas finds the types of columns, with new types."""
    if not metadata or b"pandas" not in metadata:
        return metadata
    described = json.loads(metadata[b"pandas"])
    for column in described.get("columns", []):
        kind = new_types.get(column.get("field_name"))
        if kind is not None:
            column.update(pandas_type=kind, numpy_type=kind, metadata=None)
    return {**metadata, b"pandas": json.dumps(described).encode()}


def _id_column(file: Any, options: ReadOptions) -> str | None:
    """Return the index of a pandas frame, or else the first column, if it holds texts that name rows."""
    schema = file.schema_arrow
    index = _index_columns(schema)[:1]
    for name in [*index, *schema.names[:1]]:
        if not _is_text(schema.field(name).type) or name in options.leave_out:
            continue
        if name in index or (options.takes_any_ids() and not options.has_no_ids(name, len(schema.names))):
            return name
        if options.takes_any_ids() or len(schema.names) == 1 or name in options.mixed:
            continue
        texts = file.read([name]).column(0)
        if not texts.null_count and len(texts.unique()) == len(texts) > 1:
            return name
    return None


def _is_text(kind: Any) -> bool:
    """Tell whether a column of this type holds texts."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _index_columns(schema: Any) -> list[str]:
    """Return the columns that hold the index of a pandas frame."""
    described = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    return [name for name in described.get("index_columns", []) if isinstance(name, str)]


def _data_columns(schema: Any, path: Path, leave_out: Sequence[str]) -> list[str]:
    not_data = {*_index_columns(schema), *leave_out}
    columns = [name for name in schema.names if name not in not_data]
    if len(set(columns)) < len(columns) or not columns:
        raise DataError(
            f"{path} has no columns, or two of the same name. Give every column a name of its own."
        )
    return columns


def _is_numeric(kind: Any) -> bool:
    """Tell whether a column of this type can be read in pieces."""
    from pyarrow import types

    return types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)


def _numpy_type(field: Any, path: Path) -> np.dtype:
    """Return the type of a column as an array; with nulls integers are float64."""
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
