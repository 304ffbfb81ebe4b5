"""The command line. Commands import what they need when they run, so that help and errors come at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from srflvm._version import __version__
from srflvm.bench_command import bench
from srflvm.exceptions import EXPECTED

# The base class of all complaints about a command line; not every version of typer exports it.
_UsageError: Any = typer.BadParameter.__bases__[0]


class OneLineErrors(TyperGroup):
    """A group of commands whose errors are one line: exit code 2 for bad usage, 1 for the rest."""

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **options)
        try:
            code = super().main(*args, standalone_mode=False, **options)
        except _UsageError as error:
            command = error.ctx.command_path if error.ctx else "srflvm"
            _fail(f"{error.format_message().rstrip('.')}. See {command} --help.", 2)
        except typer.Abort:
            _fail("aborted.", 1)
        except EXPECTED as error:
            _fail(str(error) or type(error).__name__, 1)
        else:
            sys.exit(code or 0)


app = typer.Typer(
    cls=OneLineErrors,
    help="Bayesian nonlinear dimensionality reduction with error bars.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.command()(bench)


@app.callback(invoke_without_command=True)
def _srflvm(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(f"srflvm {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for the files, created if need be.")
    ] = Path("demo-output"),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the fit.")] = 0,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Most sweeps; fewer for a quick look.")] = None,
    rows: Annotated[int | None, typer.Option(help="Use the first rows only, for a quick look.")] = None,
) -> None:
    """Fit the bundled handwritten digits; write the model, a picture and a report."""
    from srflvm.demo import run_demo

    run_demo(output, random_state=seed, max_iter=max_iter, n_rows=rows)


@app.command()
def fit(
    data: Annotated[
        Path, typer.Argument(help="Rows by columns: .npy, .npz (sparse), .zarr, .parquet, .csv, .tsv.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the fitted model.")] = Path(
        "model.srflvm"
    ),
    components: Annotated[int, typer.Option(min=1, help="Latent dimensions.")] = 2,
    likelihood: Annotated[
        str, typer.Option(help="Distribution of the entries, such as gaussian.")
    ] = "gaussian",
    frequencies: Annotated[int | None, typer.Option(min=1, help="Number of frequencies.")] = None,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Most sweeps.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the fit.")] = 0,
    checkpoint_dir: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; the same command goes on from there.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 1,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Be one of the processes of a SLURM, MPI or Kubernetes job.")
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option(help="host:port of process 0, to start every process by hand.")
    ] = None,
    process_count: Annotated[int | None, typer.Option(min=1, help="How many there are.")] = None,
    process_index: Annotated[int | None, typer.Option(min=0, help="Which one this is, from 0.")] = None,
    peer_timeout: Annotated[
        float, typer.Option(min=1.0, help="Seconds without progress after which all processes end.")
    ] = 300.0,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Print progress.")] = 0,
) -> None:
    """Fit a model to a file and write it to another."""
    from srflvm import fit_command

    parameters = {
        "n_components": components,
        "likelihood": likelihood.replace("-", "_"),
        "n_frequencies": frequencies or "auto",
        "max_iter": max_iter or "auto",
        "random_state": seed,
        "checkpoint_dir": None if checkpoint_dir is None else str(checkpoint_dir),
        "verbose": verbose,
    }
    job = fit_command.Job(str(data), str(output), parameters)
    by_hand = fit_command.Peers(coordinator, process_count, process_index, peer_timeout)
    raise typer.Exit(fit_command.run(job, by_hand, n_processes=processes, distributed=distributed))


def _fail(message: str, code: int) -> None:
    typer.echo(f"Error: {' '.join(message.split())}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    app()
