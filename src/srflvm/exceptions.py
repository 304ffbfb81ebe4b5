"""Errors, warnings at the line of the caller, and checks of single arguments."""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from types import FrameType
from typing import Any

# Frames of scikit-learn and joblib stand between a user and a method: wrappers of `transform`, pipelines.
_NOT_THE_USER = ("srflvm", "sklearn", "joblib")


class DataError(ValueError):
    """Report data that cannot be used as they are; the message says where and what to do."""


class NumericalError(ArithmeticError):
    """Report a computation that could not be kept finite, even with safer settings."""


class ModelFileError(ValueError):
    """Report a model file that is damaged, truncated, foreign or of a newer version, or a model that cannot
    be saved."""


class FallingBoundWarning(UserWarning):
    """Warn that the evidence lower bound fell during a fit by more than its noise."""


# What a user can put right. Anything else is a defect, and its traceback is worth having.
EXPECTED = (ImportError, MemoryError, NumericalError, OSError, ValueError)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code from which the package was called."""
    warnings.warn(message, category, stacklevel=_frames_to_the_user())


def _frames_to_the_user() -> int:
    """Return the `stacklevel` of the nearest frame of other code, as `warn_caller` has to give it."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and _is_not_the_user(frame):
        frame, level = frame.f_back, level + 1
    return level


def _is_not_the_user(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THE_USER


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return an argument that must be one of a few texts."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not known. Choose one of {listed}.")
    return value


def check_count(name: str, value: Any, smallest: int = 1) -> int:
    """Return an argument that must be an integer of at least `smallest`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < smallest:
        raise ValueError(f"{name}={value!r} must be an integer of at least {smallest}.")
    return int(value)


def check_positive(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """Return an argument that must be a finite positive number."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value < 0 or (value == 0 and not allow_zero):
        kind = "non-negative" if allow_zero else "positive"
        raise ValueError(f"{name}={value!r} must be a {kind} finite number.")
    return float(value)
