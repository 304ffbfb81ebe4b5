"""Checks that the parts of a sparse matrix fit together.

SciPy compares neither the indices of a matrix with its shape nor the two with each other when it slices or
converts: it reads and writes beyond its arrays. So all of them are compared once, before the first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from srflvm.exceptions import DataError

_AXES = ("rows", "columns")


def as_sound_csr(matrix: Any, what: str) -> Any:
    """Return a sparse matrix of two dimensions in the format csr; refuse it if its parts do not fit together.

    Entries that are stored twice are summed, as SciPy does.
    """
    problem, rows = _problem_of(matrix), None
    if problem is None:
        try:
            rows = matrix.tocsr()
        except (IndexError, TypeError, ValueError) as error:
            raise _unsound(what, matrix.format, str(error)) from error
        # the indices of the format lil are lists: they are compared once they are an array
        problem = _problem_of(rows) if matrix.format == "lil" else None
    if problem is not None:
        raise _unsound(what, matrix.format, problem)
    return rows


def _problem_of(matrix: Any) -> str | None:
    check = _CHECKS.get(matrix.format)
    return None if check is None else check(matrix)


def _unsound(what: str, sparse_format: str, problem: str) -> DataError:
    return DataError(
        f"{what} is not a sound sparse matrix of the format {sparse_format}: {problem.rstrip('.')}. Make it "
        "again from what it was made of."
    )


def _problem_of_rows(matrix: Any) -> str | None:
    return _problem_of_compressed(matrix, matrix.shape, "columns")


def _problem_of_columns(matrix: Any) -> str | None:
    return _problem_of_compressed(matrix, matrix.shape[::-1], "rows")


def _problem_of_compressed(matrix: Any, sizes: Sequence[int], axis: str) -> str | None:
    if matrix.data.ndim != 1:
        return f"data has {matrix.data.ndim} dimensions in place of 1"
    return _problem_of_pointers(matrix, sizes, axis)


def _problem_of_blocks(matrix: Any) -> str | None:
    if matrix.data.ndim != 3 or 0 in matrix.data.shape[1:]:
        return f"data of shape {matrix.data.shape} are no blocks"
    sides = matrix.data.shape[1:]
    if any(size % side for size, side in zip(matrix.shape, sides, strict=True)):
        return f"blocks of {sides[0]} x {sides[1]} do not fill the shape {matrix.shape}"
    sizes = [size // side for size, side in zip(matrix.shape, sides, strict=True)]
    return _problem_of_pointers(matrix, sizes, "columns of blocks")


def _problem_of_pointers(matrix: Any, sizes: Sequence[int], axis: str) -> str | None:
    """Compare indptr, indices and data with each other and with the sizes along indptr and indices."""
    indptr, indices, n_stored = matrix.indptr, matrix.indices, len(matrix.data)
    problem = _problem_of_integers("indptr", indptr, sizes[0] + 1)
    problem = problem or _problem_of_integers("indices", indices, n_stored)
    if problem is not None:
        return problem
    if indptr[0] != 0:
        return f"indptr begins with {indptr[0]} in place of 0"
    if indptr[-1] > n_stored:
        return f"indptr ends with {indptr[-1]}, but {n_stored} entries are stored"
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if falls.size:
        place = int(falls[0])
        return f"indptr falls from {indptr[place]} to {indptr[place + 1]} at {place + 1}"
    return _problem_of_indices("indices", indices[: indptr[-1]], sizes[1], axis)


def _problem_of_coordinates(matrix: Any) -> str | None:
    if matrix.data.ndim != 1 or len(matrix.coords) != 2:
        return "it does not have a row, a column and an entry at a time"
    for indices, size, axis in zip(matrix.coords, matrix.shape, _AXES, strict=True):
        name = f"the list of {axis}"
        problem = _problem_of_integers(name, indices, len(matrix.data))
        problem = problem or _problem_of_indices(name, indices, size, axis)
        if problem is not None:
            return problem
    return None


def _problem_of_diagonals(matrix: Any) -> str | None:
    if matrix.data.ndim != 2:
        return f"data has {matrix.data.ndim} dimensions in place of 2"
    problem = _problem_of_integers("offsets", matrix.offsets, len(matrix.data))
    if problem is None and len(np.unique(matrix.offsets)) < len(matrix.offsets):
        return "offsets has a diagonal twice"
    return problem


def _problem_of_lists(matrix: Any) -> str | None:
    n_rows = matrix.shape[0]
    if not len(matrix.rows) == len(matrix.data) == n_rows:
        return f"rows and data have {len(matrix.rows)} and {len(matrix.data)} lists for {n_rows} rows"
    for row, (columns, entries) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if len(columns) != len(entries):
            return f"row {row} has {len(columns)} column indices and {len(entries)} entries"
    return None


def _problem_of_integers(name: str, values: np.ndarray, length: int) -> str | None:
    if values.dtype.kind not in "iu":
        return f"{name} is of type {values.dtype} in place of integers"
    if values.shape != (length,):
        return f"{name} has shape {values.shape} in place of ({length},)"
    return None


def _problem_of_indices(name: str, indices: np.ndarray, size: int, axis: str) -> str | None:
    if not indices.size or (indices.min() >= 0 and indices.max() < size):
        return None
    place = int(np.argmax((indices < 0) | (indices >= size)))
    return f"{name} has {indices[place]} at {place}, but there are {size} {axis}, from 0 on"


# A dictionary of keys (dok) is compared by SciPy when it is converted.
_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "csr": _problem_of_rows,
    "csc": _problem_of_columns,
    "bsr": _problem_of_blocks,
    "coo": _problem_of_coordinates,
    "dia": _problem_of_diagonals,
    "lil": _problem_of_lists,
}
