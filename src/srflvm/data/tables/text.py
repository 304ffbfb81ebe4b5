"""Text tables, .csv and .tsv, plain or gzipped.

The character between fields is that of the file's name unless the lines tell another one. A line of column
names is detected, unless the user says whether there is one. Fields stay as they are written, so that a file
can be written again with nothing but its missing entries changed.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.sources import ArraySource, listed
from srflvm.data.tables.labels import LabelColumns
from srflvm.data.tables.table import Format, ReadOptions, Table, check_names, parse_numbers
from srflvm.exceptions import DataError

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}

# Characters that texts rarely contain. A bar must have numbers beside it to be taken for a delimiter.
_RARE_IN_TEXTS = (";", "\t")

# Lines, records and fields at the beginning of a file from which its delimiter is told.
_LINES_LOOKED_AT = 50
_MOST_RECORDS = 20
_MOST_FIELDS = 200

# Shorter runs of whole numbers are often data.
_SHORTEST_COUNT = 3

# 1,5 and 1.234,5; 1,234 may be meant as a thousand.
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")

_MISSING = ("", "na", "n/a", "nan", "-nan", "null", "none")

_WHOLE_NUMBERS_BELOW = 1e15

# Spreadsheets take a field that begins with one of these for a formula.
_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

_Line = tuple[int, list[str]]


class _TextFormat(Format):
    def open_table(self, path: Path, options: ReadOptions) -> Table:
        """Read numbers and names; the original is a `_TextFile`."""
        lines = _Lines(path)
        found = (line for line in lines if line[1])
        header, ahead, warnings = _split_header(path, found, options.header)
        layout = _lay_out(path, header, ahead[0][1], options)
        values, kept, ids, width = [], [], [], len(ahead[0][1])
        for number, fields in itertools.chain(ahead, found):
            if len(fields) != width:
                raise DataError(f"{path} has {len(fields)} fields in line {number} and {width} before.")
            values.append(_parse_row(path, number, fields, layout))
            if layout.id_position is not None:
                ids.append(fields[layout.id_position])
            if options.keep:
                kept.append(fields)
        return Table(
            ArraySource(np.array(values)),
            layout.columns,
            ids or None,
            layout.id_name,
            (*_note_of_delimiter(lines), *_notes(layout, options)),
            _TextFile(header, kept, layout.positions) if options.keep else None,
            warnings,
            layout.ignored,
        )

    def label_columns(self, path: Path, n_rows: int) -> LabelColumns:
        rows = _label_lines(path)
        names = [name.strip() for name in rows.pop(0)] if len(rows) == n_rows + 1 else None
        if not rows:
            raise DataError(f"{path} has no labels.")
        if names is not None and len(names) == len(rows[0]) - 1:
            # some programs write no name for the column of row names
            names = ["", *names]

        def read_column(position: int) -> list[str]:
            if any(len(fields) <= position for fields in rows):
                raise DataError(f"{path} has lines of different lengths.")
            return [fields[position] for fields in rows]

        return LabelColumns(path, len(rows[0]), read_column, names)

    def escape_formulas(self, table: Table) -> Table:
        original = table.original
        return replace(
            table,
            columns=_escape_all(table.columns),
            ids=_escape_all(table.ids),
            id_name=_escape(table.id_name),
            original=original.escaped() if isinstance(original, _TextFile) else original,
        )

    def write(self, path: Path, temporary: Path, table: Table) -> None:
        ids, columns = table.ids, table.columns
        header = None if columns is None else [*([] if ids is None else [table.id_name]), *columns]
        rows = ([_as_text(value) for value in row] for row in table.values)
        if ids is not None:
            rows = ([name, *row] for name, row in zip(ids, rows, strict=True))
        _write_rows(path, temporary, header, rows)


TEXT = _TextFormat()


@dataclass(frozen=True)
class _TextFile:
    """Fields of a text file as they are written, and the positions of those that are data."""

    header: list[str] | None
    rows: list[list[str]]
    positions: list[int]

    @property
    def format(self) -> Format:
        return TEXT

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray) -> None:
        _write_rows(path, temporary, self.header, self._filled_rows(filled))

    def escaped(self) -> _TextFile:
        """Return the same fields without formulas; data are numbers, which stay as they are."""
        data = frozenset(self.positions)
        rows = [
            [field if position in data else _escape(field) for position, field in enumerate(fields)]
            for fields in self.rows
        ]
        return replace(self, header=_escape_all(self.header), rows=rows)

    def _filled_rows(self, filled: FloatArray) -> Iterator[list[str]]:
        for fields, values in zip(self.rows, filled, strict=True):
            row = list(fields)
            for position, value in zip(self.positions, values, strict=True):
                if not _is_observed_number(row[position]):
                    row[position] = _as_text(value)
            yield row


@dataclass
class _Lines:
    """Lines of a file as fields, none in an empty line, with their numbers.

    `delimiter` is known once a line is read.
    """

    path: Path
    delimiter: str = ""

    def __iter__(self) -> Iterator[_Line]:
        try:
            with _open_to_read(self.path) as file:
                ahead = list(itertools.islice(file, _LINES_LOOKED_AT))
                self.delimiter = _delimiter_of_lines(self.path, ahead)
                reader = csv.reader(itertools.chain(ahead, file), delimiter=self.delimiter)
                for fields in reader:
                    yield reader.line_num, fields
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path} is not text in UTF-8 ({error.reason}). Save it as UTF-8."
            ) from error
        except (csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{self.path} is damaged or not a text table ({error}).") from error


def _open_to_read(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return path.open(newline="", encoding="utf-8-sig")


def _delimiter_of_name(path: Path) -> str:
    """Return the delimiter of fields in a file of this name, as it is written."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _delimiter_of_lines(path: Path, lines: Sequence[str]) -> str:
    """Return the delimiter of fields in a file that begins with these lines.

    That of the name is taken unless it leaves lines whole, or another makes more numbers of the fields.
    """
    own = _delimiter_of_name(path)
    shares = {one: _share_of_numbers(lines, one, strict=one != own) for one in _DELIMITERS}
    found = {one: share for one, share in shares.items() if share is not None}
    best = max(found.values(), default=None)
    return own if best is None or found.get(own) == best else min(one for one in found if found[one] == best)


def _share_of_numbers(lines: Sequence[str], delimiter: str, *, strict: bool) -> float | None:
    """Return the share of fields below the first line that are numbers, None if no fields are separated.

    With `strict` fields whose quotes do not end at a delimiter are not separated either.
    """
    found = (fields for fields in csv.reader(lines, delimiter=delimiter, strict=strict) if fields)
    try:
        records = list(itertools.islice(found, _MOST_RECORDS))
    except csv.Error:  # also of a field that is too long
        return None
    widths = [len(fields) for fields in records]
    # some programs write no name for the column of row names
    if not widths or widths[0] < 2 or (len(widths) > 1 and widths[1] not in (widths[0], widths[0] + 1)):
        return None
    fields = [field for record in records[1:] or records for field in record[:_MOST_FIELDS]]
    with_commas = delimiter in _RARE_IN_TEXTS
    observed = [_is_observed_number(field) or (with_commas and _has_decimal_comma(field)) for field in fields]
    in_rows = delimiter in (",", *_RARE_IN_TEXTS) and len(widths) > 1 and len(set(widths)) == 1
    if not any(observed) and not in_rows:
        return None
    return sum(seen or _is_number(field) for seen, field in zip(observed, fields, strict=True)) / len(fields)


def _note_of_delimiter(lines: _Lines) -> tuple[str, ...]:
    """Return a note if the delimiter is not that of the file's name."""
    if lines.delimiter == _delimiter_of_name(lines.path):
        return ()
    return (f"fields: separated by {_DELIMITERS[lines.delimiter]}",)


def _split_header(
    path: Path, found: Iterator[_Line], header: bool | None
) -> tuple[list[str] | None, list[_Line], tuple[str, ...]]:
    """Return the line of column names, if there is one, the first lines of entries, and warnings."""
    first, second = next(found, None), next(found, None)
    if first is None:
        raise DataError(f"{path} is empty.")
    if header is False or (header is None and not _is_header(first[1])):
        doubts = () if header is False else _doubts(path, first[1])
        return None, [first] if second is None else [first, second], doubts
    if second is None:
        raise DataError(
            f"{path} has a line of column names and no rows. If that line is data, give --no-header."
        )
    names, width = first[1], len(second[1])
    if len(names) not in (width, width - 1):
        raise DataError(f"{path} has {len(names)} column names and {width} fields in line {second[0]}.")
    return names, [second], ()


def _is_header(fields: list[str]) -> bool:
    """Tell whether a field after the first, which may name a row, is no number, or the fields count up."""
    others = fields[1:]
    if not others:
        return not _can_be_entry(fields[0])
    if not all(_can_be_entry(text) for text in others):
        return True
    if not _is_observed_number(fields[0]):
        return any(_count_from(start, others) for start in (0, 1))
    return len(fields) >= _SHORTEST_COUNT and _count_from(0, fields)


def _count_from(start: int, fields: list[str]) -> bool:
    return [text.strip() for text in fields] == [str(start + i) for i in range(len(fields))]


def _doubts(path: Path, fields: list[str]) -> tuple[str, ...]:
    """Return a warning if a first line of data may well be one of names, such as years."""
    numbers = fields if _is_observed_number(fields[0]) else fields[1:]
    first = numbers[0].strip() if len(numbers) >= _SHORTEST_COUNT else ""
    if not (first.isascii() and first.isdecimal() and _count_from(int(first), numbers)):
        return ()
    return (
        f"the first line of {path} is taken as data, but counts up in steps of one ({listed(numbers)}), as "
        "column names may. Give --header if it has the names, or --no-header if it has not.",
    )


@dataclass(frozen=True)
class _Layout:
    """Names of all fields of a line, if they have any, the position of row ids, and those of data."""

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

    def describe(self, position: int) -> str:
        """Return the name of a column for a message, or its number from 1."""
        return str(position + 1) if self.names is None else repr(self.names[position])


def _lay_out(path: Path, header: list[str] | None, fields: list[str], options: ReadOptions) -> _Layout:
    names = None if header is None else [name.strip() for name in header]
    if names is not None and len(names) < len(fields):
        # some programs write no name for the column of row names
        names = ["", *names]
    options.check_columns(names, path)
    id_position = _id_position(names, fields, options)
    left_out = {id_position, *(names.index(name) for name in options.leave_out if names)}
    ignored = options.ignored_columns(names, [names[p] for p in left_out if names and p is not None])
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


def _id_position(names: list[str] | None, fields: list[str], options: ReadOptions) -> int | None:
    """Return the position of row ids: that asked for, or the first if it has no name or holds texts."""
    if options.id_column is not None and names is not None:
        return names.index(options.id_column)
    if names is not None and names[0] in options.leave_out:
        return None
    unnamed = names is not None and names[0] == "" and len(names) > 1
    return 0 if unnamed or not _can_be_entry(fields[0]) else None


def _notes(layout: _Layout, options: ReadOptions) -> tuple[str, ...]:
    notes = ["column names: none" if layout.names is None else "column names: the first line"]
    if layout.id_position is not None:
        name = layout.names and layout.names[layout.id_position]
        notes.append(f"row ids: column {layout.id_position + 1} ({repr(name) if name else 'without a name'})")
    if options.leave_out:
        notes.append(f"left out: {', '.join(map(repr, options.leave_out))}")
    return tuple(notes)


def _label_lines(path: Path) -> list[list[str]]:
    """Read lines as fields; in one column an empty line before the last label is a row without a label."""
    rows = [fields for _, fields in _Lines(path)]
    while rows and not rows[-1]:
        rows.pop()
    if all(len(fields) <= 1 for fields in rows):
        return [fields or [""] for fields in rows]
    return [fields for fields in rows if fields]


def _parse_row(path: Path, line: int, fields: list[str], layout: _Layout) -> FloatArray:
    try:
        return np.array(parse_numbers([fields[position] for position in layout.positions]))
    except ValueError:
        return np.array([_parse_entry(path, line, fields[p], layout.describe(p)) for p in layout.positions])


def _parse_entry(path: Path, line: int, text: str, column: str) -> float:
    if _has_decimal_comma(text):
        raise DataError(
            f"{path} has {text!r} in line {line}, column {column}, a number with a comma. Write numbers with "
            "a decimal point and without separators of thousands. pandas.read_csv reads such files, with "
            "decimal=',' and sep= what separates the fields; to_csv writes them with points."
        )
    if not _is_number(text):
        raise DataError(
            f"{path} has {text!r} in line {line}, column {column}, which is not a number. Leave entries that "
            "were not observed empty; name columns that are not data with --leave-out, row names with "
            "--id-column."
        )
    return parse_numbers([text])[0] if _is_observed_number(text) else np.nan


def _is_number(text: str) -> bool:
    """Tell whether a field is a number, or one of the ways to say that it is missing."""
    return text.strip().lower() in _MISSING or _is_observed_number(text)


def _is_observed_number(text: str) -> bool:
    """Tell whether a field is a number and not missing."""
    try:
        (value,) = parse_numbers([text])
    except ValueError:
        return False
    return value == value


def _has_decimal_comma(text: str) -> bool:
    """Tell whether a field is a number as it is written in many countries, with a comma for the point."""
    return _DECIMAL_COMMA.fullmatch(text.strip()) is not None


def _can_be_entry(text: str) -> bool:
    """Tell whether a field is data; a decimal comma is refused when it is read, and is not a name."""
    return _is_number(text) or _has_decimal_comma(text)


def _escape_all(texts: Sequence[str] | None) -> list[str] | None:
    return None if texts is None else [_escape(text) for text in texts]


def _escape(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula; leave numbers."""
    return f"'{text}" if text.startswith(_BEGIN_FORMULAS) and not _is_observed_number(text) else text


def _as_text(value: np.floating) -> str:
    """Return the shortest text that is this number, and no text for NaN."""
    if np.isnan(value):
        return ""
    if value.is_integer() and abs(value) < _WHOLE_NUMBERS_BELOW:
        return str(int(value))
    return str(value)


def _write_rows(path: Path, temporary: Path, header: Sequence[str] | None, rows: Iterator[list[str]]) -> None:
    records = itertools.chain([] if header is None else [header], rows)
    own, ahead = _delimiter_of_name(path), list(itertools.islice(records, _LINES_LOOKED_AT))
    # a carriage return ends a line for readers, but not all versions of the module csv quote it
    quoted = f'{own}"\r\n'
    beginning = io.StringIO("".join(_as_line(record, own, quoted) for record in ahead), newline="")
    if _delimiter_of_lines(path, list(itertools.islice(beginning, _LINES_LOOKED_AT))) != own:
        # names have other delimiters in them, and would be taken for several fields
        quoted += "".join(_DELIMITERS)
    with _open_to_write(path, temporary) as file:
        file.writelines(_as_line(record, own, quoted) for record in itertools.chain(ahead, records))


def _as_line(fields: Sequence[str], delimiter: str, quoted: str) -> str:
    """Return fields as a line, in quotes if they have one of the characters of `quoted`."""
    if len(fields) == 1 and not fields[0]:
        return '""\n'  # an empty line is no row
    texts = [f'"{text.replace(chr(34), chr(34) * 2)}"' if _has(text, quoted) else text for text in fields]
    return f"{delimiter.join(texts)}\n"


def _has(text: str, characters: str) -> bool:
    return any(character in text for character in characters)


@contextmanager
def _open_to_write(path: Path, temporary: Path) -> Iterator[IO[str]]:
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
