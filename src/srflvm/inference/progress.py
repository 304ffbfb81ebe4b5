"""Telling the user where a fit is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PILOT = "pilot"


@dataclass(frozen=True)
class Progress:
    """Describe the progress of a fit to a callback, after each sweep, or after each batch of rows.

    `stage` is "start" and the name of the start being tried, "landmarks" for the subset of many rows,
    "pilot" for the quick fit that finds a start for counts and the like ("pilot start" and a name for its own
    starts), "fit", or "batches". A pilot treats the data as Gaussian: its bounds are on a scale of their own
    (`is_pilot`). `elbo` is the bound on all `n_entries` entries of the rows being fitted (in batches, its
    estimate from those of the present epoch), `seconds` the time spent in the sweeps of this start, or in all
    batches.
    """

    stage: str
    iteration: int
    n_iterations: int
    elbo: float
    n_entries: int
    seconds: float

    @property
    def is_pilot(self) -> bool:
        """Tell whether the bound is that of the pilot."""
        return self.stage.startswith(PILOT)

    @property
    def bound_per_entry(self) -> str:
        """Return the bound per entry as text that says whose it is."""
        return f"{'pilot bound' if self.is_pilot else 'bound'} per entry {self.elbo / self.n_entries:.4f}"


Callback = Callable[[Progress], bool | None]


class _PrintProgress:
    """Print a line of progress now and then: the more `verbose`, the more often."""

    def __init__(self, verbose: int = 1):
        self.every = max(10 // max(verbose, 1), 1)

    def __call__(self, progress: Progress) -> None:
        if progress.iteration % self.every and progress.iteration != progress.n_iterations:
            return
        step = "batch" if progress.stage == "batches" else "sweep"
        print(
            f"[srflvm] {progress.stage}: {step} {progress.iteration}/{progress.n_iterations}, "
            f"{progress.bound_per_entry}, {progress.seconds:.1f} s",
            flush=True,
        )
