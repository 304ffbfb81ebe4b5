"""Pictures of a fitted model with matplotlib: `pip install 'srflvm[plot]'`.

Every function draws into the Axes it is given, or into a new figure, and returns the Axes. None shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import KDTree
from sklearn.utils.validation import check_is_fitted

from srflvm._types import FloatArray

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

_MOST_CLASSES = 20
_INK = "#333333"


def require_matplotlib() -> None:
    """Raise an ImportError that says what to install if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("Plotting needs matplotlib: pip install 'srflvm[plot]'") from error


def embedding(
    model_or_Z: Any,
    labels: Any = None,
    *,
    ax: Axes | None = None,
    dims: tuple[int, int] = (0, 1),
    names: str | None = "medians",
    size: float | None = None,
    alpha: float = 0.8,
) -> Axes:
    """Scatter an embedding, coloured by labels.

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
    """
    if names not in ("medians", "legend", None):
        raise ValueError(f'names must be "medians", "legend" or None, not {names!r}.')
    points = _plane(_latents(model_or_Z), dims)
    ax = _axes(ax, (5.0, 5.0))
    style = {
        "s": size if size is not None else float(np.clip(16000 / len(points), 3, 30)),
        "alpha": alpha,
        "linewidths": 0,
    }
    if labels is None:
        ax.scatter(*points.T, color=COLOURS[0], **style)
    else:
        _scatter_labelled(ax, points, _check_labels(labels, len(points)), names, style)
    return _finish_plane(ax, dims)


def decoded_grid(
    model: Any,
    image_shape: tuple[int, int],
    n: int = 20,
    *,
    ax: Axes | None = None,
    dims: tuple[int, int] = (0, 1),
    max_uncertainty: float = 0.25,
    **image_options: Any,
) -> Axes:
    """Decode a grid over the latent plane and tile the images.

    Cells farther than their own diagonal from every row, or where the model is unsure, stay blank.

    Parameters
    ----------
    model : SRFLVM
        A fitted model whose columns are the pixels of images.
    image_shape : pair of int
        Height and width of an image.
    n : int, default=20
        Cells along the longer side.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    dims : pair of int, default=(0, 1)
        The latent dimensions on the axes; the others are kept at their medians.
    max_uncertainty : float, default=0.25
        Blank a cell where the variance of the function exceeds this share of its prior variance.
    **image_options
        Passed on to `Axes.imshow`.
    """
    _check_image_shape(model, image_shape)
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}.")
    plane = _plane(model.embedding_, dims)
    centres, cell, n_columns = _cells(plane, image_shape, n)
    latents = np.tile(np.median(model.embedding_, axis=0), (len(centres), 1))
    latents[:, list(dims)] = centres
    decoded = model.decode(latents)
    far = KDTree(plane).query(centres)[0] > np.hypot(*cell)
    unsure = decoded.weight_variance[:, 0] > max_uncertainty * model.amplitude_
    tiles = np.where((far | unsure)[:, None], np.nan, decoded.mean)
    low, high = centres.min(axis=0) - cell / 2, centres.max(axis=0) + cell / 2
    options = {"cmap": "gray_r", "extent": (low[0], high[0], low[1], high[1])} | image_options
    ax = _axes(ax, (6.0, 6.0))
    ax.imshow(_tile(tiles, image_shape, n_columns), **options)
    return _finish_plane(ax, dims)


def elbo_curve(model: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the bound per entry of the data at each sweep, and where the starts that lost were given up."""
    check_is_fitted(model)
    n_entries = len(model.embedding_) * model.n_features_in_
    history = model.elbo_history_ / n_entries
    ax = _axes(ax, (5.0, 3.5))
    ax.plot(
        np.arange(1, len(history) + 1),
        history,
        color=COLOURS[0],
        linewidth=2,
        marker="o" if len(history) == 1 else None,
        label=f"start {model.start_}" + (", won" if len(model.start_elbos_) > 1 else ""),
    )
    winner = model.start_.removeprefix("landmarks, ")
    lost = {name: bound for name, bound in model.start_elbos_.items() if name != winner}
    for index, (name, bound) in enumerate(lost.items()):
        colour = COLOURS[(index + 2) % len(COLOURS)]
        ax.axhline(bound / n_entries, color=colour, linestyle="--", label=f"start {name}, given up")
    ax.set(xlabel="sweep", ylabel="bound per entry (nats)")
    ax.locator_params(axis="x", integer=True)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


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
    _check_image_shape(model, image_shape)
    Y = np.asarray(Y, dtype=np.float64)
    decoded = model.decode(*model.transform(Y, return_std=True))
    std = np.sqrt(decoded.latent_variance)
    ax = _axes(ax, (len(Y), 3.0))
    factor = max(int(np.ptp(Y) / std.max()), 1) if std.any() else 1
    canvas = _tile(np.concatenate([Y, decoded.mean, factor * std]), image_shape, len(Y))
    options: dict[str, Any] = {"cmap": "gray_r"} | image_options
    ax.imshow(canvas, **options)
    centres = (np.arange(3) + 0.5) * len(canvas) / 3 - 0.5
    ax.set_yticks(centres, labels=["data", "decoded", f"std x {factor}"])
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    require_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize, layout="constrained")[1]


def _latents(model_or_Z: Any) -> FloatArray:
    if hasattr(model_or_Z, "fit_transform"):
        check_is_fitted(model_or_Z)
        return model_or_Z.embedding_
    return np.asarray(model_or_Z, dtype=np.float64)


def _plane(latents: FloatArray, dims: tuple[int, int]) -> FloatArray:
    if latents.ndim != 2 or latents.shape[1] < 2:
        raise ValueError(f"A plane needs latents of shape (n, 2 or more), not {latents.shape}.")
    if len(dims) != 2 or not all(0 <= dim < latents.shape[1] for dim in dims):
        raise ValueError(f"dims must be two of the {latents.shape[1]} latent dimensions, not {dims}.")
    return latents[:, list(dims)]


def _check_labels(labels: Any, n_points: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != (n_points,):
        raise ValueError(f"labels must have shape ({n_points},), one for each point, not {labels.shape}.")
    return labels.astype(str) if labels.dtype == object else labels


def _scatter_labelled(
    ax: Axes, points: FloatArray, labels: np.ndarray, names: str | None, style: Any
) -> None:
    classes = np.unique(labels)
    if len(classes) > _MOST_CLASSES and np.issubdtype(labels.dtype, np.number):
        drawn = ax.scatter(*points.T, c=labels, cmap="cividis", **style)
        ax.figure.colorbar(drawn, ax=ax, shrink=0.8)
        return
    for index, name in enumerate(classes):
        turn, colour = divmod(index, len(COLOURS))
        marker = MARKERS[turn % len(MARKERS)]
        ax.scatter(*points[labels == name].T, color=COLOURS[colour], marker=marker, label=str(name), **style)
    if names == "legend":
        ax.legend(frameon=False, markerscale=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    elif names == "medians":
        for name in classes:
            _write_name(ax, np.median(points[labels == name], axis=0), str(name))


def _write_name(ax: Axes, place: FloatArray, name: str) -> None:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=3, foreground="white")]
    ax.text(place[0], place[1], name, ha="center", va="center", weight="bold", color=_INK, path_effects=halo)


def _check_image_shape(model: Any, image_shape: tuple[int, int]) -> None:
    check_is_fitted(model)
    if len(image_shape) != 2 or np.prod(image_shape) != model.n_features_in_:
        raise ValueError(
            f"image_shape {image_shape} does not have {model.n_features_in_} pixels, as a row has."
        )


def _cells(plane: FloatArray, image_shape: tuple[int, int], n: int) -> tuple[FloatArray, FloatArray, int]:
    """Centres of the cells row by row from the top left, width and height of one, and cells in a row."""
    span = np.ptp(plane, axis=0)
    span = np.where(span > 0, span, 1.0)
    shape = np.array([image_shape[1], image_shape[0]], dtype=np.float64)
    cell = shape * np.max(span / shape) / n
    counts = np.ceil(span / cell - 1e-9).astype(int)
    middle = (plane.min(axis=0) + plane.max(axis=0)) / 2
    x, y = (m + c * (np.arange(k) - (k - 1) / 2) for m, c, k in zip(middle, cell, counts, strict=True))
    across, down = np.meshgrid(x, y[::-1])
    return np.column_stack([across.ravel(), down.ravel()]), cell, int(counts[0])


def _tile(images: FloatArray, image_shape: tuple[int, int], n_columns: int) -> FloatArray:
    """Flat images in rows of `n_columns` as one image, with a margin of a blank pixel around each."""
    framed = np.pad(images.reshape(-1, *image_shape), ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    height, width = framed.shape[1:]
    return framed.reshape(-1, n_columns, height, width).swapaxes(1, 2).reshape(-1, n_columns * width)


def _finish_plane(ax: Axes, dims: tuple[int, int]) -> Axes:
    ax.set_aspect("equal")
    ax.set(xlabel=f"latent {dims[0] + 1}", ylabel=f"latent {dims[1] + 1}")
    ax.locator_params(nbins=5)
    return ax
