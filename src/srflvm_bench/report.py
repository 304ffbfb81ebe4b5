"""Reports: tables in the terminal and in Markdown, with the paper's numbers beside ours."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from srflvm_bench.store import Outcome


class Cell(NamedTuple):
    """Cell of a table: our value and its text, the text of the paper's, the first failure, and notes."""

    value: float
    text: str
    paper: str = ""
    failure: str = ""
    note: str = ""


class Report(NamedTuple):
    """Table whose rows are systems, and whose columns are data sets or settings.

    If `is_compared`, the best value of a column is marked. If `groups` maps rows to groups, it is the best
    value of each group.
    """

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Cell, ...]]
    lower_is_better: bool = False
    is_compared: bool = True
    groups: Mapping[str, str] = MappingProxyType({})

    @property
    def is_beside_the_paper(self) -> bool:
        """True if the paper has a value for any cell."""
        return any(cell.paper for cells in self.rows.values() for cell in cells)


def _best_values(report: Report, group: str | None = None) -> list[float]:
    """Return the best value of every column among the rows of a group, NaN where there is none."""
    choose = np.fmin if report.lower_is_better else np.fmax
    rows = [cells for name, cells in report.rows.items() if report.groups.get(name) == group]
    return list(choose.reduce(np.array([[cell.value for cell in cells] for cells in rows]), axis=0))


def _lines(report: Report, bold: tuple[str, str]) -> list[list[str]]:
    """Return the texts of all rows, with the best ones between the marks of `bold`."""
    lines = []
    for name, cells in report.rows.items():
        line = [name]
        for cell, top in zip(cells, _best_values(report, report.groups.get(name)), strict=True):
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
    for line in _lines(report, ("[bold]", "[/bold]")):
        table.add_row(*line)
    console.print(table)


def markdown(
    report: Report,
    command: str,
    fits: Sequence[Outcome] = (),
    pictures: Sequence[str] = (),
    fit_file: str = "",
) -> str:
    """Write the table as Markdown.

    Below it are failures, notes, pictures by their file names, the file of single fits, and the command, with
    the machines, the versions, and the first and the last date of the fits.
    """
    columns = ("system", *report.columns)
    lines = [f"# {report.title}", ""]
    if report.is_compared:
        brackets = "The paper's numbers are in brackets; our" if report.is_beside_the_paper else "Our"
        lines += [f"{brackets} best of a column is bold.", ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(line) + " |" for line in _lines(report, ("**", "**"))]
    lines += _list_texts("Failures", report, lambda cell: cell.failure)
    lines += _list_texts("Notes", report, lambda cell: cell.note)
    lines += [line for name in pictures for line in ("", f"![{report.title}]({name})")]
    lines += ["", f"Every single fit: [{fit_file}]({fit_file})."] if fit_file else []
    written = f"Written by `{command}` on {datetime.date.today()}{_origin(fits)}."
    return "\n".join([*lines, "", written, ""])


def _list_texts(title: str, report: Report, text_of: Callable[[Cell], str]) -> list[str]:
    """List texts of cells, each once for all columns of a row that share it."""
    lines = []
    for name, cells in report.rows.items():
        columns: dict[str, list[str]] = {}
        for column, cell in zip(report.columns, cells, strict=True):
            if text_of(cell):
                columns.setdefault(text_of(cell), []).append(column)
        for text, where in columns.items():
            place = [name] if len(where) == len(cells) > 1 else [name, *where]
            lines.append(f"- {', '.join(place)}: {text}")
    return ["", f"{title}:", "", *lines] if lines else []


def _origin(fits: Sequence[Outcome]) -> str:
    """Return the dates and the machines of fits."""
    days = sorted({outcome.date[:10] for outcome in fits})
    if not days:
        return ""
    machines = "; and ".join(sorted({outcome.machine for outcome in fits}))
    return f", from fits made on {' to '.join(dict.fromkeys((days[0], days[-1])))}: {machines}"
