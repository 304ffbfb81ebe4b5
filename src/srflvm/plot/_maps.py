"""What is known, and how the decoder stretches, over the latent plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from srflvm._types import FloatArray
from srflvm.plot._planes import cells_over, finish_plane, latents_at, plane_of
from srflvm.plot._style import COLOUR_MAP, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from srflvm.posterior import Decoded

# The map reaches beyond the rows by this share of their span.
_MARGIN = 0.08
_POINTS_AT_ONCE = 512

# Of the span of the rows: the error of a central difference is about (step times frequency)^2 / 6.
_RELATIVE_STEP = 1e-5


def uncertainty_map(
    model: Any,
    column: int | str | None = None,
    *,
    part: str = "total",
    n: int = 60,
    ax: Axes | None = None,
    dims: tuple[int, int] = (0, 1),
    rows: bool = True,
    **image_options: Any,
) -> Axes:
    """Draw the predictive standard deviation over the latent plane, in the units of the data.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    column : int or str, default=None
        The column, by number or by name; None takes the root of the mean variance of all columns.
    part : {"total", "function", "noise"}, default="total"
        The uncertainty of an observation, or what of it comes from the function or from the noise.
    n : int, default=60
        Cells along the longer side.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    dims : pair of int, default=(0, 1)
        The latent dimensions on the axes; the others are kept at their medians.
    rows : bool, default=True
        Whether to draw the rows as dots.
    **image_options
        Passed on to `Axes.imshow`.
    """
    if part not in ("total", "function", "noise"):
        raise ValueError(f'part must be "total", "function" or "noise", not {part!r}.')
    check_is_fitted(model)
    chosen = slice(None) if column is None else [_column_number(model, column)]

    def standard_deviation(latents: FloatArray) -> FloatArray:
        variance = _part_of(model.decode(latents), part)
        return np.sqrt(np.mean(np.broadcast_to(variance, (len(latents), model.n_features_in_))[:, chosen], 1))

    what = "mean of columns" if column is None else str(column)
    label = f"standard deviation, {what}" + ("" if part == "total" else f" ({part})")
    return _draw_map(model, standard_deviation, label, n, ax, dims, rows, image_options)


def magnification(
    model: Any,
    *,
    n: int = 60,
    ax: Axes | None = None,
    dims: tuple[int, int] = (0, 1),
    rows: bool = True,
    **image_options: Any,
) -> Axes:
    """Draw by how much the mean decoder stretches areas of the latent plane, on a logarithmic scale.

    With J the derivatives of the decoded means in the two latents, an area around a point is decoded to one
    that is sqrt(det(J'J)) times as large. Where it is large, a small step changes the data a lot, and points
    are farther apart than they look. Far from all rows it says little. Columns are taken in their own units;
    categorical columns decode to a code and add nothing.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    n : int, default=60
        Cells along the longer side.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    dims : pair of int, default=(0, 1)
        The latent dimensions on the axes; the others are kept at their medians.
    rows : bool, default=True
        Whether to draw the rows as dots.
    **image_options
        Passed on to `Axes.imshow`.
    """
    check_is_fitted(model)

    def factor(latents: FloatArray) -> FloatArray:
        return magnification_at(model, latents, dims)

    return _draw_map(
        model,
        factor,
        "magnification $\\sqrt{\\det J^\\top J}$",
        n,
        ax,
        dims,
        rows,
        {"norm": "log"} | image_options,
    )


def magnification_at(model: Any, latents: FloatArray, dims: tuple[int, int]) -> FloatArray:
    """sqrt(det(J'J)) at latents (n, Q); J (M, 2) are derivatives in two of them, by central differences."""
    step = _RELATIVE_STEP * np.ptp(plane_of(model.embedding_, dims), axis=0).max()
    step = step if step > 0 else _RELATIVE_STEP
    slopes = []
    for dim in dims:
        shift = step * np.eye(latents.shape[1])[dim]
        slopes.append((model.decode(latents + shift).mean - model.decode(latents - shift).mean) / (2 * step))
    first, second = slopes
    inner = np.sum(first * second, axis=1)
    determinant = np.sum(first**2, axis=1) * np.sum(second**2, axis=1) - inner**2
    return np.sqrt(np.maximum(determinant, 0.0))


def _part_of(decoded: Decoded, part: str) -> FloatArray | float:
    if part == "total":
        return decoded.variance
    return decoded.weight_variance if part == "function" else decoded.noise_variance


def _column_number(model: Any, column: int | str) -> int:
    names = list(getattr(model, "feature_names_in_", ()))
    if isinstance(column, str):
        if column not in names:
            raise ValueError(f"There is no column named {column!r}.")
        return names.index(column)
    if not 0 <= column < model.n_features_in_:
        raise ValueError(f"column must be one of the {model.n_features_in_} columns, not {column}.")
    return column


def _draw_map(
    model: Any,
    values_at: Callable[[FloatArray], FloatArray],
    label: str,
    n: int,
    ax: Axes | None,
    dims: tuple[int, int],
    rows: bool,
    image_options: dict[str, Any],
) -> Axes:
    plane = plane_of(model.embedding_, dims)
    margin = _MARGIN * np.ptp(plane, axis=0)
    cells = cells_over(np.stack([plane.min(axis=0) - margin, plane.max(axis=0) + margin]), (1, 1), n)
    latents = latents_at(model, cells.centres, dims)
    pieces = np.split(latents, range(_POINTS_AT_ONCE, len(latents), _POINTS_AT_ONCE))
    values = np.concatenate([values_at(piece) for piece in pieces]).reshape(-1, cells.n_columns)
    ax = axes_or_new(ax, (5.5, 5.0))
    if not np.any(values > 0):
        image_options = image_options | {"norm": None}
    drawn = ax.imshow(values, **{"cmap": COLOUR_MAP, "extent": cells.extent} | image_options)
    ax.figure.colorbar(drawn, ax=ax, shrink=0.8, label=label)
    if rows:
        ax.scatter(*plane.T, s=2, color="white", alpha=0.5, linewidths=0)
    return finish_plane(ax, dims)
