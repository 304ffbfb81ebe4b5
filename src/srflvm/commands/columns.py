"""What columns are taken for: likelihoods as they are written on the command line, and what is said of a
table before it is fitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from srflvm._likelihood_choice import as_likelihood, choose
from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.likelihoods import LIKELIHOODS, Gaussian, Likelihood, standard_name
from srflvm.named import like, listed
from srflvm.sources import rows_at_once
from srflvm.tables import Table

# What may follow a colon.
_ARGUMENTS: dict[str, tuple[str, Any]] = {
    "gaussian": ("noise", str),
    "student_t": ("degrees_of_freedom", float),
    "binomial": ("n_trials", int),
    "ordinal": ("n_levels", int),
}


def likelihood_from(text: str) -> Likelihood:
    """A likelihood as a user writes it: negative-binomial, binomial:10, gaussian:column."""
    written, colon, argument = text.strip().partition(":")
    name = standard_name(written)
    if not colon or name not in LIKELIHOODS:
        return as_likelihood(name)
    if name not in _ARGUMENTS:
        raise ValueError(f"{text!r}: the likelihood {name!r} takes nothing after a colon.")
    field, kind = _ARGUMENTS[name]
    try:
        return LIKELIHOODS[name](**{field: kind(argument)})
    except ValueError as error:
        raise ValueError(f"{text!r}: {argument!r} cannot be {field} of {name!r} ({error}).") from error


def choice_for(table: Table, default: str, by_column: Sequence[str]) -> Any:
    """The parameter `likelihood`: one for all columns, or a mapping if some columns have their own."""
    texts = [default] * table.shape[1]
    for text in by_column:
        name, equals, likelihood = text.rpartition("=")
        if not equals:
            raise ValueError(f"--column {text!r} is not of the form name=likelihood.")
        texts[_position(name, table)] = likelihood
    groups: dict[str, list[int]] = {}
    for position, text in enumerate(texts):
        groups.setdefault(text, []).append(position)
    if len(groups) == 1:
        return likelihood_from(texts[0])
    keys = range(table.shape[1]) if table.columns is None else table.columns
    return {tuple(keys[p] for p in some): likelihood_from(text) for text, some in groups.items()}


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


def first_rows(table: Table) -> FloatArray:
    """All rows that are in memory, or a first piece of those that are not."""
    return table.rows.read(0, min(table.shape[0], rows_at_once(table.shape[1])))


def lines_about(name: str, table: Table) -> Iterator[str]:
    """The size of a table and what was taken for what."""
    yield f"{name}: {table.shape[0]} rows, {table.shape[1]} columns"
    yield from (f"  {note}" for note in table.notes)
    seen = first_rows(table)
    where = "" if len(seen) == table.shape[0] else f" in the first {len(seen)} rows"
    yield f"  missing: {share_missing(seen):.1%} of the entries{where}"


def share_missing(values: FloatArray) -> float:
    """The share of entries that are NaN."""
    return float(np.isnan(values).mean()) if values.size else 0.0


def lines_about_likelihoods(table: Table, likelihood: Any) -> Iterator[str]:
    """Which columns have which likelihood."""
    for one, columns in choose(likelihood, table.shape[1], table.columns):
        which = "all columns" if len(columns) == table.shape[1] else _names(columns, table)
        yield f"  likelihood: {one.name} for {which}"


def warnings_about(table: Table, likelihood: Any) -> Iterator[str]:
    """What a user may have overlooked."""
    values = first_rows(table)
    for one, columns in choose(likelihood, table.shape[1], table.columns):
        if not isinstance(one, Gaussian):
            continue
        some = values[:, columns]
        whole = columns[_look_like_counts(some)]
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
