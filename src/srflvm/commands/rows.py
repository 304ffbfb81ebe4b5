"""Rows of a file as a fitted model takes them: the columns of the fit, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.commands.speaking import Speaker
from srflvm.exceptions import DataError
from srflvm.named import MOST_LISTED, NamedTable, places_of
from srflvm.sources import ArrangedSource, ArraySource, Source, pieces
from srflvm.tables import Reading, Table, check_known, open_table


def open_rows(data: Path, how: Reading, speaker: Speaker, model: Any = None) -> Table:
    """The table in a file, with a word on what may have been taken wrongly. Columns that a model does not
    know need not be numbers."""
    known = getattr(model, "feature_names_in_", None)
    table = open_table(data, replace(how, known=None if known is None else tuple(known)))
    for line in table.warnings:
        speaker.warn(line)
    return table


def order_of_columns(model: Any, table: Table, speaker: Speaker) -> np.ndarray:
    """Where in the table the columns of the model are, by name if both have names; others are ignored."""
    known, own = getattr(model, "feature_names_in_", None), table.columns
    if known is None or own is None:
        _check_number(model, table)
        if known is not None:
            speaker.note("The columns have no names: they are taken in the order of the model.")
        return np.arange(table.shape[1])
    check_known(known, [*own, *table.ignored])
    in_model = set(known)
    _tell_ignored([*table.ignored, *(name for name in own if name not in in_model)], speaker)
    order = places_of(known, own)
    if np.any(np.diff(order) < 0):
        speaker.note("The columns are in another order than in the fit: they are taken by name.")
    return order


def arranged(model: Any, table: Table, order: np.ndarray) -> Any:
    """The rows as the model takes them."""
    names = getattr(model, "feature_names_in_", None)
    if isinstance(table.rows, ArraySource):
        values = table.rows.Y[:, order]
        return values if names is None else NamedTable(values, list(names))
    return ArrangedSource(table.rows, order, None if names is None else list(names))


def back_in_order(values: FloatArray, order: np.ndarray, n_columns: int) -> FloatArray:
    """Columns of the model, (n, M), where they are in a table of `n_columns`; NaN in the others."""
    placed = np.full((len(values), n_columns), np.nan, values.dtype)
    placed[:, order] = values
    return placed


def n_observed(rows: Source) -> np.ndarray:
    """How many entries of each row are observed."""
    return np.concatenate([np.isfinite(piece).sum(axis=1) for _, piece in pieces(rows)])


def _check_number(model: Any, table: Table) -> None:
    if table.shape[1] != model.n_features_in_:
        raise DataError(
            f"The table has {table.shape[1]} columns, but the model was fitted to {model.n_features_in_}."
        )


def _tell_ignored(names: Sequence[str], speaker: Speaker) -> None:
    if not names:
        return
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    speaker.warn(
        f"ignored {len(names)} column{'' if len(names) == 1 else 's'} that the model does not know: "
        f"{', '.join(name or '(no name)' for name in names[:MOST_LISTED])}{more}"
    )
