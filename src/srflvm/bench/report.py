"""How a table is written, in the terminal and in Markdown, the paper's numbers beside ours."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

PACKAGES = ("srflvm", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "umap-learn", "hpfrec", "GPy")


class Cell(NamedTuple):
    """Our value with its spread and how it is written, the paper's, and what failed."""

    value: float
    text: str
    paper: str = ""
    failure: str = ""


class Report(NamedTuple):
    """A table: rows are systems, columns data sets or what is varied.

    `is_compared` says whether the best of a column is marked. Where rows are of several `groups`, named by
    row, it is the best of the group.
    """

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Cell, ...]]
    lower_is_better: bool = False
    is_compared: bool = True
    groups: Mapping[str, str] = MappingProxyType({})


def best(report: Report, group: str | None = None) -> list[float]:
    """The best value of every column, among the rows of a group; NaN where there is none."""
    choose = np.fmin if report.lower_is_better else np.fmax
    rows = [cells for name, cells in report.rows.items() if report.groups.get(name) == group]
    return list(choose.reduce(np.array([[cell.value for cell in cells] for cells in rows]), axis=0))


def _written(report: Report, bold: tuple[str, str]) -> list[list[str]]:
    lines = []
    for name, cells in report.rows.items():
        line = [name]
        for cell, top in zip(cells, best(report, report.groups.get(name)), strict=True):
            is_best = report.is_compared and cell.value == top
            ours = f"{bold[0]}{cell.text}{bold[1]}" if is_best else cell.text
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


def markdown(
    report: Report,
    command: str,
    dates: Sequence[str] = (),
    pictures: Sequence[str] = (),
    fit_file: str = "",
) -> str:
    """The table, what failed, pictures by their file names, the file of single fits, and command, machine,
    versions and the first and the last of the dates on which its fits were made."""
    columns = ("system", *report.columns)
    lines = [f"# {report.title}", ""]
    if report.is_compared:
        lines += ["The paper's numbers are in brackets; our best of a column is bold.", ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(line) + " |" for line in _written(report, ("**", "**"))]
    failures = [
        f"- {name}, {column}: {cell.failure}"
        for name, cells in report.rows.items()
        for column, cell in zip(report.columns, cells, strict=True)
        if cell.failure
    ]
    lines += ["", "Failures:", "", *failures] if failures else []
    lines += [line for name in pictures for line in ("", f"![{report.title}]({name})")]
    lines += ["", f"Every single fit: [{fit_file}]({fit_file})."] if fit_file else []
    written = f"Written by `{command}` on {datetime.date.today()}{_made(dates)}: {machine()}."
    return "\n".join([*lines, "", written, ""])


def _made(dates: Sequence[str]) -> str:
    days = sorted({date[:10] for date in dates if date})
    return f", from fits made on {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""


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
