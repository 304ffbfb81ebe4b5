"""Telling the user where a fit is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """What a callback sees after each sweep, or after each batch of rows.

    `stage` is "start" and the name of the start being tried, "landmarks" for the subset of many rows,
    "pilot" for the quick fit that finds a start for counts and the like, "fit", or "batches"; `elbo` is the
    bound on all `n_entries` entries of the rows being fitted (in batches, its estimate from those of the
    present epoch), `seconds` the time spent in the sweeps of this start, or in all batches.
    """

    stage: str
    iteration: int
    n_iterations: int
    elbo: float
    n_entries: int
    seconds: float


Callback = Callable[[Progress], bool | None]


class PrintProgress:
    """A callback that prints a line now and then: the more `verbose`, the more often."""

    def __init__(self, verbose: int = 1):
        self.every = max(10 // max(verbose, 1), 1)

    def __call__(self, progress: Progress) -> None:
        if progress.iteration % self.every and progress.iteration != progress.n_iterations:
            return
        per_entry = progress.elbo / progress.n_entries
        step = "batch" if progress.stage == "batches" else "sweep"
        print(
            f"[srflvm] {progress.stage}: {step} {progress.iteration}/{progress.n_iterations}, "
            f"bound per entry {per_entry:.4f}, {progress.seconds:.1f} s",
            flush=True,
        )
