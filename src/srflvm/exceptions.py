"""What can go wrong, by name."""

from __future__ import annotations


class DataError(ValueError):
    """The data cannot be used as they are; the message says where and what to do."""


class NumericalError(ArithmeticError):
    """The computation could not be kept finite, even with safer settings."""


class ModelFileError(ValueError):
    """A model file is damaged, truncated, foreign, or written by a newer version; or a model
    cannot be saved."""


class MissingEntriesError(DataError):
    """Data that are read in pieces have holes."""


class NotInMemoryError(DataError):
    """A fit of all rows at once needs all of Y as an array."""


class FallingBoundWarning(UserWarning):
    """The evidence lower bound fell during a fit by more than its noise."""


# What a user can put right. Anything else is a defect, and its traceback is worth having.
EXPECTED = (ImportError, MemoryError, NumericalError, OSError, ValueError)
