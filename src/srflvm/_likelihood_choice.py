"""From the parameter `likelihood` to likelihoods and the columns of each, with errors that name the
column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.likelihoods import LIKELIHOODS, Gaussian, Likelihood, Multinomial, standard_name
from srflvm.sites import ROUTES

INFERENCES = ("auto", *ROUTES, "gradient")

Choice = list[tuple[Likelihood, np.ndarray]]


def as_likelihood(value: Any) -> Likelihood:
    """A likelihood from its name or itself."""
    if isinstance(value, Likelihood):
        return value
    name = standard_name(value)
    if isinstance(name, str) and name in LIKELIHOODS:
        return _made_by_name(name)
    listed = ", ".join(repr(name) for name in LIKELIHOODS)
    raise ValueError(
        f"likelihood={value!r} is not known. Choose one of {listed}, an instance of a class of "
        "srflvm.likelihoods, or a mapping from columns to these."
    )


def _made_by_name(name: str) -> Likelihood:
    try:
        return LIKELIHOODS[name]()
    except TypeError:
        class_name = LIKELIHOODS[name].__name__
        raise ValueError(
            f"likelihood={name!r} has parameters that must be given: "
            f"use srflvm.likelihoods.{class_name}(...)."
        ) from None


def check_likelihood(value: Any) -> None:
    """All that can be judged without data."""
    for single in value.values() if isinstance(value, Mapping) else [value]:
        as_likelihood(single)


def choose(value: Any, n_columns: int, names: Sequence[str] | None) -> Choice:
    """Likelihoods and their columns, in the order of the columns; every column exactly once."""
    if not isinstance(value, Mapping):
        return [(as_likelihood(value), np.arange(n_columns))]
    groups: dict[Any, tuple[Likelihood, list[int]]] = {}
    owner: dict[int, Any] = {}
    places = _places(names)
    for key, single in value.items():
        likelihood = as_likelihood(single)
        for column in _columns(key, n_columns, places):
            if column in owner:
                raise ValueError(
                    f"likelihood has {describe(column, names)} under both {owner[column]!r} and {key!r}."
                )
            owner[column] = key
            together = key if _is_for_its_columns_alone(likelihood) else likelihood
            groups.setdefault(together, (likelihood, []))[1].append(column)
    for column in range(n_columns):
        if column not in owner:
            raise ValueError(f"likelihood says nothing about {describe(column, names)}: give it one.")
    chosen = [
        (likelihood, np.array(_in_order(likelihood, columns))) for likelihood, columns in groups.values()
    ]
    return sorted(chosen, key=lambda pair: min(pair[1]))


def _has_numbers_by_column(likelihood: Likelihood) -> bool:
    names = ("n_trials", "n_categories", "levels")
    return any(isinstance(getattr(likelihood, name, None), tuple) for name in names)


def _is_for_its_columns_alone(likelihood: Likelihood) -> bool:
    """Whether columns of other keys may not join it, even under an equal likelihood."""
    return isinstance(likelihood, Multinomial) or _has_numbers_by_column(likelihood)


def _in_order(likelihood: Likelihood, columns: list[int]) -> list[int]:
    """As in Y, or as they were given if the likelihood has a number for each."""
    return columns if _has_numbers_by_column(likelihood) else sorted(columns)


def _places(names: Sequence[str] | None) -> dict[str, list[int]]:
    """Where each name is found."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(() if names is None else names):
        places.setdefault(name, []).append(place)
    return places


def _columns(key: Any, n_columns: int, places: Mapping[str, list[int]]) -> list[int]:
    """The columns that a key of the mapping names: a name, an index, or a tuple of them."""
    if isinstance(key, tuple):
        return [column for part in key for column in _columns(part, n_columns, places)]
    if isinstance(key, str):
        if key not in places:
            raise ValueError(f"likelihood names column {key!r}, which Y does not have.")
        if len(places[key]) > 1:
            raise ValueError(
                f"likelihood names column {key!r}, but {len(places[key])} columns of Y have that name "
                f"({', '.join(map(str, places[key][:5]))}). Give every column a name of its own (of an "
                "AnnData object with adata.var_names_make_unique()), or name columns by their indices."
            )
        return places[key]
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= key < n_columns:
        return [int(key)]
    raise ValueError(
        f"likelihood has the key {key!r}: give a column's name, its index from 0 to {n_columns - 1}, "
        "or a tuple of them."
    )


def describe(column: int, names: Sequence[str] | None) -> str:
    """How messages speak of a column."""
    return f"column {column}" if names is None else f"column {column} ({names[column]!r})"


def is_plain_gaussian(choice: Choice) -> bool:
    """Whether the shared regression applies: all columns Gaussian with one noise."""
    return len(choice) == 1 and choice[0][0] == Gaussian()


def check_columns(choice: Choice, Y: FloatArray, names: Sequence[str] | None, first_row: int = 0) -> None:
    """Every group's entries are such as its likelihood can produce; Y are the rows from `first_row` on."""
    for likelihood, columns in choice:
        try:
            likelihood.check(Y[:, columns], [describe(int(column), names) for column in columns])
        except DataError as error:
            if first_row == 0:
                raise
            raise DataError(f"{error} (Rows are counted from row {first_row} of Y.)") from error


def choose_route(inference: str, choice: Choice) -> str:
    """The route for these likelihoods, "auto" resolved."""
    if inference == "auto":
        return "sites"
    if inference.startswith("polya_gamma"):
        for likelihood, _ in choice:
            if not likelihood.has_polya_gamma:
                raise ValueError(
                    f"inference={inference!r} needs likelihoods with a Pólya-gamma form, which "
                    f"{likelihood.name!r} has not. Use inference='sites'."
                )
    return inference
