"""From an estimator and its data to the problem that is fitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from srflvm import _likelihood_choice as choosing
from srflvm._inputs import read_sizes
from srflvm._types import FloatArray
from srflvm.observations import Layout, lay_out
from srflvm.problems import FilledProblem, Problem, SharedProblem
from srflvm.site_problem import SiteProblem

# A row's total says little about one entry where it sums over this many, and a median over this many ratios
# is hardly moved by one of them. Where most counts are small or zero a median of ratios is not informative.
FEWEST_COLUMNS_FOR_TOTALS = 50
FEWEST_COLUMNS_FOR_RATIOS = 5
SMALLEST_MEAN_FOR_RATIOS = 5.0


def pose(
    estimator: Any, Y: FloatArray, choice: choosing.Choice, sizes: Any, *, by_sites: bool = False
) -> Problem:
    """Gaussian data with one noise are exact or filled, unless sites are asked for; all others have sites."""
    n_components, directions = estimator.n_components, estimator.compression
    if choosing.is_plain_gaussian(choice) and estimator.inference == "auto" and not by_sites:
        refuse_sizes(estimator, sizes)
        if np.isnan(Y).any():
            return FilledProblem.of(Y, directions, n_components)
        return SharedProblem.of(Y, directions)
    layout = lay_out(Y, choice)
    route = choosing.choose_route(estimator.inference, choice)
    known = log_sizes(estimator, Y, layout, sizes)
    return SiteProblem.of(Y, layout, known, directions, n_components, route)


def log_sizes(estimator: Any, Y: FloatArray, layout: Layout, sizes: Any) -> FloatArray | None:
    """Logarithms of the rows' sizes, given or estimated, or None."""
    if len(layout.count_columns) == 0:
        refuse_sizes(estimator, sizes)
        return None
    if sizes is not None:
        return read_sizes(sizes, len(Y))
    method = estimator.size_factors
    if method == "auto":
        method = automatic_method(layout)
    return None if method is None else layout.log_sizes(Y, method)


def automatic_method(layout: Layout) -> str | None:
    """Median ratios where counts are large enough for them, totals where there are many columns."""
    means = layout.count_means[layout.count_columns]
    if len(means) >= FEWEST_COLUMNS_FOR_RATIOS and np.median(means) >= SMALLEST_MEAN_FOR_RATIOS:
        return "ratios"
    return "totals" if len(means) >= FEWEST_COLUMNS_FOR_TOTALS else None


def refuse_sizes(estimator: Any, sizes: Any) -> None:
    """Sizes mean nothing to likelihoods without a log mean."""
    if sizes is not None or estimator.size_factors in ("totals", "ratios"):
        raise ValueError(
            "Size factors are for counts: no column has the likelihood 'negative_binomial' or 'poisson'."
        )
