"""What `srflvm score` does: how probable rows are under a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from srflvm.commands.rows import ArrangedSource, arranged, n_observed, open_rows, order_of_columns
from srflvm.commands.speaking import Speaker
from srflvm.persistence import load
from srflvm.tables import Reading, check_outputs, made_of, write_table


def run(
    model_file: Path,
    data: Path,
    output: Path | None,
    how: Reading,
    speaker: Speaker,
    *,
    escape_formulas: bool,
    force: bool,
) -> None:
    """Print mean log densities; write those of all rows, if asked for."""
    check_outputs(output, force=force)
    model = load(model_file)
    table = open_rows(data, how, speaker, model)
    order = order_of_columns(model, table, speaker)
    with speaker.hearing_warnings():
        scores = model.score_samples(arranged(model, table, order))
    observed = n_observed(ArrangedSource(table.rows, order, None))
    if output is not None:
        write_table(
            output,
            made_of(np.stack([scores, observed], axis=1), ["log_density", "observed"], table),
            escape_formulas=escape_formulas,
        )
    per_row, per_entry = float(scores.mean()), float(scores.sum() / max(observed.sum(), 1))
    facts = {
        "rows": len(scores),
        "observed": int(observed.sum()),
        "log_density_per_row": per_row,
        "log_density_per_entry": per_entry,
    }
    text = f"log density: {per_entry:.4f} nats per observed entry, {per_row:.4f} per row ({len(scores)} rows)"
    speaker.result(text, facts, always=True)
