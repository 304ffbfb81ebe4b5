"""Streams of rows: the posterior after each batch is the prior of the next.

The statistics of all rows seen are a sum (see `statistics`), to which a batch adds its own under the model at
hand. For Gaussian data, given the latents, that is Bayes' rule applied row after row. Rows that have gone by
are not visited again, so their statistics stay those of the model that saw them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from srflvm._typing import FloatArray
from srflvm.exceptions import DataError, NumericalError
from srflvm.inference import minibatch
from srflvm.inference.facts import DataFacts, TrainingData
from srflvm.inference.params import Params
from srflvm.inference.plan import USUAL_BATCH, Batching, FitKind, FitPlan
from srflvm.inference.problems.gaussian import MOST_ANCHORS
from srflvm.inference.result import FitResult
from srflvm.inference.statistics import BatchSums, StreamState, statistics_for
from srflvm.parallel.communicator import Communicator, current
from srflvm.posterior.base import Posterior

FEWEST_FIRST_ROWS = 10


def begin(params: Params, data: TrainingData) -> FitResult:
    """Fit the first rows of a stream."""
    _check(params)
    params.refuse_linear_batches(is_stream=True)
    if data.n_rows < FEWEST_FIRST_ROWS:
        raise ValueError(
            f"The first call of partial_fit learns the model's frequencies and needs at least "
            f"{FEWEST_FIRST_ROWS} rows, better some hundreds; Y has {data.n_rows}. Gather more rows first."
        )
    facts = DataFacts.of(data)
    kind = FitKind.of(params, facts).in_batches
    batching = Batching.of_stream(params, data.n_rows)
    plan = FitPlan(params, kind, batching, Communicator())
    return minibatch.fit(plan, data, facts, check_random_state(params.random_state))


def extend(
    params: Params, earlier: FitResult, n_seen: int, Y: FloatArray, log_sizes: FloatArray | None
) -> FitResult:
    """Add rows to a model of `n_seen` rows.

    The bound on all rows seen adds up what the rows gave when they were seen.
    """
    _check(params)
    posterior = earlier.posterior
    stream = earlier.stream or StreamState.behind(posterior, n_seen)
    _refuse_new_missing(posterior, Y)
    statistics = statistics_for(posterior, np.dtype(params.dtype), min(USUAL_BATCH, len(Y)))
    gathered = statistics.gather(posterior, Y, log_sizes)
    sums = stream.sums.plus(gathered.statistics, len(Y))
    _refuse_infinite(np.isfinite(gathered.bound) and sums.is_finite)
    model = statistics.refresh(posterior, sums.statistics, sums.n_rows)
    _refuse_infinite(np.isfinite(model.divergence))
    rng = _random_numbers(params, n_seen)
    kept = _with_more_anchors(model.posterior, Y, log_sizes, gathered, sums.n_rows, rng)
    embedding = kept.embed(Y, log_sizes)
    elbo = earlier.elbo + stream.divergence + gathered.bound - model.divergence
    return replace(
        earlier,
        posterior=kept,
        embedding=embedding,
        state=earlier.state_for(kept, embedding),
        elbo=elbo,
        history=np.append(earlier.history, elbo),
        stream=StreamState(sums, model.divergence),
        sizes=_size_factors(kept, len(Y), log_sizes),
    )


def _check(params: Params) -> None:
    """Refuse parameters and processes with which rows cannot come as a stream."""
    if params.checkpoint_dir is not None:
        raise ValueError("checkpoint_dir keeps the progress of one fit. Set it to None for partial_fit.")
    if current().n_processes > 1:
        raise ValueError("partial_fit takes a stream of rows in one process: use fit with several.")


def _refuse_new_missing(posterior: Posterior, Y: FloatArray) -> None:
    """Refuse missing entries if one covariance of the weights is kept for all columns."""
    if posterior.shares_covariance and np.isnan(Y).any():
        row, column = (int(i) for i in np.argwhere(np.isnan(Y))[0])
        raise DataError(
            f"Y has a missing entry at row {row}, column {column}, but the stream began with complete rows, "
            "for which one covariance of the weights was kept. Begin it with inference='sites'."
        )


def _size_factors(posterior: Posterior, n_rows: int, log_sizes: FloatArray | None) -> FloatArray | None:
    """Return the size factors of rows with counts: ones where they have no sizes."""
    if len(posterior.layout.count_columns) == 0:
        return None
    return np.ones(n_rows) if log_sizes is None else np.exp(log_sizes)


def _random_numbers(params: Params, n_seen: int) -> np.random.RandomState:
    """Return random numbers that are others for every batch, also if the seed is a number."""
    seed = check_random_state(params.random_state).randint(2**31)
    return np.random.RandomState([seed, n_seen % 2**32])


def _refuse_infinite(finite: Any) -> None:
    if not finite:
        raise NumericalError(
            "The update by these rows is not finite, and was not made: the model is as it was. Look for "
            "extreme outliers among them."
        )


def _with_more_anchors(
    posterior: Posterior,
    Y: FloatArray,
    log_sizes: FloatArray | None,
    gathered: BatchSums,
    n_seen: int,
    rng: np.random.RandomState,
) -> Posterior:
    """Make anchors of complete rows.

    All of them become one while there is room, then each with the probability that makes all rows seen
    equally likely to be one (reservoir sampling).
    """
    complete = np.flatnonzero(~np.isnan(Y).any(axis=1))
    encoded = posterior.layout.encode(Y[complete], None if log_sizes is None else log_sizes[complete])
    scores = posterior.standardise(encoded) @ posterior.columns.directions
    latents = gathered.embedding.mean[complete]
    n_room = max(0, MOST_ANCHORS - len(posterior.anchors))
    anchors = np.concatenate([posterior.anchors, latents[:n_room]])
    anchor_scores = np.concatenate([posterior.anchor_scores, scores[:n_room]])
    for row in range(n_room, len(complete)):
        place = rng.randint(n_seen - len(complete) + row + 1)
        if place < MOST_ANCHORS:
            anchors[place], anchor_scores[place] = latents[row], scores[row]
    return posterior.with_anchors(anchors, anchor_scores)
