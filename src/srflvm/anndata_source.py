"""Matrices of AnnData files, read a piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from srflvm._types import FloatArray
from srflvm.anndata import matrix_of, open_file
from srflvm.named import NamedTable
from srflvm.sources import Source, SparseSource, as_floats, check_table, rows_at_once, take_by_reading


class BackedSource:
    """A matrix in an open file, dense or sparse by rows. `mapped` says that the user gave it as an array."""

    by_name = True

    def __init__(self, matrix: Any, names: Sequence[str], *, mapped: bool):
        self._matrix, self.names, self.mapped = matrix, names, mapped

    @property
    def n_rows(self) -> int:
        return self._matrix.shape[0]

    @property
    def n_columns(self) -> int:
        return self._matrix.shape[1]

    def read(self, start: int, stop: int) -> FloatArray:
        rows = self._matrix[start:stop]
        return as_floats(rows.toarray() if sparse.issparse(rows) else np.asarray(rows))

    def take(self, index: np.ndarray) -> FloatArray:
        return take_by_reading(self, index, largest_gap=max(1, rows_at_once(self.n_columns) // 64))


def table_of(adata: Any, layer: str | None = None, *, mapped: bool = True) -> NamedTable | Source:
    """X or a layer of an AnnData object (or of its `raw`) with the names of its variables, left in its file
    if it is in one."""
    matrix, names = matrix_of(adata, layer), [str(name) for name in adata.var_names]
    if not _is_in_file(matrix):
        return NamedTable(matrix, names, by_name=True)
    check_table(matrix, "The matrix of the AnnData object")
    order = getattr(matrix, "format", None)
    if order == "csc":
        # a row is all over the file
        return SparseSource(matrix.to_memory(), names, by_name=True)
    return BackedSource(matrix, names, mapped=mapped and order is None)


def open_h5ad(path: Path) -> Source:
    """X of a .h5ad file."""
    table = table_of(open_file(path, backed="r"), mapped=False)
    assert not isinstance(table, NamedTable)
    return table


def _is_in_file(matrix: Any) -> bool:
    """Whether it is a sparse data set of anndata or a dense one of h5py."""
    return hasattr(matrix, "to_memory") or (hasattr(matrix, "file") and not isinstance(matrix, np.ndarray))
