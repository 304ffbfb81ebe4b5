"""Reports of the experiments, built from the stored outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from srflvm_bench import paper
from srflvm_bench.report import Cell, Report
from srflvm_bench.store import Outcome, Store
from srflvm_bench.tasks import Task


def build(experiment: str, tasks: Sequence[Task], store: Store) -> Report:
    """Build the report of an experiment from the stored outcomes."""
    builders = {
        "table1": _accuracy,
        "table2": _seconds,
        "table3": _neighbours,
        "table4": _errors,
        "manifold": _manifold,
        "weights": _weights,
        "reconstructions": _reconstructions,
    }
    return builders[experiment](tasks, store)


def _accuracy(tasks: Sequence[Task], store: Store) -> Report:
    title = "Table 1: accuracy of one nearest neighbour, five folds, mean ± standard deviation over seeds"
    return _by_data(title, tasks, store, paper.TABLE1, 3, _score(0))


def _seconds(tasks: Sequence[Task], store: Store) -> Report:
    title = (
        "Table 2: seconds of a fit, mean ± standard deviation over seeds (the paper's are standard errors)"
    )
    built = _by_data(title, tasks, store, paper.TABLE2, 2, lambda outcome: outcome.seconds)
    return built._replace(lower_is_better=True)


def _by_data(
    title: str,
    tasks: Sequence[Task],
    store: Store,
    published: dict[str, dict[str, tuple[float, ...]]],
    digits: int,
    value: Callable[[Outcome], float],
) -> Report:
    data = tuple(dict.fromkeys(task.data for task in tasks))
    rows = {}
    for system in dict.fromkeys(task.system for task in tasks):
        cells = []
        for name in data:
            found = [store.get(task) for task in tasks if (task.system, task.data) == (system, name)]
            numbers = published.get(system, {}).get(name)
            text = f"{numbers[0]:.3f} ± {numbers[1]:.3f}" if numbers else ""
            cells.append(_mean_cell(found, value, digits, text))
        rows[system] = tuple(cells)
    return Report(title, data, rows)


def _mean_cell(
    found: list[Outcome | None], value: Callable[[Outcome], float], digits: int, published: str
) -> Cell:
    values = [value(outcome) for outcome in found if outcome is not None and not outcome.failure]
    failure = next((outcome.failure for outcome in found if outcome is not None and outcome.failure), "")
    if not values:
        return Cell(math.nan, "failed" if failure else "-", published, failure)
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    fewer = f" ({len(values)} of {len(found)})" if len(values) < len(found) else ""
    notes = "; ".join(outcome.note for outcome in found if outcome is not None and outcome.note)
    text = f"{np.mean(values):.{digits}f}{spread}{fewer}"
    return Cell(float(np.mean(values)), text, published, failure, notes)


def _neighbours(tasks: Sequence[Task], store: Store) -> Report:
    title = "Table 3: accuracy of k nearest neighbours, five folds"
    rows, data = {}, {}
    for task in tasks:
        outcome = store.get(task)
        numbers = paper.TABLE3.get(task.system, {}).get(task.data, ())
        cells = []
        for index in range(9):
            published = f"{numbers[index]:.3f}" if numbers else ""
            cells.append(_mean_cell([outcome], _score(index), 3, published))
        rows[f"{task.data}, {task.system}"] = tuple(cells)
        data[f"{task.data}, {task.system}"] = task.data
    return Report(title, tuple(f"k = {k}" for k in range(2, 11)), rows, groups=data)


def _errors(tasks: Sequence[Task], store: Store) -> Report:
    title = "Mean squared error of missing entries; of all entries at 0 % (the paper's Table 4)"
    pairs = tuple(dict.fromkeys((task.data, task.share) for task in tasks))
    shares = (0.0, 0.1, 0.3, 0.6)
    rows = {}
    for system in dict.fromkeys(task.system for task in tasks):
        cells = []
        for name, share in pairs:
            same = [task for task in tasks if (task.system, task.data, task.share) == (system, name, share)]
            numbers = paper.TABLE4.get(system, {}).get(name)
            published = f"{numbers[shares.index(share)]:.3f}" if numbers else ""
            cells.append(_mean_cell([store.get(task) for task in same], _score(0), 4, published))
        rows[system] = tuple(cells)
    return Report(title, tuple(f"{name}, {share:.0%}" for name, share in pairs), rows, lower_is_better=True)


def _reconstructions(tasks: Sequence[Task], store: Store) -> Report:
    title = "Images with missing pixels, filled: mean squared error of what was missing"
    return _errors(tasks, store)._replace(title=title)


def _score(index: int) -> Callable[[Outcome], float]:
    return lambda outcome: outcome.scores[index]


def _manifold(tasks: Sequence[Task], store: Store) -> Report:
    title = "S-curve: latents and kernels against those that made the data"
    return _recovery(title, tasks, lambda task: task.system, store)


def _weights(tasks: Sequence[Task], store: Store) -> Report:
    title = "Weights integrated out, sampled, or found by gradients"
    return _recovery(title, tasks, lambda task: task.settings["inference"], store)


def _recovery(title: str, tasks: Sequence[Task], name: Callable[[Task], str], store: Store) -> Report:
    """Report means over the seeds, a row for each data set and name of a task."""
    found: dict[str, list[Outcome | None]] = {}
    for task in tasks:
        found.setdefault(f"{task.data}, {name(task)}", []).append(store.get(task))
    values = _score(0), _score(1), lambda outcome: outcome.seconds
    rows = {
        row: tuple(
            _mean_cell(outcomes, value, digits, "") for value, digits in zip(values, (3, 3, 1), strict=True)
        )
        for row, outcomes in found.items()
    }
    columns = ("R² of the latents", "correlation of kernels", "seconds")
    return Report(title, columns, rows, is_compared=False)
