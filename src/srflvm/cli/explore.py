"""Command `srflvm explore`: write a page to explore a model in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srflvm.cli import options
from srflvm.cli.output import Output
from srflvm.data.tables.formats import check_input, read_labels
from srflvm.exceptions import DataError
from srflvm.storage.atomic import check_target, whole_file

if TYPE_CHECKING:
    from srflvm.data.tables.table import ReadOptions


def explore(
    model: options.Model,
    target: options.Target,
    data: Annotated[Path | None, typer.Option(help="The table that was fitted.", show_default=False)] = None,
    labels: options.Labels = None,
    label_column: options.LabelColumn = None,
    dims: options.Dims = None,
    image_shape: options.ImageShape = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    id_column: options.IdColumn = None,
    leave_out: options.LeaveOut = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    missing: options.Missing = None,
    layer: options.Layer = None,
    unknown_levels: options.UnknownLevels = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Write a page to explore a fitted model in: one .html file that needs no network."""
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{target} does not end in .html.")
    given: dict[str, Any] = {
        "dims": options.two_numbers(dims, "--dims", ","),
        "image_shape": options.two_numbers(image_shape, "--image-shape", "x"),
        "title": title,
    }
    options.check_unknown_levels(unknown_levels)
    check_target(target, force=force)
    for path in (data, labels):
        if path is not None:
            check_input(path)
    fitted = options.load_model(model)

    from srflvm.explore import write_page

    output, n_rows = Output(quiet, as_json), len(fitted.embedding_)
    if data is not None:
        reading = options.read_options(id_column, leave_out, header, layer, delimiter, decimal, missing)
        given |= _read_rows(fitted, data, reading, n_rows, output, unknown_levels)
    if labels is not None:
        given["labels"] = read_labels(labels, n_rows, label_column)
    with output.show_warnings(), whole_file(target) as temporary:
        write_page(fitted, temporary, **given)
    size = target.stat().st_size
    facts = {"output": str(target), "rows": n_rows, "bytes": size}
    output.result(f"{target}: {n_rows} rows, {size / 1e6:.1f} MB; open it in a browser", facts)


def _read_rows(
    model: Any, data: Path, reading: ReadOptions, n_rows: int, output: Output, unknown_levels: str | None
) -> dict[str, Any]:
    """Read the entries and the ids of the rows that the model was fitted to."""
    import numpy as np

    from srflvm.cli.model_table import ModelTable

    found = ModelTable.open(data, model, reading, output, unknown_levels)
    table = found.table
    if table.shape[0] != n_rows:
        raise DataError(
            f"{data} has {table.shape[0]} rows, but the model was fitted to {n_rows}. Give those rows."
        )
    ids = None if table.ids is None else np.array([str(name) for name in table.ids])
    return {"data": found.values, "ids": ids}
