"""Tables as they are read from files and written to them, and the interface of file formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.sources import ArraySource, NamedTable, Source, like, listed, pieces, repeated
from srflvm.exceptions import DataError

if TYPE_CHECKING:
    from srflvm.data.tables.labels import LabelColumns


@dataclass(frozen=True)
class ReadOptions:
    """Options of a user for reading a file.

    `id_column` holds the names of the rows; columns of `leave_out` are not data; `header` says whether a text
    file begins with a line of column names (None: detect it); `layer` is that of a .h5ad file (None: X). A
    text or Parquet file must have each of the `known` columns (None: all are), and its others are ignored.
    With `keep` the table also has its original, so that it can be written back with missing entries filled.
    """

    id_column: str | None = None
    leave_out: tuple[str, ...] = ()
    header: bool | None = None
    layer: str | None = None
    keep: bool = False
    known: tuple[str, ...] | None = None

    def check_columns(self, names: Sequence[str] | None, path: Path) -> None:
        """Refuse a file without the columns that the user names."""
        for name in (self.id_column, *self.leave_out):
            if name is None:
                continue
            if names is None:
                raise DataError(f"{path} has no column {name!r}: its columns have no names.")
            if name not in names:
                raise DataError(f"{path} has no column {name!r}. It has {listed(list(names))}.")

    def check_matrix(self, names: Sequence[str] | None, path: Path) -> None:
        """Refuse a matrix whose columns cannot be told apart, and choices among its columns."""
        if names is not None:
            check_names(names, path)
        self.check_columns(names, path)
        if self.id_column is not None or self.leave_out:
            raise DataError(
                f"{path} is one matrix of numbers: none of its columns can be left out or name rows."
            )

    def ignored_columns(self, names: Sequence[str] | None, used: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns that are neither known nor `used` otherwise, as row ids are."""
        if self.known is None or names is None:
            return ()
        check_known(self.known, names)
        not_ignored = {*self.known, *used}
        return tuple(name for name in names if name not in not_ignored)


@dataclass(frozen=True)
class Table:
    """Rows by columns, NaN where an entry is missing, in memory or in a file.

    `columns` and `ids` name columns and rows, if they have names; `notes` tell how the file was understood,
    and `warnings` what may have been misunderstood; `original` is the file, if it was kept; `ignored` are
    columns of the file that are not in the table.
    """

    rows: Source
    columns: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    id_name: str = "id"
    notes: tuple[str, ...] = ()
    original: Original | None = None
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: FloatArray, columns: Sequence[str] | None = None, like: Table | None = None) -> Table:
        """Make a table of results; its rows are those of the table `like`."""
        if like is None:
            return cls(ArraySource(values), columns)
        return cls(ArraySource(values), columns, like.ids, like.id_name)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.n_rows, self.rows.n_columns

    @property
    def in_memory(self) -> bool:
        return isinstance(self.rows, ArraySource)

    @property
    def values(self) -> FloatArray:
        """Return all entries as an array."""
        return self.rows.read(0, self.rows.n_rows)

    @property
    def data(self) -> Any:
        """Return the rows as `SRFLVM` takes them, with the names of their columns."""
        if not isinstance(self.rows, ArraySource):
            return self.rows
        return self.rows.Y if self.columns is None else NamedTable(self.rows.Y, self.columns)

    def load(self) -> Table:
        """Return the same table with all rows in memory."""
        return self.with_values(self.values)

    def with_values(self, values: FloatArray) -> Table:
        """Return the same table with other entries."""
        return replace(self, rows=ArraySource(values))

    def count_observed(self) -> np.ndarray:
        """Count the observed entries of each row."""
        return np.concatenate([np.isfinite(piece).sum(axis=1) for _, piece in pieces(self.rows)])


class Original(Protocol):
    """File that a table was read from, which can be written again with its missing entries filled."""

    @property
    def format(self) -> Format: ...

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray) -> None:
        """Write the file to `temporary`, as `path` is to be, with `filled` entries for missing ones."""
        ...


class Format(ABC):
    """File format: opens files as rows or as tables, and writes tables."""

    def open_rows(self, path: Path) -> Source:
        """Open the rows of a file, to be read in pieces; a format read as a whole need not have this."""
        raise NotImplementedError

    @abstractmethod
    def open_table(self, path: Path, options: ReadOptions) -> Table:
        """Open a file as a table with names."""

    def label_columns(self, path: Path, n_rows: int) -> LabelColumns | None:
        """Return the columns of a file that may hold labels of `n_rows` rows, None if it has no labels."""
        return None

    def escape_formulas(self, table: Table) -> Table:
        """Return the table with names that are no formulas; most formats keep texts apart from formulas."""
        return table

    @abstractmethod
    def write(self, path: Path, temporary: Path, table: Table) -> None:
        """Write a table to `temporary`, as `path` is to be."""


def check_names(names: Sequence[str], path: Path) -> None:
    """Refuse columns without a name, or with the same name as another."""
    if "" in names:
        raise DataError(f"{path} has no name for column {list(names).index('') + 1}. Give it one.")
    twice = repeated(names)
    if twice:
        raise DataError(f"{path} has more than one column {twice[0]!r}. Give every column a name of its own.")


def check_known(known: Sequence[str], own: Sequence[str]) -> None:
    """Refuse a table that lacks a column of a model."""
    in_table = set(own)
    missing = [name for name in known if name not in in_table]
    if missing:
        in_model = set(known)
        surplus = [name for name in own if name not in in_model]
        raise DataError(
            f"The table has no column {listed(missing)}, which the model was fitted to"
            f"{like(missing[0], surplus)}. Leave its entries empty if they were not observed."
        )


def parse_numbers(texts: Sequence[str]) -> list[float]:
    """Parse texts as numbers, or raise a ValueError. Unlike in Python, 1_1 is not 11."""
    if "_" in "".join(texts):
        raise ValueError("A number has no underscores.")
    return [float(text) for text in texts]
