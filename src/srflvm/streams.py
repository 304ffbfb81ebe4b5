"""Streams of rows: the posterior after each batch is the prior of the next.

The statistics of all rows seen are a sum (see `batches`), to which a batch adds its own under the model at
hand. For Gaussian data, given the latents, that is Bayes' rule applied row after row. Rows that have gone by
are not visited again, so their statistics stay those of the model that saw them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from srflvm import _entry_checks as entry
from srflvm import _likelihood_choice as choosing
from srflvm import _validation as check
from srflvm import parallel, stochastic
from srflvm._inputs import read_source
from srflvm._types import FloatArray
from srflvm.batches import Gathered, Stream, Sums
from srflvm.exceptions import DataError, NumericalError
from srflvm.fitted import record, record_stream
from srflvm.freezing import MOST_ANCHORS
from srflvm.gaussian_posterior import GaussianPosterior
from srflvm.journal import NoJournal
from srflvm.posing import log_sizes
from srflvm.posterior import Posterior
from srflvm.row_tables import RowTable
from srflvm.shared_batches import divergence, sums_behind
from srflvm.sources import ArraySource

FEWEST_FIRST_ROWS = 10


def partial_fit(estimator: Any, Y: Any, mask: Any, sizes: Any) -> None:
    """See `SRFLVM.partial_fit`."""
    check.check_parameters(estimator)
    if estimator.checkpoint_dir is not None:
        raise ValueError("checkpoint_dir keeps the progress of one fit. Set it to None for partial_fit.")
    if parallel.n_processes() > 1:
        raise ValueError("partial_fit takes a stream of rows in one process: use fit with several.")
    begun = hasattr(estimator, "_posterior")
    source = read_source(estimator, Y, mask, reset=not begun)
    values = source.read(0, source.n_rows)
    if not begun:
        _begin(estimator, values, sizes)
        return
    _find_sums(estimator)
    posterior = estimator._posterior
    _refuse_new_holes(posterior, values)
    groups, names = posterior.layout.groups, getattr(estimator, "feature_names_in_", None)
    choosing.check_columns([(group.likelihood, group.columns) for group in groups], values, names)
    entry.refuse_far_entries(values, groups, names)
    _go_on(estimator, values, log_sizes(estimator, values, posterior.layout, sizes))


def _begin(estimator: Any, Y: FloatArray, sizes: Any) -> None:
    if len(Y) < FEWEST_FIRST_ROWS:
        raise ValueError(
            f"The first call of partial_fit learns the model's frequencies and needs at least "
            f"{FEWEST_FIRST_ROWS} rows, better some hundreds; Y has {len(Y)}. Gather more rows first."
        )
    names = getattr(estimator, "feature_names_in_", None)
    choice = choosing.choose(estimator.likelihood, Y.shape[1], names)
    table = RowTable(estimator, ArraySource(Y), sizes)
    planned = stochastic.batching_of_a_beginning(estimator, len(Y))
    rng = check_random_state(estimator.random_state)
    record(estimator, stochastic.fit_estimator(table, choice, NoJournal(), rng, planned))


def _go_on(estimator: Any, Y: FloatArray, given: FloatArray | None) -> None:
    posterior = estimator._posterior
    kind = stochastic.kind_of(posterior, np.dtype(estimator.dtype), min(stochastic.USUAL_BATCH, len(Y)))
    gathered = kind.gather(posterior, Y, given)
    sums = estimator._stream.sums.plus(gathered.statistics, len(Y))
    _refuse_infinite(np.isfinite(gathered.bound) and sums.is_finite)
    model = kind.refresh(posterior, sums.statistics, sums.n_rows)
    _refuse_infinite(np.isfinite(model.divergence))
    kept = _with_more_anchors(model.posterior, Y, given, gathered, sums.n_rows, _moving_state(estimator))
    stream = Stream(sums, model.divergence)
    record_stream(estimator, kept, kept.place(Y, given), stream, gathered.bound, given)


def _moving_state(estimator: Any) -> np.random.RandomState:
    """A source of randomness that is another one for every batch, also if the seed is a number."""
    seed = check_random_state(estimator.random_state).randint(2**31)
    return np.random.RandomState([seed, int(estimator.n_samples_seen_) % 2**32])


def _find_sums(estimator: Any) -> None:
    """The sums that rows are added to, of a model that was not fitted in batches."""
    if estimator._stream is not None:
        return
    posterior, n_rows = estimator._posterior, int(estimator.n_samples_seen_)
    if not isinstance(posterior, GaussianPosterior):
        raise ValueError(
            "partial_fit goes on from sums over all rows seen, which this model does not have: it was fitted "
            "to all rows at once, or loaded from a file, which does not hold them. Begin the stream with "
            "partial_fit on a new estimator, or fit with batch_size set to a number."
        )
    estimator._stream = Stream(Sums(sums_behind(posterior, n_rows), n_rows), divergence(posterior))


def _refuse_new_holes(posterior: Posterior, Y: FloatArray) -> None:
    if isinstance(posterior, GaussianPosterior) and np.isnan(Y).any():
        row, column = (int(i) for i in np.argwhere(np.isnan(Y))[0])
        raise DataError(
            f"Y has a missing entry at row {row}, column {column}, but the stream began with complete rows, "
            "for which one covariance of the weights was kept. Begin it with inference='sites'."
        )


def _refuse_infinite(finite: Any) -> None:
    if not finite:
        raise NumericalError(
            "The update by these rows is not finite, and was not made: the model is as it was. Look for "
            "extreme outliers among them."
        )


def _with_more_anchors(
    posterior: Posterior,
    Y: FloatArray,
    given: FloatArray | None,
    gathered: Gathered,
    n_seen: int,
    rng: np.random.RandomState,
) -> Posterior:
    """Complete rows become anchors: all of them while there is room, then each with the probability that
    makes all rows seen equally likely to be one (reservoir sampling)."""
    complete = np.flatnonzero(~np.isnan(Y).any(axis=1))
    encoded = posterior.layout.encode(Y[complete], None if given is None else given[complete])
    scores = posterior.standardised(encoded) @ posterior.columns.directions
    latents = gathered.placed.mean[complete]
    n_room = max(0, MOST_ANCHORS - len(posterior.anchors))
    anchors = np.concatenate([posterior.anchors, latents[:n_room]])
    anchor_scores = np.concatenate([posterior.anchor_scores, scores[:n_room]])
    for row in range(n_room, len(complete)):
        place = rng.randint(n_seen - len(complete) + row + 1)
        if place < MOST_ANCHORS:
            anchors[place], anchor_scores[place] = latents[row], scores[row]
    return replace(posterior, anchors=anchors, anchor_scores=anchor_scores)
