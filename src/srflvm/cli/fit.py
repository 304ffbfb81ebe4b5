"""Command `srflvm fit`: fit a model in this process or in several."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srflvm.cli import options
from srflvm.cli.output import Output
from srflvm.data.tables.formats import check_input, open_table
from srflvm.storage.atomic import check_target, whole_file

if TYPE_CHECKING:
    from srflvm.cli.model_table import ModelTable

_MODEL, _PROCESSES = "The model", "Several processes"

# A port that was free may be taken until process 0 listens on it.
_MOST_PORTS_TRIED = 5


def fit(
    data: options.Data,
    target: options.Target = Path("model.srflvm"),
    components: options.Components = 2,
    likelihood: options.Likelihood = "auto",
    column: options.Column = None,
    frequencies: options.Frequencies = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows used at a time.", rich_help_panel=_MODEL)
    ] = None,
    max_iter: options.MaxIter = None,
    seed: options.Seed = 0,
    id_column: options.IdColumn = None,
    leave_out: options.LeaveOut = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    missing: options.Missing = None,
    layer: options.Layer = None,
    checkpoint_dir: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; the same command goes on from there.")
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
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
        int | None, typer.Option(min=1, help="Number of processes.", rich_help_panel=_PROCESSES)
    ] = None,
    process_index: Annotated[
        int | None, typer.Option(min=0, help="Number of this process, from 0.", rich_help_panel=_PROCESSES)
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
    connection = Connection(coordinator, process_count, process_index, peer_timeout, connect_timeout)
    if (processes > 1) + distributed + connection.is_given > 1:
        raise ValueError("Give only one of --processes, --distributed and --coordinator.")
    if connection.is_given and None in (coordinator, process_count, process_index):
        raise ValueError("--coordinator, --process-count and --process-index belong together.")
    check_input(data)
    check_target(target, force=force)
    parameters = {
        "n_components": components,
        "n_frequencies": frequencies,
        "batch_size": batch_size,
        "max_iter": max_iter,
        "random_state": seed,
        "checkpoint_dir": None if checkpoint_dir is None else str(checkpoint_dir),
    }
    job = Job(
        str(data),
        str(target),
        {name: value for name, value in parameters.items() if value is not None},
        likelihood,
        column or [],
        {
            "id_column": id_column,
            "leave_out": leave_out,
            "header": header,
            "layer": layer,
            "delimiter": delimiter,
            "decimal": decimal,
            "missing": missing,
        },
        {"quiet": quiet, "as_json": as_json},
    )
    if processes > 1:
        code = _run_here(job, processes, connection)
    elif distributed or connection.is_given:
        code = _run_workers([_command(job, connection)], job)
    else:
        code = fit_job(job)
    raise typer.Exit(code)


@dataclass(frozen=True)
class Connection:
    """Address of process 0, number of processes and number of this one; None asks the environment."""

    coordinator: str | None = None
    n_processes: int | None = None
    index: int | None = None
    timeout: float = 300.0
    connect_timeout: float = 60.0

    @property
    def is_given(self) -> bool:
        return any(value is not None for value in (self.coordinator, self.n_processes, self.index))


@dataclass(frozen=True)
class Job:
    """Fit of a table, in values that can be written as JSON.

    `parameters` are those of `SRFLVM`, `likelihood` that of all columns, `by_column` those of some;
    `reading` holds the arguments of `read_options`, and `printing` those of `Output`.
    """

    data: str
    target: str
    parameters: dict[str, Any]
    likelihood: str = "auto"
    by_column: list[str] = field(default_factory=list)
    reading: dict[str, Any] = field(default_factory=dict)
    printing: dict[str, bool] = field(default_factory=dict)

    @property
    def advice(self) -> str:
        folder = self.parameters.get("checkpoint_dir")
        if folder is None:
            return "There is no checkpoint; give --checkpoint-dir to have one."
        return (
            f"The checkpoint in {folder} is kept: run the same command again, with any --processes, to go on."
        )


def fit_job(job: Job) -> int:
    """Fit, let the first process save the model, and return the exit code."""
    from srflvm import parallel
    from srflvm.cli.columns import announce, choose_likelihoods, frame_options
    from srflvm.cli.model_table import ModelTable
    from srflvm.estimator import SRFLVM
    from srflvm.parallel import launcher

    output = Output(**job.printing)
    reading = options.read_options(**job.reading, **frame_options(job.likelihood, job.by_column))
    table = open_table(Path(job.data), reading)
    likelihood = choose_likelihoods(table, job.likelihood, job.by_column)
    found = ModelTable.to_fit(table, likelihood)
    announce(job.data, table, likelihood, found.schema, output)
    model: Any = SRFLVM(**job.parameters, likelihood=found.likelihood_of_each(likelihood))
    started = time.perf_counter()
    with output.show_warnings(), output.progress_bar() as bar:
        model.set_params(callbacks=[bar]).fit(found.data)
    model.set_params(callbacks=None, likelihood=likelihood)
    if found.schema is not None:
        model.columns_ = found.schema.with_transforms(model.transforms_)
    seconds = time.perf_counter() - started
    if parallel.is_first():
        if model.interrupted_:
            output.warn("interrupted: the best state so far is kept.")
        with whole_file(Path(job.target)) as temporary:
            model.save(temporary)
        facts = {"model": job.target, **_facts(model, found, seconds)}
        output.result(
            f"{job.target}: bound per entry {facts['elbo_per_entry']:.4f} after {model.n_iter_} sweeps, "
            f"{seconds:.1f} s",
            facts,
        )
    return launcher.INTERRUPTED if model.interrupted_ else 0


def _facts(model: Any, found: ModelTable, seconds: float) -> dict[str, Any]:
    """Return facts about a fit for programs."""
    from srflvm.cli.columns import column_facts

    n_entries = int(found.count_observed().sum())
    return {
        "rows": found.table.shape[0],
        "columns": found.table.shape[1],
        "components": int(model.n_components_),
        "elbo": model.elbo_,
        "elbo_per_entry": model.elbo_ / n_entries,
        "sweeps": model.n_iter_,
        "converged": model.converged_,
        "interrupted": model.interrupted_,
        "seconds": round(seconds, 3),
        "taken_as": column_facts(found.schema),
    }


def _run_here(job: Job, n_processes: int, connection: Connection) -> int:
    """Fit in several processes of this machine, and return the exit code."""
    from srflvm.parallel import launcher

    for _ in range(_MOST_PORTS_TRIED - 1):
        code = _run_on_a_free_port(job, n_processes, connection, launcher.PORT_TAKEN)
        if code != launcher.PORT_TAKEN:
            return code
    return _run_on_a_free_port(job, n_processes, connection, None)


def _run_on_a_free_port(job: Job, n_processes: int, connection: Connection, silent_code: int | None) -> int:
    from srflvm.parallel import launcher

    here = replace(connection, coordinator=f"127.0.0.1:{launcher.free_port()}", n_processes=n_processes)
    commands = [_command(job, replace(here, index=index)) for index in range(n_processes)]
    return _run_workers(commands, job, silent_code)


def _run_workers(commands: list[list[str]], job: Job, silent_code: int | None = None) -> int:
    from srflvm.parallel import launcher

    return launcher.run_workers(commands, job.advice, silent_code=silent_code)


def _command(job: Job, connection: Connection) -> list[str]:
    # -P: a file such as queue.py in the working folder must not stand for a module of that name
    return [sys.executable, "-P", "-m", "srflvm.cli.worker", json.dumps([asdict(job), asdict(connection)])]
