"""A table as it was found in a file, or as it is to be written to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.named import NamedTable, like, listed, repeated
from srflvm.sources import ArraySource, Source


@dataclass(frozen=True)
class Reading:
    """What a user says about a file.

    `id_column` holds the names of the rows; columns of `leave_out` are not data; `header` says whether a text
    file begins with a line of column names (None: look); `layer` is that of a .h5ad file (None: X). Of
    `known` columns (None: all) a text or Parquet file must have each, and its others are ignored. With `keep`
    the table also has what it was read from, so that it can be written back with its holes filled.
    """

    id_column: str | None = None
    leave_out: tuple[str, ...] = ()
    header: bool | None = None
    layer: str | None = None
    keep: bool = False
    known: tuple[str, ...] | None = None


class Original(Protocol):
    """What a table was read from, where it can be written back with its holes filled."""

    endings: ClassVar[tuple[str, ...]]

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray) -> None:
        """Write to `temporary`, in the format of `path`, what was read, with its holes filled."""
        ...


@dataclass(frozen=True)
class Table:
    """Rows by columns, NaN where an entry is missing, in memory or in a file.

    `columns` and `ids` name columns and rows, if they have names; `notes` say what was taken for what, and
    `warnings` what may have been taken wrongly; `original` is what the rows were read from, if it was kept;
    `ignored` are columns of the file that were not asked for.
    """

    rows: Source
    columns: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    id_name: str = "id"
    notes: tuple[str, ...] = ()
    original: Original | None = None
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.n_rows, self.rows.n_columns

    @property
    def in_memory(self) -> bool:
        return isinstance(self.rows, ArraySource)

    @property
    def values(self) -> FloatArray:
        """All entries as an array."""
        return self.rows.read(0, self.rows.n_rows)

    @property
    def data(self) -> Any:
        """The rows as `SRFLVM` takes them, with the names of their columns."""
        if not isinstance(self.rows, ArraySource):
            return self.rows
        return self.rows.Y if self.columns is None else NamedTable(self.rows.Y, self.columns)


def made_of(values: FloatArray, columns: Sequence[str] | None = None, like: Table | None = None) -> Table:
    """A table of results; its rows are those of another table."""
    if like is None:
        return Table(ArraySource(values), columns)
    return Table(ArraySource(values), columns, like.ids, like.id_name)


def check_names(names: Sequence[str], path: Path) -> None:
    """Columns are told apart by their names."""
    if "" in names:
        raise DataError(f"{path} has no name for column {list(names).index('') + 1}. Give it one.")
    twice = repeated(names)
    if twice:
        raise DataError(f"{path} has more than one column {twice[0]!r}. Give every column a name of its own.")


def check_asked(how: Reading, names: Sequence[str] | None, path: Path) -> None:
    """The columns that the user names exist."""
    asked = [name for name in (how.id_column, *how.leave_out) if name is not None]
    for name in asked:
        if names is None:
            raise DataError(f"{path} has no column {name!r}: its columns have no names.")
        if name not in names:
            raise DataError(f"{path} has no column {name!r}. It has {listed(list(names))}.")


def check_known(known: Sequence[str], own: Sequence[str]) -> None:
    """Refuse a table without all columns of a model."""
    in_table = set(own)
    missing = [name for name in known if name not in in_table]
    if missing:
        in_model = set(known)
        surplus = [name for name in own if name not in in_model]
        raise DataError(
            f"The table has no column {listed(missing)}, which the model was fitted to"
            f"{like(missing[0], surplus)}. Leave its entries empty if they were not observed."
        )


def ignored_columns(how: Reading, names: Sequence[str] | None, taken: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns of a file that are not asked for; `taken` are those that are left out by name or
    name the rows."""
    if how.known is None or names is None:
        return ()
    check_known(how.known, names)
    not_ignored = {*how.known, *taken}
    return tuple(name for name in names if name not in not_ignored)


def as_ids(values: Any) -> tuple[str, ...]:
    """Names of rows as texts."""
    return tuple(str(value) for value in np.asarray(values).tolist())
