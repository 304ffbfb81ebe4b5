"""Names that a spreadsheet would run as formulas are written as they are, or escaped if asked for."""

import copy
import csv

import numpy as np
import pytest
from helpers.model_files import some_rows
from typer.testing import CliRunner

from srflvm.cli import app
from srflvm.data.sources import ArraySource
from srflvm.data.tables.formats import open_table, write_filled, write_table
from srflvm.data.tables.table import ReadOptions, Table

COLUMNS = ["=1+1", "+sine", "-cosine", "@square"]
BEGINNINGS = ["=cmd|' /C calc'!A0", "+r", "-r", "@r", "\tr", "\rr", "r=1", "-1.5", "+2e3", "-nan", "- 1"]
ESCAPED = {"=cmd|' /C calc'!A0", "+r", "-r", "@r", "\tr", "\rr", "-nan", "- 1"}


def expected(name):
    return f"'{name}" if name in ESCAPED or name in COLUMNS else name


def ids(n_rows=30):
    return [BEGINNINGS[n] if n < len(BEGINNINGS) else f"r{n}" for n in range(n_rows)]


def fields(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.fixture(scope="module")
def named(model, tmp_path_factory):
    """Save the shared model with names for its columns."""
    with_names = copy.deepcopy(model)
    with_names.feature_names_in_ = np.array(COLUMNS, dtype=object)
    path = tmp_path_factory.mktemp("named") / "model.srflvm"
    with_names.save(path)
    return path


@pytest.fixture
def rows(tmp_path):
    """Write a text file with negative numbers, a missing entry, and a column that is not data."""
    Y = some_rows()
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["=name", *COLUMNS, "@note"])
        for n, row in enumerate(Y):
            entries = [" -1.50" if n == 3 and m == 0 else repr(float(y)) for m, y in enumerate(row)]
            if n == 4:
                entries[1] = "-nan"
            writer.writerow([ids()[n], *entries, "=2+3" if n == 5 else "-7"])
    return path


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_names_are_escaped_only_if_asked_for(tmp_path, ending):
    Y = -some_rows(11)
    table, path = Table(ArraySource(Y), COLUMNS, ids(11), "=name"), tmp_path / f"t.{ending}"
    write_table(path, table)
    assert fields(path)[0] == ["=name", *COLUMNS]
    assert [line[0] for line in fields(path)[1:]] == ids(11)
    before = [line[1:] for line in fields(path)[1:]]
    write_table(path, table, escape_formulas=True)
    assert fields(path)[0] == ["'=name", *map(expected, COLUMNS)]
    assert [line[0] for line in fields(path)[1:]] == list(map(expected, ids(11)))
    assert [line[1:] for line in fields(path)[1:]] == before
    assert any(entry.startswith("-") for line in before for entry in line)


@pytest.mark.parametrize("ending", ["parquet", "npz"])
def test_formats_that_have_no_formulas_keep_names(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    write_table(path, Table(ArraySource(some_rows(11)), COLUMNS, ids(11)), escape_formulas=True)
    found = open_table(path)
    assert list(found.columns) == COLUMNS
    assert list(found.ids) == ids(11)


def test_filled_files_keep_every_field_but_for_escaped_texts(rows, tmp_path):
    table = open_table(rows, ReadOptions("=name", ("@note",), keep=True))
    write_filled(tmp_path / "plain.csv", table, np.full((30, 4), 9.0))
    write_filled(tmp_path / "escaped.csv", table, np.full((30, 4), 9.0), escape_formulas=True)
    plain, found = fields(tmp_path / "plain.csv"), fields(tmp_path / "escaped.csv")
    assert plain[0] == ["=name", *COLUMNS, "@note"]
    assert found[0] == [f"'{name}" for name in plain[0]]
    for before, after in zip(plain[1:], found[1:], strict=True):
        assert after[0] == expected(before[0])
        assert after[1:5] == before[1:5]
        assert after[5] == ("'=2+3" if before[5] == "=2+3" else "-7")
    assert found[4][1] == " -1.50"
    assert found[5][2] == "9"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("transform", ["--std"]),
        ("score", []),
        ("impute", []),
        ("sample", ["-n", 3]),
    ],
)
def test_commands_escape_if_asked_to(named, rows, tmp_path, command, options):
    data = [] if command == "sample" else [rows]
    reading = [] if command == "sample" else ["--id-column", "=name", "--leave-out", "@note"]
    arguments = ["--model", named, *data] if command == "impute" else [named, *data]
    written = []
    for extra in ([], ["--escape-formulas"]):
        output = tmp_path / f"{len(written)}.csv"
        run(command, *arguments, *options, *reading, *extra, "-o", output)
        written.append(fields(output))
    plain, escaped = written
    assert all(not field.startswith("'") for line in plain for field in line)
    assert escaped != plain or command == "score"
    for before, after in zip(plain, escaped, strict=True):
        assert [field.removeprefix("'") for field in after] == before
    if command != "sample":
        assert [line[0] for line in escaped[1:]] == list(map(expected, ids()))
