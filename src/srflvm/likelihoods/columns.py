"""Likelihoods by name, and the groups of columns that the parameter `likelihood` describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError
from srflvm.likelihoods.base import Likelihood
from srflvm.likelihoods.counts import NegativeBinomial, Poisson
from srflvm.likelihoods.gaussian import Gaussian
from srflvm.likelihoods.ordinal import Ordinal
from srflvm.likelihoods.student_t import StudentT
from srflvm.likelihoods.trials import Bernoulli, Binomial, Categorical, Multinomial

_NAMED = (
    Gaussian,
    Bernoulli,
    Binomial,
    NegativeBinomial,
    Poisson,
    StudentT,
    Ordinal,
    Categorical,
    Multinomial,
)

LIKELIHOODS: dict[str, type[Likelihood]] = {kind.name: kind for kind in _NAMED}

# Ways to approximate likelihoods that are not Gaussian, and all values of the parameter `inference`.
ROUTES = ("sites", "polya_gamma", "polya_gamma_sampled")
INFERENCES = ("auto", "shared_basis", *ROUTES, "gradient")


# The likelihood for which all columns share one regression, and that of numbers in units of their own.
_PLAIN = Gaussian()
OWN_UNITS = Gaussian(noise="column", scale="column", transform="auto")

# The value of the parameter `likelihood` that leaves the choice to the data.
AUTO = "auto"


class Choice(tuple[tuple[Likelihood, np.ndarray], ...]):
    """Likelihoods and the columns of each, in the order of the columns; every column exactly once."""

    @property
    def is_plain_gaussian(self) -> bool:
        """Tell whether the shared regression applies: all columns are Gaussian with one noise."""
        return len(self) == 1 and self[0][0] == _PLAIN

    @property
    def is_table(self) -> bool:
        """Tell whether columns are of several kinds, or in units of their own."""
        return len(self) > 1 or (not self.is_plain_gaussian and self[0][0].has_own_units)

    def check(self, Y: FloatArray, names: Sequence[str] | None, first_row: int = 0) -> None:
        """Refuse entries that their likelihoods cannot produce; Y are the rows from `first_row` on."""
        for likelihood, columns in self:
            try:
                likelihood.check(Y[:, columns], [describe(int(column), names) for column in columns])
            except DataError as error:
                if first_row == 0:
                    raise
                raise DataError(f"{error} (Rows are counted from row {first_row} of Y.)") from error

    def route(self, inference: str) -> str:
        """Return the route of inference for these likelihoods, with "auto" resolved."""
        if inference == "auto":
            return "sites"
        if inference.startswith("polya_gamma"):
            for likelihood, _ in self:
                if not likelihood.has_polya_gamma:
                    raise ValueError(
                        f"inference={inference!r} needs likelihoods with a Pólya-gamma form, and "
                        f"{likelihood.name!r} has none. Use inference='sites'."
                    )
        return inference


def choose(
    value: Any,
    n_columns: int,
    names: Sequence[str] | None,
    automatic: Sequence[Likelihood | str] | None = None,
) -> Choice:
    """Return the likelihoods and their columns that the parameter `likelihood` describes.

    `automatic` are those of columns for which it says "auto" or nothing; the plain Gaussian if not given.
    """
    if not isinstance(value, Mapping):
        different = set(automatic or [_PLAIN]) if standard_name(value) == AUTO else ()
        if len(different) <= 1:
            single = value if not different else different.pop()
            return Choice([(as_likelihood(single), np.arange(n_columns))])
        value = {}
    left = dict(enumerate([_PLAIN] * n_columns if automatic is None else automatic))
    groups: dict[Any, tuple[Likelihood, list[int]]] = {}
    owner: dict[int, Any] = {}
    places = _places(names)
    for key, single in value.items():
        if standard_name(single) == AUTO:
            continue
        likelihood = as_likelihood(single)
        for column in _columns(key, n_columns, places):
            if column in owner:
                raise ValueError(
                    f"likelihood has {describe(column, names)} under both {owner[column]!r} and {key!r}."
                )
            owner[column] = key
            together = key if _is_for_its_columns_alone(likelihood) else likelihood
            groups.setdefault(together, (likelihood, []))[1].append(column)
    for column, single in left.items():
        if column not in owner:
            likelihood = as_likelihood(single)
            groups.setdefault(likelihood, (likelihood, []))[1].append(column)
    chosen = [
        (likelihood, np.array(_in_order(likelihood, columns))) for likelihood, columns in groups.values()
    ]
    return Choice(sorted(chosen, key=lambda pair: min(pair[1])))


def check_likelihood(value: Any) -> None:
    """Refuse a parameter `likelihood` that no data can make valid."""
    for single in value.values() if isinstance(value, Mapping) else [value]:
        if standard_name(single) != AUTO:
            as_likelihood(single)


def as_likelihood(value: Any) -> Likelihood:
    """Return the likelihood of a name, or a likelihood itself."""
    if isinstance(value, Likelihood):
        return value
    name = standard_name(value)
    if isinstance(name, str) and name in LIKELIHOODS:
        return _made_by_name(name)
    listed = ", ".join(repr(name) for name in LIKELIHOODS)
    raise ValueError(
        f"likelihood={value!r} is not known. Choose 'auto', one of {listed}, an instance of a class of "
        "srflvm.likelihoods, or a mapping from columns to these."
    )


def standard_name(name: Any) -> Any:
    """Return the key of `LIKELIHOODS` that a user means: "Negative-Binomial" is "negative_binomial".

    A value that is not a text is returned as it is.
    """
    return name.strip().lower().replace("-", "_") if isinstance(name, str) else name


def describe(column: int, names: Sequence[str] | None) -> str:
    """Return the text by which messages name a column."""
    return f"column {column}" if names is None else f"column {column} ({names[column]!r})"


@lru_cache
def _made_by_name(name: str) -> Likelihood:
    """Return the likelihood with its defaults; it is immutable, so one of each is enough."""
    try:
        return LIKELIHOODS[name]()
    except TypeError:
        class_name = LIKELIHOODS[name].__name__
        raise ValueError(
            f"likelihood={name!r} has parameters that must be given: "
            f"use srflvm.likelihoods.{class_name}(...)."
        ) from None


def _is_for_its_columns_alone(likelihood: Likelihood) -> bool:
    """Tell whether columns of other keys may not join it, even under an equal likelihood."""
    return likelihood.columns_are_one_vector or likelihood.has_numbers_by_column


def _in_order(likelihood: Likelihood, columns: list[int]) -> list[int]:
    """Return columns in the order of Y, or as they were given if the likelihood has a number for each."""
    return columns if likelihood.has_numbers_by_column else sorted(columns)


def _places(names: Sequence[str] | None) -> dict[str, list[int]]:
    """Return the columns that have each name."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(() if names is None else names):
        places.setdefault(name, []).append(place)
    return places


def _columns(key: Any, n_columns: int, places: Mapping[str, list[int]]) -> list[int]:
    """Return the columns that a key of the mapping names: a name, an index, or a tuple of them."""
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
