"""Charts of a fit: bound, relevance, kernel, spectral density, imputed entries and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import multivariate_normal
from sklearn.utils.validation import check_is_fitted

from srflvm._typing import FloatArray
from srflvm.plot.images import ImageShape
from srflvm.plot.style import COLOUR_MAP, COLOURS, GREY, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from srflvm.inference.progress import Progress

_BOUND = "bound per entry (nats)"
_MOST_CURVES = 6
_MISSING = COLOURS[1]


def history(model: Any, progress: Sequence[Progress] | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the bound per entry of the data at each sweep, and the last bounds of the other starts.

    A fit keeps the bound of every sweep, which all blocks raise.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    progress : sequence of Progress, default=None
        List that a fit with `callbacks=[progress.append]` has filled. The bound is then drawn against the
        seconds that the sweeps took, with a curve for each stage: every start, the landmarks, the fit. The
        first sweep compiles, and is the longest. The bounds of a pilot, which are those of a Gaussian fit,
        are moved so that its last is the first of the fit.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax, (5.0, 3.5))
    if progress is not None:
        return _draw_stages(progress, ax)
    n_entries = model.n_samples_seen_ * model.n_features_in_
    bounds = model.elbo_history_ / n_entries
    ax.plot(
        np.arange(1, len(bounds) + 1),
        bounds,
        color=COLOURS[0],
        linewidth=2,
        marker="o" if len(bounds) == 1 else None,
        label=f"start {model.start_}" + (", won" if len(model.start_elbos_) > 1 else ""),
    )
    best = model.start_.removeprefix("landmarks, ")
    lost = {name: bound for name, bound in model.start_elbos_.items() if name != best}
    for index, (name, bound) in enumerate(lost.items()):
        label = f"start {name}, given up"
        ax.axhline(bound / n_entries, color=_colour(index + 2), linestyle="--", label=label)
    ax.locator_params(axis="x", integer=True)
    return _finish(ax, "sweep", _BOUND)


def _draw_stages(progress: Sequence[Progress], ax: Axes) -> Axes:
    """Draw the bound against seconds, a curve for each stage."""
    if not progress:
        raise ValueError("progress is empty: collect it with callbacks=[progress.append] in the fit.")
    shift = _pilot_shift(progress)
    for index, stage in enumerate(dict.fromkeys(report.stage for report in progress)):
        reports = [report for report in progress if report.stage == stage]
        seconds = [report.seconds for report in reports]
        bounds = [report.elbo / report.n_entries + shift * report.is_pilot for report in reports]
        label = f"{stage} (moved)" if reports[0].is_pilot else stage
        ax.plot(seconds, bounds, color=_colour(index), marker=".", label=label)
    return _finish(ax, "seconds of sweeps", _BOUND)


def _pilot_shift(progress: Sequence[Progress]) -> float:
    """Return the difference of the first bound per entry after the pilot and its last one."""
    pilot = [index for index, report in enumerate(progress) if report.is_pilot]
    if not pilot or pilot[-1] + 1 == len(progress):
        return 0.0
    last, first = progress[pilot[-1]], progress[pilot[-1] + 1]
    return first.elbo / first.n_entries - last.elbo / last.n_entries


def relevance(model: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the information of a row about each latent dimension, on average, in nats.

    A bar near zero is a dimension that the model does not use.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax, (5.0, 3.0))
    ax.bar(np.arange(1, len(model.relevance_) + 1), model.relevance_, color=COLOURS[0])
    ax.locator_params(axis="x", integer=True)
    return _finish(ax, "latent dimension", "relevance (nats a row)")


def kernel(model: Any, *, dims: Sequence[int] | None = None, n: int = 200, ax: Axes | None = None) -> Axes:
    """Draw the correlation of the function at two latents against their distance, along each dimension.

    Solid is the kernel of the learned mixture, dashed its estimate by the frozen frequencies, with which the
    model decodes.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    dims : sequence of int, default=None
        The latent dimensions; None takes the six most relevant ones, or all if there are fewer.
    n : int, default=200
        Points on a curve.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    """
    check_is_fitted(model)
    n_latent = model.embedding_.shape[1]
    chosen = np.sort(np.argsort(-model.relevance_)[:_MOST_CURVES]) if dims is None else np.asarray(dims)
    if not np.all((chosen >= 0) & (chosen < n_latent)):
        raise ValueError(f"dims must be among the {n_latent} latent dimensions, not {dims}.")
    span = np.ptp(model.embedding_[:, chosen], axis=0).max()
    distances = np.linspace(0.0, span if span > 0 else 1.0, n)
    ax = axes_or_new(ax, (5.0, 3.5))
    for index, dim in enumerate(chosen):
        points = distances[:, None] * np.eye(n_latent)[dim]
        for method, style in (("mixture", "-"), ("features", "--")):
            curve = model.kernel(points, np.zeros((1, n_latent)), method=method)[:, 0] / model.amplitude_
            label = f"latent {dim + 1}" + (", frozen frequencies" if method == "features" else "")
            ax.plot(distances, curve, style, color=_colour(index), label=label)
    return _finish(ax, "distance of latents", "correlation of the function")


def spectral_density(
    model: Any, *, dims: tuple[int, ...] | None = None, n: int = 200, ax: Axes | None = None
) -> Axes:
    """Draw the density of the learned mixture over frequencies, and the frozen frequencies in it.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    dims : one or two of the dimensions, default=None
        None takes the first two, or the only one. The density is integrated over the others.
    n : int, default=200
        Points along an axis.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    """
    check_is_fitted(model)
    n_latent = model.frequencies_.shape[1]
    chosen = tuple(range(min(n_latent, 2))) if dims is None else tuple(dims)
    if len(chosen) not in (1, 2) or not all(0 <= dim < n_latent for dim in chosen):
        raise ValueError(f"dims must be one or two of the {n_latent} latent dimensions, not {dims}.")
    frequencies = model.frequencies_[:, chosen]
    both = np.concatenate([frequencies, -frequencies])
    along = np.linspace(-1.1, 1.1, n) * np.abs(frequencies).max()
    ax = axes_or_new(ax, (5.5, 3.5) if len(chosen) == 1 else (5.5, 5.0))
    if len(chosen) == 1:
        ax.plot(along, _marginal_density(model, along[:, None], chosen), color=COLOURS[0])
        ax.plot(both[:, 0], np.zeros(len(both)), "|", color=COLOURS[3], label="frozen frequencies")
        return _finish(ax, f"frequency, latent {chosen[0] + 1}", "density")
    points = np.stack(np.meshgrid(along, along), axis=-1).reshape(-1, 2)
    density = _marginal_density(model, points, chosen).reshape(n, n)
    extent = (along[0], along[-1], along[0], along[-1])
    drawn = ax.imshow(density, origin="lower", extent=extent, cmap=COLOUR_MAP)
    ax.figure.colorbar(drawn, ax=ax, shrink=0.8, label="density")
    ax.scatter(*both.T, s=4, color="white", alpha=0.7, linewidths=0)
    ax.set(xlabel=f"frequency, latent {chosen[0] + 1}", ylabel=f"frequency, latent {chosen[1] + 1}")
    return ax


def _marginal_density(model: Any, points: FloatArray, dims: tuple[int, ...]) -> FloatArray:
    """Compute the density of the symmetrised mixture over some of the dimensions, from its marginals."""
    chosen = list(dims)
    total = np.zeros(len(points))
    components = zip(model.mixture_weights_, model.mixture_means_, model.mixture_covariances_, strict=True)
    for weight, mean, covariance in components:
        marginal: Any = multivariate_normal(mean[chosen], covariance[np.ix_(chosen, chosen)])
        total += 0.5 * weight * (marginal.pdf(points) + marginal.pdf(-points))
    return total


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
    """Draw imputed entries against the true ones.

    For images, draws the truth, the observed images with missing pixels in orange, and the filled images. For
    other data, scatters the filled entries against the true ones.

    Parameters
    ----------
    truth : array-like of shape (n, M)
        The rows before entries were hidden.
    holes : array-like of shape (n, M)
        True where an entry was hidden; or the rows as the model saw them, with NaN for hidden entries.
    filled : array-like of shape (n, M)
        The rows that `impute` returned.
    image_shape : pair of int, default=None
        Height and width of an image whose pixels are the columns; give a few rows. None draws points.
    std : array-like of shape (n, M), default=None
        Standard deviations of the filled entries, drawn as error bars of points.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    **options
        Passed on to `Axes.imshow`, or to `Axes.errorbar` for points.
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
    shape = ImageShape.of_rows(image_shape, true.shape[1])
    ax = axes_or_new(ax, (len(true), 3.0))
    lines = {"truth": true, "seen": np.where(hidden, np.nan, true), "filled": found}
    shape.draw_lines(ax, lines, options)
    _mark_missing(ax, hidden, shape)
    return ax


def _mark_missing(ax: Axes, hidden: np.ndarray, shape: ImageShape) -> None:
    """Mark missing pixels in the second of three lines of images."""
    from matplotlib.colors import ListedColormap

    none = np.full(hidden.shape, np.nan)
    marks = np.concatenate([none, np.where(hidden, 1.0, np.nan), none])
    ax.imshow(shape.tile(marks, len(hidden)), cmap=ListedColormap([_MISSING]))


def _scatter_entries(
    true: FloatArray, found: FloatArray, bars: FloatArray | None, ax: Axes | None, options: dict[str, Any]
) -> Axes:
    """Scatter filled entries against true ones, with error bars."""
    ax = axes_or_new(ax, (4.5, 4.5))
    known = np.isfinite(true)
    if not known.any():
        raise ValueError("No hidden entry has a known true value.")
    ends = [min(true[known].min(), found[known].min()), max(true[known].max(), found[known].max())]
    ax.plot(ends, ends, color=GREY, linewidth=1)
    style: dict[str, Any] = {
        "fmt": "o",
        "markersize": 3,
        "alpha": 0.5,
        "color": COLOURS[0],
        "elinewidth": 0.7,
    }
    ax.errorbar(true[known], found[known], None if bars is None else bars[known], **style | options)
    return _finish(ax, "truth", "filled")


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
    """Draw the share of true entries inside central intervals against their nominal level.

    On the diagonal error bars are right; below it they are too narrow, above it too wide. The grey band would
    contain nine of ten curves of independent entries with right error bars at each level. Entries of one row
    share its latent, so real curves vary a little more.

    Parameters
    ----------
    truth : array-like
        True values that the model did not see. NaN is ignored.
    mean, std : array-like of the shape of `truth`, default=None
        Predictions and their standard deviations, for intervals of a Gaussian.
    draws : array-like of shape (n_draws, *truth.shape), default=None
        Draws in place of them, such as `impute(Y, n_draws=200)` returns, for intervals between their
        quantiles. Use these for counts and binary entries.
    where : array-like of bool of the shape of `truth`, default=None
        Entries to take; None takes all.
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
    ax.plot(nominal, share, marker=".", color=COLOURS[0])
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return _finish(ax, "nominal level", f"share of {chosen.sum()} entries inside")


def _intervals(
    mean: Any, std: Any, draws: Any, chosen: np.ndarray, levels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Compute lower and upper ends (levels, entries) of the intervals."""
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
    """Refuse an array of another shape than the truth."""
    if found != wanted:
        raise ValueError(f"{name} has shape {found}, but the truth has {wanted}.")


def _colour(index: int) -> str:
    """Return the colour of a curve, in turns."""
    return COLOURS[index % len(COLOURS)]


def _finish(ax: Axes, xlabel: str, ylabel: str) -> Axes:
    """Set labels, and a legend if anything is named, and remove the frame above and to the right."""
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
