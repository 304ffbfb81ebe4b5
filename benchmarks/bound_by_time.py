"""Bound against wall time for several schedules of step sizes, and a picture of the curves.

    SRFLVM_DATA=folder python benchmarks/bound_by_time.py [--data digits mnist-1000] [--seed 0]

Each schedule is a number of sweeps and a first step size, which falls along a cosine; none ends early. All
start from the same latents, by neighbours. Seconds are of the sweeps alone: programs are compiled by a sweep
that is not counted.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS, command_line, mnist_subset, nearest_neighbours, report
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM

SCHEDULES = ((25, 0.02), (25, 0.05), (12, 0.02), (12, 0.05), (12, 0.1), (6, 0.1))
DATA = ("digits", "mnist-1000")


class Curve(NamedTuple):
    seconds: np.ndarray
    bounds: np.ndarray
    accuracy: float


def data(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if name == "digits":
        Y, labels = load_digits(return_X_y=True)
        return np.asarray(Y) / 16.0, np.asarray(labels)
    return mnist_subset(seed)


def curve(Y: np.ndarray, labels: np.ndarray, start: np.ndarray, n_sweeps: int, rate: float) -> Curve:
    times: list[float] = []

    def note(progress: Any) -> None:
        times.append(time.perf_counter())

    settings: dict[str, Any] = {"init": start, "tol": 0, "random_state": 0}
    SRFLVM(max_iter=1, **settings).fit(Y)
    model = SRFLVM(max_iter=n_sweeps, learning_rate=rate, callbacks=[note], **settings).fit(Y)
    # the first sweep's own time is not known: the median of the others stands for it
    seconds = np.array(times) - times[0] + np.median(np.diff(times))
    return Curve(seconds, model.elbo_history_ / Y.size, nearest_neighbours(model.embedding_, labels))


def measure(name: str, seed: int, axes: Any) -> list[list[str]]:
    Y, labels = data(name, seed)
    start = SRFLVM(init="neighbors", max_iter=1, tol=0, random_state=seed).fit(Y).embedding_
    start = (start - start.mean(axis=0)) / start.std()
    rows = []
    for n_sweeps, rate in SCHEDULES:
        found = curve(Y, labels, start, n_sweeps, rate)
        axes.plot(found.seconds, found.bounds, ".-", label=f"{n_sweeps} sweeps from {rate}")
        last = np.mean(found.bounds[-3:])
        rows.append([name, f"{n_sweeps}", f"{rate}", f"{found.seconds[-1]:.1f}", f"{last:.4f}"])
        rows[-1].append(f"{found.accuracy:.4f}")
    axes.set(xlabel="seconds", ylabel="bound per entry", title=name)
    return rows


def main() -> None:
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=DATA, nargs="*", default=list(DATA))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    n_panels = len(arguments.data)
    figure, panels = plt.subplots(
        1, n_panels, figsize=(4.5 * n_panels, 3.5), layout="constrained", squeeze=False
    )
    rows = []
    for name, axes in zip(arguments.data, panels[0], strict=True):
        rows += measure(name, arguments.seed, axes)
    panels[0, -1].legend(frameon=False, fontsize="small")
    figure.savefig(RESULTS / "bound_by_time.png", dpi=150)
    columns = ["data", "sweeps", "first step size", "seconds", "bound per entry, last three", "1-NN"]
    report("bound_by_time", "The bound against time", columns, rows, command_line(), ["bound_by_time"])


if __name__ == "__main__":
    main()
