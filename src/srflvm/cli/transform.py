"""Command `srflvm transform`: embed the rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srflvm.cli import options
from srflvm.cli.output import Output
from srflvm.data.tables.formats import check_input, check_outputs, write_table
from srflvm.storage.atomic import whole_file

if TYPE_CHECKING:
    from srflvm._typing import FloatArray


def transform(
    model: options.Model,
    data: options.Data,
    target: options.Target,
    std: Annotated[bool, typer.Option("--std", help="Also standard deviations, in further columns.")] = False,
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
    """Embed the rows of a table with a fitted model."""
    options.check_unknown_levels(unknown_levels)
    check_outputs(target, force=force)
    check_input(data)
    fitted = options.load_model(model)

    import numpy as np

    from srflvm.cli.columns import column_facts
    from srflvm.cli.model_table import ModelTable
    from srflvm.data.tables.table import Table

    output = Output(quiet, as_json)
    is_annotated = all(path.suffix.lower() == ".h5ad" for path in (data, target))
    reading = options.read_options(
        id_column, leave_out, header, layer, delimiter, decimal, missing, keep=is_annotated
    )
    found = ModelTable.open(data, fitted, reading, output, unknown_levels)
    found.announce(output)
    with output.show_warnings():
        Z, Z_std = fitted.transform(found.data, return_std=True)
    if is_annotated:
        _write_annotated(target, found.table.original, fitted, Z, Z_std)
    else:
        names = [str(name) for name in fitted.get_feature_names_out()]
        columns = [*names, *(f"{name}_std" for name in names if std)]
        embedded = Table.of(np.hstack([Z, Z_std]) if std else Z, columns, found.table)
        write_table(target, embedded, escape_formulas=escape_formulas)
    facts = {
        "output": str(target),
        "rows": len(Z),
        "components": Z.shape[1],
        "taken_as": column_facts(found.schema),
    }
    output.result(f"{target}: {len(Z)} rows in {Z.shape[1]} dimensions", facts)


def _write_annotated(target: Path, original: Any, model: Any, Z: FloatArray, Z_std: FloatArray) -> None:
    """Write the AnnData object of the data with the latents in it."""
    from srflvm.anndata import attach

    attach(original.adata, model, Z, Z_std)
    with whole_file(target) as temporary:
        original.adata.write_h5ad(temporary)
