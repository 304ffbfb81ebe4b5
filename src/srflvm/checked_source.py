"""A source that refuses what cannot be used as soon as it is read."""

from __future__ import annotations

import numpy as np

from srflvm import _entry_checks as entry
from srflvm._types import FloatArray
from srflvm.sources import Source


class CheckedSource:
    """A source of the user's: infinity and numbers whose squares overflow are refused by row and column,
    holes are noted.

    When all rows have been read in order for the first time, columns without an entry are refused
    (`fitting`) and rows without one are warned of. `mapped` says that the user gave a memory map, which is an
    array too.
    """

    def __init__(self, source: Source, names: np.ndarray | None, *, fitting: bool, mapped: bool):
        self._source, self._names, self._fitting = source, names, fitting
        self.mapped = mapped
        self.has_missing = False
        self._n_seen = 0
        self._observed = np.zeros(source.n_columns, bool)
        self._empty_rows: list[int] = []

    @property
    def n_rows(self) -> int:
        return self._source.n_rows

    @property
    def n_columns(self) -> int:
        return self._source.n_columns

    def read(self, start: int, stop: int) -> FloatArray:
        values = self._source.read(start, stop)
        self._check(values, np.arange(start, stop))
        if start <= self._n_seen < stop:
            self._note(values[self._n_seen - start :])
            self._n_seen = stop
            if stop == self.n_rows:
                self._conclude()
        return values

    def take(self, index: np.ndarray) -> FloatArray:
        values = self._source.take(index)
        self._check(values, index)
        return values

    def _check(self, values: FloatArray, rows: np.ndarray) -> None:
        entry.refuse_extremes(values, self._names, rows)
        self.has_missing = self.has_missing or bool(np.isnan(values).any())

    def _note(self, values: FloatArray) -> None:
        """Which columns have entries and which rows have none, in rows that are read for the first time."""
        holes = np.isnan(values)
        self._observed |= ~holes.all(axis=0)
        self._empty_rows.extend((self._n_seen + np.flatnonzero(holes.all(axis=1))).tolist())

    def _conclude(self) -> None:
        if self._fitting:
            entry.refuse_empty_columns(~self._observed, self._names)
        entry.warn_of_empty_rows(self._empty_rows)
