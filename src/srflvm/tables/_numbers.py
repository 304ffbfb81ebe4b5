"""Fields of text files as numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

# 1,5 and 1.234,5; 1,234 may be meant as a thousand.
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")

MISSING = ("", "na", "n/a", "nan", "-nan", "null", "none")


def as_numbers(texts: Sequence[str]) -> list[float]:
    """The numbers that texts are, or a ValueError. Python would also take 1_1 for 11."""
    if "_" in "".join(texts):
        raise ValueError("A number has no underscores.")
    return [float(text) for text in texts]


def is_number(text: str) -> bool:
    """Whether a field can be an entry: a number, or one of the ways to say that it is missing."""
    return text.strip().lower() in MISSING or is_observed_number(text)


def is_observed_number(text: str) -> bool:
    """Whether a field is a number and not missing."""
    try:
        (value,) = as_numbers([text])
    except ValueError:
        return False
    return value == value


def has_decimal_comma(text: str) -> bool:
    """Return whether a field is a number as it is written in many countries, with a comma for the point."""
    return _DECIMAL_COMMA.fullmatch(text.strip()) is not None
