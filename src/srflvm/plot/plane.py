"""Pictures over the plane of two latent dimensions: the rows, decoded cells, and maps of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.spatial import KDTree
from sklearn.utils.validation import check_is_fitted

from srflvm._typing import FloatArray
from srflvm.plot.images import ImageShape
from srflvm.plot.style import COLOUR_MAP, COLOURS, INK, MARKERS, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from srflvm.posterior.base import Decoded

# More distinct numbers than these get a colour bar.
_MOST_CLASSES = 20

# Profiles stand in cells of this height and width.
_PROFILE = (2, 3)

# A map reaches beyond the rows by this share of their span.
_MARGIN = 0.08
_POINTS_AT_ONCE = 512

# Share of the span of the rows. The error of a central difference is about (step times frequency)^2 / 6.
_RELATIVE_STEP = 1e-5


class _Points(NamedTuple):
    """Points of the plane (n, 2), the semi-axes of their ellipses (n, 2) or None, and their style."""

    centres: FloatArray
    radii: FloatArray | None
    style: dict[str, Any]

    def select(self, chosen: np.ndarray) -> _Points:
        """Return some of the points."""
        return _Points(self.centres[chosen], None if self.radii is None else self.radii[chosen], self.style)


def embedding(
    model_or_Z: Any,
    labels: Any = None,
    *,
    ax: Axes | None = None,
    dims: tuple[int, int] = (0, 1),
    names: str | None = "medians",
    size: float | None = None,
    alpha: float = 0.8,
    ellipses: float = 0.0,
    Z_std: Any = None,
) -> Axes:
    """Scatter an embedding, coloured by labels, with ellipses of uncertainty.

    Parameters
    ----------
    model_or_Z : SRFLVM or array-like of shape (n, Q)
        A fitted model, for its `embedding_`, or latent points.
    labels : array-like of shape (n,), default=None
        Classes, or numbers: more than 20 distinct numbers get a colour bar.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    dims : pair of int, default=(0, 1)
        The latent dimensions on the axes.
    names : {"medians", "legend"} or None, default="medians"
        Where the names of the classes stand.
    size : float, default=None
        Area of a point; None chooses by their number.
    alpha : float, default=0.8
        Opacity of a point.
    ellipses : float, default=0
        Draw around each point an ellipse with semi-axes of so many standard deviations; 0 draws none. The
        ellipses are parallel to the axes of the plane, because correlations are not kept.
    Z_std : array-like of shape (n, Q), default=None
        Standard deviations for the ellipses; None means `embedding_std_` of the model.
    """
    if names not in ("medians", "legend", None):
        raise ValueError(f'names must be "medians", "legend" or None, not {names!r}.')
    latents = _latents_of(model_or_Z)
    centres = _plane_of(latents, dims)
    radii = _radii(model_or_Z, latents, ellipses, Z_std, dims) if ellipses else None
    usual = float(np.clip(16000 / len(centres), 3, 30)) / (6.0 if ellipses else 1.0)
    points = _Points(centres, radii, {"s": usual if size is None else size, "alpha": alpha, "linewidths": 0})
    ax = axes_or_new(ax, (5.0, 5.0))
    if labels is None:
        _scatter(ax, points, color=COLOURS[0])
    else:
        _scatter_labelled(ax, points, _check_labels(labels, len(centres)), names)
    return _finish(ax, dims)


def _radii(
    model_or_Z: Any, latents: FloatArray, ellipses: float, Z_std: Any, dims: tuple[int, int]
) -> FloatArray:
    """Return the semi-axes of the ellipses (n, 2)."""
    if Z_std is None:
        if not hasattr(model_or_Z, "fit_transform"):
            raise ValueError("ellipses of given points need standard deviations. Give Z_std.")
        check_is_fitted(model_or_Z)
        Z_std = model_or_Z.embedding_std_
    stds = np.asarray(Z_std, dtype=np.float64)
    if stds.shape != latents.shape or ellipses < 0 or np.any(stds < 0):
        raise ValueError(f"ellipses and Z_std must be non-negative, Z_std of shape {latents.shape}.")
    return ellipses * _plane_of(stds, dims)


def _check_labels(labels: Any, n_points: int) -> np.ndarray:
    """Return the labels as an array, and refuse those that are not one for each point."""
    labels = np.asarray(labels)
    if labels.shape != (n_points,):
        raise ValueError(f"labels must have shape ({n_points},), one for each point, not {labels.shape}.")
    return labels.astype(str) if labels.dtype == object else labels


def _scatter(ax: Axes, points: _Points, **look: Any) -> Any:
    """Scatter points, and below them their ellipses in the same colours."""
    drawn = ax.scatter(*points.centres.T, **look, **points.style)
    if points.radii is None:
        return drawn
    from matplotlib.collections import EllipseCollection

    drawn.update_scalarmappable()
    diameters = 2.0 * points.radii
    ellipses = EllipseCollection(
        diameters[:, 0],
        diameters[:, 1],
        np.zeros(len(diameters)),
        units="xy",
        offsets=points.centres,
        offset_transform=ax.transData,
        facecolors=drawn.get_facecolor(),
        alpha=0.25,
        linewidths=0,
        zorder=drawn.get_zorder() - 0.5,
    )
    ax.add_collection(ellipses)
    ax.update_datalim(np.concatenate([points.centres - points.radii, points.centres + points.radii]))
    ax.autoscale_view()
    return drawn


def _scatter_labelled(ax: Axes, points: _Points, labels: np.ndarray, names: str | None) -> None:
    """Scatter points in the colours of their classes, or of their numbers if there are many."""
    classes = np.unique(labels)
    if len(classes) > _MOST_CLASSES and np.issubdtype(labels.dtype, np.number):
        drawn = _scatter(ax, points, c=labels, cmap=COLOUR_MAP)
        ax.figure.colorbar(drawn, ax=ax, shrink=0.8)
        return
    for index, name in enumerate(classes):
        marker = MARKERS[index // len(COLOURS) % len(MARKERS)]
        _scatter(
            ax,
            points.select(labels == name),
            color=COLOURS[index % len(COLOURS)],
            marker=marker,
            label=str(name),
        )
    if names == "legend":
        ax.legend(frameon=False, markerscale=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    elif names == "medians":
        for name in classes:
            _write_name(ax, np.median(points.centres[labels == name], axis=0), str(name))


def _write_name(ax: Axes, point: FloatArray, name: str) -> None:
    """Write the name of a class at a point."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=3, foreground="white")]
    ax.text(point[0], point[1], name, ha="center", va="center", weight="bold", color=INK, path_effects=halo)


def decoded_grid(
    model: Any,
    image_shape: tuple[int, int] | None = None,
    n: int = 20,
    *,
    ax: Axes | None = None,
    dims: tuple[int, int] = (0, 1),
    max_uncertainty: float = 0.25,
    **image_options: Any,
) -> Axes:
    """Decode a grid over the latent plane and tile the images, or draw a profile in each cell.

    Cells that are farther than their own diagonal from every row, or where the uncertainty is large, stay
    blank.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    image_shape : pair of int, default=None
        Height and width of an image whose pixels are the columns. None draws a line in each cell: the columns
        from left to right, all cells on one scale.
    n : int, default=20
        Cells along the longer side.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    dims : pair of int, default=(0, 1)
        The latent dimensions on the axes; the others are kept at their medians.
    max_uncertainty : float, default=0.25
        Blank a cell where the variance of the function exceeds this share of its prior variance, on average
        over the columns.
    **image_options
        Passed on to `Axes.imshow`, or to the `LineCollection` of the profiles.
    """
    check_is_fitted(model)
    shape = None if image_shape is None else ImageShape.of_rows(image_shape, model.n_features_in_)
    plane = _plane_of(model.embedding_, dims)
    cells = _cells_over(plane, shape or _PROFILE, n)
    latents = _latents_at(model, cells.centres, dims)
    far = KDTree(plane).query(cells.centres)[0] > np.hypot(*cells.size)
    blank = far | (model._posterior.unknown_share(latents) > max_uncertainty)
    decoded = np.where(blank[:, None], np.nan, model.decode(latents).mean)
    ax = axes_or_new(ax, (6.0, 6.0))
    if shape is None:
        _draw_profiles(ax, decoded, cells, image_options)
    else:
        options = {"cmap": "gray_r", "extent": cells.extent} | image_options
        ax.imshow(shape.tile(decoded, cells.n_columns), **options)
    return _finish(ax, dims)


def _draw_profiles(ax: Axes, decoded: FloatArray, cells: _Cells, options: dict[str, Any]) -> None:
    """Draw a line for each row that is not blank, within nine tenths of its cell."""
    from matplotlib.collections import LineCollection

    shown = np.isfinite(decoded).all(axis=1)
    profiles, centres = decoded[shown], cells.centres[shown]
    low, span = (profiles.min(), np.ptp(profiles)) if len(profiles) else (0.0, 1.0)
    heights = (profiles - low) / (span if span > 0 else 1.0) - 0.5
    across = np.linspace(-0.5, 0.5, decoded.shape[1]) if decoded.shape[1] > 1 else np.zeros(1)
    x = centres[:, :1] + 0.9 * cells.size[0] * across
    y = centres[:, 1:] + 0.9 * cells.size[1] * heights
    lines = LineCollection(list(np.stack([x, y], axis=-1)), **{"colors": INK, "linewidths": 0.8} | options)
    ax.add_collection(lines)
    left, right, lower, upper = cells.extent
    ax.set(xlim=(left, right), ylim=(lower, upper))


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
        The uncertainty of an observation, or its part that comes from the function or from the noise.
    n : int, default=60
        Cells along the longer side.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    dims : pair of int, default=(0, 1)
        The latent dimensions on the axes; the others are kept at their medians.
    rows : bool, default=True
        Draw the rows as dots.
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
    are farther apart than they look. Far from all rows it means little. Columns are taken in their own units.
    Categorical columns decode to a code and add nothing.

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
        Draw the rows as dots.
    **image_options
        Passed on to `Axes.imshow`.
    """
    check_is_fitted(model)

    def factor(latents: FloatArray) -> FloatArray:
        return _magnification_at(model, latents, dims)

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


def _magnification_at(model: Any, latents: FloatArray, dims: tuple[int, int]) -> FloatArray:
    """Compute sqrt(det(J'J)) at latents (n, Q).

    J (M, 2) are derivatives in two of the dimensions, by central differences.
    """
    step = _RELATIVE_STEP * np.ptp(_plane_of(model.embedding_, dims), axis=0).max()
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
    """Return the total variance, or its part that comes from the function or from the noise."""
    if part == "total":
        return decoded.variance
    return decoded.weight_variance if part == "function" else decoded.noise_variance


def _column_number(model: Any, column: int | str) -> int:
    """Return the number of a column given by number or name."""
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
    """Draw values over the plane as an image with a colour bar."""
    plane = _plane_of(model.embedding_, dims)
    margin = _MARGIN * np.ptp(plane, axis=0)
    cells = _cells_over(np.stack([plane.min(axis=0) - margin, plane.max(axis=0) + margin]), (1, 1), n)
    latents = _latents_at(model, cells.centres, dims)
    pieces = np.split(latents, range(_POINTS_AT_ONCE, len(latents), _POINTS_AT_ONCE))
    values = np.concatenate([values_at(piece) for piece in pieces]).reshape(-1, cells.n_columns)
    ax = axes_or_new(ax, (5.5, 5.0))
    if not np.any(values > 0):
        image_options = image_options | {"norm": None}
    drawn = ax.imshow(values, **{"cmap": COLOUR_MAP, "extent": cells.extent} | image_options)
    ax.figure.colorbar(drawn, ax=ax, shrink=0.8, label=label)
    if rows:
        ax.scatter(*plane.T, s=2, color="white", alpha=0.5, linewidths=0)
    return _finish(ax, dims)


class _Cells(NamedTuple):
    """Cells over the plane: centres (n, 2) row by row from the top left, size of one, number in a row."""

    centres: FloatArray
    size: FloatArray
    n_columns: int

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, lower and upper end of all cells."""
        low, high = self.centres.min(axis=0) - self.size / 2, self.centres.max(axis=0) + self.size / 2
        return low[0], high[0], low[1], high[1]


def _latents_of(model_or_Z: Any) -> FloatArray:
    """Return the embedding of a fitted model, or the given points."""
    if hasattr(model_or_Z, "fit_transform"):
        check_is_fitted(model_or_Z)
        return model_or_Z.embedding_
    return np.asarray(model_or_Z, dtype=np.float64)


def _plane_of(latents: FloatArray, dims: tuple[int, int]) -> FloatArray:
    """Return two columns of latents."""
    if latents.ndim != 2 or latents.shape[1] < 2:
        raise ValueError(f"A plane needs latents of shape (n, 2 or more), not {latents.shape}.")
    if len(dims) != 2 or not all(0 <= dim < latents.shape[1] for dim in dims):
        raise ValueError(f"dims must be two of the {latents.shape[1]} latent dimensions, not {dims}.")
    return latents[:, list(dims)]


def _cells_over(plane: FloatArray, shape: tuple[int, int], n: int) -> _Cells:
    """Cover points with cells of the proportions of `shape` (height, width), `n` along the longer side."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}.")
    span = np.ptp(plane, axis=0)
    span = np.where(span > 0, span, 1.0)
    proportions = np.array([shape[1], shape[0]], dtype=np.float64)
    size = proportions * np.max(span / proportions) / n
    counts = np.ceil(span / size - 1e-9).astype(int)
    middle = (plane.min(axis=0) + plane.max(axis=0)) / 2
    x, y = (m + c * (np.arange(k) - (k - 1) / 2) for m, c, k in zip(middle, size, counts, strict=True))
    across, down = np.meshgrid(x, y[::-1])
    return _Cells(np.column_stack([across.ravel(), down.ravel()]), size, int(counts[0]))


def _latents_at(model: Any, points: FloatArray, dims: tuple[int, int]) -> FloatArray:
    """Return latents (n, Q) at points of the plane, with the other dimensions at their medians."""
    latents = np.tile(np.median(model.embedding_, axis=0), (len(points), 1))
    latents[:, list(dims)] = points
    return latents


def _finish(ax: Axes, dims: tuple[int, int]) -> Axes:
    """Set one scale for both directions, and their names."""
    ax.set_aspect("equal")
    ax.set(xlabel=f"latent {dims[0] + 1}", ylabel=f"latent {dims[1] + 1}")
    ax.locator_params(nbins=5)
    return ax
