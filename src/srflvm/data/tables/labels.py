"""Labels of rows, in a column of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.data.sources import listed
from srflvm.data.tables.table import parse_numbers
from srflvm.exceptions import DataError


@dataclass(frozen=True)
class LabelColumns:
    """Columns of a file that may hold labels: their number, how to read one, and their names, if any."""

    path: Path
    n_columns: int
    read_column: Callable[[int], Any]
    names: Sequence[str] | None = None

    def read_labels(self, column: str | None) -> np.ndarray:
        """Read the labels of a column; None is the only column, or the one after row ids."""
        found = self.read_column(self._position(column))
        return found if isinstance(found, np.ndarray) else _as_labels(found)

    def _position(self, column: str | None) -> int:
        if self.n_columns == 0:
            raise DataError(f"{self.path} has no columns. Give a file with a column of labels.")
        if column is None:
            if self.n_columns > 2:
                raise DataError(
                    f"{self.path} has {self.n_columns} columns. Name the one of labels with --label-column."
                )
            return self.n_columns - 1
        if self.names is None or column not in self.names:
            have = "whose columns have no names" if self.names is None else f"which has {listed(self.names)}"
            raise DataError(f"There is no column {column!r} in {self.path}, {have}.")
        return list(self.names).index(column)


def _as_labels(values: Sequence[Any]) -> np.ndarray:
    try:
        return np.array([parse_numbers([v])[0] if isinstance(v, str) else float(v) for v in values])
    except (TypeError, ValueError):
        return np.array([str(value) for value in values])
