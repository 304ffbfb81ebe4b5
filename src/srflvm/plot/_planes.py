"""Two of the latent dimensions as a plane: its points, and cells over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from srflvm._types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Cells(NamedTuple):
    """Centres (n, 2) of cells row by row from the top left, width and height of one, and cells in a row."""

    centres: FloatArray
    size: FloatArray
    n_columns: int

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, lower and upper end of them all."""
        low, high = self.centres.min(axis=0) - self.size / 2, self.centres.max(axis=0) + self.size / 2
        return low[0], high[0], low[1], high[1]


def latents_of(model_or_Z: Any) -> FloatArray:
    """The embedding of a fitted model, or the points given."""
    if hasattr(model_or_Z, "fit_transform"):
        check_is_fitted(model_or_Z)
        return model_or_Z.embedding_
    return np.asarray(model_or_Z, dtype=np.float64)


def plane_of(latents: FloatArray, dims: tuple[int, int]) -> FloatArray:
    """Two columns of latents."""
    if latents.ndim != 2 or latents.shape[1] < 2:
        raise ValueError(f"A plane needs latents of shape (n, 2 or more), not {latents.shape}.")
    if len(dims) != 2 or not all(0 <= dim < latents.shape[1] for dim in dims):
        raise ValueError(f"dims must be two of the {latents.shape[1]} latent dimensions, not {dims}.")
    return latents[:, list(dims)]


def cells_over(plane: FloatArray, shape: tuple[int, int], n: int) -> Cells:
    """Cells of the proportions of `shape` (height, width) that cover points, `n` along the longer side."""
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
    return Cells(np.column_stack([across.ravel(), down.ravel()]), size, int(counts[0]))


def latents_at(model: Any, points: FloatArray, dims: tuple[int, int]) -> FloatArray:
    """Latents (n, Q) at points of the plane; the other dimensions are at their medians over the rows."""
    latents = np.tile(np.median(model.embedding_, axis=0), (len(points), 1))
    latents[:, list(dims)] = points
    return latents


def finish_plane(ax: Axes, dims: tuple[int, int]) -> Axes:
    """One scale for both directions, and their names."""
    ax.set_aspect("equal")
    ax.set(xlabel=f"latent {dims[0] + 1}", ylabel=f"latent {dims[1] + 1}")
    ax.locator_params(nbins=5)
    return ax
