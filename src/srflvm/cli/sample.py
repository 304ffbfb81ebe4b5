"""Command `srflvm sample`: draw new rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from srflvm.cli import options
from srflvm.cli.output import Output
from srflvm.data.tables.formats import check_outputs, refuse_texts, write_table


def sample(
    model: options.Model,
    target: options.Target,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows.")] = 100,
    latents: Annotated[Path | None, typer.Option(help="File for their latents.", show_default=False)] = None,
    seed: options.Seed = 0,
    escape_formulas: options.EscapeFormulas = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Draw new rows from a fitted model."""
    check_outputs(target, latents, force=force)
    fitted = options.load_model(model)

    from srflvm.data.tables.table import Table

    if hasattr(fitted, "columns_"):
        # whatever library the model's frame was of
        fitted.columns_ = replace(fitted.columns_, library="file")
    Y, Z = fitted.sample(rows, random_state=seed, return_latents=True)
    names = getattr(fitted, "feature_names_in_", None)
    drawn = Table.of(Y, None if names is None else list(names))
    refuse_texts(target, drawn)
    write_table(target, drawn, escape_formulas=escape_formulas)
    if latents is not None:
        columns = [str(name) for name in fitted.get_feature_names_out()]
        write_table(latents, Table.of(Z, columns), escape_formulas=escape_formulas)
    facts = {"output": str(target), "rows": rows, "seed": seed}
    Output(quiet, as_json).result(f"{target}: {rows} rows drawn", facts)
