"""Tables as they are read from files and written to them, and the interface of file formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.sources import ArraySource, NamedTable, Source, like, listed, pieces, repeated
from srflvm.data.tables.frame import Frame
from srflvm.exceptions import DataError

if TYPE_CHECKING:
    from srflvm.data.tables.labels import LabelColumns


# Larger tables of numbers are one matrix with one unit: a unit for each column has a regression for each.
MOST_CELLS_OF_FRAMES = 10_000_000


@dataclass(frozen=True)
class ReadOptions:
    """Options of a user for reading a file.

    `id_column` holds the names of the rows; columns of `leave_out` are not data; `header` says whether a text
    file begins with a line of column names (None: detect it); `layer` is that of a .h5ad file (None: X). A
    text or Parquet file must have each of the `known` columns (None: all are), and its others are ignored.
    With `keep` the table also has its original, so that it can be written back with missing entries filled.

    Of text files, `delimiter` separates fields and `decimal` begins decimals (None: detect them), and `marks`
    are further texts for missing entries.

    `frames` says which text and Parquet files are read as a `Frame`: all of them, those that are not large
    or have other entries than numbers ("small"), those that have other entries than numbers ("texts"), or
    none. `levels` has, for each column of a model in its order, the texts that are its levels, none for
    truth values, and None for numbers; it is empty without a model that was fitted to a frame. Columns of
    `mixed` may hold texts among numbers.
    """

    id_column: str | None = None
    leave_out: tuple[str, ...] = ()
    header: bool | None = None
    layer: str | None = None
    keep: bool = False
    known: tuple[str, ...] | None = None
    delimiter: str | None = None
    decimal: str | None = None
    marks: frozenset[str] = frozenset()
    frames: Literal["all", "small", "texts", "none"] = "texts"
    levels: tuple[frozenset[str] | None, ...] = ()
    mixed: frozenset[str] = frozenset()

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

    def wants_frame(self, n_cells: int, *, has_texts: bool) -> bool:
        """Tell whether a file is to be read as a frame."""
        if has_texts or self.frames in ("all", "none"):
            return self.frames != "none"
        return self.frames == "small" and n_cells <= MOST_CELLS_OF_FRAMES

    def has_no_ids(self, name: str | None, n_columns: int) -> bool:
        """Tell whether the first of `n_columns` columns is one of a model."""
        if self.known is None or name is None:
            return len(self.levels) == n_columns
        return name in self.known

    def takes_any_ids(self) -> bool:
        """Tell whether texts in a first column are row ids even if two rows have the same: a column that a
        model does not know, or that cannot be data, has no other use."""
        return self.frames == "none" or self.known is not None or bool(self.levels)

    def levels_of(self, names: Sequence[str] | None, n_columns: int) -> Sequence[frozenset[str] | None]:
        """Return the texts that are levels of each column of a file, or nothing without a model."""
        if not self.levels or names is None or self.known is None:
            return self.levels if len(self.levels) == n_columns else ()
        by_name = dict(zip(self.known, self.levels, strict=True))
        return [by_name.get(name) for name in names]

    def ignored_columns(self, names: Sequence[str] | None, used: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns that are neither known nor `used` otherwise, as row ids are."""
        if self.known is None or names is None:
            return ()
        check_known(self.known, names)
        not_ignored = {*self.known, *used}
        return tuple(name for name in names if name not in not_ignored)


@dataclass(frozen=True)
class Table:
    """Rows by columns, NaN where an entry is missing, in memory or in a file; or a `Frame`.

    `columns` and `ids` name columns and rows, if they have names; `notes` tell how the file was understood,
    and `warnings` what may have been misunderstood; `original` is the file, if it was kept; `ignored` are
    columns of the file that are not in the table.
    """

    rows: Source
    columns: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    id_name: str = "id"
    notes: tuple[str, ...] = ()
    original: _Original | None = None
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        values: FloatArray | Frame,
        columns: Sequence[str] | None = None,
        like: Table | None = None,
    ) -> Table:
        """Make a table of results; its rows are those of the table `like`."""
        rows = values if isinstance(values, Frame) else ArraySource(values)
        return cls(rows, columns) if like is None else cls(rows, columns, like.ids, like.id_name)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.n_rows, self.rows.n_columns

    @property
    def in_memory(self) -> bool:
        return getattr(self.rows, "in_memory", False)

    @property
    def frame(self) -> Frame | None:
        """Return the table as a frame, None if it is a matrix of numbers."""
        return self.rows if isinstance(self.rows, Frame) else None

    @property
    def values(self) -> FloatArray:
        """Return all entries as an array; refuse texts."""
        return self.rows.read(0, self.rows.n_rows)

    @property
    def data(self) -> Any:
        """Return the rows as `SRFLVM` takes them, with the names of their columns."""
        if not isinstance(self.rows, ArraySource):
            return self.rows
        return self.rows.Y if self.columns is None else NamedTable(self.rows.Y, self.columns)

    def load(self) -> Table:
        """Return the same table with all rows in memory."""
        return self if self.frame is not None else self.with_values(self.values)

    def with_values(self, values: FloatArray | Frame) -> Table:
        """Return the same table with other entries."""
        return replace(self, rows=values if isinstance(values, Frame) else ArraySource(values))

    def count_observed(self) -> np.ndarray:
        """Count the observed entries of each row."""
        if self.frame is not None:
            return (~self.frame.is_missing()).sum(axis=1)
        return np.concatenate([np.isfinite(piece).sum(axis=1) for _, piece in pieces(self.rows)])


class _Original(Protocol):
    """File that a table was read from, which can be written again with its missing entries filled."""

    @property
    def format(self) -> Format: ...

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray | Frame) -> None:
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
