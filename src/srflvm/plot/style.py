"""Colours and Axes that all pictures share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Six colours of Okabe and Ito, three of Tol, and black: distinct for all common kinds of colour vision.
# Beyond ten classes the markers change.
COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#882255",
    "#332288",
    "#DDCC77",
    "#222222",
)
MARKERS = "o^sDvP"
COLOUR_MAP = "cividis"
INK = "#333333"
GREY = "#999999"


def require_matplotlib() -> None:
    """Raise an ImportError that says what to install if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("Plotting needs matplotlib: pip install 'srflvm[plot]'") from error


def axes_or_new(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """Return the given Axes, or those of a new figure."""
    if ax is not None:
        return ax
    require_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize, layout="constrained")[1]
