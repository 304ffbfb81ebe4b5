"""Which character separates the fields of a text file: that of its name, or the one that its lines tell."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from srflvm.tables._numbers import has_decimal_comma, is_number, is_observed_number

NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}

# What texts rarely contain. A bar must have numbers beside it to be taken for a separator.
_RARE_IN_TEXTS = (";", "\t")

_MOST_RECORDS = 20
_MOST_FIELDS = 200


def delimiter_of_name(path: Path) -> str:
    """Return what separates fields in a file of this name, as it is written."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def delimiter_of_lines(path: Path, lines: Sequence[str]) -> str:
    """Return what separates fields in a file that begins with these lines.

    That of the name is taken unless it leaves lines whole, or another makes more numbers of the fields.
    """
    own = delimiter_of_name(path)
    fits = {one: _share_of_numbers(lines, one) for one in (own, *(set(NAMES) - {own}))}
    found = {one: share for one, share in fits.items() if share is not None}
    best = max(found.values(), default=None)
    return own if best is None or found.get(own) == best else min(one for one in found if found[one] == best)


def _share_of_numbers(lines: Sequence[str], delimiter: str) -> float | None:
    """Return the share of fields below the first line that are numbers, or None if the character does not
    separate fields."""
    try:
        records = [fields for fields in csv.reader(lines, delimiter=delimiter) if fields][:_MOST_RECORDS]
    except csv.Error:  # a field that is too long, for one
        return None
    widths = [len(fields) for fields in records]
    # some programs write no name for the column of row names
    if not widths or widths[0] < 2 or (len(widths) > 1 and widths[1] not in (widths[0], widths[0] + 1)):
        return None
    fields = [field for record in records[1:] or records for field in record[:_MOST_FIELDS]]
    with_commas = delimiter in _RARE_IN_TEXTS
    observed = [is_observed_number(field) or (with_commas and has_decimal_comma(field)) for field in fields]
    in_rows = delimiter in (",", *_RARE_IN_TEXTS) and len(widths) > 1 and len(set(widths)) == 1
    if not any(observed) and not in_rows:
        return None
    return sum(seen or is_number(field) for seen, field in zip(observed, fields, strict=True)) / len(fields)
