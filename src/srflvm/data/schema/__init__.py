"""Columns of a data frame as numbers, and numbers as columns again.

`Schema.of` decides what each column is, `Schema.encode` turns a frame into floats, and `Schema.decode` puts
numbers where a frame has missing entries. Frames of every library are read and made by `libraries`, which
brings their entries to the forms of `entries`: from there on, no library is known.
"""

from __future__ import annotations

import html
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.schema.entries import _MOST_ORDINAL, _Entries, _Label, _Numbers, _objects
from srflvm.data.schema.libraries import _LIBRARIES, _Library, _library_of
from srflvm.data.sources import like as name_like
from srflvm.data.sources import listed, repeated
from srflvm.exceptions import DataError, ModelFileError, check_choice
from srflvm.likelihoods.base import Likelihood
from srflvm.likelihoods.columns import LIKELIHOODS, as_likelihood, describe, standard_name

# The likelihood of each kind of column, unless the user chooses another.
_LIKELIHOOD_OF_KIND = {
    "continuous": "gaussian",
    "binary": "bernoulli",
    "ordinal": "ordinal",
    "categorical": "categorical",
}
_KIND_OF_LIKELIHOOD = {likelihood: kind for kind, likelihood in _LIKELIHOOD_OF_KIND.items()}

# Texts with more levels are taken for identifiers; those with at most `_MOST_ORDINAL` never are, however few
# rows there are.
_MOST_LEVELS = 50

_MOST_LEVELS_SHOWN = 6
_MOST_COLUMNS_SHOWN = 60

# Forms whose entries cannot lie between two levels.
_FORMS_OF_LEVELS = ("truth", "text", "category")
_FORMS_OF_TEXT = ("text", "category")

# Types of levels, and of names and their parts, in a file.
_PLAIN_TYPES = (bool, int, float, str)


@dataclass(frozen=True)
class Column:
    """Describe one column of a frame.

    Parameters
    ----------
    name : str or other label
    kind : {"continuous", "binary", "ordinal", "categorical"}
        Counts, and other numbers that are taken as they are, are "continuous".
    likelihood : str
        Standard name of the likelihood: that of the kind, or the user's choice.
    levels : tuple or None
        Values of the levels in the order of their codes 0, 1, ...; None if entries are taken as they are.
    dtype : str
        Type of the training column, as its library writes it.
    fills_levels : bool
        Whether only a level, or a whole number if there are no levels, can stand in the place of a missing
        entry: the type holds nothing else, or a mean of codes means nothing.
    transform : str or None
        Name of the transform through which a fitted model sees the column, such as "log".
    """

    name: Any
    kind: str
    likelihood: str
    levels: tuple[Any, ...] | None
    dtype: str
    fills_levels: bool
    transform: str | None = None

    @property
    def level_names(self) -> tuple[str, ...]:
        """Return the levels as texts; whole numbers have no decimals, whatever their type."""
        return tuple(_level_name(level) for level in self.levels or ())

    @property
    def taken_as(self) -> str:
        """Return the kind, or the likelihood if it is not that of the kind, and a transform."""
        is_usual = _LIKELIHOOD_OF_KIND[self.kind] == self.likelihood
        kind = self.kind if is_usual else self.likelihood.replace("_", " ")
        return kind if self.transform is None else f"{kind}, {self.transform.replace('_', '-')}"

    @property
    def has_texts(self) -> bool:
        """Tell whether levels are texts."""
        return any(isinstance(level, str) for level in self.levels or ())


@dataclass(frozen=True)
class Schema:
    """Say what the columns of a frame are, and turn frames into numbers and back.

    ======================================================  =============================================
    column                                                  taken as
    ======================================================  =============================================
    numbers with exactly two values                         binary, the smaller one is 0
    whole numbers with 3 to 10 values without gaps          ordinal
    all other numbers, and numbers with one value only      continuous (counts too)
    truth values                                            binary
    ordered categories, polars Enum                         ordinal; binary if two of them occur
    texts and categories without an order                   categorical; binary if two of them occur
    texts or categories that look like identifiers          refused: more than 50 levels, or more than 10
                                                            and one in each entry or more than half as
                                                            many as rows
    dates, times, durations, lists, records, complex        refused
    numbers and texts in one column, no observed entry      refused
    ======================================================  =============================================

    Levels of numbers and texts are sorted, categories are in their order; categories that do not occur are
    not levels. Entries are missing where they are NaN, None, NA, NaT or null.
    """

    columns: tuple[Column, ...]
    library: str

    @classmethod
    def of(cls, frame: Any, given: Mapping[Any, Any] | None = None) -> Schema:
        """Return the schema of a frame.

        Parameters
        ----------
        frame : pandas DataFrame, polars DataFrame or pyarrow Table
        given : mapping, default=None
            What the user says of columns: from a name, an index or a tuple of them, to a kind, the name of a
            likelihood or a likelihood.

        Raises
        ------
        DataError
            A column cannot be used; the message says which, why, and what to do.
        ValueError
            `given` names a column or a likelihood that does not exist.
        """
        library = _library_of(frame)
        names = library.names(frame)
        if not names:
            raise DataError("The frame has no columns.")
        _refuse_repeated(names)
        choices = _choices({} if given is None else given, names)
        n_rows = library.n_rows(frame)
        columns = [
            _described(library, library.column(frame, place), _Label(place, name), n_rows, choices.get(place))
            for place, name in enumerate(names)
        ]
        return cls(tuple(columns), library.name)

    def encode(self, frame: Any, *, unknown_levels: str = "error") -> FloatArray:
        """Return a frame as floats (n, M), NaN where an entry is missing.

        Levels become their codes 0, 1, ...; all other numbers are as they are. Columns are found by name, in
        any order and among others. The library need not be that of the training frame.

        Parameters
        ----------
        frame : pandas DataFrame, polars DataFrame or pyarrow Table
        unknown_levels : {"error", "missing"}, default="error"
            What to do with a level that the training data did not have.
        """
        check_choice("unknown_levels", unknown_levels, ("error", "missing"))
        library = _library_of(frame)
        values = np.empty((library.n_rows(frame), len(self.columns)))
        for index, (column, place) in enumerate(self._found(library.names(frame))):
            label = _Label(place, column.name)
            entries = library.read(library.column(frame, place), label)
            values[:, index] = _encoded(column, entries, label, unknown_levels, library.unknown)
        return values

    def decode(self, values: FloatArray, like: Any = None) -> Any:
        """Return a frame with numbers of the model in the place of its missing entries.

        Parameters
        ----------
        values : array (n, M)
            Values in the units of `encode`, with means for columns that are filled by means, and the most
            probable code for columns whose `fills_levels` is true. NaN leaves an entry missing.
        like : frame, default=None
            What to fill. All that is observed stays as it is, and so do names, order, types, the index, and
            columns that the model does not know. None makes a new frame with the training names and types.
        """
        values = np.asarray(values, np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.columns):
            raise ValueError(f"values have shape {values.shape}, but there are {len(self.columns)} columns.")
        return self._new(values) if like is None else self._filled(values, like)

    def decode_end(self, values: FloatArray, like: Any, *, upper: bool) -> Any:
        """Return a frame with the lower or upper ends of intervals in the place of its missing numbers.

        Columns of texts, categories and truth values keep their missing entries. Ends lie within the levels
        of a column that has some, and are rounded outwards where its type holds whole numbers alone.
        """
        values = np.array(values, np.float64)
        for place, column in enumerate(self.columns):
            if column.levels is not None:
                values[:, place] = np.clip(values[:, place], 0.0, len(column.levels) - 1.0)
            if column.fills_levels:
                is_number = column.levels is None or not isinstance(column.levels[0], str | bool)
                rounded = np.ceil(values[:, place]) if upper else np.floor(values[:, place])
                values[:, place] = rounded if is_number else np.nan
        return self.decode(values, like)

    def summary(self) -> list[tuple[str, str, str, str]]:
        """Return a row for each column: its name, its type, what it is taken as, and its levels."""
        return [
            (str(column.name), column.dtype, column.taken_as, _shown_levels(column))
            for column in self.columns
        ]

    def with_transforms(self, transforms: Sequence[str | None]) -> Schema:
        """Return the schema with the transforms (M,) that a fitted model has chosen."""
        pairs = zip(self.columns, transforms, strict=True)
        return replace(self, columns=tuple(replace(column, transform=name) for column, name in pairs))

    def to_json(self) -> dict[str, Any]:
        """Return the schema as values that JSON has; columns without a transform do not mention it."""
        columns = [asdict(column) | {"name": _name_to_json(column.name)} for column in self.columns]
        for column in columns:
            column["levels"] = None if column["levels"] is None else list(column["levels"])
            if column["transform"] is None:
                del column["transform"]
        return {"library": self.library, "columns": columns}

    @classmethod
    def from_json(cls, obj: Any) -> Schema:
        """Return the schema that `to_json` has described."""
        try:
            columns = tuple(_column_from_json(**column) for column in obj["columns"])
            library = obj["library"]
        except (KeyError, TypeError) as error:
            raise ModelFileError(f"The description of the columns is damaged: {error}.") from error
        if not isinstance(library, str) or library not in _LIBRARIES:
            raise ModelFileError(f"The columns are those of a frame of {library!r}, which is not known.")
        return cls(columns, library)

    def __repr__(self) -> str:
        rows = [_HEADER, *self.summary()[:_MOST_COLUMNS_SHOWN]]
        widths = [max(map(len, parts)) for parts in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, *self._rest()])

    def _repr_html_(self) -> str:
        head, *body = (
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            for tag, row in [("th", _HEADER), *(("td", row) for row in self.summary()[:_MOST_COLUMNS_SHOWN])]
        )
        rows = "".join(f"<tr>{row}</tr>" for row in body)
        rest = "".join(f"<p>{line}</p>" for line in self._rest())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"

    def _rest(self) -> list[str]:
        more = len(self.columns) - _MOST_COLUMNS_SHOWN
        return [f"and {more} more columns"] if more > 0 else []

    def _found(self, names: Sequence[Any]) -> Iterator[tuple[Column, int]]:
        """Yield the columns and their places in a frame that has columns of these names."""
        known = {column.name for column in self.columns}
        _refuse_repeated([name for name in names if name in known])
        places = {name: place for place, name in enumerate(names)}
        missing = [column.name for column in self.columns if column.name not in places]
        if missing:
            texts = [name for name in names if isinstance(name, str)]
            raise DataError(
                f"The frame has no column {listed(missing)}{name_like(str(missing[0]), texts)}, to which the "
                f"model was fitted ({len(missing)} of {len(self.columns)} are missing). Give all of them, "
                "with missing entries where they were not observed."
            )
        return ((column, places[column.name]) for column in self.columns)

    def _filled(self, values: FloatArray, like: Any) -> Any:
        library = _library_of(like)
        if library.n_rows(like) != len(values):
            raise ValueError(f"values have {len(values)} rows, but the frame has {library.n_rows(like)}.")
        changed = {}
        for index, (column, place) in enumerate(self._found(library.names(like))):
            old = library.column(like, place)
            new = _filled_column(library, old, values[:, index], column, _Label(place, column.name))
            if new is not None:
                changed[place] = new
        return library.with_columns(like, changed)

    def _new(self, values: FloatArray) -> Any:
        if np.isnan(values).any():
            raise ValueError("values have NaN: a new frame has no missing entries.")
        library = _LIBRARIES[self.library]
        parts = [
            library.new(column, _new_fills(column, values[:, index]), column.dtype)
            for index, column in enumerate(self.columns)
        ]
        return library.frame([column.name for column in self.columns], parts)


_HEADER = ("column", "type", "taken as", "levels")


def level_frame(column: Column, probabilities: FloatArray, like: Any) -> Any:
    """Return numbers (n, K) for the levels of a column, as a frame of the library of `like` with its index.

    Its columns have the levels as texts for names; codes 0, 1, ... for a column that has no levels. A column
    with one level only has a second code in the model, which is left out.
    """
    values = np.asarray(probabilities, np.float64)
    names = column.level_names or tuple(str(code) for code in range(values.shape[1]))
    values = values[:, :1] if len(names) == 1 else values
    if values.shape[1] != len(names):
        raise ValueError(
            f"Column {column.name!r} has {len(names)} levels, but there are {values.shape[1]} numbers a row."
        )
    return _library_of(like).floats(names, values, like)


# ---- what a column is ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """Hold the likelihood that a user has chosen; `has_codes` if it brings the codes of its levels."""

    likelihood: str
    has_codes: bool


def _choices(given: Mapping[Any, Any], names: Sequence[Any]) -> dict[int, _Given]:
    """Return the likelihoods that are given, by the places of their columns."""
    choices: dict[int, _Given] = {}
    place_of = {name: place for place, name in enumerate(names)}
    for key, value in given.items():
        for place in _places(key, place_of):
            if place in choices:
                raise ValueError(f"Two likelihoods are given for {describe(place, names)}.")
            choices[place] = _as_given(value)
    return choices


def _places(key: Any, place_of: Mapping[Any, int]) -> list[int]:
    """Return the columns that a key names: a name, an index, or a tuple of them."""
    if isinstance(key, int | np.integer):
        # an index, as in the parameter `likelihood`, also where names are numbers
        if not isinstance(key, bool) and 0 <= key < len(place_of):
            return [int(key)]
    elif key in place_of:
        return [place_of[key]]
    elif isinstance(key, tuple):
        return [place for part in key for place in _places(part, place_of)]
    if isinstance(key, str):
        hint = name_like(key, [name for name in place_of if isinstance(name, str)])
        raise ValueError(f"A likelihood is given for column {key!r}, which the frame does not have{hint}.")
    raise ValueError(
        f"A likelihood is given for {key!r}: give a column's name, its index from 0 to {len(place_of) - 1}, "
        "or a tuple of them."
    )


def _as_given(value: Any) -> _Given:
    if isinstance(value, Likelihood):
        fields = ("n_levels", "levels", "n_categories")
        return _Given(value.name, any(getattr(value, field, None) is not None for field in fields))
    name = standard_name(value)
    name = _LIKELIHOOD_OF_KIND.get(name, name) if isinstance(name, str) else name
    if name not in LIKELIHOODS:
        as_likelihood(value)  # refuses it, with a list of what there is
    return _Given(name, False)


def _described(library: _Library, part: Any, label: _Label, n_rows: int, given: _Given | None) -> Column:
    """Return the description of a training column."""
    entries = library.read(part, label)
    if entries.is_missing().all():
        raise DataError(
            f"{label} has no observed entry. Drop it, {library.drop(label.name)}: nothing can be learned "
            "about it."
        )
    if given is None:
        entries.refuse_mixture(label)
        kind = entries.kind()
        levels = None if kind == "continuous" else entries.levels()
        if entries.form in _FORMS_OF_TEXT:
            _refuse_identifiers(library, entries, levels or (), label, n_rows)
        likelihood = _LIKELIHOOD_OF_KIND[kind]
    else:
        likelihood = given.likelihood
        kind = _KIND_OF_LIKELIHOOD.get(likelihood, "continuous")
        levels = _given_levels(entries, given, label)
    fills_levels = entries.form != "float" or likelihood == "categorical"
    return Column(_plain_name(label.name), kind, likelihood, levels, library.dtype(part), fills_levels)


def _given_levels(entries: _Entries, given: _Given, label: _Label) -> tuple[Any, ...] | None:
    """Return the levels of a column whose likelihood the user has chosen, None if it has none."""
    kind = _KIND_OF_LIKELIHOOD.get(given.likelihood, "continuous")
    if kind == "continuous" or (given.has_codes and isinstance(entries, _Numbers)):
        entries.numbers(label)  # refuses texts
        return None
    entries.refuse_mixture(label)
    levels = entries.levels()
    if kind == "binary" and levels in ((0,), (1,)):
        return tuple(type(levels[0])(code) for code in (0, 1))  # a constant column of binary data
    fewest, most = {"binary": (2, 2), "ordinal": (2, np.inf)}.get(kind, (1, np.inf))
    if not fewest <= len(levels) <= most:
        raise DataError(
            f"{label} has {len(levels)} different values, {_some(levels)}, but {given.likelihood!r} needs "
            f"{'exactly' if most == 2 else 'at least'} two. Choose another likelihood for it, or drop it."
        )
    return levels


def _refuse_identifiers(
    library: _Library, entries: _Entries, levels: tuple[Any, ...], label: _Label, n_rows: int
) -> None:
    """Refuse texts that differ from row to row, or nearly so: nothing can be learned about their levels."""
    n_levels, n_observed = len(levels), int((~entries.is_missing()).sum())
    often = n_levels == n_observed or 2 * n_levels > n_rows
    if n_levels <= _MOST_LEVELS and not (n_levels > _MOST_ORDINAL and often):
        return
    hint = ""
    if sum(map(_is_number_text, levels)) > n_levels / 2:
        hint = (
            " Most of them are numbers: turn the column into numbers, with missing entries where a text is "
            "none."
        )
    raise DataError(
        f"{label} has {n_levels} different texts or categories, {_some(levels)}, in {n_observed} observed "
        f"entries: it looks like free text or an identifier.{hint} Drop it, {library.drop(label.name)}, or "
        f"merge its levels into at most {_MOST_LEVELS}. {library.keep(label.name)}"
    )


def _is_number_text(text: Any) -> bool:
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True


def _refuse_repeated(names: Sequence[Any]) -> None:
    twice = repeated(names)
    if twice:
        raise DataError(
            f"Several columns have the name {listed(twice)}. Give every column a name of its own: columns "
            "are found by their names."
        )


# ---- numbers of the model --------------------------------------------------------------------------


def _encoded(
    column: Column, entries: _Entries, label: _Label, unknown_levels: str, remedy: str
) -> FloatArray:
    """Return a column as floats: codes of its levels, or numbers as they are."""
    if column.levels is None:
        return entries.numbers(label)
    codes = entries.codes(column.levels)
    is_unknown = codes < 0.0
    if is_unknown.any():
        if unknown_levels == "error":
            row = int(is_unknown.argmax())
            raise DataError(
                f"{label} has the level {reprlib.repr(entries.entry(row))} at row {row}, which the training "
                f"data did not have: there the levels are {_some(column.levels)}. Correct the entry, or "
                f"{remedy} to take such entries as missing."
            )
        codes[is_unknown] = np.nan
    return codes


def _filled_column(library: _Library, part: Any, values: FloatArray, column: Column, label: _Label) -> Any:
    """Return a column with its missing entries filled, or None if nothing is to be filled."""
    entries = library.read(part, label)
    missing = entries.is_missing()
    mask = missing & ~np.isnan(values)
    if not mask.any():
        return None
    is_suitable = entries.form != "empty" and entries.has_texts == column.has_texts
    if is_suitable or library.holds_anything(part):
        return library.fill(part, mask, _fills(column, values[mask], entries.form), column, label)
    if not missing.all():
        raise DataError(
            f"{label} is of type {library.dtype(part)}, which cannot hold what the training column has "
            f"({column.dtype}). Give it the type of the training column."
        )
    # a column without an entry often has a type by default, and nothing that was observed is lost
    return library.new(column, _new_fills(column, values), column.dtype) if mask.all() else None


def _fills(column: Column, values: FloatArray, form: str) -> np.ndarray:
    """Return what stands in the place of missing entries of a column of some form, for values of the model:
    levels as objects, or floats."""
    if column.levels is None:
        return np.rint(values) if column.fills_levels else values
    if column.fills_levels or form in _FORMS_OF_LEVELS:
        codes = np.clip(np.rint(values), 0, len(column.levels) - 1).astype(int)
        return _objects(column.levels)[codes]
    return np.interp(values, np.arange(len(column.levels)), np.array(column.levels, float))


def _new_fills(column: Column, values: FloatArray) -> np.ndarray:
    """Return the entries of a column that is made anew."""
    return _fills(column, values, "float")


# ---- names and levels ------------------------------------------------------------------------------


def _plain_name(name: Any) -> Any:
    """Return a name of a column with Python scalars in the place of those of NumPy, which are equal."""
    if isinstance(name, tuple):
        return tuple(_plain_name(part) for part in name)
    return name.item() if isinstance(name, np.generic) else name


def _level_name(level: Any) -> str:
    is_whole = isinstance(level, float) and level.is_integer()
    return str(int(level)) if is_whole else str(level)


def _some(levels: tuple[Any, ...]) -> str:
    """Return the first few levels for a message."""
    shown = ", ".join(reprlib.repr(level) for level in levels[:_MOST_LEVELS_SHOWN])
    return f"{shown}, ..." if len(levels) > _MOST_LEVELS_SHOWN else shown


def _shown_levels(column: Column) -> str:
    names = column.level_names
    if len(names) <= _MOST_LEVELS_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_LEVELS_SHOWN - 1])}, ... ({len(names)})"


def _name_to_json(name: Any) -> Any:
    """Return a name as JSON has it: tuples, the names of levels of columns, as lists."""
    if isinstance(name, tuple):
        return [_name_to_json(part) for part in name]
    if name is None or type(name) in _PLAIN_TYPES:
        return name
    raise ModelFileError(
        f"The name {name!r} of a column is a {type(name).__name__}, which cannot be saved. Give the columns "
        "texts for names before the fit."
    )


def _name_from_json(name: Any) -> Any:
    """Return a name, or raise a TypeError."""
    if isinstance(name, list):
        return tuple(_name_from_json(part) for part in name)
    if name is not None and type(name) not in _PLAIN_TYPES:
        raise TypeError(f"{reprlib.repr(name)} is not a name of a column")
    return name


def _column_from_json(
    *,
    name: Any,
    kind: Any,
    likelihood: Any,
    levels: Any,
    dtype: Any,
    fills_levels: Any,
    transform: Any = None,
) -> Column:
    """Return a column, or raise a TypeError."""
    plain = levels is None or (isinstance(levels, list) and all(map(_can_be_level, levels)))
    texts = all(isinstance(text, str) for text in (kind, likelihood, dtype, transform or ""))
    if not (plain and texts and kind in _LIKELIHOOD_OF_KIND and isinstance(fills_levels, bool)):
        raise TypeError(f"that of column {name!r} has a value that is not possible")
    if likelihood not in LIKELIHOODS:
        raise TypeError(f"of column {name!r}, the likelihood {likelihood!r} is not known")
    levels = None if levels is None else tuple(levels)
    return Column(_name_from_json(name), kind, likelihood, levels, dtype, fills_levels, transform)


def _can_be_level(value: Any) -> bool:
    return type(value) in _PLAIN_TYPES and not (isinstance(value, float) and math.isnan(value))
