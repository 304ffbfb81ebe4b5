"""What `srflvm explore` does: a page to explore a model in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from srflvm.commands.rows import open_rows, order_of_columns
from srflvm.commands.speaking import Speaker
from srflvm.exceptions import DataError
from srflvm.persistence import load
from srflvm.tables import Reading
from srflvm.tables.labels import read_labels
from srflvm.whole_files import check_target, whole_file


def run(
    model_file: Path,
    output: Path,
    how: Reading,
    speaker: Speaker,
    *,
    data: Path | None,
    labels: Path | None,
    label_column: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Write the page. `options` are those of `srflvm.explore.write_page`."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{output} does not end in .html.")
    check_target(output, force=force)
    from srflvm.explore import write_page

    model: Any = load(model_file)
    n_rows = len(model.embedding_)
    if data is not None:
        options |= _rows(model, data, how, n_rows, speaker)
    if labels is not None:
        options["labels"] = read_labels(labels, n_rows, label_column)
    with speaker.hearing_warnings(), whole_file(output) as temporary:
        write_page(model, temporary, **options)
    size = output.stat().st_size
    facts = {"output": str(output), "rows": n_rows, "bytes": size}
    speaker.result(f"{output}: {n_rows} rows, {size / 1e6:.1f} MB; open it in a browser", facts)


def _rows(model: Any, data: Path, how: Reading, n_rows: int, speaker: Speaker) -> dict[str, Any]:
    """The entries and the ids of the rows that the model was fitted to."""
    table = open_rows(data, how, speaker, model)
    order = order_of_columns(model, table, speaker)
    if table.shape[0] != n_rows:
        raise DataError(
            f"{data} has {table.shape[0]} rows, but the model was fitted to {n_rows}. Give those rows."
        )
    ids = None if table.ids is None else np.array([str(name) for name in table.ids])
    return {"data": table.values[:, order], "ids": ids}
