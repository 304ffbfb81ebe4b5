"""A fit that is killed again and again, beside one that is left alone, and what writing checkpoints costs.

    python benchmarks/resume.py [--kills 10] [--rows 1797] [--seed 0]

The digits with default settings, each fit in a process of its own. One is killed (SIGKILL) at random moments
within the first half of the time that an undisturbed process takes, and started again each time. The times
are those of whole processes: of the killed fit, all of them together.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import CONSOLE, command_line, report
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM
from srflvm.journal import FolderJournal


class Outcome(NamedTuple):
    n_kills: int
    history: np.ndarray
    embedding: np.ndarray
    seconds: float
    seconds_of_writing: float


def worker(n_rows: int, checkpoint_dir: str, result: str) -> None:
    """One fit; an empty `checkpoint_dir` means none."""
    seconds = _watch_writing()
    Y = load_digits().data[:n_rows] / 16.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SRFLVM(random_state=0, checkpoint_dir=checkpoint_dir or None).fit(Y)
    np.savez(result, history=model.elbo_history_, embedding=model.embedding_, writing=sum(seconds))


def _watch_writing() -> list[float]:
    """A list to which the time of every write is added."""
    seconds: list[float] = []
    write = FolderJournal._write

    def timed_write(*arguments) -> None:
        started = time.perf_counter()
        write(*arguments)
        seconds.append(time.perf_counter() - started)

    FolderJournal._write = timed_write
    return seconds


def run(n_rows: int, folder: Path | None, delays: list[float]) -> Outcome:
    """Start the fit until it ends; the first starts are killed after these delays, if they last so long."""
    n_kills, started = 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        result = Path(place) / "result.npz"
        command = [
            sys.executable,
            __file__,
            "--worker",
            str(folder or ""),
            str(result),
            "--rows",
            str(n_rows),
        ]
        for delay in [*delays, None]:
            try:
                subprocess.run(command, check=True, timeout=delay)
                break
            except subprocess.TimeoutExpired:  # `run` has killed the process with SIGKILL
                n_kills += 1
                CONSOLE.print(f"killed after {delay:.1f} s")
        found = np.load(result)
        seconds = time.perf_counter() - started
        return Outcome(n_kills, found["history"], found["embedding"], seconds, float(found["writing"]))


def row(what: str, outcome: Outcome, alone: Outcome) -> list[str]:
    same_history = np.array_equal(outcome.history, alone.history)
    return [
        what,
        str(outcome.n_kills),
        f"{outcome.history[-1]:.6f}",
        "yes" if same_history else "no",
        f"{np.max(np.abs(outcome.embedding - alone.embedding)):.1e}",
        f"{outcome.seconds:.1f}",
        f"{outcome.seconds_of_writing:.2f} ({100 * outcome.seconds_of_writing / outcome.seconds:.1f} %)",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1797)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.rows, *options.worker)
        return
    run(options.rows, None, [])  # fills the cache of compiled programs, if there is one
    alone = run(options.rows, None, [])
    moments = np.random.RandomState(options.seed).uniform(0.0, 0.5 * alone.seconds, size=options.kills)
    rows = [row("left alone, no checkpoints", alone, alone)]
    with tempfile.TemporaryDirectory() as place:
        stored = Path(place) / "left alone"
        rows.append(row("left alone, with checkpoints", run(options.rows, stored, []), alone))
        killed = run(options.rows, Path(place) / "killed", moments.tolist())
        rows.append(row("killed and started again", killed, alone))
        rows.append(row("a finished fit, started again", run(options.rows, stored, []), alone))
    columns = ["fit", "kills", "last bound", "same bounds", "embedding differs by", "seconds", "writing"]
    report("resume", f"A fit of {options.rows} digits, killed and resumed", columns, rows, command_line())


if __name__ == "__main__":
    main()
