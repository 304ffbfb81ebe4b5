"""Fit that is killed repeatedly, beside one that is left alone, and the cost of writing checkpoints.

    python benchmarks/resume.py [--kills 10] [--rows 1797] [--sweeps 100] [--seed 0]

The digits with many sweeps, none left out, each fit in a process of its own. One is killed (SIGKILL) at
random moments within the first two fifths of the time that an undisturbed process takes, and started again
each time. The times are those of whole processes: of the killed fit, all of them together. The other columns
describe the last process, which makes only the sweeps that are not yet stored.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import CONSOLE, command_line, report
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM
from srflvm.inference.checkpoints import Checkpoints


class Outcome(NamedTuple):
    n_kills: int
    seconds: float
    history: np.ndarray
    embedding: np.ndarray
    n_sweeps: np.ndarray
    seconds_of_writing: np.ndarray


def worker(n_rows: int, n_sweeps: int, checkpoint_dir: str, result: str) -> None:
    """Make one fit; an empty `checkpoint_dir` means none."""
    seconds, sweeps = _watch_writing(), []
    model = SRFLVM(
        max_iter=n_sweeps,
        tol=0.0,
        random_state=0,
        callbacks=[sweeps.append],
        checkpoint_dir=checkpoint_dir or None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(load_digits(return_X_y=True)[0][:n_rows] / 16.0)
    np.savez(
        result,
        history=model.elbo_history_,
        embedding=model.embedding_,
        n_sweeps=len(sweeps),
        seconds_of_writing=sum(seconds),
    )


def _watch_writing() -> list[float]:
    """Return a list to which the seconds of every write are added."""
    seconds: list[float] = []
    owner: Any = Checkpoints
    write = owner._write

    def timed_write(self: Checkpoints, *arguments: Any) -> None:
        started = time.perf_counter()
        write(self, *arguments)
        seconds.append(time.perf_counter() - started)

    owner._write = timed_write
    return seconds


def run(options: argparse.Namespace, folder: Path | str, delays: Sequence[float] = ()) -> Outcome:
    """Start the fit until it ends; kill the first starts after these delays, if they last so long."""
    n_kills, started = 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder_of_result:
        result = Path(folder_of_result) / "result.npz"
        command = [sys.executable, __file__, "--worker", str(folder), str(result)]
        command += ["--rows", str(options.rows), "--sweeps", str(options.sweeps)]
        for delay in [*delays, None]:
            try:
                subprocess.run(command, check=True, timeout=delay)
                break
            except subprocess.TimeoutExpired:  # subprocess has killed it with SIGKILL
                n_kills += 1
                CONSOLE.print(f"killed after {delay:.1f} s")
        return Outcome(n_kills, time.perf_counter() - started, **np.load(result))


def row(what: str, outcome: Outcome, alone: Outcome) -> list[str]:
    return [
        what,
        str(outcome.n_kills),
        f"{outcome.seconds:.1f}",
        str(outcome.n_sweeps),
        f"{outcome.seconds_of_writing:.2f}",
        f"{outcome.history[-1]:.6f}",
        "yes" if np.array_equal(outcome.history, alone.history) else "no",
        f"{np.max(np.abs(outcome.embedding - alone.embedding)):.1e}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1797)
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.rows, options.sweeps, *options.worker)
        return
    alone = run(options, "")
    moments = np.random.RandomState(options.seed).uniform(0.0, 0.4 * alone.seconds, size=options.kills)
    rows = [row("left alone, no checkpoints", alone, alone)]
    with tempfile.TemporaryDirectory() as temporary:
        stored = Path(temporary) / "left alone"
        rows.append(row("left alone, with checkpoints", run(options, stored), alone))
        killed = run(options, Path(temporary) / "killed", moments.tolist())
        rows.append(row("killed and started again", killed, alone))
        rows.append(row("a finished fit, started again", run(options, stored), alone))
    columns = ["fit", "kills", "seconds", "sweeps", "seconds of writing", "last bound", "same bounds"]
    columns += ["embedding differs by"]
    report("resume", f"A fit of {options.rows} digits, killed and resumed", columns, rows, command_line())


if __name__ == "__main__":
    main()
