"""Command line `srflvm`: one module a command, thin over the library.

Commands check their arguments and look for their files first, and import the library afterwards, so that help
and errors come at once. This package may import every other one of `srflvm`; none imports it. Other packages
add commands by entry points of the group "srflvm.commands", as `srflvm_bench` does.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from srflvm._version import __version__
from srflvm.cli import demo, explore, fit, impute, inspect, plot, sample, score, transform
from srflvm.cli.errors import OneLineErrors
from srflvm.cli.output import Output

app = typer.Typer(
    cls=OneLineErrors,
    help="Bayesian nonlinear dimensionality reduction and imputation with error bars.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _srflvm(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(f"srflvm {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        from srflvm.numerics.compilation_cache import keep_programs_of_commands

        problem = keep_programs_of_commands()
        if problem is not None:
            Output().warn(problem)


_COMMANDS = (
    demo.demo,
    fit.fit,
    impute.impute,
    transform.transform,
    sample.sample,
    score.score,
    inspect.inspect,
    plot.plot,
    explore.explore,
)
for _command in _COMMANDS:
    app.command()(_command)

for _entry in entry_points(group="srflvm.commands"):
    app.command(_entry.name)(_entry.load())
