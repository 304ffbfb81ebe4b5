"""Commands that this package adds to `srflvm`: `srflvm bench` and `srflvm datasets`."""

from __future__ import annotations

import inspect
import shlex
import sys
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from srflvm_bench.store import Store

QUICK_BUDGET, QUICK_TOTAL = 45.0, 270.0  # seconds of a fit, and of all


class Experiment(StrEnum):
    """Tables and figures of the paper."""

    table1 = "table1"
    table2 = "table2"
    table3 = "table3"
    table4 = "table4"
    manifold = "manifold"
    weights = "weights"
    reconstructions = "reconstructions"


def bench(
    experiment: Annotated[Experiment, typer.Argument(help="Which of the paper's tables and figures.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Small data that need no files, one seed, at most 5 minutes.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="A system or a data set; may be repeated.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files; else SRFLVM_DATA.")] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Seeds 0, 1, … of tables 1 and 2 (manifold: at most 3).")
    ] = 5,
    budget: Annotated[float | None, typer.Option(min=1.0, help="Seconds that a fit may take.")] = None,
    store: Annotated[Path | None, typer.Option(help="File of finished fits; a run goes on from it.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files to write.")] = Path(
        "bench-output"
    ),
    retry: Annotated[bool, typer.Option("--retry", help="Repeat fits that failed.")] = False,
    known: Annotated[
        list[Path] | None, typer.Option(help="File of fits that another run wrote (.jsonl); may be repeated.")
    ] = None,
    stored: Annotated[bool, typer.Option("--stored", help="Run no fit, report the stored ones.")] = False,
) -> None:
    """Rerun a table or a figure of the paper with all systems, and write our numbers beside the paper's."""
    from rich.console import Console

    from srflvm.plot import require_matplotlib
    from srflvm_bench import pictures, report, runner, tables
    from srflvm_bench.store import Store
    from srflvm_bench.tasks import plan

    console, name, suffix = Console(), experiment.value, "-quick" if quick else ""
    folder = None if data is None else str(data)
    tasks = plan(name, seeds=seeds, quick=quick, only=only or (), folder=folder)
    output.mkdir(parents=True, exist_ok=True)
    require_matplotlib()
    with closing(Store(store or output / "fits.sqlite")) as fits:
        for file in known or ():
            _add_known(fits, file)
        runner.run(
            [] if stored else tasks,
            fits,
            budget=budget or (QUICK_BUDGET if quick else 86400.0),
            total=QUICK_TOTAL if quick else float("inf"),
            retry=retry,
            with_arrays=name in ("manifold", "weights", "reconstructions"),
            console=console,
        )
        built = tables.build(name, tasks, fits)
        drawn = pictures.draw(name, built, tasks, fits, output, suffix)
        made = [found for task in tasks if (found := fits.get(task)) is not None]
        fit_file = output / f"{name}{suffix}.jsonl"
        fit_file.write_text(fits.to_jsonl(tasks), encoding="utf-8")
    report.show(built, console)
    path = output / f"{name}{suffix}.md"
    command = shlex.join(["srflvm", *sys.argv[1:]])
    text = report.markdown(built, command, made, [picture.name for picture in drawn], fit_file.name)
    path.write_text(text, encoding="utf-8")
    console.print("written to", ", ".join(str(file) for file in (path, fit_file, *drawn)))


def _add_known(fits: Store, file: Path) -> None:
    """Add the outcomes of another run to the store."""
    try:
        fits.add_jsonl(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file} cannot be read as a file of fits: {error}") from error


def datasets(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON; all else to standard error.")
    ] = False,
) -> None:
    """List the data that can be drawn or loaded."""
    from srflvm.cli.output import Output
    from srflvm_bench import datasets

    functions = {name: getattr(datasets, name) for name in datasets.__all__}
    found = {name: _first_line(one) for name, one in functions.items() if inspect.isfunction(one)}
    width = max(map(len, found))
    lines = [f"{name:<{width}}  {line}" for name, line in found.items()]
    title = "In Python, from srflvm_bench.datasets:"
    Output(as_json=as_json).result("\n".join([title, *lines]), found, always=True)


def _first_line(function: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]
