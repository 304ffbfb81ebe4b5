"""Command `srflvm impute`: fill the missing entries of a table, by a fitted model or by a new one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srflvm.cli import options
from srflvm.cli.output import Output
from srflvm.data.tables.formats import check_input, check_outputs, open_table, write_filled, write_table

if TYPE_CHECKING:
    from srflvm._typing import FloatArray
    from srflvm.data.tables.table import Table
    from srflvm.imputer import SRFLVMImputer

_MODEL = "The model"


def impute(
    data: options.Data,
    target: options.Target,
    model: Annotated[
        Path | None, typer.Option(help="A fitted model; else one is fitted to the table.", show_default=False)
    ] = None,
    std: Annotated[
        Path | None, typer.Option(help="File for the standard deviations.", show_default=False)
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(
            min=1, help="Latent dimensions; else chosen by entries held out.", rich_help_panel=_MODEL
        ),
    ] = None,
    likelihood: options.Likelihood = "gaussian",
    column: options.Column = None,
    frequencies: options.Frequencies = None,
    max_iter: options.MaxIter = None,
    standardize: Annotated[
        bool,
        typer.Option(help="Whether to standardise continuous columns for the fit.", rich_help_panel=_MODEL),
    ] = True,
    seed: options.Seed = 0,
    id_column: options.IdColumn = None,
    leave_out: options.LeaveOut = None,
    header: options.Header = None,
    layer: options.Layer = None,
    escape_formulas: options.EscapeFormulas = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Fill the missing entries of a table; the observed ones stay as they are written."""
    check_outputs(target, std, force=force)
    check_input(data)
    fitted = None if model is None else options.load_model(model)

    import numpy as np

    from srflvm.cli.model_table import ModelTable
    from srflvm.data.tables.table import Table

    output = Output(quiet, as_json)
    reading = options.read_options(id_column, leave_out, header, layer, keep=True)
    if fitted is None:
        table = open_table(data, reading).load()
        imputer = _make_imputer(table, likelihood, column or [], frequencies, max_iter)
        imputer.set_params(n_components=components or "auto", standardize=standardize, random_state=seed)
        found = ModelTable(table, np.arange(table.shape[1]))
        filled, deviations = _fit_and_fill(imputer, str(data), table, output)
    else:
        found = ModelTable.open(data, fitted, reading, output)
        found = replace(found, table=found.table.load())
        with output.show_warnings():
            filled, deviations = fitted.impute(found.data, return_std=True)
    table = found.table
    n_filled = int(np.isnan(table.values[:, found.order]).sum())
    whole = _keep_observed(table.values, found.in_table_order(filled))
    write_filled(target, table, whole, escape_formulas=escape_formulas)
    if std is not None:
        known = np.sort(found.order)
        names = None if table.columns is None else [table.columns[int(place)] for place in known]
        spread = Table.of(found.in_table_order(deviations)[:, known], names, table)
        write_table(std, spread, escape_formulas=escape_formulas)
    facts = {"output": str(target), "rows": table.shape[0], "filled": n_filled}
    output.result(f"{target}: {n_filled} missing entries of {table.shape[0]} rows filled", facts)


def _make_imputer(
    table: Table, likelihood: str, by_column: list[str], frequencies: int | None, max_iter: int | None
) -> SRFLVMImputer:
    from srflvm.cli.columns import choose_likelihoods
    from srflvm.estimator import SRFLVM
    from srflvm.imputer import SRFLVMImputer

    given = {"n_frequencies": frequencies, "max_iter": max_iter}
    parameters: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return SRFLVMImputer(SRFLVM(likelihood=choose_likelihoods(table, likelihood, by_column), **parameters))


def _fit_and_fill(
    imputer: SRFLVMImputer, name: str, table: Table, output: Output
) -> tuple[FloatArray, FloatArray]:
    """Fit the imputer to a table; return its entries with missing ones filled, and standard deviations."""
    from srflvm.cli.columns import announce

    model: Any = imputer.estimator
    announce(name, table, model.likelihood, output)
    if imputer.n_components == "auto":
        output.note("  components: chosen by entries held out; --components N takes N and is quicker")
    with output.show_warnings(), output.progress_bar() as bar:
        model.set_params(callbacks=[bar])
        imputer.fit(table.data)
    if imputer.estimator_.interrupted_:
        output.warn("interrupted: the best state so far is kept.")
    if imputer.selection_ is not None:
        tried = zip(imputer.selection_.candidates, imputer.selection_.scores, strict=True)
        scores = ", ".join(f"{candidate}: {score:.3f}" for candidate, score in tried)
        output.note(f"  components: {imputer.n_components_} (log density of an entry held out, {scores})")
    with output.show_warnings():
        return imputer.transform(table.data, return_std=True)


def _keep_observed(values: FloatArray, filled: FloatArray) -> FloatArray:
    """Return filled entries in the precision of a table, and its observed entries bit for bit."""
    import numpy as np

    return np.where(np.isnan(values), filled.astype(values.dtype), values)
