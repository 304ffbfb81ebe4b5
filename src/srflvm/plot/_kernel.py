"""The learned kernel and its spectral density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.utils.validation import check_is_fitted

from srflvm._types import FloatArray
from srflvm.plot._style import COLOUR_MAP, axes_or_new, colour, finish_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_CURVES = 6


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
            ax.plot(distances, curve, style, color=colour(index), label=label)
    return finish_curves(ax, "distance of latents", "correlation of the function")


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
        ax.plot(along, _marginal_density(model, along[:, None], chosen), color=colour(0))
        ax.plot(both[:, 0], np.zeros(len(both)), "|", color=colour(3), label="frozen frequencies")
        return finish_curves(ax, f"frequency, latent {chosen[0] + 1}", "density")
    points = np.stack(np.meshgrid(along, along), axis=-1).reshape(-1, 2)
    density = _marginal_density(model, points, chosen).reshape(n, n)
    extent = (along[0], along[-1], along[0], along[-1])
    drawn = ax.imshow(density, origin="lower", extent=extent, cmap=COLOUR_MAP)
    ax.figure.colorbar(drawn, ax=ax, shrink=0.8, label="density")
    ax.scatter(*both.T, s=4, color="white", alpha=0.7, linewidths=0)
    ax.set(xlabel=f"frequency, latent {chosen[0] + 1}", ylabel=f"frequency, latent {chosen[1] + 1}")
    return ax


def _marginal_density(model: Any, points: FloatArray, dims: tuple[int, ...]) -> FloatArray:
    """The symmetrised mixture over some of the dimensions: that of the components' own marginals."""
    chosen = list(dims)
    total = np.zeros(len(points))
    components = zip(model.mixture_weights_, model.mixture_means_, model.mixture_covariances_, strict=True)
    for weight, mean, covariance in components:
        marginal: Any = multivariate_normal(mean[chosen], covariance[np.ix_(chosen, chosen)])
        total += 0.5 * weight * (marginal.pdf(points) + marginal.pdf(-points))
    return total
