"""The parameters of an estimator resolved to definite values, given its data."""

from __future__ import annotations

from typing import Any

import numpy as np

from srflvm import _validation as check
from srflvm import fitting, memory, parallel
from srflvm.compression import MOST_DIRECTIONS
from srflvm.fit_contract import Options
from srflvm.problems import Problem, SharedProblem
from srflvm.progress import PrintProgress
from srflvm.site_problem import SiteProblem

MOST_FREQUENCIES = 300

# With a site for every entry a step costs columns times the square of the frequencies.
MOST_FREQUENCIES_WITH_SITES = 50

# Below so many rows sweeps cost little, and more of them are made.
_FEW_ROWS = 1000

# With more latents than this, full covariances come to cost as much as the matrix products of a step.
MOST_CORRELATED_LATENTS = 8


def options(estimator: Any, problem: Problem, n_rows: int | None = None, rows: Any = slice(None)) -> Options:
    """Everything a fit depends on besides the data. The problem has all rows, or those given of `n_rows`."""
    init = estimator.init
    if not isinstance(init, str):
        init = check.check_initial_latents(init, n_rows or problem.n_rows, estimator.n_components)[rows]
    callbacks = tuple(estimator.callbacks or ())
    if estimator.verbose and parallel.is_first():
        callbacks = (*callbacks, PrintProgress(int(estimator.verbose)))
    return Options(
        n_components=int(estimator.n_components),
        n_frequencies=n_frequencies(estimator, problem.n_rows, isinstance(problem, SiteProblem)),
        n_pilot_frequencies=n_frequencies(estimator, problem.n_rows, with_sites=False),
        n_mixture=int(estimator.n_mixture),
        frequency_sampling=estimator.frequency_sampling,
        covariance_type=estimator.covariance_type,
        latent_covariance_type=latent_covariance_type(estimator),
        n_samples=int(estimator.n_samples),
        n_directions=estimator.compression,
        max_iter=_max_sweeps(estimator, problem),
        tol=float(estimator.tol),
        n_init=int(estimator.n_init),
        init=init,
        n_landmarks=n_landmarks(estimator),
        learning_rate=learning_rate(estimator, problem),
        dtype=np.dtype(estimator.dtype),
        callbacks=callbacks,
        settling_share=settling_share(problem, estimator.max_iter),
    )


def n_frequencies(estimator: Any, n_rows: int, with_sites: bool) -> int:
    """The number of frequencies of a fit of so many rows."""
    if estimator.n_frequencies != "auto":
        return int(estimator.n_frequencies)
    most = MOST_FREQUENCIES_WITH_SITES if with_sites else MOST_FREQUENCIES
    return min(int(np.clip(n_rows // 4, 25, MOST_FREQUENCIES)), most)


def n_landmarks(estimator: Any, usual: int | None = None) -> int:
    """Rows that a start is made on, if there are more; `usual` is what "auto" means, 5000 if not given."""
    if estimator.n_landmarks != "auto":
        return int(estimator.n_landmarks)
    return fitting.MOST_LANDMARKS if usual is None else usual


def latent_covariance_type(estimator: Any) -> str:
    """ "full" or "diag"."""
    if estimator.latent_covariance_type == "auto":
        return "full" if estimator.n_components <= MOST_CORRELATED_LATENTS else "diag"
    return estimator.latent_covariance_type


def _max_sweeps(estimator: Any, problem: Problem) -> int:
    return automatic_sweeps(problem) if estimator.max_iter == "auto" else int(estimator.max_iter)


def automatic_sweeps(problem: Problem) -> int:
    """How many sweeps are made if it is left open. Where the evidence is exact, gradients are good enough for
    long steps, and few sweeps do."""
    fewest = 12 if isinstance(problem, SharedProblem) else 25
    return int(np.clip(_FEW_ROWS * fewest // problem.n_rows, fewest, 4 * fewest))


def settling_share(problem: Problem, max_iter: int | str) -> float:
    """The share of the sweeps before which a bound that no longer rises is not taken for converged.

    Large steps hold the bound down, and the smaller ones at the end of a schedule raise it again: who asks
    for many sweeps would else get a lower bound than from few, and so would small tables with a site for
    every entry. Other schedules that are automatic or short, and those of expensive sweeps, end at once. A
    pilot does as the fit it is for.
    """
    if max_iter == "auto":
        return 0.9 if _has_cheap_sites(problem) else 0.0
    is_cheap = isinstance(problem, SharedProblem) or _has_cheap_sites(problem)
    return 0.9 if is_cheap and int(max_iter) >= 20 else 0.0


def learning_rate(estimator: Any, problem: Problem) -> float:
    """Return the first step size. Long steps need good gradients: of all columns, or of most at once."""
    if estimator.learning_rate == "auto":
        return 0.02 if isinstance(problem, SiteProblem) and not _has_cheap_sites(problem) else 0.05
    return float(estimator.learning_rate)


def _has_cheap_sites(problem: Problem) -> bool:
    """A site for every entry of a small table: few rows, and at least half of the columns in every step."""
    is_small = problem.n_rows < _FEW_ROWS
    return is_small and isinstance(problem, SiteProblem) and problem.smallest_share_of_columns >= 0.5


def max_epochs(estimator: Any, n_rows: int) -> int:
    """The largest number of passes over all rows in batches."""
    return automatic_epochs(n_rows) if estimator.max_iter == "auto" else int(estimator.max_iter)


def automatic_epochs(n_rows: int) -> int:
    """How many passes over all rows are made if it is left open."""
    return int(np.clip(200_000 // n_rows, 2, 10))


def memory_needed(estimator: Any, kind: str, n_rows: int, n_columns: int) -> memory.Memory:
    """The memory of a fit of one of the kinds of `memory.needed`, in this process."""
    named = {"auto": MOST_DIRECTIONS, "all": n_columns}
    directions = estimator.compression
    most = named[directions] if isinstance(directions, str) else int(directions)
    shape = memory.Shape(
        n_rows=-(-n_rows // parallel.n_processes()),
        n_columns=n_columns,
        n_scores=min(n_rows, n_columns, most),
        n_features=2 * n_frequencies(estimator, n_rows, kind == "sites"),
        n_latent=int(estimator.n_components),
        diagonal=latent_covariance_type(estimator) == "diag",
        item_bytes=np.dtype(estimator.dtype).itemsize,
        n_landmarks=n_landmarks(estimator),
    )
    return memory.needed(kind, shape)
