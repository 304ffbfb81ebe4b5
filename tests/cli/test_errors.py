"""Bad input on the command line: one clear line, an exit code, and no file left behind."""

import errno
import gzip
import os
import sys

import numpy as np
import pytest
from helpers.model_files import some_rows
from typer.testing import CliRunner

from srflvm.cli import app

GOOD = "a,b,c,d\n" + "\n".join(",".join(f"{v:.3f}" for v in row) for row in some_rows()) + "\n"


def text(content):
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def change(old, new):
    return text(GOOD.replace(old, new, 1))


def column_of(value):
    lines = [line.rsplit(",", 1)[0] + f",{value}" for line in GOOD.splitlines()[1:]]
    return text("\n".join(["a,b,c,d", *lines]))


def array(values):
    return lambda path: np.save(path, values)


FIRST = GOOD.splitlines()[1].split(",")[0]

# What is wrong: the file, what it holds (None: it is not there), options of `fit`, exit code, what is said.
BAD_DATA = {
    "no such file": ("y.csv", None, [], 1, "There is no file"),
    "unknown format": ("y.xlsx", text("x"), [], 1, "format that can be read: .csv"),
    "a folder": ("y.csv", lambda path: path.mkdir(), [], 1, "is a folder"),
    "an empty file": ("y.csv", text(""), [], 1, "is empty"),
    "names only": ("y.csv", text("a,b\n"), [], 1, "no rows"),
    "one row": ("y.csv", text("a,b\n1.5,2.5\n"), [], 1, "a minimum of 2 is required"),
    "letters": ("y.csv", change(FIRST, "high"), ["--id-column", "b"], 1, "'high' in line 2, column 'a'"),
    "letters further down": (
        "y.csv",
        text("a,b\n" + "".join(f"{n},{n}.5\n" for n in range(60)) + "3,x\n"),
        [],
        1,
        "'x' in line 62, column 'b', among numbers. If it stands for a missing entry, give --missing x. "
        "To take all of them as levels, give --column b=categorical",
    ),
    "many texts": (
        "y.csv",
        text("b,a\n" + "".join(f"{n},name {n % 25}\n" for n in range(30))),
        [],
        1,
        "('a') has 25 different texts or categories, 'name 0', 'name 1', 'name 10', 'name 11', 'name 12', "
        "'name 13', ..., in 30 observed entries: it looks like free text or an identifier. Drop it, "
        "--leave-out a, or merge its levels into at most 50. If it names the rows, give --id-column a; to "
        "keep it, --column a=categorical.",
    ),
    "mixed signs": (
        "y.csv",
        text("a;b\n1,5;2.5\n2,5;3\n"),
        [],
        1,
        "'1,5' in line 2, column 'a', a number with",
    ),
    "unclear signs": ("y.csv", text('a,b\n1,"1,234"\n3,2\n'), [], 1, "'1,234', whose comma may separate"),
    "two characters": ("y.csv", text(GOOD), ["--delimiter", "::"], 1, "is not one character"),
    "another sign": ("y.csv", text(GOOD), ["--decimal", ";"], 1, "neither a point nor a comma"),
    "one sign for two": ("y.csv", text(GOOD), ["--decimal", ",", "--delimiter", ","], 1, "are both"),
    "a field too many": ("y.csv", text("a,b\n1,2\n3,4,5\n"), [], 1, "3 fields in line 3"),
    "too many names": ("y.csv", text("a,b,c,d\n1,2\n"), [], 1, "4 column names and 2 fields"),
    "a name twice": ("y.csv", text("a,a\n1,2\n3,4\n"), [], 1, "more than one column 'a'"),
    "a name left out": ("y.csv", text("a,,c\n1,2,3\n3,4,5\n"), [], 1, "no name for column 2"),
    "infinity": ("y.csv", change(FIRST, "inf"), [], 1, "Column 0 ('a') holds infinity at row 0"),
    "an empty column": ("y.csv", column_of(""), [], 1, "Column 3 ('d') has no observed entry"),
    "only ids": ("y.csv", text("a\nx\ny\n"), ["--id-column", "a"], 1, "no column of data"),
    "another encoding": ("y.csv", text("größe,b\n1,2\n".encode("latin-1")), [], 1, "UTF-8"),
    "gzip cut short": ("y.csv.gz", text(gzip.compress(GOOD.encode())[:60]), [], 1, "is damaged"),
    "not gzip": ("y.csv.gz", text(GOOD), [], 1, "is damaged"),
    "not npy": ("y.npy", text(GOOD), [], 1, "cannot be read as an array"),
    "one dimension": ("y.npy", array(np.ones(3)), [], 1, "has 1 dimensions"),
    "texts in an array": ("y.npy", array(np.array([["x"]])), [], 1, "entries of type"),
    "not npz": ("y.npz", text(GOOD), [], 1, "cannot be read as arrays"),
    "not Parquet": ("y.parquet", text(GOOD), [], 1, "cannot be read as a Parquet file"),
    "not Zarr": ("y.zarr", lambda path: path.mkdir(), [], 1, "no Zarr array"),
    "negative counts": ("y.csv", text(GOOD), ["--likelihood", "poisson"], 1, "a count is"),
    "not binary": ("y.csv", text(GOOD), ["--column", "c=bernoulli"], 1, "needs exactly two"),
    "unknown likelihood": ("y.csv", text(GOOD), ["--likelihood", "normal"], 1, "'normal' is not known"),
    "no trials": ("y.csv", text(GOOD), ["--likelihood", "binomial"], 1, "must be given"),
    "unknown column": ("y.csv", text(GOOD), ["--column", "aa=poisson"], 1, "there is 'a'"),
    "no likelihood": ("y.csv", text(GOOD), ["--column", "a"], 1, "name=likelihood"),
    "unknown ids": ("y.csv", text(GOOD), ["--id-column", "key"], 1, "no column 'key'"),
    "unknown to leave out": ("y.csv", text(GOOD), ["--leave-out", "key"], 1, "no column 'key'"),
    "no components": ("y.csv", text(GOOD), ["--components", "0"], 2, "'--components'"),
    "half a component": ("y.csv", text(GOOD), ["--components", "1.5"], 2, "nor auto"),
    "processes twice": ("y.csv", text(GOOD), ["--processes", "2", "--distributed"], 1, "only one of"),
    "an unknown option": ("y.csv", text(GOOD), ["--colour"], 2, "--colour"),
}


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def assert_refused(folder, arguments, code, message):
    before = contents(folder)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line
    assert contents(folder) == before


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_for_fit(tmp_path, case):
    name, make, options, code, message = BAD_DATA[case]
    if make is not None:
        make(tmp_path / name)
    arguments = ["fit", tmp_path / name, "-o", tmp_path / "m.srflvm", *options]
    assert_refused(tmp_path, arguments, code, message)


@pytest.fixture
def good(tmp_path):
    (tmp_path / "y.csv").write_text(GOOD)
    return tmp_path / "y.csv"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("none/m.srflvm", "there is no folder"),
        ("there.srflvm", "Give --force"),
        ("folder", "it is a folder"),
        ("pipe", "not a regular file"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_the_fit(good, tmp_path, output, message):
    (tmp_path / "there.srflvm").write_text("a model")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    forced = [] if output.startswith("there") else ["--force"]
    assert_refused(tmp_path, ["fit", good, "-o", tmp_path / output, *forced], 1, message)


def test_no_rights_to_write(good, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    arguments = ["fit", good, "-o", tmp_path / "m.srflvm"]
    assert_refused(tmp_path, arguments, 1, "m.srflvm: Permission denied.")


def test_a_full_disk_leaves_the_old_file_and_nothing_else(saved, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "s.csv").write_text("old")
    monkeypatch.setattr("os.fsync", full)
    arguments = ["sample", saved, "-o", tmp_path / "s.csv", "--force"]
    assert_refused(tmp_path, arguments, 1, "s.csv: No space left on device.")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ([0, 1, 2], [], "3 columns, but the model was fitted to 4"),
        ([0, 1, 2, 3], ["-o", "z.docx"], "format that can be written"),
    ],
)
def test_rows_that_do_not_fit_a_model(saved, tmp_path, columns, options, message):
    np.save(tmp_path / "y.npy", some_rows()[:, columns])
    output = options or ["-o", tmp_path / "z.csv"]
    assert_refused(tmp_path, ["transform", saved, tmp_path / "y.npy", *output], 1, message)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("a,b,c", "no column 'd', which the model was fitted to"),
        ("a,b,c,D", "no column 'd', which the model was fitted to (there is 'D')"),
        ("a,b,c,e,f", "no column 'd', which the model was fitted to"),
    ],
)
def test_columns_that_a_model_knows_and_a_table_has_not(model, tmp_path, names, message, monkeypatch):
    monkeypatch.setattr(model, "feature_names_in_", np.array(list("abcd"), object), raising=False)
    model.save(tmp_path / "m.srflvm")
    n_columns = names.count(",") + 1
    (tmp_path / "y.csv").write_text(f"{names}\n{','.join(['1.5'] * n_columns)}\n")
    arguments = ["impute", tmp_path / "y.csv", "--model", tmp_path / "m.srflvm", "-o", tmp_path / "f.csv"]
    assert_refused(tmp_path, arguments, 1, message)


@pytest.mark.parametrize("command", ["transform", "score", "inspect", "sample", "plot", "explore"])
def test_damaged_models(saved, good, tmp_path, command, monkeypatch):
    monkeypatch.setitem(sys.modules, "srflvm.explore", type("Stub", (), {"write_page": None}))
    damaged = bytearray(saved.read_bytes())
    damaged[-9] ^= 1
    (tmp_path / "m.srflvm").write_bytes(damaged)
    endings = {"plot": "o.png", "explore": "o.html"}
    output = [] if command == "inspect" else ["-o", tmp_path / endings.get(command, "o.csv")]
    data = [good] if command in ("transform", "score") else []
    arguments = [command, tmp_path / "m.srflvm", *data, *output]
    assert_refused(tmp_path, arguments, 1, "m.srflvm is not a sound model file")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["inspect", "{}/none.srflvm"], 1, "There is no model file"),
        (["inspect", "{}/y.csv"], 1, "is not a model file"),
        (["plot", "{model}", "-o", "{}/p.bmp"], 1, "name of a picture"),
        (["plot", "{model}", "-o", "{}/p.png", "--kind", "pie"], 1, "'pie' is not known"),
        (["plot", "{model}", "-o", "{}/p.png", "--dims", "0"], 2, "of the form 0,1"),
        (["plot", "{model}", "-o", "{}/p.png", "--kind", "history", "--dims", "0,1"], 1, "does not go with"),
        (["plot", "{model}", "-o", "{}/p.png", "--labels", "{}/none.csv"], 1, "There is no file"),
        (["plot", "{model}", "-o", "{}/p.png", "--labels", "{}/y.csv"], 1, "--label-column"),
        (["explore", "{model}", "-o", "{}/p.txt"], 1, "does not end in .html"),
        (["transform", "{model}", "{}/y.csv"], 2, "'--output'"),
        (["sample", "{model}", "-o", "{}/s.csv", "-n", "0"], 2, "'--rows'"),
        (["impute", "{}/y.csv", "-o", "{}/y.csv"], 1, "Give --force"),
        (["impute", "{}/y.csv", "-o", "{}/f.csv", "--proba", "{}/p.csv"], 1, "No column has levels"),
        (["impute", "{}/y.csv", "-o", "{}/f.csv", "--unknown-levels", "error"], 1, "goes with --model"),
        (["score", "{model}", "{}/y.csv", "--unknown-levels", "skip"], 1, "neither error nor missing"),
    ],
)
def test_other_bad_requests(saved, good, tmp_path, arguments, code, message):
    filled = [argument.replace("{}", str(tmp_path)).replace("{model}", str(saved)) for argument in arguments]
    assert_refused(tmp_path, filled, code, message)
