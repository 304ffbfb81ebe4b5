"""What was predicted against what is true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from srflvm._types import FloatArray
from srflvm.plot._images import check_image_shape, draw_lines, tile
from srflvm.plot._style import COLOURS, GREY, axes_or_new, colour, finish_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOLE = COLOURS[1]


def imputation(
    truth: Any,
    holes: Any,
    filled: Any,
    *,
    image_shape: tuple[int, int] | None = None,
    std: Any = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw what was hidden against what was filled in.

    For images: the truth, what the model saw with its holes in orange, and the filled images. For other data:
    the filled entries against the true ones.

    Parameters
    ----------
    truth : array-like of shape (n, M)
        The rows before entries were hidden.
    holes : array-like of shape (n, M)
        True where an entry was hidden; or the rows as the model saw them, with NaN there.
    filled : array-like of shape (n, M)
        What `impute` returned.
    image_shape : pair of int, default=None
        Height and width of an image whose pixels are the columns; give a few rows. None draws points.
    std : array-like of shape (n, M), default=None
        Standard deviations of the filled entries, drawn as error bars of points.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    **options
        Passed on to `Axes.imshow`, or to `Axes.errorbar` of the points.
    """
    true, found = np.asarray(truth, dtype=np.float64), np.asarray(filled, dtype=np.float64)
    hidden = np.asarray(holes)
    hidden = hidden if hidden.dtype == bool else np.isnan(hidden.astype(np.float64))
    if true.ndim != 2 or not true.shape == hidden.shape == found.shape:
        shapes = f"{true.shape}, {hidden.shape}, {found.shape}"
        raise ValueError(f"truth, holes and filled must be tables of one shape, not {shapes}.")
    if image_shape is None:
        bars = None if std is None else np.asarray(std, dtype=np.float64)[hidden]
        return _scatter_entries(true[hidden], found[hidden], bars, ax, options)
    check_image_shape(image_shape, true.shape[1])
    ax = axes_or_new(ax, (len(true), 3.0))
    lines = {"truth": true, "seen": np.where(hidden, np.nan, true), "filled": found}
    draw_lines(ax, lines, image_shape, options)
    _paint_holes(ax, hidden, image_shape)
    return ax


def _paint_holes(ax: Axes, hidden: np.ndarray, image_shape: tuple[int, int]) -> None:
    """Holes of the second of three lines of images."""
    from matplotlib.colors import ListedColormap

    none = np.full(hidden.shape, np.nan)
    marks = np.concatenate([none, np.where(hidden, 1.0, np.nan), none])
    ax.imshow(tile(marks, image_shape, len(hidden)), cmap=ListedColormap([_HOLE]))


def _scatter_entries(
    true: FloatArray, found: FloatArray, bars: FloatArray | None, ax: Axes | None, options: dict[str, Any]
) -> Axes:
    ax = axes_or_new(ax, (4.5, 4.5))
    known = np.isfinite(true)
    if not known.any():
        raise ValueError("No hidden entry has a known truth.")
    ends = [min(true[known].min(), found[known].min()), max(true[known].max(), found[known].max())]
    ax.plot(ends, ends, color=GREY, linewidth=1)
    style: dict[str, Any] = {"fmt": "o", "markersize": 3, "alpha": 0.5, "color": colour(0), "elinewidth": 0.7}
    ax.errorbar(true[known], found[known], None if bars is None else bars[known], **style | options)
    return finish_curves(ax, "truth", "filled")


def calibration(
    truth: Any,
    mean: Any = None,
    std: Any = None,
    *,
    draws: Any = None,
    where: Any = None,
    levels: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of true entries inside central intervals against the share that should be there.

    On the diagonal error bars are right; below it they are too narrow, above it too wide. Grey is where nine
    of ten curves of independent entries with right error bars would be at each level; entries of one row
    share its latent, so real ones stray a little further.

    Parameters
    ----------
    truth : array-like
        True values that the model did not see. NaN is left out.
    mean, std : array-like of the shape of `truth`, default=None
        Predictions and their standard deviations, for intervals of a Gaussian.
    draws : array-like of shape (n_draws, *truth.shape), default=None
        In place of them draws, such as `impute(Y, n_draws=200)` gives, for intervals between their quantiles.
        Use these for counts and binary entries.
    where : array-like of bool of the shape of `truth`, default=None
        Which entries to take; None takes all.
    levels : array-like, default=None
        Shares between 0 and 1; None takes 0.05, 0.1, ..., 0.95.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    """
    true = np.asarray(truth, dtype=np.float64)
    chosen = np.isfinite(true) & (True if where is None else np.asarray(where, dtype=bool))
    nominal = np.linspace(0.05, 0.95, 19) if levels is None else np.asarray(levels, dtype=np.float64)
    if not chosen.any():
        raise ValueError("There is no true entry to check.")
    if np.any((nominal <= 0) | (nominal >= 1)):
        raise ValueError("levels must lie between 0 and 1.")
    low, high = _intervals(mean, std, draws, chosen, nominal)
    share = np.mean((low <= true[chosen]) & (true[chosen] <= high), axis=1)
    ax = axes_or_new(ax, (4.5, 4.5))
    width = ndtri(0.95) * np.sqrt(nominal * (1.0 - nominal) / chosen.sum())
    ax.fill_between(nominal, nominal - width, nominal + width, color=GREY, alpha=0.3, linewidth=0)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    ax.plot(nominal, share, marker=".", color=colour(0))
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return finish_curves(ax, "nominal level", f"share of {chosen.sum()} entries inside")


def _intervals(
    mean: Any, std: Any, draws: Any, chosen: np.ndarray, levels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends (levels, entries)."""
    if (draws is None) == (mean is None or std is None):
        raise ValueError("Give either mean and std, or draws.")
    if draws is not None:
        values = np.asarray(draws, dtype=np.float64)
        _check_shape("draws", values.shape[1:], chosen.shape)
        low, high = np.quantile(values[:, chosen], [(1.0 - levels) / 2.0, (1.0 + levels) / 2.0], axis=0)
        return low, high
    centre, spread = (np.asarray(part, dtype=np.float64) for part in (mean, std))
    for name, part in (("mean", centre), ("std", spread)):
        _check_shape(name, part.shape, chosen.shape)
    half = ndtri((1.0 + levels) / 2.0)[:, None] * spread[chosen]
    return centre[chosen] - half, centre[chosen] + half


def _check_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if found != wanted:
        raise ValueError(f"{name} has shape {found}, but the truth has {wanted}.")
