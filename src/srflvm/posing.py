"""From an estimator and its data to the problem that is fitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from srflvm import _likelihood_choice as choosing
from srflvm import fitting, memory, parallel, resolving
from srflvm._inputs import read_sizes
from srflvm._types import FloatArray
from srflvm.checked_source import CheckedSource
from srflvm.exceptions import DataError, MissingEntriesError, NotInMemoryError
from srflvm.observations import Layout, lay_out
from srflvm.problems import FilledProblem, Problem, SharedProblem
from srflvm.site_problem import SiteProblem
from srflvm.size_factors import choose_method
from srflvm.sources import ArraySource, Source


def check_processes(estimator: Any, choice: choosing.Choice, n_rows: int) -> None:
    """Refuse what several processes cannot do together."""
    if parallel.n_processes() == 1:
        return
    if not choosing.is_plain_gaussian(choice) or estimator.inference != "auto":
        raise ValueError(
            "Several processes can only share the rows of Gaussian data with one noise for all columns "
            "(likelihood='gaussian', inference='auto'). Use one process for other likelihoods."
        )
    if estimator.batch_size not in ("auto", None):
        raise ValueError(
            "A fit in batches (batch_size) runs in one process. Set batch_size=None for several."
        )
    init = estimator.init if isinstance(estimator.init, str) else "array"
    n_landmarks = resolving.n_landmarks(estimator)
    if n_rows > n_landmarks and init not in fitting.LANDMARK_STARTS:
        raise ValueError(
            f"With more than {n_landmarks} rows, several processes start from landmarks: "
            "use init='auto' or 'neighbors', or one process."
        )


def kind_of_fit(estimator: Any, choice: choosing.Choice, holes: bool) -> str:
    """How the weights are treated: "shared", "filled" or "sites"."""
    if not choosing.is_plain_gaussian(choice) or estimator.inference != "auto":
        return "sites"
    return "filled" if holes else "shared"


def _refuse_excess(estimator: Any, kind: str, source: Source) -> None:
    need = resolving.memory_needed(estimator, kind, source.n_rows, source.n_columns)
    memory.refuse_excess(need, parallel.n_processes_here())


def pose(
    estimator: Any, source: Source, choice: choosing.Choice, sizes: Any, *, by_sites: bool = False
) -> Problem:
    """Gaussian data with one noise are exact or filled, unless sites are asked for; all others have sites."""
    n_components, directions = estimator.n_components, estimator.compression
    kind = "sites" if by_sites else kind_of_fit(estimator, choice, holes=False)
    _refuse_excess(estimator, kind, source)
    if kind == "shared":
        refuse_sizes(estimator, sizes)
        try:
            return SharedProblem.of(source, directions, np.dtype(estimator.dtype))
        except MissingEntriesError as found:
            reason = str(found)
        if parallel.n_processes() > 1:
            raise DataError(f"{reason} Several processes need complete data: use one process.")
        _refuse_files(source, reason)
        _refuse_excess(estimator, "filled", source)
        return FilledProblem.of(_whole_table(source), directions, n_components)
    _refuse_files(source, "The likelihood and the inference are not those of plain Gaussian data.")
    Y = _whole_table(source)
    choosing.check_columns(choice, Y, getattr(estimator, "feature_names_in_", None))
    layout = lay_out(Y, choice)
    layout = replace(layout, size_method=choose_method(estimator.size_factors, Y, layout))
    route = choosing.choose_route(estimator.inference, choice)
    known = log_sizes(estimator, Y, layout, sizes)
    return SiteProblem.of(Y, layout, known, directions, n_components, route)


def _whole_table(source: Source) -> FloatArray:
    """All of Y, for fits that need it in memory. A memory map is an array, and is read."""
    return source.Y if isinstance(source, ArraySource) else source.read(0, source.n_rows)


def _refuse_files(source: Source, reason: str) -> None:
    if isinstance(source, ArraySource) or (isinstance(source, CheckedSource) and source.mapped):
        return
    raise NotInMemoryError(
        f"{reason} Such a fit needs all of Y as an array, which a file or a sparse matrix is not turned into "
        "unasked. Fit it in batches (batch_size='auto'), or, if it fits into memory, give the array itself "
        "(numpy.load(path), matrix.toarray(), pandas.read_parquet(path))."
    )


def log_sizes(estimator: Any, Y: FloatArray, layout: Layout, sizes: Any) -> FloatArray | None:
    """Return the logarithms of the rows' sizes, given or estimated, or None."""
    if len(layout.count_columns) == 0:
        refuse_sizes(estimator, sizes)
        return None
    if sizes is not None:
        return read_sizes(sizes, len(Y))
    return layout.log_sizes(Y)


def refuse_sizes(estimator: Any, sizes: Any) -> None:
    """Sizes mean nothing to likelihoods without a log mean."""
    if sizes is not None or estimator.size_factors in ("totals", "ratios"):
        raise ValueError(
            "Size factors are for counts: no column has the likelihood 'negative_binomial' or 'poisson'."
        )
