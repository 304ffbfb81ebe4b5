"""Fit that sees a batch of rows at a time: landmarks first, then passes over all rows in random batches.

The landmarks, a random subset of the rows, are fitted as any data are. Their posterior supplies the
frequencies, which stay as they are, and the units of the columns. Each batch of rows is then embedded by the
present model, q(x_n) being what `transform` would give, and its statistics move the model (see `statistics`).
Nothing of the size of Y is held; what is held of every row is its embedding, at the end.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from srflvm import bcd
from srflvm._typing import FloatArray
from srflvm.data.compression import ColumnMoments
from srflvm.data.sources import ArraySource, pieces
from srflvm.exceptions import NumericalError
from srflvm.inference import full_batch
from srflvm.inference.checkpoints import Checkpoints
from srflvm.inference.facts import DataFacts, Survey, TrainingData
from srflvm.inference.params import Options
from srflvm.inference.plan import Batching, FitKind, FitPlan, Memory
from srflvm.inference.progress import Progress
from srflvm.inference.result import Fall, FitResult
from srflvm.inference.statistics import (
    BatchSums,
    EpochSums,
    PosteriorUpdate,
    RowSums,
    StreamState,
    statistics_for,
)
from srflvm.posterior.chunks import Embedding

# A fit with more dropped batches than this share of an epoch is given up.
_TOLERATED_REJECTIONS = 0.2


def fit(
    plan: FitPlan,
    data: TrainingData,
    facts: DataFacts,
    rng: np.random.RandomState,
    checkpoints: Checkpoints | None = None,
) -> FitResult:
    """Fit landmarks, then all rows in the batches that were planned."""
    batching = plan.batching
    assert batching is not None
    data.check_sizes()
    survey = Survey.of(data)
    plan = plan.for_landmarks(survey, facts)
    index, Y = survey.draw_landmarks(data, plan.n_landmarks, rng)
    landmarks = replace(
        data, source=ArraySource(Y), choice=survey.resolved(data.choice), sizes=data.sizes_of(index)
    )
    n_rows, n_columns = Y.shape
    Memory.of_fit(plan.params, plan.kind, n_rows, n_columns, plan.communicator).refuse_excess()
    moments = None
    if plan.kind is FitKind.COMPLETE_GAUSSIAN:
        moments = ColumnMoments.of(landmarks.source, plan.params.compression)
    problem = plan.build_problem(landmarks, DataFacts.of(landmarks, moments))
    options = plan.landmark_options(problem, index, data.n_rows, checkpoints)
    result = full_batch.fit(problem, replace(options, stage="landmarks"), rng)
    information = problem.information(result.elbo) / problem.n_entries * survey.n_observed
    passes = _Passes(data, survey, batching, options, rng, result.posterior, information)
    passes.begin(index, Y)
    if not (result.interrupted or result.stopped):
        passes.run()
    return passes.finish(result)


class _Passes:
    """Pass over all rows in batches."""

    def __init__(
        self,
        data: TrainingData,
        survey: Survey,
        batching: Batching,
        options: Options,
        rng: np.random.RandomState,
        posterior: Any,
        information: float,
    ):
        self.information = information
        self.data, self.survey, self.batching = data, survey, batching
        self.options, self.rng = options, rng
        self.statistics = statistics_for(posterior, options.dtype, batching.n_rows)
        self.layout = posterior.layout
        self.model = PosteriorUpdate(posterior, np.nan)
        self.history: list[float] = []
        self.n_rejected = 0
        self.converged = self.interrupted = self.stopped = False

    def begin(self, index: np.ndarray, Y: FloatArray) -> None:
        """Sum over the landmarks, which then stand for all rows."""
        self.landmarks = Y, self.data.log_sizes(Y, index, self.layout)
        gathered = self.statistics.gather(self.model.posterior, *self.landmarks)
        self.sums = RowSums(gathered.statistics, len(Y))
        self._use(EpochSums.after(self.data.n_rows, self.sums))

    def run(self) -> None:
        """Make epochs until the bound has stopped rising, a callback wants to stop, or Ctrl-C."""
        started = time.perf_counter()
        try:
            for _ in range(self.batching.n_epochs):
                self._epoch(started)
                if self.converged or self.stopped:
                    break
        except KeyboardInterrupt:
            self.interrupted = True

    def _epoch(self, started: float) -> None:
        n_rows, size = self.data.n_rows, self.batching.n_rows
        order = self.rng.permutation(n_rows)
        epoch = EpochSums.after(n_rows, self.sums)
        bounds = []
        for number, first in enumerate(range(0, n_rows, size), start=1):
            index = np.sort(order[first : first + size])
            Y = self.data.source.take(index)
            gathered = self.statistics.gather(
                self.model.posterior, Y, self.data.log_sizes(Y, index, self.layout)
            )
            bounds.append((len(index), n_rows / len(index) * gathered.bound - self.model.divergence))
            epoch = self._step(epoch, gathered)
            if self._report(number, _mean(bounds), time.perf_counter() - started):
                self.stopped = True
                break
        self._end_epoch(epoch, _mean(bounds))

    def _step(self, epoch: EpochSums, gathered: BatchSums) -> EpochSums:
        """Return the epoch with the batch, unless what follows from it is not finite."""
        moved = epoch.plus(gathered.statistics, len(gathered.embedding.mean))
        if np.isfinite(gathered.bound) and moved.visited.is_finite and self._use(moved):
            return moved
        self.n_rejected += 1
        n_batches = -(-self.data.n_rows // self.batching.n_rows)
        if self.n_rejected > max(1.0, _TOLERATED_REJECTIONS * n_batches * (1 + len(self.history))):
            raise NumericalError(
                f"{self.n_rejected} batches were not finite. Look for extreme outliers in Y, or set "
                "dtype='float64'."
            )
        return epoch

    def _use(self, epoch: EpochSums) -> bool:
        """Take the model that the epoch's totals describe, if it is finite."""
        model = self.statistics.refresh(self.model.posterior, epoch.totals, self.data.n_rows)
        finite = bool(np.isfinite(model.divergence)) and bool(np.all(np.isfinite(model.posterior.weights)))
        if finite:
            self.model = model
        return finite

    def _end_epoch(self, epoch: EpochSums, bound: float) -> None:
        self.history.append(bound)
        if self.stopped:
            return
        self.sums = epoch.visited
        posterior = self.model.posterior
        embedding = posterior.embed(*self.landmarks)
        self.model = self.model._replace(posterior=posterior.with_anchors(embedding.mean))
        if self.options.tol > 0.0 and len(self.history) > 1:
            rise = self.history[-1] - self.history[-2]
            self.converged = abs(rise) < self.options.tol * self.information

    def _report(self, number: int, bound: float, seconds: float) -> bool:
        n_batches = -(-self.data.n_rows // self.batching.n_rows)
        done, planned = len(self.history) * n_batches + number, self.batching.n_epochs * n_batches
        progress = Progress("batches", done, planned, bound, self.survey.n_observed, seconds)
        wishes = [bool(callback(progress)) for callback in self.options.callbacks]
        return any(wishes)

    def finish(self, landmarks: FitResult) -> FitResult:
        """Pass once more over all rows, with the model held fixed, for their embedding, bound and sums."""
        sums, embedded, sizes = EpochSums.after(self.data.n_rows, self.sums).visited, [], []
        elbo = -self.model.divergence
        for rows, Y in pieces(self.data.source):
            log_sizes = self.data.log_sizes(Y, rows, self.layout)
            part = self.statistics.gather(self.model.posterior, Y, log_sizes)
            sizes.append(np.ones(len(Y)) if log_sizes is None else np.exp(log_sizes))
            sums, elbo = sums.plus(part.statistics, len(Y)), elbo + part.bound
            embedded.append(part.embedding)
        embedding = Embedding(*(np.concatenate(arrays) for arrays in zip(*embedded, strict=True)))
        return replace(
            landmarks,
            posterior=self.model.posterior,
            embedding=embedding,
            state=landmarks.state_for(self.model.posterior, embedding),
            elbo=elbo,
            history=self._whole_history(landmarks, elbo),
            n_rejected=landmarks.n_rejected + self.n_rejected,
            converged=self.converged if self.batching.n_epochs else landmarks.converged,
            interrupted=landmarks.interrupted or self.interrupted,
            stopped=landmarks.stopped or self.stopped,
            stream=StreamState(sums, self.model.divergence),
            falls=self._falls(landmarks),
            sizes=None if landmarks.sizes is None else np.concatenate(sizes),
        )

    def _falls(self, landmarks: FitResult) -> tuple[Fall, ...]:
        drop = bcd.fall(self.history, 1) / self.survey.n_observed
        return (*landmarks.falls, Fall("batches", drop)) if drop > 0.0 else landmarks.falls

    def _whole_history(self, landmarks: FitResult, elbo: float) -> FloatArray:
        """Return the bounds of the epochs; of the landmarks' sweeps, if no epochs were asked for."""
        if self.batching.n_epochs == 0 and len(self.landmarks[0]) == self.data.n_rows:
            return landmarks.history
        return np.array(self.history or [elbo])


def _mean(bounds: list[tuple[int, float]]) -> float:
    """Return the mean of the batches' estimates of the bound, weighted by rows, without those dropped."""
    rows, values = np.array([pair for pair in bounds if np.isfinite(pair[1])] or [(1, np.nan)]).T
    return float(np.sum(rows * values) / np.sum(rows))
