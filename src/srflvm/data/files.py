"""Sources of rows for data that are not arrays in memory: files, memory maps, Zarr and sparse matrices."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.data.sources import NamedTable, Source, SparseSource
from srflvm.data.tables import formats


def open_source(Y: Any) -> Source | None:
    """Return a source for a path, a memory map, a Zarr array or a sparse matrix, and None for all others.

    A source is returned as it is.
    """
    if isinstance(Y, Source):
        return Y
    if isinstance(Y, str | os.PathLike):
        return formats.open_rows(Path(Y))
    if isinstance(Y, np.memmap):
        from srflvm.data.tables.arrays import open_memory_map

        return open_memory_map(Y)
    if _is_sparse(Y):
        return SparseSource(Y)
    if isinstance(Y, NamedTable) and _is_sparse(Y.values):
        return SparseSource(Y.values, Y.names, by_name=Y.by_name)
    if "zarr" in sys.modules and isinstance(Y, sys.modules["zarr"].Array):
        from srflvm.data.tables.zarr import ZarrSource

        return ZarrSource(Y)
    return None


def _is_sparse(Y: Any) -> bool:
    """Tell whether Y is a sparse matrix or array; there is none before SciPy is imported."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(Y)
