"""Tables for the terminal and in Markdown, the paper's numbers beside ours."""

from __future__ import annotations

import datetime
import math
import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from srflvm.bench import paper
from srflvm.bench.store import Outcome, Store
from srflvm.bench.tasks import Task

PACKAGES = ("srflvm", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "umap-learn", "hpfrec", "GPy")


class Cell(NamedTuple):
    """Our value with its spread and how it is written, the paper's, and what failed."""

    value: float
    text: str
    paper: str = ""
    failure: str = ""


class Report(NamedTuple):
    """A table: rows are systems, columns data sets or what is varied."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Cell, ...]]
    lower_is_better: bool = False


def build(table: str, tasks: Sequence[Task], store: Store) -> Report:
    """The report of a table from what is in the store."""
    return {"table1": _accuracy, "table2": _seconds, "table3": _neighbours, "table4": _errors}[table](
        tasks, store
    )


def _accuracy(tasks: Sequence[Task], store: Store) -> Report:
    title = "Table 1: accuracy of one nearest neighbour, five folds, mean ± standard deviation over seeds"
    return _by_data(title, tasks, store, paper.TABLE1, 3, _score(0))


def _seconds(tasks: Sequence[Task], store: Store) -> Report:
    title = "Table 2: seconds of a fit, mean ± standard deviation over seeds"
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
    return Cell(float(np.mean(values)), f"{np.mean(values):.{digits}f}{spread}{fewer}", published, failure)


def _neighbours(tasks: Sequence[Task], store: Store) -> Report:
    title = "Table 3: accuracy of k nearest neighbours, five folds"
    rows = {}
    for task in tasks:
        outcome = store.get(task)
        numbers = paper.TABLE3.get(task.system, {}).get(task.data, ())
        cells = []
        for index in range(9):
            published = f"{numbers[index]:.3f}" if numbers else ""
            cells.append(_mean_cell([outcome], _score(index), 3, published))
        rows[f"{task.data}, {task.system}"] = tuple(cells)
    return Report(title, tuple(f"k = {k}" for k in range(2, 11)), rows)


def _errors(tasks: Sequence[Task], store: Store) -> Report:
    title = "Table 4: mean squared error of missing entries; of all entries at 0 %"
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


def _score(index: int) -> Callable[[Outcome], float]:
    return lambda outcome: outcome.scores[index]


def best(report: Report) -> list[float]:
    """The best value of every column; NaN where there is none."""
    choose = np.fmin if report.lower_is_better else np.fmax
    values = np.array([[cell.value for cell in cells] for cells in report.rows.values()])
    return list(choose.reduce(values, axis=0))


def _written(report: Report, bold: tuple[str, str]) -> list[list[str]]:
    tops, lines = best(report), []
    for name, cells in report.rows.items():
        line = [name]
        for cell, top in zip(cells, tops, strict=True):
            ours = f"{bold[0]}{cell.text}{bold[1]}" if cell.value == top else cell.text
            line.append(f"{ours} (paper {cell.paper})" if cell.paper else ours)
        lines.append(line)
    return lines


def show(report: Report, console: Console) -> None:
    """Print the table."""
    table = RichTable(title=report.title)
    for column in ("system", *report.columns):
        table.add_column(column)
    for line in _written(report, ("[bold]", "[/bold]")):
        table.add_row(*line)
    console.print(table)


def markdown(report: Report, command: str) -> str:
    """The table, what failed, and command, machine, versions and date."""
    columns = ("system", *report.columns)
    lines = [
        f"# {report.title}",
        "",
        "The paper's numbers are in brackets; our best of a column is bold.",
        "",
    ]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(line) + " |" for line in _written(report, ("**", "**"))]
    failures = [
        f"- {name}, {column}: {cell.failure}"
        for name, cells in report.rows.items()
        for column, cell in zip(report.columns, cells, strict=True)
        if cell.failure
    ]
    lines += ["", "Failures:", "", *failures] if failures else []
    return "\n".join([*lines, "", f"Written by `{command}` on {datetime.date.today()}: {machine()}.", ""])


def machine() -> str:
    """Cores, Python and the versions of what is installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    cores = f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()})"
    return f"{cores}, Python {platform.python_version()}, {', '.join(found)}"


def picture(report: Report, path: Path) -> None:
    """Lines of accuracy against k, ours and the paper's (dashed), one panel for each data set."""
    from srflvm.plot import require_matplotlib

    require_matplotlib()
    import matplotlib.pyplot as plt

    names = tuple(dict.fromkeys(row.split(", ")[0] for row in report.rows))
    figure, axes = plt.subplots(1, len(names), figsize=(5 * len(names), 4), squeeze=False)
    for name, axis in zip(names, axes[0], strict=True):
        for number, (row, cells) in enumerate(report.rows.items()):
            if row.startswith(f"{name}, "):
                colour = f"C{number % 10}"
                axis.plot(
                    range(2, 11), [cell.value for cell in cells], color=colour, label=row.split(", ")[1]
                )
                if cells[0].paper:
                    axis.plot(
                        range(2, 11), [float(cell.paper) for cell in cells], color=colour, linestyle="--"
                    )
        axis.set(title=name, xlabel="neighbours", ylabel="accuracy")
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
