"""Columns of a file with numbers, truth values and texts, without a library for data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError

NUMBERS, TRUTH, TEXTS = "float64", "bool", "string"


class Part(Protocol):
    """Entries of one column, as they were read from a file."""

    @property
    def has_texts(self) -> bool:
        """Tell whether entries cannot be numbers."""
        ...

    def __len__(self) -> int: ...

    def is_missing(self) -> np.ndarray:
        """Tell of each entry whether it is missing."""
        ...

    def floats(self) -> FloatArray:
        """Return numbers, and truth values as 0 and 1, NaN where missing."""
        ...

    def texts(self) -> list[str | None]:
        """Return texts, None where missing."""
        ...

    def fields(self, write: Callable[[float], str]) -> list[str]:
        """Return what a text file has for the entries, nothing where missing; `write` does so for numbers."""
        ...


@dataclass(frozen=True)
class Entries:
    """Entries of one column: floats, NaN where missing, or texts, None where missing.

    `form` is "float64", "bool" or "string", as pandas and pyarrow name such columns; `words` are what stands
    for false and true in the file.
    """

    values: np.ndarray
    form: str = NUMBERS
    words: tuple[str, str] = ("false", "true")

    @classmethod
    def of(cls, values: Sequence[Any]) -> Entries:
        """Return entries of Python scalars, all of one kind; None is missing."""
        observed = [value for value in values if value is not None]
        if any(isinstance(value, str) for value in observed):
            return cls(as_objects(values), TEXTS)
        numbers = np.array([np.nan if value is None else float(value) for value in values])
        is_truth = bool(observed) and all(isinstance(value, bool) for value in observed)
        return cls(numbers, TRUTH if is_truth else NUMBERS)

    @property
    def has_texts(self) -> bool:
        return self.form == TEXTS

    def __len__(self) -> int:
        return len(self.values)

    def is_missing(self) -> np.ndarray:
        if self.has_texts:
            return np.array([value is None for value in self.values], dtype=bool)
        return np.isnan(self.values)

    def floats(self) -> FloatArray:
        return self.values

    def texts(self) -> list[str | None]:
        return list(self.values)

    def fields(self, write: Callable[[float], str]) -> list[str]:
        if self.has_texts:
            return [text or "" for text in self.values]
        if self.form == TRUTH:
            return ["" if np.isnan(value) else self.words[int(value)] for value in self.values]
        return [write(value) for value in self.values]

    def places(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return texts as places in a sorted list of the different ones, -1 where missing, and that list."""
        levels = tuple(sorted({value for value in self.values if value is not None}))
        place = {level: number for number, level in enumerate(levels)} | {None: -1}
        return np.array([place[value] for value in self.values], dtype=np.int64), levels

    def filled(self, mask: np.ndarray, fills: Sequence[Any]) -> Entries:
        """Return the entries with others of their kind where the mask is true."""
        values = self.values.copy()
        values[mask] = Entries.of(fills).values
        return replace(self, values=values)


@dataclass(frozen=True)
class ArrowEntries:
    """Entries of one column of a Parquet file, as a chunked array of pyarrow."""

    chunked: Any

    @property
    def has_texts(self) -> bool:
        from pyarrow import types

        kind = self.chunked.type
        kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
        return not any(is_kind(kind) for is_kind in kinds)

    def __len__(self) -> int:
        return len(self.chunked)

    def is_missing(self) -> np.ndarray:
        return np.asarray(self.chunked.is_null(nan_is_null=True).to_numpy(), dtype=bool)

    def floats(self) -> FloatArray:
        import pyarrow

        return self.chunked.cast(pyarrow.float64(), safe=False).to_numpy()

    def texts(self) -> list[str | None]:
        return [None if value is None else str(value) for value in self.chunked.to_pylist()]

    def fields(self, write: Callable[[float], str]) -> list[str]:
        entries = self.texts() if self.has_texts else self.chunked.to_pylist()
        return Entries.of(entries).fields(write)


@dataclass(frozen=True)
class Frame:
    """Columns of a file by name; columns without names have their numbers.

    A frame of numbers can be read as a `Source`.
    """

    columns: tuple[Any, ...]
    parts: tuple[Part, ...]
    in_memory = True

    @classmethod
    def of_numbers(cls, columns: Sequence[Any] | None, values: FloatArray) -> Frame:
        """Return a frame of numbers (n, M)."""
        names = range(values.shape[1]) if columns is None else columns
        return cls(tuple(names), tuple(Entries(column) for column in values.T))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_columns

    @property
    def n_rows(self) -> int:
        return len(self.parts[0]) if self.parts else 0

    @property
    def n_columns(self) -> int:
        return len(self.parts)

    @property
    def has_texts(self) -> bool:
        """Tell whether there is a column that has other entries than numbers."""
        return any(part.has_texts for part in self.parts)

    def read(self, start: int, stop: int) -> FloatArray:
        return self._floats()[start:stop]

    def take(self, index: np.ndarray) -> FloatArray:
        return self._floats()[index]

    def is_missing(self) -> np.ndarray:
        """Tell of each entry (n, M) whether it is missing."""
        return np.stack([part.is_missing() for part in self.parts], axis=1)

    def select(self, order: Sequence[int], columns: Sequence[Any]) -> Frame:
        """Return some columns in an order, with other names."""
        return Frame(tuple(columns), tuple(self.parts[place] for place in order))

    def with_parts(self, parts: Mapping[int, Part]) -> Frame:
        """Return the frame with other entries in some columns."""
        return replace(self, parts=tuple(parts.get(place, part) for place, part in enumerate(self.parts)))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.columns)

    def __getitem__(self, name: Any) -> np.ndarray:
        """Return the entries of a column: floats, NaN where missing, or texts, None where missing."""
        part = self.parts[self.columns.index(name)]
        return as_objects(part.texts()) if part.has_texts else part.floats()

    def _floats(self) -> FloatArray:
        for name, part in zip(self.columns, self.parts, strict=True):
            if part.has_texts:
                raise DataError(f"Column {name!r} has other entries than numbers.")
        return np.stack([part.floats() for part in self.parts], axis=1)


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """Return an array that holds the values themselves."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
