"""Tables in and out: text, Parquet, arrays, Zarr and AnnData files, told apart by the ends of their names."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.sources import ArraySource
from srflvm.tables._table import Reading, Table, check_known, made_of
from srflvm.whole_files import check_target, whole_file

__all__ = [
    "Reading",
    "Table",
    "check_known",
    "check_outputs",
    "ending",
    "made_of",
    "open_table",
    "write_filled",
    "write_table",
]

# Endings, the modules that know them, and the functions there that read and write them.
_FORMATS = {
    ".csv": ("_text", "read", "write"),
    ".csv.gz": ("_text", "read", "write"),
    ".tsv": ("_text", "read", "write"),
    ".tsv.gz": ("_text", "read", "write"),
    ".parquet": ("_parquet", "read", "write"),
    ".npy": ("_arrays", "read_stored", "write_npy"),
    ".npz": ("_arrays", "read_npz", "write_npz"),
    ".zarr": ("_arrays", "read_stored", "write_zarr"),
    ".zarr.zip": ("_arrays", "read_stored", ""),
    ".h5ad": ("_h5ad", "read", "write"),
}

# Formats whose writers need a package, the modules that know them, and the functions that ask for it.
_PACKAGES = {
    ".parquet": ("_parquet", "require_pyarrow"),
    ".zarr": ("_arrays", "require_zarr"),
    ".h5ad": ("_h5ad", "require_anndata"),
}


def ending(path: Path, *, to_write: bool = False) -> str:
    """The format of a file by its name; a folder inside a Zarr store is an array, too."""
    found = [end for end in _FORMATS if path.name.lower().endswith(end)]
    if not found and not to_write and any(part.lower().endswith(".zarr") for part in path.parts):
        found = [".zarr"]
    if not found or (to_write and not _FORMATS[found[0]][2]):
        known = [end for end, (_, _, writer) in _FORMATS.items() if writer or not to_write]
        verb = "written" if to_write else "read"
        raise DataError(
            f"{path} does not end in the name of a format that can be {verb}: {', '.join(known)}."
        )
    return found[0]


def open_table(path: Path, how: Reading | None = None) -> Table:
    """The table in a file. Rows of arrays, Zarr, Parquet and sparse matrices are read when asked for."""
    end = ending(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.is_dir() and end != ".zarr":
        raise DataError(f"{path} is a folder. Give the name of a file.")
    if how is not None and how.layer is not None and end != ".h5ad":
        raise DataError(f"{path} has no layers: --layer is for .h5ad files.")
    return _function(end, 1)(path, how or Reading())


def check_outputs(*asked: Path | None, force: bool) -> None:
    """Refuse, before time is spent, files of tables that could not be written or that would replace each
    other; None is no file."""
    paths = [path for path in asked if path is not None]
    for path in paths:
        end = ending(path, to_write=True)
        check_target(path, force=force)
        if end in _PACKAGES:
            _imported(*_PACKAGES[end])()
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise ValueError(f"{paths[0]} is named for two outputs. Give each a file of its own.")


def write_table(path: Path, table: Table, *, escape_formulas: bool = False) -> None:
    """Write a table in the format of the file's name, whole or not at all. With `escape_formulas` names in a
    text file that a spreadsheet would take for formulas have an apostrophe before them."""
    write = _function(ending(path, to_write=True), 2)
    if escape_formulas:
        table = _escaped(path, table)
    with whole_file(path) as temporary:
        write(path, temporary, table)


def write_filled(path: Path, table: Table, filled: FloatArray, *, escape_formulas: bool = False) -> None:
    """Write a table whose holes were filled. In its own format all else stays as it was in the file, but for
    what `escape_formulas` says of names, as in `write_table`."""
    if escape_formulas:
        table = _escaped(path, table)
    original = table.original
    if original is None or ending(path) not in original.endings:
        write_table(path, replace(table, rows=ArraySource(filled)))
        return
    with whole_file(path) as temporary:
        original.write_filled(path, temporary, filled)


def _escaped(path: Path, table: Table) -> Table:
    """Other formats than text keep texts apart from formulas."""
    module = _FORMATS[ending(path, to_write=True)][0]
    return _imported(module, "escape_names")(table) if module == "_text" else table


def _function(end: str, which: int) -> Callable[..., Any]:
    names = _FORMATS[end]
    return _imported(names[0], names[which])


def _imported(module: str, name: str) -> Callable[..., Any]:
    return getattr(import_module(f"srflvm.tables.{module}"), name)
