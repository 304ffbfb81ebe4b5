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

# A row's total says little about one entry where it sums over this many.
FEWEST_COLUMNS_FOR_TOTALS = 50


def pose(estimator: Any, Y: FloatArray, choice: choosing.Choice, sizes: Any) -> Problem:
    """Gaussian data with one noise are exact or filled, unless sites are asked for; all others have sites."""
    n_components, directions = estimator.n_components, estimator.compression
    if choosing.is_plain_gaussian(choice) and estimator.inference == "auto":
        refuse_sizes(estimator, sizes)
        if np.isnan(Y).any():
            return FilledProblem.of(Y, directions, n_components)
        return SharedProblem.of(Y, directions)
    layout = lay_out(Y, choice)
    route = choosing.choose_route(estimator.inference, choice)
    known = log_sizes(estimator, Y, layout, sizes)
    return SiteProblem.of(Y, layout, known, directions, n_components, route)


def log_sizes(estimator: Any, Y: FloatArray, layout: Layout, sizes: Any) -> FloatArray | None:
    """Logarithms of the rows' sizes, given or from totals, or None."""
    n_counts = sum(len(group.columns) for group in layout.groups if group.likelihood.takes_sizes)
    if n_counts == 0:
        refuse_sizes(estimator, sizes)
        return None
    if sizes is not None:
        return read_sizes(sizes, len(Y))
    automatic = estimator.size_factors == "auto" and n_counts >= FEWEST_COLUMNS_FOR_TOTALS
    return layout.log_sizes(Y) if automatic or estimator.size_factors == "totals" else None


def refuse_sizes(estimator: Any, sizes: Any) -> None:
    """Sizes mean nothing to likelihoods without a log mean."""
    if sizes is not None or estimator.size_factors == "totals":
        raise ValueError(
            "Size factors are for counts: no column has the likelihood 'negative_binomial' or 'poisson'."
        )
