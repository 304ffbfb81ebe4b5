"""Command `srflvm impute`: fill the missing entries of a table, by a fitted model or by a new one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srflvm.cli import options
from srflvm.cli.output import Output
from srflvm.data.tables.formats import (
    check_input,
    check_outputs,
    open_table,
    refuse_texts,
    write_filled,
    write_table,
)

if TYPE_CHECKING:
    from srflvm.cli.model_table import ModelTable


def impute(
    data: options.Data,
    target: options.Target,
    model: Annotated[
        Path | None, typer.Option(help="A fitted model; else one is fitted to the table.", show_default=False)
    ] = None,
    std: Annotated[
        Path | None, typer.Option(help="File for the standard deviations of numbers.", show_default=False)
    ] = None,
    proba: Annotated[
        Path | None, typer.Option(help="File for the probabilities of levels.", show_default=False)
    ] = None,
    components: options.Components = "auto",
    likelihood: options.Likelihood = "auto",
    column: options.Column = None,
    frequencies: options.Frequencies = None,
    max_iter: options.MaxIter = None,
    seed: options.Seed = 0,
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
    """Fill the missing entries of a table; the observed ones stay as they are written."""
    options.check_unknown_levels(unknown_levels)
    if model is None and unknown_levels is not None:
        raise ValueError("--unknown-levels goes with --model: a model fitted to the table knows its levels.")
    check_outputs(target, std, proba, force=force)
    check_input(data)
    fitted: Any = None if model is None else options.load_model(model)

    from srflvm.cli.columns import announce, choose_likelihoods, column_facts, frame_options
    from srflvm.cli.model_table import ModelTable

    output = Output(quiet, as_json)
    reading = options.read_options(
        id_column, leave_out, header, layer, delimiter, decimal, missing, keep=True
    )
    if fitted is None:
        by_column = column or []
        reading = replace(reading, **frame_options(likelihood, by_column))
        table = open_table(data, reading).load()
        chosen = choose_likelihoods(table, likelihood, by_column)
        found = ModelTable.to_fit(table, chosen)
        announce(str(data), table, chosen, found.schema, output)
    else:
        found = ModelTable.open(data, fitted, reading, output, unknown_levels)
        found.announce(output)
        found = replace(found, table=found.table.load())
        chosen = None
    refuse_texts(target, found.table)
    found.refuse_results(std=std is not None, proba=proba is not None)
    if fitted is None:
        given = {"n_frequencies": frequencies, "max_iter": max_iter}
        parameters = {name: value for name, value in given.items() if value is not None}
        fitted = _fit(found, chosen, components, seed, parameters, output)
    with output.show_warnings():
        filled, deviations, *levels = fitted.impute(
            found.data, return_std=True, return_proba=proba is not None
        )
    write_filled(target, found.table, found.filled(filled), escape_formulas=escape_formulas)
    if std is not None:
        write_table(std, found.deviations(deviations), escape_formulas=escape_formulas)
    if proba is not None:
        write_table(proba, found.probabilities(levels[0]), escape_formulas=escape_formulas)
    n_filled, n_rows = found.count_missing(), found.table.shape[0]
    facts = {
        "output": str(target),
        "rows": n_rows,
        "filled": n_filled,
        "components": int(fitted.n_components_),
        "taken_as": column_facts(found.schema),
    }
    output.result(f"{target}: {n_filled} missing entries of {n_rows} rows filled", facts)


def _fit(
    found: ModelTable,
    likelihood: Any,
    n_components: int | str,
    seed: int,
    parameters: dict[str, Any],
    output: Output,
) -> Any:
    """Fit a model to a table, as `SRFLVMImputer` does, and return it."""
    from srflvm.estimator import SRFLVM
    from srflvm.imputation import SRFLVMImputer
    from srflvm.likelihoods.columns import AUTO, OWN_UNITS

    is_table = likelihood == AUTO or isinstance(likelihood, dict)
    chosen = found.likelihood_of_each(likelihood)
    model: Any = SRFLVM(
        likelihood=OWN_UNITS if chosen == AUTO else chosen,
        affine=True if is_table else "auto",
        init="pca" if is_table else "auto",
        **parameters,
    )
    imputer = SRFLVMImputer(model, n_components=n_components, random_state=seed)
    with output.show_warnings(), output.progress_bar() as bar:
        model.set_params(callbacks=[bar])
        imputer.fit(found.data)
    if imputer.estimator_.interrupted_:
        output.warn("interrupted: the best state so far is kept.")
    if n_components == "auto":
        output.note(f"  components: {imputer.n_components_}, as many as a linear model needs, and one more")
    return imputer.estimator_
