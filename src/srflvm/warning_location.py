"""Warnings that point at the line of a user's code which called the package."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

# Frames of scikit-learn and joblib stand between a user and a method: wrappers of `transform`, pipelines.
_NOT_THE_USER = ("srflvm", "sklearn", "joblib")


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, at the line outside of the package from which it was called."""
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
