"""Where the rows of Y come from: an array in memory, or something that is read a piece at a time.

A fit that only asks a source for some rows at a time never holds Y as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from srflvm._types import FloatArray

# Entries read at a time: 32 MB in float64.
_ENTRIES_AT_ONCE = 4_000_000


class Source(Protocol):
    """Rows of an N x M table of floats, NaN where an entry is missing."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_columns(self) -> int: ...

    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start, ..., stop - 1, dense (stop - start, M)."""
        ...

    def take(self, index: np.ndarray) -> FloatArray:
        """The rows of a sorted index without repeats, dense (len(index), M)."""
        ...


@dataclass(frozen=True)
class ArraySource:
    """An array in memory."""

    Y: FloatArray

    @property
    def n_rows(self) -> int:
        return self.Y.shape[0]

    @property
    def n_columns(self) -> int:
        return self.Y.shape[1]

    def read(self, start: int, stop: int) -> FloatArray:
        return self.Y[start:stop]

    def take(self, index: np.ndarray) -> FloatArray:
        return self.Y[index]


def pieces(source: Source, start: int = 0, stop: int | None = None) -> Iterator[tuple[slice, FloatArray]]:
    """The rows start, ..., stop - 1 of a source, some at a time, each piece with where it lies."""
    stop = source.n_rows if stop is None else stop
    size = max(1, _ENTRIES_AT_ONCE // source.n_columns)
    for first in range(start, stop, size):
        last = min(first + size, stop)
        yield slice(first, last), source.read(first, last)
