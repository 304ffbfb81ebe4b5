"""Fitting a table on the command line: what is said before and while it goes on."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console

from srflvm import parallel
from srflvm.commands import columns
from srflvm.commands.rows import n_observed
from srflvm.commands.speaking import Speaker
from srflvm.fit_bar import FitBar
from srflvm.tables import Table


def announce(name: str, table: Table, likelihood: Any, speaker: Speaker) -> None:
    """Say what the columns are taken for."""
    if not parallel.is_first():
        return
    for line in columns.lines_about(name, table):
        speaker.note(line)
    for line in columns.lines_about_likelihoods(table, likelihood):
        speaker.note(line)
    for line in (*table.warnings, *columns.warnings_about(table, likelihood)):
        speaker.warn(line)


def fit_table(model: Any, table: Table, speaker: Speaker) -> float:
    """Fit with a line of progress; the seconds that it took."""
    console = Console(stderr=speaker.as_json, quiet=speaker.quiet or not parallel.is_first())
    started = time.perf_counter()
    with speaker.hearing_warnings(), FitBar(console) as bar:
        model.set_params(callbacks=[bar]).fit(table.data)
    model.set_params(callbacks=None)
    if model.interrupted_ and parallel.is_first():
        speaker.warn("interrupted: the best state so far is kept.")
    return time.perf_counter() - started


def facts_about(model: Any, table: Table, seconds: float) -> dict[str, Any]:
    """What a program may want to know about a fit."""
    n_entries = int(n_observed(table.rows).sum())
    return {
        "rows": table.shape[0],
        "columns": table.shape[1],
        "components": int(model.n_components),
        "elbo": model.elbo_,
        "elbo_per_entry": model.elbo_ / n_entries,
        "sweeps": model.n_iter_,
        "converged": model.converged_,
        "interrupted": model.interrupted_,
        "seconds": round(seconds, 3),
    }
