"""Tables in text files, and other data by their paths."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._types import FloatArray
from srflvm.exceptions import DataError

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_MISSING = ("", "na", "nan", "null")


def read_table(path: Path) -> Any:
    """What `SRFLVM.fit` takes for a path: text is read whole, all other files are left to it."""
    if path.suffix not in _DELIMITERS:
        return str(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file, delimiter=_DELIMITERS[path.suffix]) if row]
    if rows and not all(_is_number(text) for text in rows[0]):
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path} has no rows of numbers.")
    return _numbers(path, rows)


def _numbers(path: Path, rows: list[list[str]]) -> FloatArray:
    values = np.empty((len(rows), len(rows[0])))
    for number, row in enumerate(rows):
        if len(row) != values.shape[1]:
            raise DataError(
                f"{path} has {len(row)} fields in row {number} and {values.shape[1]} in the first."
            )
        for column, text in enumerate(row):
            if not _is_number(text):
                raise DataError(
                    f"{path} has {text!r} in row {number}, column {column}, which is not a number. "
                    "Leave entries that were not observed empty."
                )
            values[number, column] = float(text) if text.strip().lower() not in _MISSING else np.nan
    return values


def _is_number(text: str) -> bool:
    if text.strip().lower() in _MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
