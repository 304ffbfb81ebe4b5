"""Progress of a fit in one line of the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn
from rich.progress import Progress as Bar

from srflvm.inference.progress import Progress
from srflvm.model.elbo import STEPS_PER_SWEEP


class FitBar:
    """Callback of `SRFLVM` that shows stage, sweeps, bound, speed and time left in one line.

    A console that is not a terminal gets a plain line every ten sweeps instead.
    """

    def __init__(self, console: Console):
        self._console = console
        columns = (SpinnerColumn(), "{task.description}", BarColumn(10), "{task.fields[status]}")
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("compiling", total=None, status="")
        self._first: dict[str, Progress] = {}

    def __enter__(self) -> FitBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __deepcopy__(self, memo: Any) -> FitBar:
        # copies of an estimator, as scikit-learn makes them, show their progress in the same line
        return self

    def __call__(self, progress: Progress) -> None:
        iteration, n_iterations = progress.iteration, progress.n_iterations
        unit = "batch" if progress.stage == "batches" else "sweep"
        status = f"{unit} {iteration}/{n_iterations}, {self._pace(progress)}"
        self._bar.update(
            self._task, description=progress.stage, total=n_iterations, completed=iteration, status=status
        )
        if self._bar.disable and (iteration % 10 == 0 or iteration == n_iterations):
            self._console.print(f"{progress.stage}: {status}", highlight=False, soft_wrap=True)

    def _pace(self, progress: Progress) -> str:
        """Return bound and speed since the stage's first sweep, which may have included compiling."""
        bound = progress.bound_per_entry
        first = self._first.get(progress.stage)
        if first is None or progress.iteration <= first.iteration:
            first = self._first[progress.stage] = progress
        sweeps, seconds = progress.iteration - first.iteration, progress.seconds - first.seconds
        if sweeps == 0 or seconds <= 0:
            return bound
        left = (progress.n_iterations - progress.iteration) * seconds / sweeps
        in_batches = progress.stage == "batches"
        pace = (1 if in_batches else STEPS_PER_SWEEP) * sweeps / seconds
        speed = f"{pace:.1f} batches/s" if in_batches else f"{pace:.0f} steps/s"
        return f"{bound}, {speed}, {left:.0f} s left"
