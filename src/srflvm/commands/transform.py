"""What `srflvm transform` does: rows of a file to their places in the latent space."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from srflvm.commands.rows import arranged, open_rows, order_of_columns
from srflvm.commands.speaking import Speaker
from srflvm.persistence import load
from srflvm.tables import Reading, check_outputs, ending, made_of, write_table
from srflvm.whole_files import whole_file


def run(
    model_file: Path,
    data: Path,
    output: Path,
    how: Reading,
    speaker: Speaker,
    *,
    std: bool,
    escape_formulas: bool,
    force: bool,
) -> None:
    """Embed and write. An AnnData file becomes one with the latents in it."""
    check_outputs(output, force=force)
    model = load(model_file)
    annotated = ending(output) == ".h5ad" == ending(data)
    table = open_rows(data, replace(how, keep=annotated), speaker, model)
    order = order_of_columns(model, table, speaker)
    with speaker.hearing_warnings():
        Z, Z_std = model.transform(arranged(model, table, order), return_std=True)
    if annotated:
        _write_annotated(output, table.original, model, Z, Z_std)
    else:
        names = [str(name) for name in model.get_feature_names_out()]
        columns = [*names, *(f"{name}_std" for name in names if std)]
        write_table(
            output,
            made_of(np.hstack([Z, Z_std]) if std else Z, columns, table),
            escape_formulas=escape_formulas,
        )
    facts = {"output": str(output), "rows": table.shape[0], "components": Z.shape[1]}
    speaker.result(f"{output}: {table.shape[0]} rows in {Z.shape[1]} dimensions", facts)


def _write_annotated(output: Path, original: Any, model: Any, Z: np.ndarray, Z_std: np.ndarray) -> None:
    from srflvm.anndata import attach

    attach(original.adata, model, Z, Z_std)
    with whole_file(output) as temporary:
        original.adata.write_h5ad(temporary)
