"""Command `srflvm score`: log densities of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srflvm.cli import options
from srflvm.cli.output import Output
from srflvm.data.tables.formats import check_input, check_outputs, write_table


def score(
    model: options.Model,
    data: options.Data,
    target: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the log density of each row.", show_default=False),
    ] = None,
    id_column: options.IdColumn = None,
    leave_out: options.LeaveOut = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    missing: options.Missing = None,
    layer: options.Layer = None,
    unknown_levels: options.UnknownLevels = None,
    escape_formulas: options.EscapeFormulas = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Print how probable the rows of a table are under a fitted model."""
    options.check_unknown_levels(unknown_levels)
    check_outputs(target, force=force)
    check_input(data)
    fitted = options.load_model(model)

    import numpy as np

    from srflvm.cli.model_table import ModelTable
    from srflvm.data.tables.table import Table

    output = Output(quiet, as_json)
    reading = options.read_options(id_column, leave_out, header, layer, delimiter, decimal, missing)
    found = ModelTable.open(data, fitted, reading, output, unknown_levels)
    with output.show_warnings():
        scores = fitted.score_samples(found.data)
    observed = found.count_observed()
    if target is not None:
        columns = ["log_density", "observed"]
        by_row = Table.of(np.stack([scores, observed], axis=1), columns, found.table)
        write_table(target, by_row, escape_formulas=escape_formulas)
    per_row, per_entry = float(scores.mean()), float(scores.sum() / max(observed.sum(), 1))
    facts = {
        "rows": len(scores),
        "observed": int(observed.sum()),
        "log_density_per_row": per_row,
        "log_density_per_entry": per_entry,
    }
    text = f"log density: {per_entry:.4f} nats per observed entry, {per_row:.4f} per row ({len(scores)} rows)"
    output.result(text, facts, always=True)
