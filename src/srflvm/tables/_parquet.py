"""Parquet tables. Needs the package pyarrow (the extra `files`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from srflvm._types import FloatArray
from srflvm.parquet_source import ParquetSource, index_columns, open_parquet
from srflvm.tables._table import Reading, Table, as_ids, check_asked, ignored_columns


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file, and which of its columns are data."""

    path: Path
    columns: tuple[str, ...]
    endings: ClassVar[tuple[str, ...]] = (".parquet",)

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray) -> None:
        """The columns as they were, and new ones in place of those that had holes."""
        pyarrow, parquet = require_pyarrow()
        whole, new_types = parquet.read_table(self.path), {}
        for number, name in enumerate(self.columns):
            position = whole.schema.get_field_index(name)
            if _has_holes(whole.column(position)):
                old_type = whole.schema.field(position).type
                single = pyarrow.types.is_float32(old_type)
                values = pyarrow.array(filled[:, number].astype(np.float32 if single else np.float64))
                whole = whole.set_column(position, name, values)
                if values.type != old_type:
                    new_types[name] = "float64"
        metadata = _with_types(whole.schema.metadata, new_types)
        parquet.write_table(whole.replace_schema_metadata(metadata), temporary)


def _with_types(metadata: dict[bytes, bytes] | None, new_types: dict[str, str]) -> Any:
    """The metadata of a file, in which pandas finds the types of columns, with those that changed."""
    if not metadata or b"pandas" not in metadata:
        return metadata
    described = json.loads(metadata[b"pandas"])
    for column in described.get("columns", []):
        kind = new_types.get(column.get("field_name"))
        if kind is not None:
            column.update(pandas_type=kind, numpy_type=kind, metadata=None)
    return {**metadata, b"pandas": json.dumps(described).encode()}


def _has_holes(column: Any) -> bool:
    from pyarrow import types

    if column.null_count:
        return True
    return types.is_floating(column.type) and bool(np.isnan(column.to_numpy()).any())


def read(path: Path, how: Reading) -> Table:
    """The numeric columns, whose rows stay in the file."""
    file = open_parquet(path)
    schema = file.schema_arrow
    check_asked(how, schema.names, path)
    id_column = how.id_column or _column_of_texts(schema)
    left_out = [*how.leave_out, *([] if id_column is None else [id_column])]
    ignored = ignored_columns(how, schema.names, [*left_out, *index_columns(schema)])
    notes = () if id_column is None else (f"row ids: column {id_column!r}",)
    if how.leave_out:
        notes = (*notes, f"left out: {', '.join(map(repr, how.leave_out))}")
    source = ParquetSource(path, [*left_out, *ignored])
    ids = None if id_column is None else as_ids(file.read([id_column]).column(0).to_numpy())
    id_name = "id" if id_column is None or id_column.startswith("__") else id_column
    original = ParquetFile(path, source.names) if how.keep else None
    return Table(source, source.names, ids, id_name, notes, original, ignored=ignored)


def _column_of_texts(schema: Any) -> str | None:
    """The index of a pandas frame, or else the first column, if it holds texts."""
    for name in [*index_columns(schema)[:1], *schema.names[:1]]:
        if is_text(schema.field(name).type):
            return name
    return None


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds texts."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def write(path: Path, temporary: Path, table: Table) -> None:
    """Columns of numbers, after one of row ids if rows have names."""
    pyarrow, parquet = require_pyarrow()
    values = table.values
    columns = [f"column{i}" for i in range(table.shape[1])] if table.columns is None else table.columns
    named = {} if table.ids is None else {table.id_name: pyarrow.array(list(table.ids))}
    named |= {str(name): pyarrow.array(values[:, i]) for i, name in enumerate(columns)}
    parquet.write_table(pyarrow.table(named), temporary)


def require_pyarrow() -> tuple[Any, Any]:
    """The packages pyarrow and pyarrow.parquet, or an error that says what to install."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "Writing .parquet needs the package pyarrow: pip install 'srflvm[files]'."
        ) from error
    return pyarrow, parquet
