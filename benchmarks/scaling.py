"""Growth of the time of a step with rows and columns, and the gain from a second process.

    python benchmarks/scaling.py [--only rows columns processes] [--rows 200000] [--rounds 3]

"rows" and "columns" time gradient steps on random data in this process, as `speed.py` does. "processes" fits
a random table on disk with one process and with two, each on a core of its own: seconds a sweep over all rows
(medians without the first, which compiles), seconds of the whole fit, and the bounds. One and two take turns,
since the machine's own speed may drift; so do two independent fits of half the rows each, which measure what
the two cores can do at once. A picture is written beside the table.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import CONSOLE, RESULTS, command_line, report, timed
from numpy.lib.format import open_memmap
from speed import STEPS, Case, sweep_call

ROWS = (1000, 6000, 60_000, 600_000, 1_000_000)
COLUMNS = (10, 100, 1000, 10_000)
MOST_SCORES = 100
N_FEATURES, N_TIMES, N_SWEEPS = 100, 5, 10
BAR_ROWS, BAR_PROCESSES = 110.0, 1.7


def step_seconds(n_rows: int, n_columns: int, n_scores: int) -> float:
    sweep = sweep_call(Case(n_rows, n_columns, n_scores, N_FEATURES), np.random.RandomState(0))
    sweep()
    return float(np.median([timed(sweep)[1] for _ in range(N_TIMES)])) / STEPS


def measure_rows() -> list[list[str]]:
    seconds = {n: step_seconds(n, 100, 100) for n in ROWS}
    rows = [[f"{n:,} x 100", f"{1e3 * s:.1f}", f"{1e6 * s / n:.2f}", ""] for n, s in seconds.items()]
    growth = seconds[600_000] / seconds[6000]
    rows.append(["6,000 to 600,000 rows", "", "", f"{growth:.0f} times (bar {BAR_ROWS:g})"])
    draw("rows", "100 columns", {"measured": seconds}, 60_000)
    return rows


def measure_columns() -> list[list[str]]:
    rows: list[list[str]] = []
    curves: dict[str, dict[int, float]] = {}
    for n_columns in COLUMNS:
        for most in (MOST_SCORES, 1000):
            n_scores = min(n_columns, most)
            seconds = step_seconds(10_000, n_columns, n_scores)
            curves.setdefault(f"at most {most} scores", {})[n_columns] = seconds
            what = f"10,000 x {n_columns:,}, {n_scores} scores"
            if what not in [row[0] for row in rows]:
                rows.append([what, f"{1e3 * seconds:.1f}", f"{1e6 * seconds / 1e4:.2f}", ""])
    draw("columns", "10,000 rows", curves, COLUMNS[1])
    return rows


def draw(varied: str, fixed: str, curves: dict[str, dict[int, float]], reference: int) -> None:
    """Draw milliseconds a step against a size, and the line of the first curve if it were proportional."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for label, seconds in curves.items():
        axes.loglog(list(seconds), [1e3 * seconds[n] for n in seconds], "o-", label=label)
    first = next(iter(curves.values()))
    sizes = np.array(list(first))
    axes.loglog(sizes, 1e3 * first[reference] * sizes / reference, ":", color="grey", label="proportional")
    axes.set(xlabel=varied, ylabel="milliseconds a step", title=f"{N_FEATURES} features, {fixed}")
    axes.legend(frameon=False)
    figure.savefig(RESULTS / f"scaling-{varied}.png", dpi=150)


def write_table(path: Path, n_rows: int, n_columns: int = 100) -> None:
    random = np.random.default_rng(0)
    table = open_memmap(path, mode="w+", dtype=np.float32, shape=(n_rows, n_columns))
    latents, weights = random.standard_normal((n_rows, 2)), random.standard_normal((2, n_columns))
    for start in range(0, n_rows, 50_000):
        f = np.sin(latents[start : start + 50_000] @ weights)
        table[start : start + 50_000] = f + 0.3 * random.standard_normal(f.shape)
    table.flush()


def work(path: str, n_processes: int, index: int, port: int) -> None:
    """Run one process of a fit on a core of its own; the first one prints the measurements."""
    from srflvm import SRFLVM, parallel

    if n_processes > 1:
        parallel.start(f"127.0.0.1:{port}", n_processes, index)
    times: list[float] = []

    def note(progress: Any) -> None:
        if progress.stage == "fit":
            times.append(time.perf_counter())

    model = SRFLVM(
        n_frequencies=N_FEATURES // 2, max_iter=5 * N_SWEEPS, tol=0, random_state=0, callbacks=[note]
    )
    _, seconds = timed(lambda: model.fit(path))
    if index == 0:
        sweeps = np.diff(times)
        found = {"seconds": seconds, "sweep": float(np.median(sweeps)), "fastest": float(np.min(sweeps))}
        print(json.dumps({**found, "bound": model.elbo_}), flush=True)


def start_process(
    path: Path, n_processes: int, index: int, core: int, port: int = 0
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--work", str(path), str(n_processes), str(index), str(port)],
        stdout=subprocess.PIPE,
        text=True,
        # before the process starts a thread: threads stay where they were started
        preexec_fn=partial(os.sched_setaffinity, 0, {core}),
    )


def read_result(process: subprocess.Popen[str]) -> dict[str, float]:
    return json.loads(process.communicate()[0].splitlines()[-1])


def fit_by(n_processes: int, path: Path) -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))[:n_processes]
    parts = [start_process(path, n_processes, index, core, port) for index, core in enumerate(cores)]
    found = read_result(parts[0])
    for part in parts[1:]:
        part.communicate()
    CONSOLE.print(n_processes, "processes", found)
    return found


def fits_apart(path: Path) -> dict[str, float]:
    """Make two independent fits of a table at the same time and return the slower one."""
    parts = [start_process(path, 1, 0, core) for core in sorted(os.sched_getaffinity(0))[:2]]
    found = max((read_result(part) for part in parts), key=lambda one: one["sweep"])
    CONSOLE.print("two fits apart, the slower", found)
    return found


def median_of(fits: tuple[dict[str, float], ...]) -> dict[str, float]:
    return {name: float(np.median([found[name] for found in fits])) for name in fits[0]}


def measure_processes(n_rows: int, n_rounds: int) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        path, half = Path(folder) / "table.npy", Path(folder) / "half.npy"
        write_table(path, n_rows)
        write_table(half, n_rows // 2)
        rounds = [(fit_by(1, path), fit_by(2, path), fits_apart(half)) for _ in range(n_rounds)]
    one, two, apart = (median_of(each) for each in zip(*rounds, strict=True))
    rows = []
    for number, found in ((1, one), (2, two)):
        step = found["sweep"] / STEPS
        what = f"{n_rows:,} x 100 on disk, {number} process{'es' * (number > 1)}"
        rows.append(
            [what, f"{1e3 * step:.1f}", f"{1e6 * step / n_rows:.2f}", f"fit {found['seconds']:.0f} s"]
        )
    difference = abs(two["bound"] / one["bound"] - 1.0)
    gain = f"sweeps {one['sweep'] / two['sweep']:.2f} times faster (bar {BAR_PROCESSES}), "
    gain += f"fit {one['seconds'] / two['seconds']:.2f}, bounds differ by {difference:.1e} of them"
    rows.append(["two processes against one", "", "", f"{gain}; {_gains(rounds, 1)}"])
    gain = f"{one['sweep'] / apart['sweep']:.2f} times as many rows a second as one; {_gains(rounds, 2)}"
    return [*rows, ["two fits of half the rows apart, the slower", "", "", gain]]


def _gains(rounds: list[tuple[dict[str, float], ...]], other: int) -> str:
    """Describe how much faster the other's sweeps were than those of one process, round by round.

    The fastest sweeps of all are those that the machine's other work disturbed least.
    """
    by_round = ", ".join(f"{fits[0]['sweep'] / fits[other]['sweep']:.2f}" for fits in rounds)
    fastest = [min(fits[index]["fastest"] for fits in rounds) for index in (0, other)]
    return f"by round {by_round}; the fastest sweeps of all rounds {fastest[0] / fastest[1]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("rows", "columns", "processes"), nargs="*")
    parser.add_argument("--rows", type=int, default=200_000, help="of the table for processes")
    parser.add_argument("--rounds", type=int, default=3, help="of one process, two, and two apart")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        path, *numbers = arguments.work
        work(path, *map(int, numbers))
        return
    chosen = arguments.only or ("rows", "columns", "processes")
    rows: list[list[str]] = []
    with jax.enable_x64(True):
        rows += measure_rows() if "rows" in chosen else []
        rows += measure_columns() if "columns" in chosen else []
    rows += measure_processes(arguments.rows, arguments.rounds) if "processes" in chosen else []
    columns = ["what", "milliseconds a step", "microseconds a row", "note"]
    title, pictures = (
        f"Time of a step with {N_FEATURES} features",
        [p for p in ("rows", "columns") if p in chosen],
    )
    report("scaling", title, columns, rows, command_line(), [f"scaling-{name}" for name in pictures])


if __name__ == "__main__":
    main()
