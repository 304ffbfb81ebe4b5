"""What `srflvm sample` does: rows that might have been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from srflvm.commands.speaking import Speaker
from srflvm.persistence import load
from srflvm.tables import check_outputs, made_of, write_table


def run(
    model_file: Path,
    output: Path,
    speaker: Speaker,
    *,
    n_rows: int,
    seed: int,
    latents: Path | None,
    escape_formulas: bool,
    force: bool,
) -> None:
    """Draw rows and write them; also their latents, if asked for."""
    check_outputs(output, latents, force=force)
    model: Any = load(model_file)
    Y, Z = model.sample(n_rows, random_state=seed, return_latents=True)
    names = getattr(model, "feature_names_in_", None)
    write_table(output, made_of(Y, None if names is None else list(names)), escape_formulas=escape_formulas)
    if latents is not None:
        write_table(
            latents,
            made_of(Z, [str(name) for name in model.get_feature_names_out()]),
            escape_formulas=escape_formulas,
        )
    speaker.result(f"{output}: {n_rows} rows drawn", {"output": str(output), "rows": n_rows, "seed": seed})
