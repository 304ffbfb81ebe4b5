"""Commands that ask a fitted model. They import what they need when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srflvm.commands import options as shared


def transform(
    model: shared.Model,
    data: shared.Data,
    output: shared.Output,
    std: Annotated[bool, typer.Option("--std", help="Also standard deviations, in further columns.")] = False,
    id_column: shared.IdColumn = None,
    leave_out: shared.LeaveOut = None,
    header: shared.Header = None,
    layer: shared.Layer = None,
    escape_formulas: shared.EscapeFormulas = False,
    force: shared.Force = False,
    quiet: shared.Quiet = False,
    as_json: shared.Json = False,
) -> None:
    """Embed the rows of a table with a fitted model."""
    from srflvm.commands import transform

    how, speaker = shared.reading(id_column, leave_out, header, layer), shared.speaker(quiet, as_json)
    transform.run(model, data, output, how, speaker, std=std, escape_formulas=escape_formulas, force=force)


def sample(
    model: shared.Model,
    output: shared.Output,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many.")] = 100,
    latents: Annotated[Path | None, typer.Option(help="File for their latents.", show_default=False)] = None,
    seed: shared.Seed = 0,
    escape_formulas: shared.EscapeFormulas = False,
    force: shared.Force = False,
    quiet: shared.Quiet = False,
    as_json: shared.Json = False,
) -> None:
    """Draw new rows from a fitted model."""
    from srflvm.commands import sample

    speaker = shared.speaker(quiet, as_json)
    sample.run(
        model,
        output,
        speaker,
        n_rows=rows,
        seed=seed,
        latents=latents,
        escape_formulas=escape_formulas,
        force=force,
    )


def score(
    model: shared.Model,
    data: shared.Data,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the log density of each row.", show_default=False),
    ] = None,
    id_column: shared.IdColumn = None,
    leave_out: shared.LeaveOut = None,
    header: shared.Header = None,
    layer: shared.Layer = None,
    escape_formulas: shared.EscapeFormulas = False,
    force: shared.Force = False,
    quiet: shared.Quiet = False,
    as_json: shared.Json = False,
) -> None:
    """Tell how probable the rows of a table are under a fitted model."""
    from srflvm.commands import score

    how, speaker = shared.reading(id_column, leave_out, header, layer), shared.speaker(quiet, as_json)
    score.run(model, data, output, how, speaker, escape_formulas=escape_formulas, force=force)


def inspect(model: shared.Model, as_json: shared.Json = False) -> None:
    """Tell what is in a model file."""
    from srflvm.commands import inspect

    inspect.run(model, shared.speaker(False, as_json))


def plot(
    model: shared.Model,
    output: shared.Output,
    kind: Annotated[
        str,
        typer.Option(
            help="embedding, history, kernel, spectral-density, grid, uncertainty, magnification, relevance."
        ),
    ] = "embedding",
    labels: shared.Labels = None,
    label_column: shared.LabelColumn = None,
    dims: shared.Dims = None,
    image_shape: shared.ImageShape = None,
    force: shared.Force = False,
    quiet: shared.Quiet = False,
    as_json: shared.Json = False,
) -> None:
    """Draw a picture of a fitted model: .png, .pdf or .svg."""
    from srflvm.commands import plot

    plot.run(
        model,
        kind,
        output,
        shared.speaker(quiet, as_json),
        labels=labels,
        label_column=label_column,
        dims=shared.two_numbers(dims, "--dims", ","),
        image_shape=shared.two_numbers(image_shape, "--image-shape", "x"),
        force=force,
    )


def explore(
    model: shared.Model,
    output: shared.Output,
    data: Annotated[Path | None, typer.Option(help="The table that was fitted.", show_default=False)] = None,
    labels: shared.Labels = None,
    label_column: shared.LabelColumn = None,
    dims: shared.Dims = None,
    image_shape: shared.ImageShape = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    id_column: shared.IdColumn = None,
    leave_out: shared.LeaveOut = None,
    header: shared.Header = None,
    layer: shared.Layer = None,
    force: shared.Force = False,
    quiet: shared.Quiet = False,
    as_json: shared.Json = False,
) -> None:
    """Write a page to explore a fitted model in: one .html file that needs no network."""
    from srflvm.commands import explore

    explore.run(
        model,
        output,
        shared.reading(id_column, leave_out, header, layer),
        shared.speaker(quiet, as_json),
        data=data,
        labels=labels,
        label_column=label_column,
        force=force,
        dims=shared.two_numbers(dims, "--dims", ","),
        image_shape=shared.two_numbers(image_shape, "--image-shape", "x"),
        title=title,
    )
