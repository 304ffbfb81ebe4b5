"""Images: rows of data whose columns are pixels, tiled into one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from srflvm._typing import FloatArray
from srflvm.data.reading import with_names_of
from srflvm.plot.style import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ImageShape(NamedTuple):
    """Height and width of the image that a row of data is."""

    height: int
    width: int

    @classmethod
    def of_rows(cls, image_shape: tuple[int, int], n_columns: int) -> ImageShape:
        """Return the shape, and refuse one that does not have as many pixels as a row has columns."""
        if len(image_shape) != 2 or np.prod(image_shape) != n_columns:
            raise ValueError(f"image_shape {image_shape} does not have {n_columns} pixels, as a row has.")
        return cls(*image_shape)

    def tile(self, images: FloatArray, n_columns: int) -> FloatArray:
        """Tile flat images in rows of `n_columns`, with a margin of a blank pixel around each."""
        framed = np.pad(images.reshape(-1, *self), ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
        height, width = framed.shape[1:]
        return framed.reshape(-1, n_columns, height, width).swapaxes(1, 2).reshape(-1, n_columns * width)

    def draw_lines(self, ax: Axes, lines: dict[str, FloatArray], options: dict[str, Any]) -> None:
        """Draw lines of images (n, M), one below the other, with their names on the left."""
        n_images = len(next(iter(lines.values())))
        canvas = self.tile(np.concatenate(list(lines.values())), n_images)
        image_options: dict[str, Any] = {"cmap": "gray_r"} | options
        ax.imshow(canvas, **image_options)
        centres = (np.arange(len(lines)) + 0.5) * len(canvas) / len(lines) - 0.5
        ax.set_yticks(centres, labels=list(lines))
        ax.set_xticks([])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)


def reconstructions(
    model: Any, Y: Any, image_shape: tuple[int, int], *, ax: Axes | None = None, **image_options: Any
) -> Axes:
    """Draw rows of data, below them their reconstructions, and below these the uncertainty.

    The third line is the standard deviation that comes from the uncertainty of a row's latent, multiplied by
    the number beside it.

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
    shape = ImageShape.of_rows(image_shape, model.n_features_in_)
    Y = np.asarray(Y, dtype=np.float64)
    decoded = model.decode(*model.transform(with_names_of(model, Y), return_std=True))
    std = np.sqrt(decoded.latent_variance)
    ax = axes_or_new(ax, (len(Y), 3.0))
    factor = max(int(np.ptp(Y) / std.max()), 1) if std.any() else 1
    lines = {"data": Y, "decoded": decoded.mean, f"std x {factor}": factor * std}
    shape.draw_lines(ax, lines, image_options)
    return ax
