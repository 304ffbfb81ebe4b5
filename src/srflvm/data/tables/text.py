"""Text tables, .csv and .tsv, plain or gzipped.

The character between fields is that of the file's name unless the lines tell another one. A line of column
names is detected, and so is the decimal sign, unless the user says what they are. Fields stay as they are
written, so that a file can be written again with nothing but its missing entries changed.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import shlex
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.sources import ArraySource, listed
from srflvm.data.tables.fields import Notation, find_notation, has_decimal_comma, looks_like_number
from srflvm.data.tables.frame import TEXTS, TRUTH, Entries, Frame, as_objects
from srflvm.data.tables.labels import LabelColumns
from srflvm.data.tables.table import Format, ReadOptions, Table, check_names
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

# Texts among numbers are levels, such as 1, 2, 3 and more, if there are no more than this many.
_MOST_MIXED_LEVELS = 10

_TRUTH_VALUES = ("false", "true")

# Spreadsheets take a field that begins with one of these for a formula.
_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

_PLAIN = Notation()

_Line = tuple[int, list[str]]


class _TextFormat(Format):
    def open_table(self, path: Path, options: ReadOptions) -> Table:
        """Read entries and names; the original is a `_TextFile`."""
        lines = _Lines(path, options.delimiter or "")
        header, first, warnings = _split_header(path, lines.beginning(), options)
        layout = _lay_out(path, header, first[0][1], options)
        notation = _notation(path, first, layout, options, lines.delimiter)
        content = _read(lines, header is not None, layout, notation, options)
        ids, layout = _take_ids(content, layout, notation, options)
        frame, doubts = _as_frame(path, content, layout, notation, options)
        as_frame = options.wants_frame(frame.n_rows * frame.n_columns, has_texts=bool(content.texts))
        notes = (*_note_of_delimiter(lines), *_notes(layout, options), *_notes_of_fields(content, notation))
        original = None
        if options.keep:
            original = _TextFile(header, content.kept, layout.positions, frame.is_missing(), notation)
        return Table(
            frame if as_frame else ArraySource(content.numbers),
            layout.columns,
            ids,
            layout.id_name,
            notes,
            original,
            (*warnings, *doubts),
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
        original, frame = table.original, table.frame
        return replace(
            table,
            rows=table.rows if frame is None else frame.with_parts(_escaped_parts(frame)),
            columns=_escape_all(table.columns),
            ids=_escape_all(table.ids),
            id_name=_escape(table.id_name),
            original=original.escaped() if isinstance(original, _TextFile) else original,
        )

    def write(self, path: Path, temporary: Path, table: Table) -> None:
        ids, columns = table.ids, table.columns
        header = None if columns is None else [*([] if ids is None else [table.id_name]), *columns]
        if table.frame is None:
            rows = ([_PLAIN.write(value) for value in row] for row in table.values)
        else:
            fields = [part.fields(_PLAIN.write) for part in table.frame.parts]
            rows = (list(row) for row in zip(*fields, strict=True))
        if ids is not None:
            rows = ([name, *row] for name, row in zip(ids, rows, strict=True))
        _write_rows(path, temporary, header, rows)


TEXT = _TextFormat()


@dataclass(frozen=True)
class _TextFile:
    """Fields of a text file as they are written, the positions of those that are data, and which of these
    are missing (n, M); `escape` is what becomes of texts."""

    header: list[str] | None
    rows: list[list[str]]
    positions: list[int]
    missing: np.ndarray
    notation: Notation
    escape: Callable[[str], str] = str

    @property
    def format(self) -> Format:
        return TEXT

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray | Frame) -> None:
        frame = filled if isinstance(filled, Frame) else Frame.of_numbers(None, filled)
        fills = [part.fields(self.notation.write) for part in frame.parts]
        delimiter = _delimiter_of_name(path)
        if delimiter == self.notation.decimal:
            delimiter = ";"
        _write_rows(path, temporary, self.header, self._filled_rows(fills), delimiter)

    def escaped(self) -> _TextFile:
        """Return the same fields without formulas; numbers stay as they are."""
        rows = [[_escape(text, self.notation) for text in fields] for fields in self.rows]
        return replace(self, header=_escape_all(self.header), rows=rows, escape=_escape)

    def _filled_rows(self, fills: list[list[str]]) -> Iterator[list[str]]:
        """Yield rows with fills, unless these are missing themselves, in the place of missing entries."""
        for number, fields in enumerate(self.rows):
            row = list(fields)
            for column in np.flatnonzero(self.missing[number]):
                row[self.positions[column]] = (
                    self.escape(fills[column][number]) or row[self.positions[column]]
                )
            yield row


@dataclass
class _Lines:
    """Lines of a file as fields, none in an empty line, with their numbers.

    `delimiter` is known once a line is read, if it was not given.
    """

    path: Path
    delimiter: str = ""

    def __iter__(self) -> Iterator[_Line]:
        try:
            with _open_to_read(self.path) as file:
                ahead = list(itertools.islice(file, _LINES_LOOKED_AT))
                self.delimiter = self.delimiter or _delimiter_of_lines(self.path, ahead)
                reader = csv.reader(itertools.chain(ahead, file), delimiter=self.delimiter)
                for fields in reader:
                    yield reader.line_num, fields
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path} is not text in UTF-8 ({error.reason}). Save it as UTF-8."
            ) from error
        except (csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{self.path} is damaged or not a text table ({error}).") from error

    def records(self) -> Iterator[_Line]:
        """Yield the lines that are not empty."""
        return (line for line in self if line[1])

    def beginning(self) -> list[_Line]:
        """Return the first lines that are not empty."""
        return list(itertools.islice(self.records(), _LINES_LOOKED_AT))


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
    observed = [_PLAIN.is_number(field) or (with_commas and has_decimal_comma(field)) for field in fields]
    in_rows = delimiter in (",", *_RARE_IN_TEXTS) and len(widths) > 1 and len(set(widths)) == 1
    if not any(observed) and not in_rows:
        return None
    return sum(seen or _PLAIN.is_missing(field) for seen, field in zip(observed, fields, strict=True)) / len(
        fields
    )


def _note_of_delimiter(lines: _Lines) -> tuple[str, ...]:
    """Return a note if the delimiter is not that of the file's name."""
    if lines.delimiter == _delimiter_of_name(lines.path):
        return ()
    return (f"fields: separated by {_DELIMITERS.get(lines.delimiter, repr(lines.delimiter))}",)


def _split_header(
    path: Path, lines: list[_Line], options: ReadOptions
) -> tuple[list[str] | None, list[_Line], tuple[str, ...]]:
    """Return the line of column names, if there is one, the first lines of entries, and warnings."""
    if not lines:
        raise DataError(f"{path} is empty.")
    header, (first, *others) = options.header, lines
    if header is False or (header is None and not _is_header(first[1], [fields for _, fields in others])):
        return None, lines, () if header is False else _doubts(path, first[1])
    if not others:
        raise DataError(
            f"{path} has a line of column names and no rows. If that line is data, give --no-header."
        )
    names, (number, second) = first[1], others[0]
    if len(names) not in (len(second), len(second) - 1):
        raise DataError(f"{path} has {len(names)} column names and {len(second)} fields in line {number}.")
    return names, others, ()


def _is_header(fields: list[str], below: list[list[str]]) -> bool:
    """Tell whether a first line has names: a text after the first field, which may name a row, or fields
    that count up. A line whose texts occur again below them is one of data."""
    texts = fields[1:] or fields
    if not all(_can_be_entry(text) for text in texts):
        return not _is_like(fields, below)
    if not fields[1:]:
        return False
    if not _PLAIN.is_number(fields[0]):
        return any(_count_from(start, texts) for start in (0, 1)) and not _is_like(fields, below)
    return len(fields) >= _SHORTEST_COUNT and _count_from(0, fields)


def _is_like(fields: list[str], below: list[list[str]]) -> bool:
    """Tell whether one of the texts occurs again below it, and none stands above nothing but numbers."""
    if any(len(others) != len(fields) for others in below):
        return False
    columns = zip(*below, strict=True)
    texts = [(text, column) for text, column in zip(fields, columns, strict=False) if not _can_be_entry(text)]
    above_numbers = any(all(_can_be_entry(entry) for entry in column) for _, column in texts)
    return not above_numbers and any(text in column for text, column in texts)


def _count_from(start: int, fields: list[str]) -> bool:
    return [text.strip() for text in fields] == [str(start + i) for i in range(len(fields))]


def _doubts(path: Path, fields: list[str]) -> tuple[str, ...]:
    """Return a warning if a first line of data may well be one of names, such as years."""
    numbers = fields if _PLAIN.is_number(fields[0]) else fields[1:]
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
    width: int
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

    def name(self, position: int) -> str | int:
        """Return the name of a column of data as options have it: its text, or its number from 0."""
        return self.positions.index(position) if self.names is None else self.names[position]


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
    layout = _Layout(names, len(fields), id_position, positions, ignored)
    if not layout.positions:
        raise DataError(f"{path} has no column of data.")
    if layout.columns is not None:
        check_names(layout.columns, path)
    return layout


def _id_position(names: list[str] | None, fields: list[str], options: ReadOptions) -> int | None:
    """Return the position of row ids: that asked for, or the first if it has no name, or if it holds texts
    and cannot be data."""
    if options.id_column is not None and names is not None:
        return names.index(options.id_column)
    if names is not None and names[0] in options.leave_out:
        return None
    if names is not None and names[0] == "" and len(names) > 1:
        return 0
    first = None if names is None else names[0]
    has_ids = options.takes_any_ids() and not options.has_no_ids(first, len(fields))
    return 0 if has_ids and not _can_be_entry(fields[0]) else None


def _notes(layout: _Layout, options: ReadOptions) -> tuple[str, ...]:
    notes = ["column names: none" if layout.names is None else "column names: the first line"]
    if layout.id_position is not None:
        name = layout.names and layout.names[layout.id_position]
        notes.append(f"row ids: column {layout.id_position + 1} ({repr(name) if name else 'without a name'})")
    if options.leave_out:
        notes.append(f"left out: {', '.join(map(repr, options.leave_out))}")
    return tuple(notes)


def _notes_of_fields(content: _Content, notation: Notation) -> tuple[str, ...]:
    unusual = sorted(text for text in content.marks if notation.is_unusual(text))
    return (
        *(["numbers: with decimal commas"] if notation.decimal == "," else []),
        *([f"missing entries: also written as {listed(unusual)}"] if unusual else []),
    )


def _label_lines(path: Path) -> list[list[str]]:
    """Read lines as fields; in one column an empty line before the last label is a row without a label."""
    rows = [fields for _, fields in _Lines(path)]
    while rows and not rows[-1]:
        rows.pop()
    if all(len(fields) <= 1 for fields in rows):
        return [fields or [""] for fields in rows]
    return [fields for fields in rows if fields]


@dataclass(frozen=True)
class _Content:
    """Entries of a text file.

    Numbers (n, m); the texts of other columns by their positions, and the lines of the rows if there are such
    columns; row ids; all fields if they are kept; texts for missing entries; columns of numbers with texts.
    """

    numbers: FloatArray
    texts: dict[int, list[str]]
    lines: list[int]
    ids: list[str]
    kept: list[list[str]]
    marks: set[str]
    late: set[int]


@dataclass(frozen=True)
class _Rules:
    """Say what the columns of data are: those that must be numbers, and the levels of those that a model
    knows as texts; all others are what they look like."""

    numbers: frozenset[int]
    levels: dict[int, frozenset[str]]

    @classmethod
    def of(cls, layout: _Layout, options: ReadOptions) -> _Rules:
        if options.frames == "none":
            return cls(frozenset(layout.positions), {})
        known = options.levels_of(layout.columns, len(layout.positions))
        by_position = list(zip(layout.positions, known, strict=True)) if known else []
        numbers = frozenset(position for position, levels in by_position if levels is None)
        return cls(numbers, {position: levels for position, levels in by_position if levels})


def _notation(
    path: Path, first: list[_Line], layout: _Layout, options: ReadOptions, delimiter: str
) -> Notation:
    """Return how numbers are written, told from the first lines."""
    columns = ([fields[place] for _, fields in first if place < len(fields)] for place in layout.positions)
    return find_notation(columns, options.decimal, options.marks, str(path), by_comma=delimiter == ";")


def _read(lines: _Lines, header: bool, layout: _Layout, notation: Notation, options: ReadOptions) -> _Content:
    """Read all entries; again if columns turn out to have texts after numbers, which then are texts too."""
    rules, texts = _Rules.of(layout, options), frozenset[int]()
    texts |= rules.levels.keys()
    for _, fields in lines.beginning()[int(header) :]:
        texts |= {p for p in layout.positions if p < len(fields) and notation.number(fields[p]) is None}
    content = _read_once(lines, header, layout, notation, texts - rules.numbers, rules, options.keep)
    if not content.late:
        return content
    texts |= content.late
    return _read_once(lines, header, layout, notation, texts - rules.numbers, rules, options.keep)


def _read_once(
    lines: _Lines,
    header: bool,
    layout: _Layout,
    notation: Notation,
    texts: frozenset[int],
    rules: _Rules,
    keep: bool,
) -> _Content:
    numeric = [position for position in layout.positions if position not in texts]
    values: list[np.ndarray] = []
    found = _Content(np.empty(0), {p: [] for p in layout.positions if p in texts}, [], [], [], set(), set())

    def parse(line: int, fields: list[str], position: int) -> float:
        number = notation.number(fields[position])
        if number is None:
            if position in rules.numbers:
                raise _not_a_number(lines.path, line, fields[position], layout.describe(position))
            found.late.add(position)
        elif number != number:
            found.marks.add(fields[position].strip())
        return np.nan if number is None else number

    for line, fields in itertools.islice(lines.records(), int(header), None):
        if len(fields) != layout.width:
            raise DataError(
                f"{lines.path} has {len(fields)} fields in line {line} and {layout.width} before."
            )
        try:
            values.append(np.array(notation.numbers([fields[position] for position in numeric])))
        except ValueError:
            values.append(np.array([parse(line, fields, position) for position in numeric]))
        for position, column in found.texts.items():
            column.append(fields[position])
        if found.texts:
            found.lines.append(line)
        if layout.id_position is not None:
            found.ids.append(fields[layout.id_position])
        if keep:
            found.kept.append(fields)
    return replace(found, numbers=np.array(values).reshape(len(values), len(numeric)))


def _not_a_number(path: Path, line: int, text: str, column: str) -> DataError:
    """Return the error of a text in a column of numbers."""
    if has_decimal_comma(text):
        return DataError(
            f"{path} has {text!r} in line {line}, column {column}, a number with a comma. Say which sign "
            "begins the decimals of all numbers: --decimal , or --decimal ."
        )
    return DataError(
        f"{path} has {text!r} in line {line}, column {column}, which is not a number. Leave entries that "
        f"were not observed empty, or say that this text means one with --missing {shlex.quote(text)}; name "
        "columns that are not data with --leave-out, row names with --id-column."
    )


def _take_ids(
    content: _Content, layout: _Layout, notation: Notation, options: ReadOptions
) -> tuple[list[str] | None, _Layout]:
    """Return the row ids, and the layout without them.

    They are the first column if all of its entries differ and most of them are no numbers.
    """
    if layout.id_position is not None:
        return content.ids, layout
    texts = content.texts.get(0, [])
    can_be_ids = len(layout.positions) > 1 and not options.takes_any_ids()
    if not can_be_ids or len(set(texts)) < max(2, len(content.numbers)):
        return None, layout
    is_chosen = str(layout.name(0)) in options.mixed
    if is_chosen or notation.missing_texts(map(str.strip, texts)) or _are_mostly_numbers(texts):
        return None, layout
    return content.texts.pop(0), replace(layout, id_position=0, positions=layout.positions[1:])


def _are_mostly_numbers(texts: Sequence[str]) -> bool:
    return 2 * sum(map(looks_like_number, texts)) > len(texts)


def _as_frame(
    path: Path, content: _Content, layout: _Layout, notation: Notation, options: ReadOptions
) -> tuple[Frame, tuple[str, ...]]:
    """Return the entries of all columns, and warnings."""
    levels, doubts = _Rules.of(layout, options).levels, []
    numbers, parts = iter(content.numbers.T), []
    for position in layout.positions:
        if position not in content.texts:
            parts.append(Entries(next(numbers)))
            continue
        texts = [text.strip() for text in content.texts[position]]
        missing = notation.missing_texts(texts) - levels.get(position, frozenset())
        content.marks.update(missing)
        if position not in levels and str(layout.name(position)) not in options.mixed:
            doubts.extend(_refuse_mixture(path, content, layout, position, texts, missing, notation))
        parts.append(_of_texts(texts, missing, keep=position in levels))
    names = range(len(parts)) if layout.columns is None else layout.columns
    return Frame(tuple(names), tuple(parts)), tuple(doubts)


def _of_texts(texts: list[str], missing: set[str], *, keep: bool) -> Entries:
    """Return the entries of a column of texts; unless `keep`, true and false are truth values."""
    observed = [text for text in dict.fromkeys(texts) if text not in missing]
    if keep or not {text.lower() for text in observed} <= set(_TRUTH_VALUES):
        return Entries(as_objects([None if text in missing else text for text in texts]), TEXTS)
    code = {text: float(text.lower() == _TRUTH_VALUES[1]) for text in observed}
    example = observed[0]
    spell = str.upper if example.isupper() else str.title if example.istitle() else str.lower
    false, true = map(spell, _TRUTH_VALUES)
    return Entries(np.array([code.get(text, np.nan) for text in texts]), TRUTH, (false, true))


def _refuse_mixture(
    path: Path,
    content: _Content,
    layout: _Layout,
    position: int,
    texts: list[str],
    missing: set[str],
    notation: Notation,
) -> list[str]:
    """Refuse texts among many numbers, and return a warning of texts among few."""
    observed = set(texts) - missing
    numbers = {text for text in observed if looks_like_number(text)}
    row = next(row for row, text in enumerate(texts) if text not in missing and not notation.is_number(text))
    line, text, column = content.lines[row], texts[row], layout.describe(position)
    if numbers == observed:
        raise _not_a_number(path, line, text, column)
    if not _are_mostly_numbers([text for text in texts if text in observed]):
        return []
    found = f"{path} has {text!r} in line {line}, column {column}, among numbers"
    remedy = f"If it stands for a missing entry, give --missing {shlex.quote(text)}."
    if len(observed) <= _MOST_MIXED_LEVELS:
        return [f"{found}: all are taken as levels. {remedy}"]
    option = shlex.quote(f"{layout.name(position)}=categorical")
    raise DataError(
        f"{found}. {remedy} To take all of them as levels, give --column {option}; if they name the rows, "
        "give --id-column; if they are not data, --leave-out."
    )


def _can_be_entry(text: str) -> bool:
    """Tell whether a field is a number, with whatever decimal sign, or missing."""
    return _PLAIN.is_missing(text) or looks_like_number(text)


def _escape_all(texts: Sequence[str] | None) -> list[str] | None:
    return None if texts is None else [_escape(text) for text in texts]


def _escaped_parts(frame: Frame) -> dict[int, Entries]:
    """Return the columns of texts with escaped ones."""
    return {
        place: Entries(as_objects([text and _escape(text) for text in part.texts()]), TEXTS)
        for place, part in enumerate(frame.parts)
        if part.has_texts
    }


def _escape(text: str, notation: Notation = _PLAIN) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula; leave numbers."""
    return f"'{text}" if text.startswith(_BEGIN_FORMULAS) and not notation.is_number(text) else text


def _write_rows(
    path: Path,
    temporary: Path,
    header: Sequence[str] | None,
    rows: Iterator[list[str]],
    delimiter: str | None = None,
) -> None:
    records = itertools.chain([] if header is None else [header], rows)
    own, ahead = delimiter or _delimiter_of_name(path), list(itertools.islice(records, _LINES_LOOKED_AT))
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
