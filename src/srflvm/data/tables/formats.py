"""Registry of file formats, by the endings of file names.

Formats are imported when a file is opened or written. To look up a file or to check an output needs no large
library, so the command line can refuse a wrong name at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from srflvm.exceptions import DataError
from srflvm.storage.atomic import check_target, whole_file

if TYPE_CHECKING:
    import numpy as np

    from srflvm._typing import FloatArray
    from srflvm.data.sources import Source
    from srflvm.data.tables.frame import Frame
    from srflvm.data.tables.table import Format, ReadOptions, Table


@dataclass(frozen=True)
class _Entry:
    """Module and name of a `Format`, the package that it needs, and the uses of its files."""

    module: str
    name: str
    package: str | None = None
    extra: str = "files"
    is_written: bool = True
    is_read_in_pieces: bool = True
    holds_texts: bool = False


_TEXT = _Entry("text", "TEXT", is_read_in_pieces=False, holds_texts=True)

_FORMATS = {
    ".csv": _TEXT,
    ".csv.gz": _TEXT,
    ".tsv": _TEXT,
    ".tsv.gz": _TEXT,
    ".parquet": _Entry("parquet", "PARQUET", "pyarrow", holds_texts=True),
    ".npy": _Entry("arrays", "NPY"),
    ".npz": _Entry("arrays", "NPZ"),
    ".zarr": _Entry("zarr", "ZARR", "zarr"),
    ".zarr.zip": _Entry("zarr", "ZARR", "zarr", is_written=False),
    ".h5ad": _Entry("h5ad", "H5AD", "anndata", "anndata"),
}


def check_input(path: Path) -> None:
    """Refuse a file that does not exist or whose name has no known ending."""
    ending = _readable_ending(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.is_dir() and ending != ".zarr":
        raise DataError(f"{path} is a folder. Give the name of a file.")


def check_outputs(*given: Path | None, force: bool) -> None:
    """Refuse files of tables that could not be written or that would replace each other; None is no file."""
    paths = [path for path in given if path is not None]
    for path in paths:
        ending = _writable_ending(path)
        check_target(path, force=force)
        _require_package(ending, "Writing")
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise ValueError(f"{paths[0]} is named for two outputs. Give each a file of its own.")


def open_table(path: Path, options: ReadOptions | None = None) -> Table:
    """Open the table in a file, with names of columns and rows.

    Rows of arrays, Zarr, Parquet and sparse matrices stay in the file until they are read.
    """
    from srflvm.data.tables.table import ReadOptions

    check_input(path)
    options = options or ReadOptions()
    ending = _readable_ending(path)
    if options.layer is not None and ending != ".h5ad":
        raise DataError(f"{path} has no layers: --layer is for .h5ad files.")
    return _load_format(ending, "Reading").open_table(path, options)


def open_rows(path: Path) -> Source:
    """Open the rows in a file, to be read in pieces."""
    if not path.exists():
        raise FileNotFoundError(f"Y is taken as the path of a file, but there is no {str(path)!r}.")
    ending = _find_ending(path)
    if ending is None or not _FORMATS[ending].is_read_in_pieces:
        known = [end for end, entry in _FORMATS.items() if entry.is_read_in_pieces]
        raise ValueError(
            f"Y is the path {str(path)!r}, but only files whose names end in {', '.join(known)} (.npz of a "
            "SciPy sparse matrix) can be read from a path. Convert the file, or read it first, such as with "
            "pandas.read_csv."
        )
    return _load_format(ending, "Reading").open_rows(path)


def read_labels(path: Path, n_rows: int, column: str | None = None) -> np.ndarray:
    """Read a label for each of `n_rows` rows: numbers if all labels are numbers, texts otherwise.

    A table of one column needs no `column`; in a table of two columns the first may be row ids. The first
    line of a text table holds names if the table has one line more than rows; an empty line in a column of
    labels is a missing label, the text "".
    """
    check_input(path)
    columns = _load_format(_readable_ending(path), "Reading").label_columns(path, n_rows)
    if columns is None:
        raise DataError(f"{path}: labels are read from text, .npy, .parquet and .h5ad files.")
    labels = columns.read_labels(column)
    if len(labels) != n_rows:
        raise DataError(f"{path} has {len(labels)} labels, but the model has {n_rows} rows.")
    return labels


def write_table(path: Path, table: Table, *, escape_formulas: bool = False) -> None:
    """Write a table in the format of the file's name, whole or not at all.

    With `escape_formulas` names in a text file that a spreadsheet would take for formulas get an apostrophe
    before them.
    """
    found = _load_format(_writable_ending(path), "Writing")
    if escape_formulas:
        table = found.escape_formulas(table)
    with whole_file(path) as temporary:
        found.write(path, temporary, table)


def refuse_texts(path: Path, table: Table) -> None:
    """Refuse to write a table with texts to a file that holds numbers alone."""
    ending = _writable_ending(path)
    if table.frame is not None and table.frame.has_texts and not _FORMATS[ending].holds_texts:
        known = [end for end, entry in _FORMATS.items() if entry.holds_texts]
        raise DataError(f"{path} holds numbers alone, and the table has texts. Write {', '.join(known)}.")


def write_filled(
    path: Path, table: Table, filled: FloatArray | Frame, *, escape_formulas: bool = False
) -> None:
    """Write a table whose missing entries were filled.

    In the table's own format everything else stays as it was in the file, except for names that
    `escape_formulas` changes, as in `write_table`.
    """
    found = _load_format(_writable_ending(path), "Writing")
    if table.original is None or table.original.format is not found:
        write_table(path, table.with_values(filled), escape_formulas=escape_formulas)
        return
    original = (found.escape_formulas(table) if escape_formulas else table).original
    assert original is not None
    with whole_file(path) as temporary:
        original.write_filled(path, temporary, filled)


def _find_ending(path: Path) -> str | None:
    """Return the ending of a file's name that tells its format; a folder inside a Zarr store is an array."""
    name = path.name.lower()
    for ending in _FORMATS:
        if name.endswith(ending):
            return ending
    return ".zarr" if any(part.lower().endswith(".zarr") for part in path.parts) else None


def _readable_ending(path: Path) -> str:
    ending = _find_ending(path)
    if ending is None:
        raise _unknown_format(path, "read", _FORMATS)
    return ending


def _writable_ending(path: Path) -> str:
    writable = [end for end, entry in _FORMATS.items() if entry.is_written]
    for ending in writable:
        if path.name.lower().endswith(ending):
            return ending
    raise _unknown_format(path, "written", writable)


def _unknown_format(path: Path, verb: str, known: Iterable[str]) -> DataError:
    return DataError(f"{path} does not end in the name of a format that can be {verb}: {', '.join(known)}.")


def _load_format(ending: str, act: str) -> Format:
    """Import a format; `act` is "Reading" or "Writing"."""
    _require_package(ending, act)
    entry = _FORMATS[ending]
    return getattr(import_module(f"srflvm.data.tables.{entry.module}"), entry.name)


def _require_package(ending: str, act: str) -> None:
    """Refuse a format whose package is not installed."""
    entry = _FORMATS[ending]
    if entry.package is not None and find_spec(entry.package) is None:
        raise ImportError(
            f"{act} {ending} needs the package {entry.package}: pip install 'srflvm[{entry.extra}]', or pip "
            f"install {entry.package}."
        )
