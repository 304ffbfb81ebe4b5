"""Outputs of commands: files that are refused before the work, and notes about files read in pieces."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from srflvm.cli import app
from srflvm.cli.columns import announce
from srflvm.cli.fit import _facts
from srflvm.cli.model_table import ModelTable
from srflvm.cli.output import Output
from srflvm.data.tables.formats import open_table, write_table
from srflvm.data.tables.table import ReadOptions, Table


def refused(*arguments):
    """Return the error of a command whose model and data do not exist, and are not looked for."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 1, result.output
    return result.stderr


@pytest.mark.parametrize(
    ("ending", "package", "message"),
    [
        ("parquet", "pyarrow", "Writing .parquet needs the package pyarrow"),
        ("zarr", "zarr", "Writing .zarr needs the package zarr"),
        ("h5ad", "anndata", "Writing .h5ad needs the package anndata"),
    ],
)
def test_a_package_that_a_writer_needs_is_missed_before_the_work(
    tmp_path, monkeypatch, ending, package, message
):
    monkeypatch.setitem(sys.modules, package, None)
    model, data, output = tmp_path / "m.srflvm", tmp_path / "y.csv", tmp_path / f"o.{ending}"
    for command in (["impute", data], ["transform", model, data], ["sample", model], ["score", model, data]):
        assert message in refused(*command, "-o", output)
    assert message in refused("impute", data, "-o", tmp_path / "f.csv", "--std", output)


def test_two_outputs_are_two_files(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    output, again = tmp_path / "a.csv", tmp_path / "link" / "a.csv"
    commands = (
        ["impute", "y.csv", "--std"],
        ["impute", "y.csv", "--proba"],
        ["sample", "m.srflvm", "--latents"],
    )
    for command in commands:
        assert "a.csv is named for two outputs" in refused(*command, again, "-o", output)


def test_the_bound_is_per_observed_entry_of_a_file(tmp_path):
    write_table(tmp_path / "y.parquet", Table.of(np.array([[1.0, np.nan], [2.0, 3.0]]), ["a", "b"]))
    fitted = SimpleNamespace(elbo_=-6.0, n_components_=2, n_iter_=1, converged_=True, interrupted_=False)
    table = open_table(tmp_path / "y.parquet")
    assert not table.in_memory
    assert _facts(fitted, ModelTable.to_fit(table, "gaussian"), 0.0)["elbo_per_entry"] == -2.0


def test_doubts_about_the_first_line_are_warnings(tmp_path, capsys):
    (tmp_path / "y.csv").write_text("1990,1991,1992\n0.5,1.5,2.5\n")
    fitted = SimpleNamespace(n_features_in_=3)
    found = ModelTable.open(tmp_path / "y.csv", fitted, ReadOptions(), Output(quiet=True))
    assert capsys.readouterr().err.startswith("Warning: the first line of ")
    announce("y.csv", found.table, "gaussian", None, Output(quiet=True))
    assert "--no-header" in capsys.readouterr().err
