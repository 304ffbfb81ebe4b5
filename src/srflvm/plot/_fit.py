"""How a fit went, and what it made use of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from srflvm.plot._style import axes_or_new, colour, finish_curves
from srflvm.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BOUND = "bound per entry (nats)"


def history(model: Any, progress: Sequence[Progress] | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the bound per entry of the data at each sweep, and where the starts that lost were given up.

    A fit keeps the whole bound of every sweep. It is not told apart by blocks: all raise the same one.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    progress : sequence of Progress, default=None
        What a fit with `callbacks=[progress.append]` has collected in a list. The bound is then drawn against
        the seconds that the sweeps took, a curve for each stage: every start, the landmarks, the fit. The
        first sweep compiles, and is the longest. The bounds of a pilot, which are those of a Gaussian fit,
        are moved so that its last is the first of the fit.
    ax : Axes, default=None
        Where to draw; None makes a figure.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax, (5.0, 3.5))
    if progress is not None:
        return _stages(progress, ax)
    n_entries = model.n_samples_seen_ * model.n_features_in_
    bounds = model.elbo_history_ / n_entries
    ax.plot(
        np.arange(1, len(bounds) + 1),
        bounds,
        color=colour(0),
        linewidth=2,
        marker="o" if len(bounds) == 1 else None,
        label=f"start {model.start_}" + (", won" if len(model.start_elbos_) > 1 else ""),
    )
    winner = model.start_.removeprefix("landmarks, ")
    lost = {name: bound for name, bound in model.start_elbos_.items() if name != winner}
    for index, (name, bound) in enumerate(lost.items()):
        label = f"start {name}, given up"
        ax.axhline(bound / n_entries, color=colour(index + 2), linestyle="--", label=label)
    ax.locator_params(axis="x", integer=True)
    return finish_curves(ax, "sweep", _BOUND)


def _stages(progress: Sequence[Progress], ax: Axes) -> Axes:
    if not progress:
        raise ValueError("progress is empty: collect it with callbacks=[progress.append] in the fit.")
    shift = _shift_of_pilot(progress)
    for index, stage in enumerate(dict.fromkeys(report.stage for report in progress)):
        reports = [report for report in progress if report.stage == stage]
        seconds = [report.seconds for report in reports]
        bounds = [report.elbo / report.n_entries + shift * report.is_pilot for report in reports]
        label = f"{stage} (moved)" if reports[0].is_pilot else stage
        ax.plot(seconds, bounds, color=colour(index), marker=".", label=label)
    return finish_curves(ax, "seconds of sweeps", _BOUND)


def _shift_of_pilot(progress: Sequence[Progress]) -> float:
    """Return what moves the pilot's last bound per entry to the first one after it."""
    pilot = [index for index, report in enumerate(progress) if report.is_pilot]
    if not pilot or pilot[-1] + 1 == len(progress):
        return 0.0
    last, first = progress[pilot[-1]], progress[pilot[-1] + 1]
    return first.elbo / first.n_entries - last.elbo / last.n_entries


def relevance(model: Any, *, ax: Axes | None = None) -> Axes:
    """Draw what a row tells about each latent dimension on average, in nats.

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
    ax.bar(np.arange(1, len(model.relevance_) + 1), model.relevance_, color=colour(0))
    ax.locator_params(axis="x", integer=True)
    return finish_curves(ax, "latent dimension", "relevance (nats a row)")
