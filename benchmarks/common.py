"""Shared parts of the benchmark commands: data, scores, tables, and the folder of results."""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from srflvm_bench.machine import machine
from srflvm_bench.runner import run
from srflvm_bench.store import Store
from srflvm_bench.tasks import Task

STORE = Path(__file__).resolve().parent / ".cache" / "fits.sqlite"
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
CONSOLE = Console(width=140)
DAY = 86400.0


def data_folder() -> Path:
    """Return the folder of data files, from SRFLVM_DATA."""
    folder = os.environ.get("SRFLVM_DATA")
    if not folder or not Path(folder).is_dir():
        raise SystemExit("Set SRFLVM_DATA to the folder that holds mnist.npz and cifar10_gray20.npz.")
    return Path(folder)


def load_mnist() -> tuple[np.ndarray, np.ndarray]:
    """Load all 70 000 images in [0, 1] and their digits; the 60 000 for training come first."""
    archive = np.load(data_folder() / "mnist.npz")
    return (archive["Y"] / np.float32(255)).astype(np.float32), archive["labels"]


def mnist_subset(seed: int, n_rows: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Load a random subset of all images."""
    Y, labels = load_mnist()
    index = np.random.RandomState(seed).permutation(len(Y))[:n_rows]
    return Y[index], labels[index]


def cifar_subset(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Load the first 400 images of each of classes 0 to 4, 20 x 20 pixels, grey: the same for every seed."""
    archive = np.load(data_folder() / "cifar10_gray20.npz")
    labels = archive["labels"]
    index = np.concatenate([np.flatnonzero(labels == c)[:400] for c in range(5)])
    return (archive["Y"][index] / np.float32(255)).astype(np.float32), labels[index]


def count_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Load counts and labels of "montreal", "bridges" or "newsgroups"."""
    archive = np.load(data_folder() / f"{name}.npz")
    return archive["Y"].astype(float), archive["labels"]


def nearest_neighbours(Z: np.ndarray, labels: np.ndarray, k: int = 1) -> float:
    """Return the five-fold accuracy of a k-nearest-neighbour classifier."""
    folds = KFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(KNeighborsClassifier(k), Z, labels, cv=folds).mean())


def add_store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", default=str(STORE), help="file of finished fits (%(default)s)")


def outcomes(tasks: Sequence[Task], store: str) -> list[tuple[tuple[float, ...], float]]:
    """Return scores and seconds of fits, from the store or made now."""
    with closing(Store(Path(store))) as fits:
        run(tasks, fits, budget=DAY, console=CONSOLE)
        found = [fits.get(task) for task in tasks]
    failures = [outcome.failure for outcome in found if outcome and outcome.failure]
    if failures:
        raise SystemExit(f"{len(failures)} fits failed, the first with: {failures[0]}")
    return [(outcome.scores, outcome.seconds) for outcome in found if outcome]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function, and return its result and the seconds it took."""
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started


def command_line() -> str:
    """Return the command that runs."""
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def report(
    name: str,
    title: str,
    columns: list[str],
    rows: list[list[str]],
    command: str,
    pictures: Sequence[str] = (),
) -> None:
    """Print a table and write it as Markdown with pictures, the command, machine, versions and date."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    CONSOLE.print(table)
    lines = [f"# {title}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += [line for picture in pictures for line in ("", f"![{title}]({picture}.png)")]
    lines += ["", f"Written by `{command}` on {datetime.date.today()}: {machine()}.", ""]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text("\n".join(lines))
    CONSOLE.print(f"written to docs/results/{name}.md")
