"""What `srflvm score` does: how probable rows are under a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from srflvm.commands.rows import arranged, order_of_columns
from srflvm.commands.speaking import Speaker
from srflvm.persistence import load
from srflvm.sources import Source, pieces
from srflvm.tables import Reading, ending, made_of, open_table, write_table
from srflvm.whole_files import check_target


def run(
    model_file: Path, data: Path, output: Path | None, how: Reading, speaker: Speaker, *, force: bool
) -> None:
    """Print mean log densities; write those of all rows, if asked for."""
    if output is not None:
        ending(output, to_write=True)
        check_target(output, force=force)
    model = load(model_file)
    table = open_table(data, how)
    order = order_of_columns(model, table, speaker.note)
    with speaker.hearing_warnings():
        scores = model.score_samples(arranged(model, table, order))
    n_observed = _n_observed(table.rows)
    if output is not None:
        write_table(
            output, made_of(np.stack([scores, n_observed], axis=1), ["log_density", "observed"], table)
        )
    per_row, per_entry = float(scores.mean()), float(scores.sum() / max(n_observed.sum(), 1))
    facts = {
        "rows": len(scores),
        "observed": int(n_observed.sum()),
        "log_density_per_row": per_row,
        "log_density_per_entry": per_entry,
    }
    text = f"log density: {per_entry:.4f} nats per observed entry, {per_row:.4f} per row ({len(scores)} rows)"
    speaker.result(text, facts, always=True)


def _n_observed(rows: Source) -> np.ndarray:
    """How many entries of each row are observed."""
    return np.concatenate([np.isfinite(piece).sum(axis=1) for _, piece in pieces(rows)])
