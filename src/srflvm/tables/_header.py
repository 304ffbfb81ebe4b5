"""Whether a text file begins with a line of column names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from srflvm.exceptions import DataError
from srflvm.named import listed
from srflvm.tables._numbers import has_decimal_comma, is_number, is_observed_number

# Shorter runs of whole numbers are often data.
_SHORTEST_COUNT = 3

Line = tuple[int, list[str]]


def split_header(
    path: Path, found: Iterator[Line], header: bool | None
) -> tuple[list[str] | None, list[Line], tuple[str, ...]]:
    """The line of column names, if there is one, the first lines of entries, and warnings."""
    first, second = next(found, None), next(found, None)
    if first is None:
        raise DataError(f"{path} is empty.")
    if header is False or (header is None and not _is_header(first[1])):
        doubts = () if header is False else _doubts(path, first[1])
        return None, [first] if second is None else [first, second], doubts
    if second is None:
        raise DataError(
            f"{path} has a line of column names and no rows. If that line is data, give --no-header."
        )
    names, width = first[1], len(second[1])
    if len(names) not in (width, width - 1):
        raise DataError(f"{path} has {len(names)} column names and {width} fields in line {second[0]}.")
    return names, [second], ()


def _is_header(fields: list[str]) -> bool:
    """Whether any field but the first, which may be a row's name, is no number; or the fields count
    columns."""
    others = fields[1:]
    if not others:
        return not _can_be_entry(fields[0])
    if not all(_can_be_entry(text) for text in others):
        return True
    if not is_observed_number(fields[0]):
        return any(_count_from(start, others) for start in (0, 1))
    return len(fields) >= _SHORTEST_COUNT and _count_from(0, fields)


def _can_be_entry(text: str) -> bool:
    """Return whether a field is data; a decimal comma is refused when it is read, and is not a name."""
    return is_number(text) or has_decimal_comma(text)


def _count_from(start: int, fields: list[str]) -> bool:
    return [text.strip() for text in fields] == [str(start + i) for i in range(len(fields))]


def _doubts(path: Path, fields: list[str]) -> tuple[str, ...]:
    """A warning if a first line of data may well be one of names, such as years."""
    numbers = fields if is_observed_number(fields[0]) else fields[1:]
    first = numbers[0].strip() if len(numbers) >= _SHORTEST_COUNT else ""
    if not (first.isascii() and first.isdecimal() and _count_from(int(first), numbers)):
        return ()
    return (
        f"the first line of {path} is taken as data, but counts up in steps of one ({listed(numbers)}), as "
        "column names may. Give --header if it has the names, or --no-header if it has not.",
    )
