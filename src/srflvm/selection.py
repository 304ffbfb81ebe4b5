"""Selection of the number of latent dimensions by entries held out of the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from srflvm._typing import FloatArray
from srflvm.data.reading import empty_rows_are_known, plain_table
from srflvm.data.sources import NamedTable
from srflvm.estimator import SRFLVM
from srflvm.exceptions import check_count, check_positive
from srflvm.likelihoods.columns import choose

CANDIDATES = (1, 2, 3, 5, 8, 16, 32, 64, 128)

# So many candidates in a row that predict worse than the best before them end the search.
_PATIENCE = 2


@dataclass(frozen=True)
class Selection:
    """Hold what each number of components predicted of the entries held out, and the best of them.

    `scores` are mean log predictive densities in nats, higher is better; `relevances` holds `relevance_` of
    each fit. Once two candidates in a row have predicted worse than the best before them, no more are tried.
    """

    n_components: int
    candidates: tuple[int, ...]
    scores: FloatArray
    relevances: tuple[FloatArray, ...]
    n_held_out: int

    def __str__(self) -> str:
        lines = [f"{self.n_held_out} entries held out", "components  log density of an entry"]
        for candidate, score in zip(self.candidates, self.scores, strict=True):
            mark = "  chosen" if candidate == self.n_components else ""
            lines.append(f"{candidate:10d}  {score:.4f}{mark}")
        return "\n".join(lines)


def choose_n_components(
    estimator: SRFLVM,
    Y: Any,
    candidates: Sequence[int] = CANDIDATES,
    *,
    share: float = 0.1,
    random_state: Any = 0,
    sizes: Any = None,
) -> Selection:
    """Choose the number of components by how well it predicts entries that are hidden from the fit.

    A share of the observed entries is hidden, candidates are fitted to the rest and their predictions
    compared, until two in a row predict worse than the best before them.

    Parameters
    ----------
    estimator : SRFLVM
        Its parameters are used, `n_components` aside; it is not changed.
    Y : array-like of shape (N, M)
        Holes are allowed. The entries held out are drawn from the others.
    candidates : sequence of int
        Numbers of components, tried in increasing order, as far as they are below both sides of Y.
    share : float, default=0.1
        Share of the observed entries that is held out; every column keeps at least one.
    random_state : int, RandomState instance or None, default=0
        Seed of the choice of entries.
    sizes : array of shape (N,), default=None
        As in `SRFLVM.fit`.
    """
    Y, table = plain_table(Y)
    likelihood = _with_all_levels(estimator.likelihood, Y, table)
    hidden = _held_out(table, check_positive("share", share), check_random_state(random_state))
    kept = sorted({check_count("candidates", int(c)) for c in candidates})
    if not kept:
        raise ValueError("candidates is empty: give at least one number of components.")
    kept = [c for c in kept if c < max(min(table.shape), 2)] or kept[:1]
    scores: list[float] = []
    relevances: list[FloatArray] = []
    for candidate in kept:
        model: Any = clone(estimator)
        folder = _folder_of(candidate, estimator)
        model.set_params(n_components=candidate, likelihood=likelihood, checkpoint_dir=folder)
        # entries held out may be all that a row has
        with empty_rows_are_known():
            model.fit(Y, mask=hidden, sizes=sizes)
            if model.interrupted_:
                raise KeyboardInterrupt
            found = model.score_entries(Y, Y, mask=hidden, sizes=sizes)
        scores.append(float(np.nanmean(found)))
        relevances.append(model.relevance_)
        if len(scores) - 1 - int(np.argmax(scores)) == _PATIENCE:
            break
    best = int(np.argmax(scores))
    tried = tuple(kept[: len(scores)])
    return Selection(kept[best], tried, np.array(scores), tuple(relevances), int(hidden.sum()))


def _with_all_levels(likelihood: Any, Y: Any, table: FloatArray) -> Any:
    """Return the likelihood with the levels and categories of the whole table.

    Entries held out then have none that a fit to the others would not know.
    """
    names = Y.names if isinstance(Y, NamedTable) else getattr(Y, "columns", ())
    choice = choose(likelihood, table.shape[1], list(names) or None)
    for single, _ in choice:
        single.refuse_vector_entries()
    if not any(single.has_levels for single, _ in choice):
        return likelihood
    choice.check(table, None)
    return {
        tuple(columns.tolist()): (single.resolve(table[:, columns]) if single.has_levels else single)
        for single, columns in choice
    }


def _folder_of(candidate: int, estimator: SRFLVM) -> Path | None:
    """Return a folder for the checkpoint of one candidate: every fit has its own."""
    folder = estimator.checkpoint_dir
    return None if folder is None else Path(folder) / f"{candidate}-components"


def _held_out(table: FloatArray, share: float, rng: np.random.RandomState) -> np.ndarray:
    """Draw which entries are hidden (N, M)."""
    if share >= 1.0:
        raise ValueError(f"share={share} must be below 1: something has to be left to fit to.")
    observed = ~np.isnan(table)
    # a permutation, not uniform numbers: holes made by uniform numbers of the same seed would be the same
    # entries
    entries = rng.permutation(np.flatnonzero(observed))
    hidden = np.zeros(table.shape, bool)
    hidden.flat[entries[: int(share * len(entries))]] = True
    for column in np.flatnonzero(~np.any(observed & ~hidden, axis=0)):
        hidden[:, column] = False
    if not hidden.any():
        raise ValueError(f"share={share} holds no entry out; give more data or a larger share.")
    return hidden
