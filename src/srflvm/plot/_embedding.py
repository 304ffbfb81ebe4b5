"""The latents of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from srflvm._types import FloatArray
from srflvm.plot._planes import finish_plane, latents_of, plane_of
from srflvm.plot._style import COLOUR_MAP, COLOURS, INK, MARKERS, axes_or_new, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_CLASSES = 20


class _Points(NamedTuple):
    """Places (n, 2), the semi-axes of their ellipses (n, 2) or None, and how a point looks."""

    places: FloatArray
    radii: FloatArray | None
    style: dict[str, Any]

    def those(self, chosen: np.ndarray) -> _Points:
        return _Points(self.places[chosen], None if self.radii is None else self.radii[chosen], self.style)


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
        Draw around each point an ellipse with semi-axes of so many standard deviations; 0 draws none. Their
        axes are parallel to those of the plane, as correlations are not kept.
    Z_std : array-like of shape (n, Q), default=None
        Standard deviations for the ellipses; None means `embedding_std_` of the model.
    """
    if names not in ("medians", "legend", None):
        raise ValueError(f'names must be "medians", "legend" or None, not {names!r}.')
    latents = latents_of(model_or_Z)
    places = plane_of(latents, dims)
    radii = _radii(model_or_Z, latents, ellipses, Z_std, dims) if ellipses else None
    usual = float(np.clip(16000 / len(places), 3, 30)) / (6.0 if ellipses else 1.0)
    points = _Points(places, radii, {"s": usual if size is None else size, "alpha": alpha, "linewidths": 0})
    ax = axes_or_new(ax, (5.0, 5.0))
    if labels is None:
        _scatter(ax, points, color=colour(0))
    else:
        _scatter_labelled(ax, points, _check_labels(labels, len(places)), names)
    return finish_plane(ax, dims)


def _radii(
    model_or_Z: Any, latents: FloatArray, ellipses: float, Z_std: Any, dims: tuple[int, int]
) -> FloatArray:
    if Z_std is None:
        if not hasattr(model_or_Z, "fit_transform"):
            raise ValueError("ellipses of given points need their standard deviations: give Z_std.")
        check_is_fitted(model_or_Z)
        Z_std = model_or_Z.embedding_std_
    stds = np.asarray(Z_std, dtype=np.float64)
    if stds.shape != latents.shape or ellipses < 0 or np.any(stds < 0):
        raise ValueError(f"ellipses and Z_std must be non-negative, Z_std of shape {latents.shape}.")
    return ellipses * plane_of(stds, dims)


def _check_labels(labels: Any, n_points: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != (n_points,):
        raise ValueError(f"labels must have shape ({n_points},), one for each point, not {labels.shape}.")
    return labels.astype(str) if labels.dtype == object else labels


def _scatter(ax: Axes, points: _Points, **look: Any) -> Any:
    """The points, and below them their ellipses in the same colours."""
    drawn = ax.scatter(*points.places.T, **look, **points.style)
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
        offsets=points.places,
        offset_transform=ax.transData,
        facecolors=drawn.get_facecolor(),
        alpha=0.25,
        linewidths=0,
        zorder=drawn.get_zorder() - 0.5,
    )
    ax.add_collection(ellipses)
    ax.update_datalim(np.concatenate([points.places - points.radii, points.places + points.radii]))
    ax.autoscale_view()
    return drawn


def _scatter_labelled(ax: Axes, points: _Points, labels: np.ndarray, names: str | None) -> None:
    classes = np.unique(labels)
    if len(classes) > _MOST_CLASSES and np.issubdtype(labels.dtype, np.number):
        drawn = _scatter(ax, points, c=labels, cmap=COLOUR_MAP)
        ax.figure.colorbar(drawn, ax=ax, shrink=0.8)
        return
    for index, name in enumerate(classes):
        marker = MARKERS[index // len(COLOURS) % len(MARKERS)]
        _scatter(ax, points.those(labels == name), color=colour(index), marker=marker, label=str(name))
    if names == "legend":
        ax.legend(frameon=False, markerscale=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    elif names == "medians":
        for name in classes:
            _write_name(ax, np.median(points.places[labels == name], axis=0), str(name))


def _write_name(ax: Axes, place: FloatArray, name: str) -> None:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=3, foreground="white")]
    ax.text(place[0], place[1], name, ha="center", va="center", weight="bold", color=INK, path_effects=halo)
