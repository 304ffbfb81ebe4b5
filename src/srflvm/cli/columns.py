"""Columns of a table: their likelihoods as written on the command line, and notes before a fit."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from srflvm import parallel
from srflvm._typing import FloatArray
from srflvm.cli.output import Output
from srflvm.data.schema import Schema
from srflvm.data.sources import like, listed, rows_at_once
from srflvm.data.tables.table import Table
from srflvm.exceptions import DataError
from srflvm.likelihoods.base import Likelihood
from srflvm.likelihoods.columns import AUTO, LIKELIHOODS, as_likelihood, choose, standard_name
from srflvm.likelihoods.gaussian import Gaussian

# More columns than this are not listed one by one.
_MOST_LINES = 40

# Fewer rows than this may well have such numbers by chance.
_FEWEST_COUNTED = 10

# The parameter that may follow a colon, and its type.
_ARGUMENTS: dict[str, tuple[str, Any]] = {
    "gaussian": ("noise", str),
    "student_t": ("degrees_of_freedom", float),
    "binomial": ("n_trials", int),
    "ordinal": ("n_levels", int),
}


def parse_likelihood(text: str) -> Likelihood | str:
    """Parse a likelihood as users write it: auto, negative-binomial, binomial:10, gaussian:column."""
    written, colon, argument = text.strip().partition(":")
    name = standard_name(written)
    if name == AUTO and not colon:
        return AUTO
    if not colon or name not in LIKELIHOODS:
        return as_likelihood(name)
    if name not in _ARGUMENTS:
        raise ValueError(f"{text!r}: the likelihood {name!r} takes nothing after a colon.")
    field, kind = _ARGUMENTS[name]
    try:
        return LIKELIHOODS[name](**{field: kind(argument)})
    except ValueError as error:
        raise ValueError(f"{text!r}: {argument!r} cannot be {field} of {name!r} ({error}).") from error


def frame_options(default: str, by_column: Sequence[str]) -> dict[str, Any]:
    """Return how a table to fit is read: numbers with one likelihood for all are a matrix."""
    own = frozenset(_split(text)[0] for text in by_column)
    return {"frames": "small" if parse_likelihood(default) == AUTO else "texts", "mixed": own}


def choose_likelihoods(table: Table, default: str, by_column: Sequence[str]) -> Any:
    """Return the parameter `likelihood`: one for all columns, or a mapping if some columns have their own.

    A mapping leaves out the columns whose likelihood is chosen automatically.
    """
    texts = [default] * table.shape[1]
    for text in by_column:
        name, likelihood = _split(text)
        texts[_position(name, table)] = likelihood
    groups: dict[str, list[int]] = {}
    for position, text in enumerate(texts):
        groups.setdefault(text, []).append(position)
    if len(groups) == 1:
        return parse_likelihood(texts[0])
    keys = range(table.shape[1]) if table.columns is None else table.columns
    chosen = {tuple(keys[p] for p in some): parse_likelihood(text) for text, some in groups.items()}
    return {key: single for key, single in chosen.items() if single != AUTO} or AUTO


def _split(text: str) -> tuple[str, str]:
    name, equals, likelihood = text.rpartition("=")
    if not equals:
        raise ValueError(f"--column {text!r} is not of the form name=likelihood.")
    return name, likelihood


def _position(name: str, table: Table) -> int:
    if table.columns is not None:
        if name not in table.columns:
            hint = like(name, table.columns)
            raise DataError(f"--column names {name!r}, which is no column of the table{hint}.")
        return list(table.columns).index(name)
    if not name.isdigit() or int(name) >= table.shape[1]:
        raise DataError(
            f"--column names {name!r}, but the columns have no names: give a number from 0 to "
            f"{table.shape[1] - 1}."
        )
    return int(name)


def announce(name: str, table: Table, likelihood: Any, schema: Schema | None, output: Output) -> None:
    """Print the size of a table, how it was understood, what its columns are, and what may be wrong."""
    if not parallel.is_first():
        return
    if schema is not None:
        lines, doubts = column_lines(schema), _counting_columns(table)
        missing = 1.0 - float(table.count_observed().sum()) / max(1, table.shape[0] * table.shape[1])
        where = ""
    else:
        seen = _first_rows(table)
        lines, doubts = _notes_of_likelihoods(table, likelihood), _doubts(table, likelihood, seen)
        missing = float(np.isnan(seen).mean()) if seen.size else 0.0
        where = "" if len(seen) == table.shape[0] else f" in the first {len(seen)} rows"
    output.note(f"{name}: {table.shape[0]} rows, {table.shape[1]} columns")
    for line in (*table.notes, f"missing: {missing:.1%} of the entries{where}", *lines):
        output.note(f"  {line}")
    for line in (*table.warnings, *doubts):
        output.warn(line)


def column_lines(schema: Schema) -> list[str]:
    """Return lines that say what each column is taken as; with many columns, only how many of each kind."""
    if len(schema.columns) <= _MOST_LINES:
        return repr(schema).splitlines()
    kinds: dict[str, list[str]] = {}
    for name, _, taken_as, _ in schema.summary():
        kinds.setdefault(taken_as, []).append(name)
    return [
        f"{taken_as}: {len(names)} column{'' if len(names) == 1 else 's'}, {listed(names)}"
        for taken_as, names in kinds.items()
    ]


def column_facts(schema: Schema | None) -> list[dict[str, Any]] | None:
    """Return what each column is taken as, for programs."""
    if schema is None:
        return None
    return [
        {"name": str(column.name), "type": column.dtype, "taken_as": column.taken_as, "levels": column.levels}
        for column in schema.columns
    ]


def _counting_columns(table: Table) -> Iterator[str]:
    """Yield warnings of columns that count the rows, as identifiers do."""
    frame, n_rows = table.frame, table.shape[0]
    if frame is None or n_rows < _FEWEST_COUNTED:
        return
    for name, part in zip(frame.columns, frame.parts, strict=True):
        if part.has_texts:
            continue
        numbers = part.floats()
        if numbers[0] in (0.0, 1.0) and np.array_equal(numbers, numbers[0] + np.arange(n_rows)):
            yield (
                f"column {name!r} counts the rows, and is taken as data. If it names them, give --id-column "
                f"{shlex.quote(str(name))}."
            )


def _first_rows(table: Table) -> FloatArray:
    """Return all rows that are in memory, or a first piece of those that are not."""
    return table.rows.read(0, min(table.shape[0], rows_at_once(table.shape[1])))


def _notes_of_likelihoods(table: Table, likelihood: Any) -> Iterator[str]:
    for one, columns in choose(likelihood, table.shape[1], table.columns):
        which = "all columns" if len(columns) == table.shape[1] else _names(columns, table)
        yield f"likelihood: {one.name} for {which}"


def _doubts(table: Table, likelihood: Any, seen: FloatArray) -> Iterator[str]:
    """Yield warnings of whole numbers that are taken as Gaussian."""
    for one, columns in choose(likelihood, table.shape[1], table.columns):
        if not isinstance(one, Gaussian):
            continue
        whole = columns[_look_like_counts(seen[:, columns])]
        if whole.size:
            which = "all columns hold" if len(whole) == table.shape[1] else f"{_names(whole, table)} hold"
            yield (
                f"{which} whole numbers of zero or more, as counts and codes are, but are taken as gaussian. "
                "See --likelihood and --column (such as negative-binomial, poisson, bernoulli, categorical)."
            )


def _look_like_counts(values: FloatArray) -> np.ndarray:
    seen = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        natural = ~seen | ((values >= 0.0) & (np.floor(values) == values))
    return natural.all(axis=0) & seen.any(axis=0)


def _names(columns: np.ndarray, table: Table) -> str:
    if table.columns is None:
        return f"columns {', '.join(map(str, columns[:5]))}{' and more' if len(columns) > 5 else ''}"
    return listed([table.columns[int(c)] for c in columns])
