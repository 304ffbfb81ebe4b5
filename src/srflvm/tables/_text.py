"""Text tables: .csv and .tsv, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, ClassVar

import numpy as np

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.sources import ArraySource
from srflvm.tables._delimiter import NAMES as DELIMITERS
from srflvm.tables._delimiter import delimiter_of_lines, delimiter_of_name
from srflvm.tables._header import Line, split_header
from srflvm.tables._numbers import as_numbers, has_decimal_comma, is_number, is_observed_number
from srflvm.tables._table import Reading, Table, check_asked, check_names, ignored_columns

_WHOLE_NUMBERS_BELOW = 1e15
_LINES_LOOKED_AT = 50

# Spreadsheets take a field that begins with one of these for a formula.
_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class TextRows:
    """The fields of a text file as they are written, and which of them are data."""

    header: list[str] | None
    rows: list[list[str]]
    positions: list[int]
    endings: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz", ".tsv", ".tsv.gz")

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray) -> None:
        """The fields as they were, with numbers where entries were missing."""
        _write_rows(path, temporary, self.header, self._filled_rows(filled))

    def escaped(self) -> TextRows:
        """Return the same fields without formulas; data are numbers, which stay as they are."""
        data = frozenset(self.positions)
        rows = [
            [field if position in data else escaped(field) for position, field in enumerate(fields)]
            for fields in self.rows
        ]
        return replace(self, header=_all_escaped(self.header), rows=rows)

    def _filled_rows(self, filled: FloatArray) -> Iterator[list[str]]:
        for fields, values in zip(self.rows, filled, strict=True):
            row = list(fields)
            for position, value in zip(self.positions, values, strict=True):
                if not is_observed_number(row[position]):
                    row[position] = as_text(value)
            yield row


@dataclass(frozen=True)
class _Layout:
    """Names of all fields of a line, if they have any; which one names the row, and which are data."""

    names: list[str] | None
    id_position: int | None
    positions: list[int]
    ignored: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str] | None:
        return None if self.names is None else [self.names[p] for p in self.positions]

    @property
    def id_name(self) -> str:
        if self.names is None or self.id_position is None:
            return "id"
        return self.names[self.id_position] or "id"


def read(path: Path, how: Reading) -> Table:
    """Numbers and names; `original` is a `TextRows` if it is to be kept."""
    lines = Lines(path)
    found = (line for line in lines if line[1])
    header, ahead, warnings = split_header(path, found, how.header)
    layout = _lay_out(path, header, ahead[0][1], how)
    values, kept, ids, width = [], [], [], len(ahead[0][1])
    for number, fields in itertools.chain(ahead, found):
        if len(fields) != width:
            raise DataError(f"{path} has {len(fields)} fields in line {number} and {width} before.")
        values.append(_parsed(path, number, fields, layout))
        if layout.id_position is not None:
            ids.append(fields[layout.id_position])
        if how.keep:
            kept.append(fields)
    return Table(
        ArraySource(np.array(values)),
        layout.columns,
        ids or None,
        layout.id_name,
        (*_note_of_delimiter(lines), *_notes(layout, how)),
        TextRows(header, kept, layout.positions) if how.keep else None,
        warnings,
        layout.ignored,
    )


def _lay_out(path: Path, header: list[str] | None, fields: list[str], how: Reading) -> _Layout:
    names = None if header is None else [name.strip() for name in header]
    if names is not None and len(names) < len(fields):
        # some programs write no name for the column of row names
        names = ["", *names]
    check_asked(how, names, path)
    id_position = _id_position(names, fields, how)
    left_out = {id_position, *(names.index(name) for name in how.leave_out if names)}
    ignored = ignored_columns(how, names, [names[p] for p in left_out if names and p is not None])
    if names is not None:
        unknown = set(ignored)
        left_out |= {place for place, name in enumerate(names) if name in unknown}
    positions = [place for place in range(len(fields)) if place not in left_out]
    layout = _Layout(names, id_position, positions, ignored)
    if not layout.positions:
        raise DataError(f"{path} has no column of numbers.")
    if layout.columns is not None:
        check_names(layout.columns, path)
    return layout


@dataclass
class Lines:
    """Lines as fields, none in an empty one, with their numbers. `delimiter` is known once one is read."""

    path: Path
    delimiter: str = ""

    def __iter__(self) -> Iterator[Line]:
        try:
            with _opened(self.path) as file:
                ahead = list(itertools.islice(file, _LINES_LOOKED_AT))
                self.delimiter = delimiter_of_lines(self.path, ahead)
                reader = csv.reader(itertools.chain(ahead, file), delimiter=self.delimiter)
                for fields in reader:
                    yield reader.line_num, fields
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path} is not text in UTF-8 ({error.reason}). Save it as UTF-8."
            ) from error
        except (csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{self.path} is damaged or not a text table ({error}).") from error


def _opened(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return path.open(newline="", encoding="utf-8-sig")


def _id_position(names: list[str] | None, fields: list[str], how: Reading) -> int | None:
    """The column of row names: that asked for, or the first if it has no name or begins with a text."""
    if how.id_column is not None and names is not None:
        return names.index(how.id_column)
    if names is not None and names[0] in how.leave_out:
        return None
    unnamed = names is not None and names[0] == "" and len(names) > 1
    return 0 if unnamed or not (is_number(fields[0]) or has_decimal_comma(fields[0])) else None


def _parsed(path: Path, line: int, fields: list[str], layout: _Layout) -> FloatArray:
    try:
        return np.array(as_numbers([fields[position] for position in layout.positions]))
    except ValueError:
        return np.array([_number(path, line, fields[p], _called(p, layout)) for p in layout.positions])


def _called(position: int, layout: _Layout) -> str:
    return str(position + 1) if layout.names is None else repr(layout.names[position])


def _number(path: Path, line: int, text: str, column: str) -> float:
    if has_decimal_comma(text):
        raise DataError(
            f"{path} has {text!r} in line {line}, column {column}, a number with a comma. Write numbers with "
            "a decimal point and without separators of thousands. pandas.read_csv reads such files, with "
            "decimal=',' and sep= what separates the fields; to_csv writes them with points."
        )
    if not is_number(text):
        raise DataError(
            f"{path} has {text!r} in line {line}, column {column}, which is not a number. Leave entries that "
            "were not observed empty; name columns that are not data with --leave-out, row names with "
            "--id-column."
        )
    return as_numbers([text])[0] if is_observed_number(text) else np.nan


def _note_of_delimiter(lines: Lines) -> tuple[str, ...]:
    """A note if fields are separated by something else than the name of the file says."""
    if lines.delimiter == delimiter_of_name(lines.path):
        return ()
    return (f"fields: separated by {DELIMITERS[lines.delimiter]}",)


def _notes(layout: _Layout, how: Reading) -> tuple[str, ...]:
    notes = ["column names: none" if layout.names is None else "column names: the first line"]
    if layout.id_position is not None:
        name = layout.names and layout.names[layout.id_position]
        notes.append(f"row ids: column {layout.id_position + 1} ({repr(name) if name else 'without a name'})")
    if how.leave_out:
        notes.append(f"left out: {', '.join(map(repr, how.leave_out))}")
    return tuple(notes)


def escape_names(table: Table) -> Table:
    """Return a table of whose names, and whose other texts, no spreadsheet makes a formula."""
    original = table.original.escaped() if isinstance(table.original, TextRows) else table.original
    return replace(
        table,
        columns=_all_escaped(table.columns),
        ids=_all_escaped(table.ids),
        id_name=escaped(table.id_name),
        original=original,
    )


def _all_escaped(texts: Sequence[str] | None) -> list[str] | None:
    return None if texts is None else [escaped(text) for text in texts]


def escaped(text: str) -> str:
    """Return a text with an apostrophe before it if a spreadsheet would take it for a formula; a number as it
    is."""
    return f"'{text}" if text.startswith(_BEGIN_FORMULAS) and not is_observed_number(text) else text


def write(path: Path, temporary: Path, table: Table) -> None:
    """Write a table to `temporary`, in the format of `path`."""
    ids, columns = table.ids, table.columns
    header = None if columns is None else [*([] if ids is None else [table.id_name]), *columns]
    rows = ([as_text(value) for value in row] for row in table.values)
    if ids is not None:
        rows = ([name, *row] for name, row in zip(ids, rows, strict=True))
    _write_rows(path, temporary, header, rows)


def as_text(value: np.floating) -> str:
    """The shortest text that is this number; nothing for NaN."""
    if np.isnan(value):
        return ""
    if value.is_integer() and abs(value) < _WHOLE_NUMBERS_BELOW:
        return str(int(value))
    return str(value)


def _write_rows(path: Path, temporary: Path, header: Sequence[str] | None, rows: Iterator[list[str]]) -> None:
    with _opened_to_write(path, temporary) as file:
        writer = csv.writer(file, delimiter=delimiter_of_name(path), lineterminator="\n")
        # a carriage return ends a line for readers, but not all versions of Python quote it
        quoting = csv.writer(
            file, delimiter=delimiter_of_name(path), lineterminator="\n", quoting=csv.QUOTE_ALL
        )
        for row in itertools.chain([] if header is None else [header], rows):
            (quoting if "\r" in "".join(row) else writer).writerow(row)


@contextmanager
def _opened_to_write(path: Path, temporary: Path) -> Iterator[IO[str]]:
    if path.suffix.lower() != ".gz":
        with temporary.open("w", newline="", encoding="utf-8") as file:
            yield file
        return
    # no name and no time in the file: the same table gives the same bytes
    with (
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as file,
    ):
        yield file
