"""What `srflvm impute` does: the holes of a file filled, by a fitted model or by one that is fitted now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from srflvm._likelihood_choice import choose
from srflvm.commands import columns, fitting
from srflvm.commands.rows import arranged, back_in_order, open_rows, order_of_columns
from srflvm.commands.speaking import Speaker
from srflvm.estimator import SRFLVM
from srflvm.likelihoods import Categorical, Multinomial
from srflvm.persistence import load
from srflvm.selection import choose_n_components
from srflvm.sources import ArraySource
from srflvm.tables import Reading, Table, check_outputs, made_of, open_table, write_filled, write_table


@dataclass(frozen=True)
class NewModel:
    """What to fit where no model is given; `n_components=None` chooses by entries held out."""

    n_components: int | None
    likelihood: str
    by_column: Sequence[str]
    parameters: dict[str, Any]


def run(
    data: Path,
    output: Path,
    model_file: Path | None,
    new: NewModel,
    how: Reading,
    speaker: Speaker,
    *,
    std_output: Path | None,
    escape_formulas: bool,
    force: bool,
) -> None:
    """Fill and write. Observed entries are written as they were."""
    check_outputs(output, std_output, force=force)
    if model_file is None:
        # what is said before a fit includes the warnings
        table = _in_memory(open_table(data, how))
        model = _fitted(data, table, new, speaker)
    else:
        model = load(model_file)
        table = _in_memory(open_rows(data, how, speaker, model))
    order = order_of_columns(model, table, speaker)
    with speaker.hearing_warnings():
        filled, std = model.impute(arranged(model, table, order), return_std=True)
    n_filled = int(np.isnan(table.values[:, order]).sum())
    whole = _as_read(back_in_order(filled, order, table.shape[1]), table)
    write_filled(output, table, whole, escape_formulas=escape_formulas)
    if std_output is not None:
        spread = back_in_order(std, order, table.shape[1])
        _write_std(std_output, table, spread, np.sort(order), escape_formulas=escape_formulas)
    facts = {"output": str(output), "rows": table.shape[0], "filled": n_filled}
    speaker.result(f"{output}: {n_filled} missing entries of {table.shape[0]} rows filled", facts)


def _write_std(
    path: Path, table: Table, std: np.ndarray, known: np.ndarray, *, escape_formulas: bool
) -> None:
    """Write standard deviations of the columns that the model knows, in the order of the table."""
    names = None if table.columns is None else [table.columns[int(place)] for place in known]
    write_table(path, made_of(std[:, known], names, table), escape_formulas=escape_formulas)


def _in_memory(table: Table) -> Table:
    """What is written is a whole table, so that there is nothing to gain from reading it in pieces."""
    return replace(table, rows=ArraySource(table.values))


def _as_read(filled: np.ndarray, table: Table) -> np.ndarray:
    """Filled entries in the precision of the table, and its own entries bit for bit."""
    values = table.values
    return np.where(np.isnan(values), filled.astype(values.dtype), values)


def _fitted(data: Path, table: Table, new: NewModel, speaker: Speaker) -> SRFLVM:
    likelihood = columns.choice_for(table, new.likelihood, new.by_column)
    fitting.announce(str(data), table, likelihood, speaker)
    model: Any = SRFLVM(likelihood=likelihood, **new.parameters)
    if new.n_components is not None:
        model.set_params(n_components=new.n_components)
    elif _can_choose(likelihood, table):
        _choose(model, table, speaker)
    else:
        speaker.note("  components: 2 (entries of categorical columns are not scored one by one)")
    fitting.fit_table(model, table, speaker)
    return model


def _can_choose(likelihood: Any, table: Table) -> bool:
    of_columns = choose(likelihood, table.shape[1], table.columns)
    return not any(isinstance(one, Categorical | Multinomial) for one, _ in of_columns)


def _choose(model: Any, table: Table, speaker: Speaker) -> None:
    """The number of components that predicts entries held out best."""
    speaker.note("  components: chosen by entries held out; --components N takes N and is quicker")
    with speaker.hearing_warnings():
        selection = choose_n_components(model, table.data, random_state=model.random_state)
    tried = zip(selection.candidates, selection.scores, strict=True)
    scores = ", ".join(f"{candidate}: {score:.3f}" for candidate, score in tried)
    speaker.note(f"  components: {selection.n_components} (log density of an entry held out, {scores})")
    model.set_params(n_components=selection.n_components)
