"""Commands that work on files, run in this process."""

import copy
import json
import sys
import types
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.model_files import some_rows
from typer.testing import CliRunner

import srflvm
from srflvm import likelihoods
from srflvm.cli import app, columns
from srflvm.cli.progress_bar import FitBar
from srflvm.data.sources import ArraySource
from srflvm.data.tables.formats import open_table, write_table
from srflvm.data.tables.table import ReadOptions, Table

NAMES = ["sine", "cosine", "angle", "square"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def last_json(result):
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def named(model, tmp_path_factory):
    """Save the shared model with names for its columns."""
    with_names = copy.deepcopy(model)
    with_names.feature_names_in_ = np.array(NAMES, dtype=object)
    path = tmp_path_factory.mktemp("named") / "model.srflvm"
    with_names.save(path)
    return path


@pytest.fixture
def rows(tmp_path):
    """Write the rows that the shared model was fitted to."""
    path = tmp_path / "rows.csv"
    Y = some_rows()
    write_table(path, Table(ArraySource(Y), NAMES, [f"r{n}" for n in range(len(Y))], "name"))
    return path


def with_holes(path, order=(0, 1, 2, 3)):
    Y = some_rows()
    Y[[2, 5], [0, 3]] = np.nan
    ids = [f"r{n}" for n in range(len(Y))]
    write_table(path, Table(ArraySource(Y[:, order]), [NAMES[i] for i in order], ids))
    return path, Y


def test_fit_is_the_fit_of_the_estimator_and_keeps_names(rows, model, tmp_path):
    matrix = ["--likelihood", "gaussian"]
    result = succeed("fit", rows, "-o", tmp_path / "m.srflvm", "--max-iter", 3, "--json", *matrix)
    fitted = srflvm.load(tmp_path / "m.srflvm")
    np.testing.assert_array_equal(fitted.embedding_, model.embedding_)
    assert list(fitted.feature_names_in_) == NAMES
    assert fitted.callbacks is None
    facts = last_json(result)
    assert (facts["rows"], facts["columns"], facts["sweeps"]) == (30, 4, 3)
    assert facts["elbo_per_entry"] == pytest.approx(model.elbo_ / 120)
    assert len(result.stdout.splitlines()) == 1
    assert "row ids: column 1 ('name')" in result.stderr


def test_ctrl_c_saves_the_best_state(rows, tmp_path, monkeypatch):
    def interrupt(bar, progress):
        if progress.iteration == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(FitBar, "__call__", interrupt)
    result = run("fit", rows, "-o", tmp_path / "m.srflvm", "--max-iter", 3)
    assert result.exit_code == 130, result.output
    assert "Warning: interrupted: the best state so far is kept." in result.stderr
    assert srflvm.load(tmp_path / "m.srflvm").interrupted_


def test_transform_takes_columns_by_name(named, model, tmp_path):
    order = [2, 0, 3, 1]
    path, Y = with_holes(tmp_path / "new.csv", order)
    result = succeed("transform", named, path, "-o", tmp_path / "z.csv", "--std")
    assert "taken by name" in result.output
    table = open_table(tmp_path / "z.csv")
    expected = np.hstack(model.transform(Y, return_std=True))
    np.testing.assert_array_equal(table.values, expected)
    assert table.ids[3] == "r3"
    assert table.columns == ["srflvm0", "srflvm1", "srflvm0_std", "srflvm1_std"]


@pytest.mark.parametrize("ending", ["npy", "parquet", "zarr"])
def test_files_are_transformed_in_pieces(named, model, tmp_path, ending):
    order = [1, 0, 2, 3] if ending != "npy" else [0, 1, 2, 3]
    Y = some_rows()
    write_table(tmp_path / f"y.{ending}", Table(ArraySource(Y[:, order]), [NAMES[i] for i in order]))
    succeed("transform", named, tmp_path / f"y.{ending}", "-o", tmp_path / "z.npy")
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), model.embedding_, atol=1e-9)


def test_impute_with_a_model(named, model, tmp_path):
    path, Y = with_holes(tmp_path / "holes.csv", [3, 1, 0, 2])
    result = succeed(
        "impute", path, "--model", named, "-o", tmp_path / "f.csv", "--std", tmp_path / "s.npy", "--json"
    )
    assert last_json(result)["filled"] == 2
    filled, std = model.impute(Y, return_std=True)
    found = open_table(tmp_path / "f.csv")
    np.testing.assert_array_equal(found.values, filled[:, [3, 1, 0, 2]])
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), std[:, [3, 1, 0, 2]])


def test_impute_of_an_array_without_a_model_is_the_imputer_in_python(tmp_path):
    """Impute columns in several units, with the probabilities of one of codes."""
    Y = some_rows()
    Y[:, 1] *= 1000.0
    Y[:, 3] = np.arange(len(Y)) % 3
    Y[[2, 5, 9, 11], [0, 1, 2, 3]] = np.nan
    np.save(tmp_path / "y.npy", Y)
    chosen = ["--column", "3=categorical", "--components", 2]
    quick = ["--max-iter", 2, "--frequencies", 5, "--seed", 3]
    files = ["-o", tmp_path / "f.npy", "--std", tmp_path / "s.npy", "--proba", tmp_path / "p.csv"]
    result = succeed("impute", tmp_path / "y.npy", *files, *chosen, *quick)
    model = srflvm.SRFLVM(likelihood={3: "categorical"}, affine=True, init="pca", max_iter=2, n_frequencies=5)
    imputer = srflvm.SRFLVMImputer(model, n_components=2, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        filled, std, proba = imputer.fit(Y).transform(Y, return_std=True, return_proba=True)
    np.testing.assert_array_equal(np.load(tmp_path / "f.npy"), filled)
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), std)
    table = open_table(tmp_path / "p.csv")
    assert table.columns == ["3=0", "3=1", "3=2"]
    np.testing.assert_array_equal(table.values, proba[3])
    assert "missing: 3.3% of the entries" in result.output
    assert "likelihood: categorical for columns 3" in result.output


IGNORED = "Warning: ignored 2 columns that the model does not know: weight, town\n"


def with_more_columns(path):
    """Write the rows of the model, one entry missing, with two columns that it does not know."""
    Y, ids = some_rows(), [f"r{n}" for n in range(30)]
    Y[2, 1] = np.nan
    towns = ["Rome"] * 30 if path.suffix in (".csv", ".parquet") else np.full(30, 7.0)
    weights = np.where(np.arange(30) == 4, np.nan, 60.0)
    frame = pd.DataFrame(Y, index=ids, columns=NAMES)[NAMES[::-1]]
    frame.insert(1, "weight", weights)
    frame["town"] = towns
    if path.suffix == ".csv":
        frame.to_csv(path)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        write_table(path, Table(ArraySource(frame.to_numpy()), list(frame.columns), ids))
    return Y


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz", "zarr", "h5ad"])
def test_columns_that_a_model_does_not_know_are_ignored(named, model, tmp_path, ending):
    path, filled, std = (tmp_path / f"{name}.{ending}" for name in ("y", "filled", "std"))
    Y = with_more_columns(path)
    expected, expected_std = model.impute(Y, return_std=True)
    result = succeed("transform", named, path, "-o", tmp_path / "z.npy")
    assert result.stderr == IGNORED
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), model.transform(Y), atol=1e-9)
    result = succeed("score", named, path, "--json")
    assert IGNORED in result.stderr
    assert last_json(result)["observed"] == 119
    result = succeed("impute", path, "--model", named, "-o", filled, "--std", std, "--json")
    assert IGNORED in result.stderr
    assert last_json(result)["filled"] == 1
    table = open_table(std)
    assert list(table.columns) == NAMES[::-1]
    np.testing.assert_array_equal(table.values, expected_std[:, ::-1])
    table = open_table(filled, ReadOptions(leave_out=("town",) if ending in ("csv", "parquet") else ()))
    assert list(table.columns)[:5] == ["square", "weight", "angle", "cosine", "sine"]
    np.testing.assert_allclose(table.values[:, [4, 3, 2, 0]], expected, atol=1e-12)
    assert np.flatnonzero(np.isnan(table.values[:, 1])).tolist() == [4]  # as it was in the file


def test_explore_ignores_columns_that_the_model_does_not_know(named, tmp_path):
    with_more_columns(tmp_path / "y.csv")
    result = succeed("explore", named, "--data", tmp_path / "y.csv", "-o", tmp_path / "p.html")
    assert result.stderr == IGNORED


def test_a_column_that_is_missing_is_told_before_texts_are(named, tmp_path):
    (tmp_path / "y.csv").write_text("id,sine,Cosine,angle,town\nx,1,2,3,Rome\n")
    result = run("transform", named, tmp_path / "y.csv", "-o", tmp_path / "z.csv")
    assert result.exit_code == 1
    assert "no column 'cosine', 'square', which the model was fitted to (there is 'Cosine')" in result.stderr


def test_a_command_warns_once_of_what_several_steps_find(tmp_path):
    Y = some_rows()
    Y[3] = np.nan
    write_table(tmp_path / "holes.csv", Table(ArraySource(Y), NAMES))
    result = succeed(
        "impute", tmp_path / "holes.csv", "-o", tmp_path / "f.csv", "--max-iter", 1, "--frequencies", 5
    )
    (line,) = [line for line in result.stderr.splitlines() if "no observed entry" in line]
    assert line.startswith("Warning: 1 row of Y has no observed entry: row 3.")
    assert "components: " in result.stdout


def test_sample_is_drawn_from_the_seed(named, model, tmp_path):
    succeed("sample", named, "-n", 7, "--seed", 3, "-o", tmp_path / "s.csv", "--latents", tmp_path / "z.csv")
    Y, Z = model.sample(7, random_state=3, return_latents=True)
    table = open_table(tmp_path / "s.csv")
    np.testing.assert_array_equal(table.values, Y)
    assert table.columns == NAMES
    np.testing.assert_array_equal(open_table(tmp_path / "z.csv").values, Z)


def test_score_is_per_entry_and_per_row(named, model, tmp_path):
    path, Y = with_holes(tmp_path / "holes.csv")
    facts = last_json(succeed("score", named, path, "-o", tmp_path / "s.csv", "--json"))
    scores = model.score_samples(Y)
    assert facts["log_density_per_row"] == pytest.approx(scores.mean())
    assert facts["log_density_per_entry"] == pytest.approx(scores.sum() / 118)
    table = open_table(tmp_path / "s.csv")
    np.testing.assert_array_equal(table.values[:, 0], scores)
    assert table.values[:, 1].sum() == 118
    assert table.ids[0] == "r0"


def test_inspect_says_what_is_in_the_file(named, model):
    said = succeed("inspect", named).output
    for text in ("'sine', 'cosine'", "gaussian 4", "random_state 0", f"srflvm {srflvm.__version__}"):
        assert text in said
    facts = last_json(succeed("inspect", named, "--json"))
    assert (facts["rows"], facts["columns"], facts["components"]) == (30, 4, 2)
    assert facts["elbo"] == model.elbo_
    assert facts["column_names"] == NAMES


def test_plot_draws_with_labels(saved, tmp_path):
    (tmp_path / "labels.csv").write_text("\n".join("xyz"[n % 3] for n in range(30)))
    succeed("plot", saved, "--labels", tmp_path / "labels.csv", "-o", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("kind", "function", "options", "passed"),
    [
        ("spectral-density", "spectral_density", [], {}),
        (
            "grid",
            "decoded_grid",
            ["--image-shape", "2x2", "--dims", "1,0"],
            {"image_shape": (2, 2), "dims": (1, 0)},
        ),
    ],
)
def test_plot_calls_the_function_of_the_kind(saved, tmp_path, monkeypatch, kind, function, options, passed):
    calls = []

    def draw(model, ax, **given):
        calls.append((model.n_features_in_, given))

    monkeypatch.setattr(f"srflvm.plot.{function}", draw, raising=False)
    succeed("plot", saved, "--kind", kind, *options, "-o", tmp_path / "p.svg")
    assert calls == [(4, passed)]


def test_explore_is_given_rows_labels_and_ids(named, tmp_path, monkeypatch):
    calls = []

    def write_page(model, path, **options):
        calls.append(options)
        path.write_text("<html></html>")

    monkeypatch.setitem(sys.modules, "srflvm.explore", types.SimpleNamespace(write_page=write_page))
    path, Y = with_holes(tmp_path / "y.csv", [3, 2, 1, 0])
    np.save(tmp_path / "l.npy", np.arange(30))
    succeed(
        "explore",
        named,
        "--data",
        path,
        "--labels",
        tmp_path / "l.npy",
        "--title",
        "T",
        "-o",
        tmp_path / "p.html",
    )
    (options,) = calls
    np.testing.assert_array_equal(options["data"], Y)
    np.testing.assert_array_equal(options["labels"], np.arange(30))
    assert (options["ids"][4], options["title"], options["dims"]) == ("r4", "T", None)


@pytest.mark.parametrize("kind", ["csv", "npy"])
@pytest.mark.parametrize("fitted", ["named", "saved"])
def test_no_command_leaks_warnings_about_names(request, fitted, kind, tmp_path):
    """Check models and tables with and without names."""
    model, data = request.getfixturevalue(fitted), tmp_path / f"y.{kind}"
    write_table(data, Table(ArraySource(some_rows()), NAMES))
    for name in ("transform", "score"):
        assert succeed(name, model, data, "-o", tmp_path / f"{name}.csv").stderr == ""
    assert succeed("impute", data, "--model", model, "-o", tmp_path / "f.csv").stderr == ""
    assert succeed("explore", model, "--data", data, "-o", tmp_path / "p.html").stderr == ""


def test_datasets_lists_them():
    assert "make_s_curve_gp" in succeed("datasets").output
    assert "make_s_curve_gp" in last_json(succeed("datasets", "--json"))


def test_force_replaces_and_quiet_says_nothing(saved, tmp_path):
    (tmp_path / "s.csv").write_text("old")
    assert run("sample", saved, "-o", tmp_path / "s.csv").exit_code == 1
    assert (tmp_path / "s.csv").read_text() == "old"
    assert succeed("sample", saved, "-o", tmp_path / "s.csv", "--force", "--quiet").output == ""
    assert open_table(tmp_path / "s.csv").shape == (100, 4)


def table_of(*rows, names=None):
    return Table(ArraySource(np.array(rows, float)), names)


def test_likelihoods_are_written_as_people_write_them():
    made = columns.parse_likelihood
    assert made("negative-binomial") == made("Negative_Binomial") == likelihoods.NegativeBinomial()
    assert made("binomial:10") == likelihoods.Binomial(n_trials=10)
    assert made("gaussian:column") == likelihoods.Gaussian(noise="column")
    assert made("Auto") == "auto"
    for text in ("auto:2", "binomial", "binomial:x", "poisson:3", "gaussian:wide", "normal"):
        with pytest.raises(ValueError):
            made(text)


def test_columns_of_one_likelihood_are_one_group():
    table = table_of([1, 2, 3, 4], names=list("abcd"))
    chosen = columns.choose_likelihoods(table, "gaussian", ["b=multinomial", "d=multinomial"])
    assert chosen == {("a", "c"): likelihoods.Gaussian(), ("b", "d"): likelihoods.Multinomial()}
    unnamed = columns.choose_likelihoods(table_of([1, 2]), "gaussian", ["1=poisson"])
    assert unnamed == {(0,): likelihoods.Gaussian(), (1,): likelihoods.Poisson()}
    assert columns.choose_likelihoods(table, "auto", ["b=auto"]) == "auto"
    assert columns.choose_likelihoods(table, "auto", ["b=poisson"]) == {("b",): likelihoods.Poisson()}


def doubts(table, likelihood):
    return list(columns._doubts(table, likelihood, table.values))


def test_warnings_of_what_may_have_been_overlooked():
    counts = table_of([1, 2, np.nan], [3, 0, 4])
    (line,) = doubts(counts, likelihoods.Gaussian())
    assert line.startswith("all columns hold whole numbers")
    assert not doubts(counts, likelihoods.Poisson())
    some = table_of([0.5, 2, 1], [0.1, 0, 1], names=["x", "y", "z"])
    (line,) = doubts(some, likelihoods.Gaussian())
    assert line.startswith("'y', 'z' hold whole numbers")
