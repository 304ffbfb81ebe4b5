"""A fit that sees a batch of rows at a time: landmarks first, then passes over all rows in random batches.

The landmarks, a random subset of the rows, are fitted as any data are. Their frozen model supplies the
frequencies, which stay as they are, and the units of the columns. Each batch of rows is then placed by the
present model, q(x_n) being what `transform` would give, and its statistics move the model (see `batches`).
Nothing of the size of Y is held; what is held of every row is its embedding, at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from srflvm import _likelihood_choice as choosing
from srflvm import bcd, fitting, resolving
from srflvm._types import FloatArray
from srflvm._validation import refuse_warm_batches
from srflvm.batches import Epoch, Gathered, Kind, Model, Stream, Sums, with_anchors
from srflvm.embedding import Embedding
from srflvm.exceptions import NumericalError
from srflvm.fit_contract import Fall, Fitted, Options
from srflvm.fitted import latents_and_likelihood
from srflvm.gaussian_posterior import GaussianPosterior
from srflvm.journal import Journal
from srflvm.posing import pose
from srflvm.problems import Problem
from srflvm.progress import Progress
from srflvm.row_tables import RowTable, Survey, draw_landmarks, survey
from srflvm.shared_batches import SharedKind
from srflvm.site_batches import SiteKind
from srflvm.sources import ArraySource, Source, pieces

# Landmarks of a fit by sites, whose steps cost far more.
MOST_LANDMARKS_WITH_SITES = 2000

# Rows of a batch if none are asked for: whole chunks of the programs that place rows.
USUAL_BATCH = 2048

# A fit with more dropped batches than this share of an epoch is given up.
_TOLERATED_REJECTIONS = 0.2


@dataclass(frozen=True)
class Batching:
    """Rows of a batch, and the most epochs (passes over all rows)."""

    n_rows: int
    n_epochs: int


def wants_batches(batch_size: Any, source: Source, kind: str) -> bool:
    """Whether a fit of a kind ("shared", "filled", "sites") is to see some rows at a time. Left open, it is
    where rows are not in memory and a fit of all of them would need a number or more for every entry."""
    if batch_size == "auto":
        in_memory = isinstance(source, ArraySource) or getattr(source, "mapped", False)
        return kind != "shared" and not in_memory
    return batch_size is not None


def batching(estimator: Any, n_rows: int) -> Batching:
    """Batches and epochs as asked for, or as usual."""
    size = USUAL_BATCH if estimator.batch_size in ("auto", None) else int(estimator.batch_size)
    return Batching(min(size, n_rows), resolving.max_epochs(estimator, n_rows))


def batching_of_a_beginning(estimator: Any, n_rows: int) -> Batching:
    """For the first rows of a stream: no epochs if they can all be landmarks."""
    planned = batching(estimator, n_rows)
    most = resolving.n_landmarks(estimator, MOST_LANDMARKS_WITH_SITES)
    return replace(planned, n_epochs=0) if n_rows <= most else planned


def fit_estimator(
    table: RowTable,
    choice: choosing.Choice,
    journal: Journal,
    rng: np.random.RandomState,
    planned: Batching | None = None,
) -> Fitted:
    """Fit with the options of the table's estimator. With epochs to come, `max_iter` is their number, and the
    landmarks make their sweeps as if it were "auto"."""
    estimator, planned = table.estimator, planned or batching(table.estimator, table.n_rows)
    if estimator.inference not in ("auto", "sites"):
        raise ValueError(
            f"inference={estimator.inference!r} is for fits of all rows at once, and a fit in batches uses "
            "sites. Set batch_size=None and give Y as an array, or use inference='auto'."
        )
    if estimator.warm_start:
        refuse_warm_batches(getattr(estimator, "_state", None))

    def options_for(problem: Problem, rows: np.ndarray) -> Options:
        options = resolving.options(estimator, problem, table.n_rows, rows)
        if planned.n_epochs:
            sweeps, share = resolving.automatic_sweeps(problem), resolving.settling_share(problem, "auto")
            options = replace(options, max_iter=sweeps, settling_share=share)
        return replace(options, journal=journal)

    return fit(table, choice, planned, options_for, rng)


def fit(
    table: RowTable,
    choice: choosing.Choice,
    batching: Batching,
    options_for: Callable[[Problem, np.ndarray], Options],
    rng: np.random.RandomState,
) -> Fitted:
    """Fit landmarks with the options made for their problem and rows, then all rows in batches."""
    table.check_sizes()
    found = survey(table, choice)
    complete = found.n_observed == table.n_rows * table.source.n_columns
    by_sites = not (complete and choosing.is_plain_gaussian(choice) and table.estimator.inference == "auto")
    most = resolving.n_landmarks(table.estimator, MOST_LANDMARKS_WITH_SITES if by_sites else None)
    index, Y = draw_landmarks(table, found, most, rng)
    problem = pose(
        table.estimator, ArraySource(Y), found.resolved(choice), table.sizes_of(index), by_sites=by_sites
    )
    options = options_for(problem, index)
    landmarks = fitting.fit(problem, replace(options, stage="landmarks"), rng)
    information = problem.information(landmarks.elbo) / problem.n_entries * found.n_observed
    course = _Course(table, found, batching, options, rng, landmarks.posterior, information)
    course.begin(index, Y)
    if not (landmarks.interrupted or landmarks.stopped):
        course.run()
    return course.finish(landmarks)


def kind_of(posterior: Any, dtype: np.dtype, n_rows: int) -> Kind:
    """How rows turn into statistics for a posterior of this kind."""
    return SharedKind() if isinstance(posterior, GaussianPosterior) else SiteKind(dtype, n_rows)


class _Course:
    """The passes over all rows."""

    def __init__(
        self,
        table: RowTable,
        found: Survey,
        batching: Batching,
        options: Options,
        rng: np.random.RandomState,
        posterior: Any,
        information: float,
    ):
        self.information = information
        self.table, self.found, self.batching = table, found, batching
        self.options, self.rng = options, rng
        self.kind = kind_of(posterior, options.dtype, batching.n_rows)
        self.layout = posterior.layout
        self.model = Model(posterior, np.nan)
        self.history: list[float] = []
        self.n_rejected = 0
        self.converged = self.interrupted = self.stopped = False

    def begin(self, index: np.ndarray, Y: FloatArray) -> None:
        """Sums over the landmarks, which then stand for all rows."""
        self.landmarks = Y, self.table.log_sizes(Y, index, self.layout)
        gathered = self.kind.gather(self.model.posterior, *self.landmarks)
        self.sums = Sums(gathered.statistics, len(Y))
        self._use(Epoch.after(self.table.n_rows, self.sums))

    def run(self) -> None:
        """Epochs until the bound has stopped rising, a callback wishes an end, or Ctrl-C."""
        started = time.perf_counter()
        try:
            for _ in range(self.batching.n_epochs):
                self._epoch(started)
                if self.converged or self.stopped:
                    break
        except KeyboardInterrupt:
            self.interrupted = True

    def _epoch(self, started: float) -> None:
        n_rows, size = self.table.n_rows, self.batching.n_rows
        order = self.rng.permutation(n_rows)
        epoch = Epoch.after(n_rows, self.sums)
        bounds = []
        for number, first in enumerate(range(0, n_rows, size), start=1):
            index = np.sort(order[first : first + size])
            Y = self.table.source.take(index)
            gathered = self.kind.gather(self.model.posterior, Y, self.table.log_sizes(Y, index, self.layout))
            bounds.append((len(index), n_rows / len(index) * gathered.bound - self.model.divergence))
            epoch = self._step(epoch, gathered)
            if self._report(number, _mean(bounds), time.perf_counter() - started):
                self.stopped = True
                break
        self._end_epoch(epoch, _mean(bounds))

    def _step(self, epoch: Epoch, gathered: Gathered) -> Epoch:
        """The epoch with the batch, unless what follows from it is not finite."""
        moved = epoch.plus(gathered.statistics, len(gathered.placed.mean))
        if np.isfinite(gathered.bound) and moved.visited.is_finite and self._use(moved):
            return moved
        self.n_rejected += 1
        n_batches = -(-self.table.n_rows // self.batching.n_rows)
        if self.n_rejected > max(1.0, _TOLERATED_REJECTIONS * n_batches * (1 + len(self.history))):
            raise NumericalError(
                f"{self.n_rejected} batches were not finite. Look for extreme outliers in Y, or set "
                "dtype='float64'."
            )
        return epoch

    def _use(self, epoch: Epoch) -> bool:
        """Take the model that the epoch's totals describe, if it is finite."""
        model = self.kind.refresh(self.model.posterior, epoch.totals, self.table.n_rows)
        finite = bool(np.isfinite(model.divergence)) and bool(np.all(np.isfinite(model.posterior.weights)))
        if finite:
            self.model = model
        return finite

    def _end_epoch(self, epoch: Epoch, bound: float) -> None:
        self.history.append(bound)
        if self.stopped:
            return
        self.sums = epoch.visited
        placed = self.model.posterior.place(*self.landmarks)
        self.model = self.model._replace(posterior=with_anchors(self.model.posterior, placed.mean))
        if self.options.tol > 0.0 and len(self.history) > 1:
            rise = self.history[-1] - self.history[-2]
            self.converged = abs(rise) < self.options.tol * self.information

    def _report(self, number: int, bound: float, seconds: float) -> bool:
        n_batches = -(-self.table.n_rows // self.batching.n_rows)
        done, planned = len(self.history) * n_batches + number, self.batching.n_epochs * n_batches
        progress = Progress("batches", done, planned, bound, self.found.n_observed, seconds)
        wishes = [bool(callback(progress)) for callback in self.options.callbacks]
        return any(wishes)

    def finish(self, landmarks: Fitted) -> Fitted:
        """One more pass, with the model held fixed: the embedding of all rows, their bound, their sums."""
        sums, placed, sizes = Epoch.after(self.table.n_rows, self.sums).visited, [], []
        elbo = -self.model.divergence
        for rows, Y in pieces(self.table.source):
            log_sizes = self.table.log_sizes(Y, rows, self.layout)
            part = self.kind.gather(self.model.posterior, Y, log_sizes)
            sizes.append(np.ones(len(Y)) if log_sizes is None else np.exp(log_sizes))
            sums, elbo = sums.plus(part.statistics, len(Y)), elbo + part.bound
            placed.append(part.placed)
        embedding = Embedding(*(np.concatenate(arrays) for arrays in zip(*placed, strict=True)))
        return replace(
            landmarks,
            posterior=self.model.posterior,
            embedding=embedding,
            state=latents_and_likelihood(landmarks.state, self.model.posterior, embedding),
            elbo=elbo,
            history=self._whole_history(landmarks, elbo),
            n_rejected=landmarks.n_rejected + self.n_rejected,
            converged=self.converged if self.batching.n_epochs else landmarks.converged,
            interrupted=landmarks.interrupted or self.interrupted,
            stopped=landmarks.stopped or self.stopped,
            stream=Stream(sums, self.model.divergence),
            falls=self._falls(landmarks),
            sizes=None if landmarks.sizes is None else np.concatenate(sizes),
        )

    def _falls(self, landmarks: Fitted) -> tuple[Fall, ...]:
        drop = bcd.fall(self.history, 1) / self.found.n_observed
        return (*landmarks.falls, Fall("batches", drop)) if drop > 0.0 else landmarks.falls

    def _whole_history(self, landmarks: Fitted, elbo: float) -> FloatArray:
        """The bounds of the epochs; of the landmarks' sweeps, if no epochs were asked for."""
        if self.batching.n_epochs == 0 and len(self.landmarks[0]) == self.table.n_rows:
            return landmarks.history
        return np.array(self.history or [elbo])


def _mean(bounds: list[tuple[int, float]]) -> float:
    """The batches' estimates of the bound on all rows, weighted by their rows; those dropped do not count."""
    rows, values = np.array([pair for pair in bounds if np.isfinite(pair[1])] or [(1, np.nan)]).T
    return float(np.sum(rows * values) / np.sum(rows))
