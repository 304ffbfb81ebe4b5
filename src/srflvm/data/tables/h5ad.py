"""AnnData files, .h5ad, and matrices of AnnData objects. Needs the package anndata (the extra `anndata`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse

from srflvm._typing import FloatArray
from srflvm.data.sources import (
    ArraySource,
    NamedTable,
    Source,
    SparseSource,
    as_floats,
    check_table,
    rows_at_once,
    take_by_reading,
)
from srflvm.data.tables.frame import Frame
from srflvm.data.tables.labels import LabelColumns
from srflvm.data.tables.table import Format, ReadOptions, Table
from srflvm.exceptions import DataError


class _BackedSource:
    """Matrix in an open file, dense or sparse by rows. `mapped` says that the user gave it as an array."""

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


def open_matrix(adata: Any, layer: str | None = None, *, mapped: bool = True) -> NamedTable | Source:
    """Return X or a layer of an AnnData object (or of its `raw`) with the names of its variables.

    A matrix that is in a file is left there.
    """
    matrix, names = _find_matrix(adata, layer), [str(name) for name in adata.var_names]
    if not _is_in_file(matrix):
        return NamedTable(matrix, names, by_name=True)
    check_table(matrix, "The matrix of the AnnData object")
    order = getattr(matrix, "format", None)
    if order == "csc":
        # a row is all over the file
        return SparseSource(matrix.to_memory(), names, by_name=True)
    return _BackedSource(matrix, names, mapped=mapped and order is None)


def _find_matrix(adata: Any, layer: str | None) -> Any:
    if layer is not None and layer not in adata.layers:
        have = ", ".join(repr(name) for name in adata.layers if name is not None) or "none"
        raise DataError(f"The AnnData object has no layer {layer!r}. Its layers: {have}.")
    values = adata.X if layer is None else adata.layers[layer]
    if values is None:
        raise DataError("The AnnData object has no matrix X. Give one of its layers, or set X.")
    return values


def _is_in_file(matrix: Any) -> bool:
    """Tell whether a matrix is a sparse data set of anndata or a dense one of h5py."""
    return hasattr(matrix, "to_memory") or (hasattr(matrix, "file") and not isinstance(matrix, np.ndarray))


class _AnnDataFormat(Format):
    def open_rows(self, path: Path) -> Source:
        """Open X, which stays in the file."""
        table = open_matrix(_read(path, backed="r"), mapped=False)
        assert not isinstance(table, NamedTable)
        return table

    def open_table(self, path: Path, options: ReadOptions) -> Table:
        """Open X or a layer, with the names of observations and variables."""
        adata = _read(path)
        values, columns = _find_matrix(adata, options.layer), [str(name) for name in adata.var_names]
        options.check_matrix(columns, path)
        check_table(values, str(path))
        if sparse.issparse(values):
            rows = SparseSource(values, columns, str(path))
        else:
            rows = ArraySource(as_floats(values))
        ids = [str(name) for name in adata.obs_names]
        note = f"matrix: {'X' if options.layer is None else f'layer {options.layer!r}'}"
        original = _AnnDataFile(adata, options.layer) if options.keep else None
        return Table(rows, columns, ids, "id", (note,), original)

    def label_columns(self, path: Path, n_rows: int) -> LabelColumns:
        """Return the annotations of observations."""
        annotations = _read(path).obs
        names = [str(name) for name in annotations.columns]
        return LabelColumns(path, len(names), lambda i: annotations[names[i]].tolist(), names)

    def write(self, path: Path, temporary: Path, table: Table) -> None:
        """Write a new AnnData object whose X is the table."""
        import anndata
        import pandas

        n_rows, n_columns = table.shape
        ids = [str(i) for i in range(n_rows)] if table.ids is None else list(table.ids)
        columns = [f"column{i}" for i in range(n_columns)] if table.columns is None else list(table.columns)
        obs, var = (pandas.DataFrame(index=pandas.Index(names)) for names in (ids, columns))
        anndata.AnnData(table.values, obs, var).write_h5ad(temporary)


H5AD = _AnnDataFormat()


@dataclass(frozen=True)
class _AnnDataFile:
    """AnnData object of a file, and the layer (None: X) that is the data."""

    adata: Any
    layer: str | None

    @property
    def format(self) -> Format:
        return H5AD

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray | Frame) -> None:
        values = filled.read(0, filled.n_rows) if isinstance(filled, Frame) else filled
        full = self.adata.copy()
        if self.layer is None:
            full.X = values
        else:
            full.layers[self.layer] = values
        full.write_h5ad(temporary)


def _read(path: Path, backed: Literal["r"] | None = None) -> Any:
    """Read the AnnData object in a file; `backed` leaves its matrix X there."""
    import anndata

    try:
        return anndata.read_h5ad(path, backed=backed)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read as an AnnData file ({error}).") from error
