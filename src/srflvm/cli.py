"""The command line. Commands import what they need when they run, so that help and errors come at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srflvm._version import __version__
from srflvm.commands import asking
from srflvm.commands import options as shared
from srflvm.commands.bench import bench
from srflvm.commands.one_line_errors import OneLineErrors

_PROCESSES = "Several processes"

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


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for the files, created if need be.")
    ] = Path("demo-output"),
    seed: shared.Seed = 0,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Most sweeps; fewer for a quick look.")] = None,
    rows: Annotated[int | None, typer.Option(help="Use the first rows only, for a quick look.")] = None,
) -> None:
    """Fit the bundled handwritten digits; write the model, a picture and a report."""
    from srflvm.demo import run_demo

    run_demo(output, random_state=seed, max_iter=max_iter, n_rows=rows)


@app.command()
def fit(
    data: shared.Data,
    output: shared.Output = Path("model.srflvm"),
    components: Annotated[
        int, typer.Option(min=1, help="Latent dimensions.", rich_help_panel="The model")
    ] = 2,
    likelihood: shared.Likelihood = "gaussian",
    column: shared.Column = None,
    frequencies: shared.Frequencies = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows seen at a time.", rich_help_panel="The model")
    ] = None,
    max_iter: shared.MaxIter = None,
    seed: shared.Seed = 0,
    id_column: shared.IdColumn = None,
    leave_out: shared.LeaveOut = None,
    header: shared.Header = None,
    layer: shared.Layer = None,
    checkpoint_dir: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; the same command goes on from there.")
    ] = None,
    force: shared.Force = False,
    quiet: shared.Quiet = False,
    as_json: shared.Json = False,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes on this machine.", rich_help_panel=_PROCESSES)
    ] = 1,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed",
            help="Be one of the processes of a SLURM, MPI or Kubernetes job.",
            rich_help_panel=_PROCESSES,
        ),
    ] = False,
    coordinator: Annotated[
        str | None,
        typer.Option(help="host:port of process 0, to start all by hand.", rich_help_panel=_PROCESSES),
    ] = None,
    process_count: Annotated[
        int | None, typer.Option(min=1, help="How many there are.", rich_help_panel=_PROCESSES)
    ] = None,
    process_index: Annotated[
        int | None, typer.Option(min=0, help="Which one this is, from 0.", rich_help_panel=_PROCESSES)
    ] = None,
    peer_timeout: Annotated[
        float,
        typer.Option(
            min=1.0, help="Seconds of waiting for each other after which all end.", rich_help_panel=_PROCESSES
        ),
    ] = 300.0,
    connect_timeout: Annotated[
        float,
        typer.Option(min=1.0, help="Seconds to wait for processes to start.", rich_help_panel=_PROCESSES),
    ] = 60.0,
) -> None:
    """Fit a model to a table and write it to a file."""
    from srflvm.commands import fit

    auto = shared.given(n_frequencies=frequencies, max_iter=max_iter, batch_size=batch_size)
    folder = None if checkpoint_dir is None else str(checkpoint_dir)
    job = fit.Job(
        str(data),
        str(output),
        {"n_components": components, "random_state": seed, "checkpoint_dir": folder, **auto},
        likelihood,
        column or [],
        {"id_column": id_column, "leave_out": leave_out or (), "header": header, "layer": layer},
        {"quiet": quiet, "as_json": as_json},
    )
    by_hand = fit.Peers(coordinator, process_count, process_index, peer_timeout, connect_timeout)
    raise typer.Exit(fit.run(job, by_hand, n_processes=processes, distributed=distributed, force=force))


@app.command()
def impute(
    data: shared.Data,
    output: shared.Output,
    model: Annotated[
        Path | None, typer.Option(help="A fitted model; else one is fitted to the table.", show_default=False)
    ] = None,
    std: Annotated[
        Path | None, typer.Option(help="File for the standard deviations.", show_default=False)
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(
            min=1, help="Latent dimensions; else chosen by entries held out.", rich_help_panel="The model"
        ),
    ] = None,
    likelihood: shared.Likelihood = "gaussian",
    column: shared.Column = None,
    frequencies: shared.Frequencies = None,
    max_iter: shared.MaxIter = None,
    seed: shared.Seed = 0,
    id_column: shared.IdColumn = None,
    leave_out: shared.LeaveOut = None,
    header: shared.Header = None,
    layer: shared.Layer = None,
    escape_formulas: shared.EscapeFormulas = False,
    force: shared.Force = False,
    quiet: shared.Quiet = False,
    as_json: shared.Json = False,
) -> None:
    """Fill the missing entries of a table; the observed ones stay as they are written."""
    from srflvm.commands import impute

    how = shared.reading(id_column, leave_out, header, layer, keep=True)
    parameters = {"random_state": seed, **shared.given(n_frequencies=frequencies, max_iter=max_iter)}
    new = impute.NewModel(components, likelihood, column or (), parameters)
    speaker = shared.speaker(quiet, as_json)
    impute.run(
        data, output, model, new, how, speaker, std_output=std, escape_formulas=escape_formulas, force=force
    )


@app.command()
def datasets(as_json: shared.Json = False) -> None:
    """List the data that the library can make or load."""
    from srflvm.commands import datasets

    datasets.run(shared.speaker(False, as_json))


_ASKING = asking.transform, asking.sample, asking.score, asking.inspect, asking.plot, asking.explore
for _command in (*_ASKING, bench):
    app.command()(_command)


if __name__ == "__main__":
    app()
