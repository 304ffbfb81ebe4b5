"""Labels of rows, in a column of a table or in an array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from srflvm.exceptions import DataError
from srflvm.file_sources import load_array
from srflvm.named import listed
from srflvm.tables import _text, ending
from srflvm.tables._numbers import as_numbers


def read_labels(path: Path, n_rows: int, column: str | None = None) -> np.ndarray:
    """A label for each of `n_rows` rows: numbers if all are, texts otherwise.

    A table of one column need not be told which; in one of two the first may be row ids. In a text table the
    first line is one of names if there is one line more than rows; an empty line in a column of labels is a
    missing one, the text "".
    """
    end = ending(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    readers = {".npy": _from_array, ".parquet": _from_parquet, ".h5ad": _from_annotations}
    if end in readers:
        labels = readers[end](path, column)
    elif end in (".csv", ".csv.gz", ".tsv", ".tsv.gz"):
        labels = _from_text(path, n_rows, column)
    else:
        raise DataError(f"{path}: labels are read from text, .npy, .parquet and .h5ad files.")
    if len(labels) != n_rows:
        raise DataError(f"{path} has {len(labels)} labels, but the model has {n_rows} rows.")
    return labels


def _from_text(path: Path, n_rows: int, column: str | None) -> np.ndarray:
    rows = _text_rows(path)
    names = [name.strip() for name in rows.pop(0)] if len(rows) == n_rows + 1 else None
    if not rows:
        raise DataError(f"{path} has no labels.")
    if names is not None and len(names) == len(rows[0]) - 1:
        # some programs write no name for the column of row names
        names = ["", *names]
    position = _position(path, names, len(rows[0]), column)
    if any(len(fields) <= position for fields in rows):
        raise DataError(f"{path} has lines of different lengths.")
    return _as_labels([fields[position] for fields in rows])


def _text_rows(path: Path) -> list[list[str]]:
    """Lines as fields. In one column an empty line before the last label is a row without a label."""
    rows = [fields for _, fields in _text.Lines(path)]
    while rows and not rows[-1]:
        rows.pop()
    if all(len(fields) <= 1 for fields in rows):
        return [fields or [""] for fields in rows]
    return [fields for fields in rows if fields]


def _position(path: Path, names: list[str] | None, width: int, column: str | None) -> int:
    if width == 0:
        raise DataError(f"{path} has no columns. Give a file with a column of labels.")
    if column is None:
        if width > 2:
            raise DataError(f"{path} has {width} columns. Name the one of labels with --label-column.")
        return width - 1
    if names is None or column not in names:
        have = "whose columns have no names" if names is None else f"which has {listed(names)}"
        raise DataError(f"There is no column {column!r} in {path}, {have}.")
    return names.index(column)


def _from_array(path: Path, column: str | None) -> np.ndarray:
    labels = load_array(path)
    if labels.ndim != 1:
        raise DataError(f"{path} has {labels.ndim} dimensions. Labels are an array of one.")
    return labels


def _from_parquet(path: Path, column: str | None) -> np.ndarray:
    from srflvm.parquet_source import open_parquet

    file = open_parquet(path)
    names = list(file.schema_arrow.names)
    name = names[_position(path, names, len(names), column)]
    return _as_labels(file.read([name]).column(0).to_pylist())


def _from_annotations(path: Path, column: str | None) -> np.ndarray:
    from srflvm.anndata import open_file

    observations = open_file(path).obs
    names = [str(name) for name in observations.columns]
    return _as_labels(observations[names[_position(path, names, len(names), column)]].tolist())


def _as_labels(values: list[Any]) -> np.ndarray:
    try:
        return np.array([as_numbers([v])[0] if isinstance(v, str) else float(v) for v in values])
    except (TypeError, ValueError):
        return np.array([str(value) for value in values])
