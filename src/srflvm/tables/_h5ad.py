"""AnnData files, .h5ad. Needs the package anndata (the extra `anndata`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from scipy import sparse

from srflvm._types import FloatArray
from srflvm.anndata import matrix_of, open_file, require_anndata
from srflvm.exceptions import DataError
from srflvm.sources import ArraySource, SparseSource, as_floats, check_table
from srflvm.tables._table import Reading, Table, check_names


@dataclass(frozen=True)
class AnnDataFile:
    """An AnnData object, and which of its layers (None: X) is the data."""

    adata: Any
    layer: str | None
    endings: ClassVar[tuple[str, ...]] = (".h5ad",)

    def write_filled(self, path: Path, temporary: Path, filled: FloatArray) -> None:
        """The object as it was, with the filled matrix in place of the one that had holes."""
        full = self.adata.copy()
        if self.layer is None:
            full.X = filled
        else:
            full.layers[self.layer] = filled
        full.write_h5ad(temporary)


def read(path: Path, how: Reading) -> Table:
    """X or a layer, with the names of observations and variables."""
    adata = open_file(path)
    if how.id_column is not None or how.leave_out:
        raise DataError(f"{path} has observation names and one matrix: no column is left out or names rows.")
    values, columns = matrix_of(adata, how.layer), [str(name) for name in adata.var_names]
    check_names(columns, path)
    check_table(values, str(path))
    if sparse.issparse(values):
        rows = SparseSource(values, columns, str(path))
    else:
        rows = ArraySource(as_floats(values))
    ids = [str(name) for name in adata.obs_names]
    note = f"matrix: {'X' if how.layer is None else f'layer {how.layer!r}'}"
    original = AnnDataFile(adata, how.layer) if how.keep else None
    return Table(rows, columns, ids, "id", (note,), original)


def write(path: Path, temporary: Path, table: Table) -> None:
    """A new AnnData object whose X is the table."""
    anndata = require_anndata()
    import pandas

    n_rows, n_columns = table.shape
    ids = [str(i) for i in range(n_rows)] if table.ids is None else list(table.ids)
    columns = [f"column{i}" for i in range(n_columns)] if table.columns is None else list(table.columns)
    obs, var = (pandas.DataFrame(index=pandas.Index(names)) for names in (ids, columns))
    adata = anndata.AnnData(table.values, obs, var)
    adata.write_h5ad(temporary)
