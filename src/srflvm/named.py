"""Tables and the names of their columns, where the two are not one data frame."""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srflvm.exceptions import DataError
from srflvm.sources import ArrangedSource, Source

MOST_LISTED = 5


@dataclass(frozen=True)
class NamedTable:
    """An array or a sparse matrix (N, M), and a name for each of its columns. With `by_name` a fitted model
    finds its columns by name, in any order and among others."""

    values: Any
    names: Sequence[str]
    by_name: bool = False

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)


def unpacked(Y: Any) -> Any:
    """An AnnData object as its matrix with the names of its variables, which is read in pieces if it is in a
    file; anything else as it is."""
    if not isinstance(Y, getattr(sys.modules.get("anndata"), "AnnData", ())):
        return Y
    from srflvm.anndata_source import table_of

    return table_of(Y)


def with_columns(table: Any, order: np.ndarray) -> NamedTable | Source:
    """Some columns of a table or a source that has names, in another order."""
    names = [table.names[place] for place in order]
    if isinstance(table, NamedTable):
        return NamedTable(table.values[:, order], names)
    return ArrangedSource(table, order, names)


def with_names_of(model: Any, Y: Any) -> Any:
    """Return the rows Y so that a fitted model takes them without a warning where only one of the two has
    names of columns; where both have names they are still compared."""
    Y = unpacked(Y)
    own, known = _names(Y), getattr(model, "feature_names_in_", None)
    names = known if own is None else own
    if names is None or (own is not None and known is not None):
        return Y
    _check_number(model, np.shape(Y)[-1])
    return NamedTable(Y, list(names))


def _names(Y: Any) -> list[str] | None:
    """Return the names of the columns; labels that are no texts are none, as in scikit-learn."""
    names = list(Y.names if isinstance(Y, NamedTable) else getattr(Y, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def take_names(estimator: Any, names: Sequence[str], *, reset: bool) -> None:
    """Give an estimator the names of the columns, or compare them with those that it has."""
    if reset:
        estimator.feature_names_in_ = np.array(names, dtype=object)
        estimator.n_features_in_ = len(names)
        return
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and list(names) != list(known):
        raise ValueError(f"The feature names should match those of the fit: {_difference(names, known)}.")
    _check_number(estimator, len(names))


def _check_number(estimator: Any, n_columns: int) -> None:
    if n_columns != estimator.n_features_in_:
        raise ValueError(
            f"Y has {n_columns} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )


def order_by_name(estimator: Any, table: Any) -> np.ndarray | None:
    """Where in a table whose columns are found by name those of a fitted model are; None if they are all of
    its columns in their order, or are not found by name."""
    known, names = getattr(estimator, "feature_names_in_", None), getattr(table, "names", None)
    if known is None or names is None or not getattr(table, "by_name", False) or list(names) == list(known):
        return None
    wanted, found = set(known), set(names)
    twice = [name for name in (*repeated(known), *repeated(names)) if name in wanted]
    if twice:
        raise DataError(
            "The variables of the AnnData object are not those of the fit, so they are to be found by name, "
            f"but several have the name {listed(twice)}. Make the names unique, here and before the fit, "
            "with adata.var_names_make_unique()."
        )
    missing = [name for name in known if name not in found]
    if missing:
        raise DataError(
            f"The AnnData object has no variable {listed(missing)}, to which the model was fitted "
            f"({len(missing)} of {len(known)} are missing). Give all of them, with NaN where they were not "
            "observed."
        )
    return places_of(known, names)


def places_of(known: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Where in `names`, which has all of them, the known names are."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[name] for name in known])


def repeated(names: Sequence[str]) -> list[str]:
    """Names that occur more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


def _difference(names: Sequence[str], known: Sequence[str]) -> str:
    now, before = set(names), set(known)
    parts = {
        "not seen there": [name for name in names if name not in before],
        "missing now": [name for name in known if name not in now],
    }
    return "; ".join(f"{what} {listed(some)}" for what, some in parts.items() if some) or "another order"


def listed(names: Sequence[str]) -> str:
    """Names for a message: the first few, and how many more there are."""
    first = ", ".join(repr(str(name)) for name in names[:MOST_LISTED])
    more = len(names) - MOST_LISTED
    return f"{first} and {more} more" if more > 0 else first


def like(name: str, others: Sequence[str]) -> str:
    """A hint at a name that may have been meant."""
    lower = {other.lower(): other for other in others}
    close = difflib.get_close_matches(name.lower(), lower, 1)
    return f" (there is {lower[close[0]]!r})" if close else ""
