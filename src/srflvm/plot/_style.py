"""Colours, and where to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Six of Okabe and Ito's and three of Tol's colours, and black: told apart by all common kinds of colour
# vision. Beyond ten classes the markers change.
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
    """The Axes given, or those of a new figure."""
    if ax is not None:
        return ax
    require_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize, layout="constrained")[1]


def colour(index: int) -> str:
    """The colours by turns."""
    return COLOURS[index % len(COLOURS)]


def finish_curves(ax: Axes, xlabel: str, ylabel: str) -> Axes:
    """Labels, a legend if anything is named, and no frame above and to the right."""
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
