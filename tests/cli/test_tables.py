"""Tables with texts, truth values, numbers and holes: commands do what Python does with the same frame."""

import csv
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from srflvm import SRFLVM, SRFLVMImputer, load
from srflvm.cli import app

QUICK = {"max_iter": 2, "n_frequencies": 5}
QUICK_OPTIONS = ["--max-iter", 2, "--frequencies", 5]
HEADER = ["species", "mass", "bill", "sex", "tagged", "year"]
SPECIES = ["Adelie", "Chinstrap", "Gentoo"]
TAKEN_AS = ["categorical", "continuous", "continuous", "binary", "binary", "ordinal"]
NA = ["?", "-"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line


def fields():
    """Return the lines of a small table as they are written."""
    rng = np.random.default_rng(0)
    lines = []
    for n in range(30):
        z = rng.normal()
        line = [SPECIES[n % 3], f"{3000 + 500 * (n % 3) + 100 * z:.1f}", f"{40 + 4 * (n % 3) + z:.2f}"]
        line += ["male" if z > 0 else "female", "TRUE" if z > -0.5 else "FALSE", str(2007 + n % 4)]
        lines.append(line)
    for row, column, hole in [(3, 0, ""), (4, 1, "NA"), (5, 2, "?"), (6, 3, "-"), (8, 4, ""), (9, 5, "nan")]:
        lines[row][column] = hole
    return lines


def write(path, lines, header=HEADER):
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *lines])
    return path


def read(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def frame_of(path):
    return pd.read_csv(path, na_values=NA, float_precision="round_trip")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def table(folder):
    return write(folder / "penguins.csv", fields())


@pytest.fixture(scope="module")
def said(table, folder):
    """Fit on the command line, and return what was printed."""
    return succeed("fit", table, "-o", folder / "m.srflvm", *QUICK_OPTIONS, "--json")


@pytest.fixture(scope="module")
def file(said, folder):
    return folder / "m.srflvm"


@pytest.fixture(scope="module")
def twin(table):
    """Fit in Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SRFLVM(**QUICK, random_state=0).fit(frame_of(table))


def test_fit_is_the_fit_of_the_frame_in_python(file, twin):
    fitted = load(file)
    np.testing.assert_array_equal(fitted.embedding_, twin.embedding_)
    assert list(fitted.feature_names_in_) == HEADER
    assert fitted.likelihood == "auto"
    for found, expected in zip(fitted.columns_.columns, twin.columns_.columns, strict=True):
        assert (found.name, found.kind, found.levels) == (expected.name, expected.kind, expected.levels)


def test_fit_says_what_columns_are_taken_as(said):
    facts = json.loads(said.stdout)
    assert [column["taken_as"] for column in facts["taken_as"]] == TAKEN_AS
    assert facts["taken_as"][0] == {
        "name": "species",
        "type": "string",
        "taken_as": "categorical",
        "levels": SPECIES,
    }
    assert "  species  string   categorical  Adelie, Chinstrap, Gentoo\n" in said.stderr
    assert "  missing entries: also written as '-', '?'\n" in said.stderr


def test_inspect_says_what_columns_are_taken_as(file):
    text = succeed("inspect", file).output
    assert "species  string   categorical  Adelie, Chinstrap, Gentoo" in text
    assert [
        one["name"] for one in json.loads(succeed("inspect", file, "--json").output)["taken_as"]
    ] == HEADER


def test_transform_finds_columns_by_name(file, table, twin, tmp_path):
    lines = [["x", *line[::-1]] for line in fields()]
    path = write(tmp_path / "new.csv", lines, ["note", *HEADER[::-1]])
    result = succeed("transform", file, path, "-o", tmp_path / "z.npy", "--json")
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), twin.transform(frame_of(table)))
    assert [column["taken_as"] for column in json.loads(result.stdout)["taken_as"]] == TAKEN_AS
    assert "30 rows, 6 columns, which the model takes as:" in result.stderr


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_impute_with_a_model_fills_texts_and_numbers(file, table, twin, tmp_path, delimiter):
    """Leave observed fields as they are, with decimal points between commas or commas between semicolons."""
    decimal = "." if delimiter == "," else ","
    lines = [[text.replace(".", decimal) for text in line] for line in fields()]
    path = tmp_path / "holes.csv"
    path.write_text("\n".join(delimiter.join(line) for line in [HEADER, *lines]))
    outputs = {name: tmp_path / f"{name}.csv" for name in ("o", "std", "proba")}
    options = ["-o", outputs["o"], "--std", outputs["std"], "--proba", outputs["proba"]]
    result = succeed("impute", path, "--model", file, *options, "--json")
    assert json.loads(result.stdout)["filled"] == 6
    filled, std, proba = twin.impute(frame_of(table), return_std=True, return_proba=True)
    header, *found = [line.split(delimiter) for line in outputs["o"].read_text().splitlines()]
    assert header == HEADER
    for row, (before, after) in enumerate(zip(lines, found, strict=True)):
        for column, (old, new) in enumerate(zip(before, after, strict=True)):
            expected = filled.iloc[row, column]
            if row == column + 3 and column < 4:
                is_text = isinstance(expected, str)
                assert new == expected if is_text else float(new.replace(",", ".")) == expected
            elif (row, column) == (8, 4):
                assert new == str(expected).upper()
            elif (row, column) == (9, 5):
                assert float(new.replace(",", ".")) == pytest.approx(expected)
            else:
                assert new == old
    table_of_std = pd.read_csv(outputs["std"])
    assert list(table_of_std) == ["mass", "bill", "year"]
    np.testing.assert_allclose(table_of_std, std[:, [1, 2, 5]], rtol=1e-12)
    table_of_proba = pd.read_csv(outputs["proba"])
    assert list(table_of_proba)[:5] == [*(f"species={name}" for name in SPECIES), "sex=female", "sex=male"]
    expected = np.hstack([proba[name] for name in ("species", "sex", "tagged", "year")])
    np.testing.assert_allclose(table_of_proba, expected, rtol=1e-12)


def test_impute_without_a_model_is_the_imputer_of_the_frame_in_python(table, tmp_path):
    options = ["--components", 2, "--seed", 3, *QUICK_OPTIONS]
    succeed("impute", table, "-o", tmp_path / "f.csv", *options)
    model = SRFLVM(**QUICK, affine=True, init="pca")
    imputer = SRFLVMImputer(model, n_components=2, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = imputer.fit_transform(frame_of(table))
    found = frame_of(tmp_path / "f.csv")
    assert found["species"].tolist() == expected["species"].tolist()
    assert found["tagged"].tolist() == expected["tagged"].tolist()
    np.testing.assert_array_equal(found[["mass", "bill", "year"]], expected[["mass", "bill", "year"]])


def test_parquet_and_text_give_the_same_latents(file, table, twin, tmp_path):
    frame = frame_of(table).astype({"species": "category", "tagged": "boolean"})
    frame.to_parquet(tmp_path / "new.parquet")
    succeed("transform", file, tmp_path / "new.parquet", "-o", tmp_path / "z.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), twin.transform(frame_of(table)))
    succeed("impute", tmp_path / "new.parquet", "--model", file, "-o", tmp_path / "f.parquet")
    filled = pd.read_parquet(tmp_path / "f.parquet")
    assert [str(kind) for kind in filled.dtypes] == [str(kind) for kind in frame.dtypes]
    assert not filled.isna().any(axis=None)
    assert filled["species"].tolist() == twin.impute(frame_of(table))["species"].tolist()


def test_levels_that_a_model_has_not_seen(file, twin, table, tmp_path):
    lines = fields()
    lines[0][0] = "Emperor"
    path = write(tmp_path / "new.csv", lines)
    line = refused("transform", file, path, "-o", tmp_path / "z.npy")
    assert "('species') has the level 'Emperor' at row 0" in line
    assert "or give --unknown-levels missing to take such entries as missing" in line
    options = ["--unknown-levels", "missing"]
    succeed("transform", file, path, "-o", tmp_path / "z.npy", *options)
    frame = frame_of(table)
    frame.loc[0, "species"] = np.nan
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), twin.transform(frame))
    result = succeed("impute", path, "--model", file, "-o", tmp_path / "f.csv", *options, "--json")
    assert json.loads(result.stdout)["filled"] == 6
    assert read(tmp_path / "f.csv")[1][0] == "Emperor"
    assert np.isfinite(
        json.loads(succeed("score", file, path, *options, "--json").stdout)["log_density_per_row"]
    )


def test_columns_of_the_model_that_a_table_has_not(file, tmp_path):
    path = write(tmp_path / "new.csv", [line[1:] for line in fields()], ["Mass", *HEADER[2:]])
    line = refused("transform", file, path, "-o", tmp_path / "z.npy")
    assert "no column 'species', 'mass', which the model was fitted to" in line


def test_tables_without_names_are_taken_in_order(file, table, twin, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("\n".join(",".join(line) for line in fields()))
    result = succeed("transform", file, path, "-o", tmp_path / "z.npy", "--no-header")
    assert "they are taken in the order of the model" in result.output
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), twin.transform(frame_of(table)))


def test_rows_are_drawn_with_texts(file, twin, tmp_path):
    succeed("sample", file, "-n", 5, "--seed", 3, "-o", tmp_path / "s.csv")
    drawn, expected = frame_of(tmp_path / "s.csv"), twin.sample(5, random_state=3)
    assert drawn["sex"].tolist() == expected["sex"].tolist()
    assert drawn["tagged"].tolist() == expected["tagged"].tolist()
    np.testing.assert_array_equal(drawn[["mass", "year"]], expected[["mass", "year"]])
    assert "holds numbers alone" in refused("sample", file, "-o", tmp_path / "s.npy")


def test_texts_are_refused_in_a_file_of_numbers_before_the_fit(table, tmp_path):
    assert "f.npy holds numbers alone" in refused("impute", table, "-o", tmp_path / "f.npy")


def test_models_of_tables_are_plotted_and_explored(file, table, tmp_path):
    labels = ["--labels", table, "--label-column", "species"]
    succeed("plot", file, *labels, "-o", tmp_path / "p.png")
    succeed("explore", file, "--data", table, "-o", tmp_path / "p.html")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_columns_that_count_rows_are_warned_of(tmp_path, capsys):
    from srflvm.cli.columns import announce
    from srflvm.cli.model_table import ModelTable
    from srflvm.cli.output import Output
    from srflvm.data.tables.formats import open_table
    from srflvm.data.tables.table import ReadOptions

    lines = [[n + 1, *line] for n, line in enumerate(fields())]
    path = write(tmp_path / "counted.csv", lines, ["row no", *HEADER])
    found = ModelTable.to_fit(open_table(path, ReadOptions(frames="small")), "auto")
    announce("counted.csv", found.table, "auto", found.schema, Output(quiet=True))
    assert "column 'row no' counts the rows" in capsys.readouterr().err
    found = ModelTable.to_fit(open_table(path, ReadOptions("row no", frames="small")), "auto")
    announce("counted.csv", found.table, "auto", found.schema, Output(quiet=True))
    assert capsys.readouterr().err == ""
    assert found.table.ids == [str(n) for n in range(1, 31)]


def test_many_columns_are_counted_by_kind():
    from srflvm.cli.columns import column_lines
    from srflvm.data.schema import Schema

    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 50))).rename(columns=str)
    frame["kind"] = list("abcab")
    assert column_lines(Schema.of(frame)) == [
        "continuous: 50 columns, '0', '1', '2', '3', '4' and 45 more",
        "categorical: 1 column, 'kind'",
    ]
