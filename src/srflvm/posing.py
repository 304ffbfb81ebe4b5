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
    if sizes is None and estimator.size_factors is None:
        return None
    if not any(group.likelihood.takes_sizes for group in layout.groups):
        refuse_sizes(estimator, sizes)
    return layout.log_sizes(Y) if sizes is None else read_sizes(sizes, len(Y))


def refuse_sizes(estimator: Any, sizes: Any) -> None:
    """Sizes mean nothing to likelihoods without a log mean."""
    if sizes is not None or estimator.size_factors is not None:
        raise ValueError(
            "Size factors are for counts: no column has the likelihood 'negative_binomial' or 'poisson'."
        )
