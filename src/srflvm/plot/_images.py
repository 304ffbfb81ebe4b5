"""Rows of data that are images, or profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import KDTree
from sklearn.utils.validation import check_is_fitted

from srflvm._types import FloatArray
from srflvm.named import with_names_of
from srflvm.plot._planes import Cells, cells_over, finish_plane, latents_at, plane_of
from srflvm.plot._style import INK, axes_or_new
from srflvm.posterior import row_chunks
from srflvm.site_posterior import SitePosterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Profiles stand in cells of this height and width.
_PROFILE = (2, 3)


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

    Cells farther than their own diagonal from every row, or where the model is unsure, stay blank.

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
    if image_shape is not None:
        check_image_shape(image_shape, model.n_features_in_)
    plane = plane_of(model.embedding_, dims)
    cells = cells_over(plane, image_shape or _PROFILE, n)
    latents = latents_at(model, cells.centres, dims)
    far = KDTree(plane).query(cells.centres)[0] > np.hypot(*cells.size)
    blank = far | (unknown_share(model, latents) > max_uncertainty)
    decoded = np.where(blank[:, None], np.nan, model.decode(latents).mean)
    ax = axes_or_new(ax, (6.0, 6.0))
    if image_shape is None:
        _draw_profiles(ax, decoded, cells, image_options)
    else:
        options = {"cmap": "gray_r", "extent": cells.extent} | image_options
        ax.imshow(tile(decoded, image_shape, cells.n_columns), **options)
    return finish_plane(ax, dims)


def unknown_share(model: Any, latents: FloatArray) -> FloatArray:
    """The share of the function's prior variance that the data have left, a mean over columns, (n,)."""
    posterior = model._posterior
    if not isinstance(posterior, SitePosterior):
        return model.decode(latents).weight_variance[:, 0] / model.amplitude_
    variances = [posterior.function_moments(latents[rows])[1] for rows in row_chunks(len(latents))]
    return np.mean(np.concatenate(variances) / posterior.amplitude, axis=1)


def _draw_profiles(ax: Axes, decoded: FloatArray, cells: Cells, options: dict[str, Any]) -> None:
    """A line for each row that is not blank, within nine tenths of its cell."""
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


def reconstructions(
    model: Any, Y: Any, image_shape: tuple[int, int], *, ax: Axes | None = None, **image_options: Any
) -> Axes:
    """Rows of data, below them what the model makes of them, and below that how unsure it is.

    The third line is the standard deviation from not knowing a row's latent exactly, multiplied by the
    number beside it.

    Parameters
    ----------
    model : SRFLVM
        A fitted model whose columns are the pixels of images.
    Y : array-like of shape (n, M)
        A few images, one a row.
    image_shape : pair of int
        Height and width of an image.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    **image_options
        Passed on to `Axes.imshow`.
    """
    check_is_fitted(model)
    check_image_shape(image_shape, model.n_features_in_)
    Y = np.asarray(Y, dtype=np.float64)
    decoded = model.decode(*model.transform(with_names_of(model, Y), return_std=True))
    std = np.sqrt(decoded.latent_variance)
    ax = axes_or_new(ax, (len(Y), 3.0))
    factor = max(int(np.ptp(Y) / std.max()), 1) if std.any() else 1
    lines = {"data": Y, "decoded": decoded.mean, f"std x {factor}": factor * std}
    draw_lines(ax, lines, image_shape, image_options)
    return ax


def draw_lines(
    ax: Axes, lines: dict[str, FloatArray], image_shape: tuple[int, int], image_options: dict[str, Any]
) -> None:
    """Lines of images (n, M), one below the other, with their names on the left."""
    n_images = len(next(iter(lines.values())))
    canvas = tile(np.concatenate(list(lines.values())), image_shape, n_images)
    options: dict[str, Any] = {"cmap": "gray_r"} | image_options
    ax.imshow(canvas, **options)
    centres = (np.arange(len(lines)) + 0.5) * len(canvas) / len(lines) - 0.5
    ax.set_yticks(centres, labels=list(lines))
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def check_image_shape(image_shape: tuple[int, int], n_columns: int) -> None:
    """Whether a row of data is an image of this shape."""
    if len(image_shape) != 2 or np.prod(image_shape) != n_columns:
        raise ValueError(f"image_shape {image_shape} does not have {n_columns} pixels, as a row has.")


def tile(images: FloatArray, image_shape: tuple[int, int], n_columns: int) -> FloatArray:
    """Flat images in rows of `n_columns` as one image, with a margin of a blank pixel around each."""
    framed = np.pad(images.reshape(-1, *image_shape), ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    height, width = framed.shape[1:]
    return framed.reshape(-1, n_columns, height, width).swapaxes(1, 2).reshape(-1, n_columns * width)
