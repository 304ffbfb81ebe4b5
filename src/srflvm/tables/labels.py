"""Labels of rows, in a column of a table or in an array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from srflvm.exceptions import DataError
from srflvm.tables import _text, ending


def read_labels(path: Path, n_rows: int, column: str | None = None) -> np.ndarray:
    """A label for each of `n_rows` rows: numbers if all are, texts otherwise.

    A table of one column need not be told which; in one of two the first may be row ids. In a text table the
    first line is one of names if there is one line more than rows.
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
    rows = [fields for _, fields in _text.lines(path)]
    names = [name.strip() for name in rows.pop(0)] if len(rows) == n_rows + 1 else None
    if not rows:
        raise DataError(f"{path} has no labels.")
    position = _position(path, names, len(rows[0]), column)
    if any(len(fields) <= position for fields in rows):
        raise DataError(f"{path} has lines of different lengths.")
    return _as_labels([fields[position] for fields in rows])


def _position(path: Path, names: list[str] | None, width: int, column: str | None) -> int:
    if column is None:
        if width > 2:
            raise DataError(f"{path} has {width} columns. Name the one of labels with --label-column.")
        return width - 1
    if names is None or column not in names:
        have = "whose columns have no names" if names is None else f"which has {', '.join(names)}"
        raise DataError(f"There is no column {column!r} in {path}, {have}.")
    return names.index(column)


def _from_array(path: Path, column: str | None) -> np.ndarray:
    try:
        labels = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read as an array ({error}).") from error
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
    from srflvm.tables._h5ad import read_whole

    observations = read_whole(path).obs
    names = [str(name) for name in observations.columns]
    return _as_labels(observations[names[_position(path, names, len(names), column)]].tolist())


def _as_labels(values: list[Any]) -> np.ndarray:
    try:
        return np.array([float(value) for value in values])
    except (TypeError, ValueError):
        return np.array([str(value) for value in values])
