"""Missing entries: used nowhere, filled with uncertainty, on training rows and new ones."""

import copy
import warnings
from datetime import date, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from model_files import made_up, rows_of_each_kind
from scipy.stats import norm
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from srflvm import SRFLVM, DataError, SRFLVMImputer, choose_n_components
from srflvm._inputs import read_data
from srflvm.named import NamedTable

SMALL = {"max_iter": 3, "tol": 0, "n_frequencies": 10, "random_state": 0}


def curve(n_rows=60, n_columns=8, noise=0.1, seed=0):
    rng = np.random.RandomState(seed)
    x = np.sort(rng.uniform(-2.0, 2.0, n_rows))
    phases = rng.uniform(0.0, 6.0, n_columns)
    return np.sin(1.5 * x[:, None] + phases) + noise * rng.standard_normal((n_rows, n_columns))


@pytest.fixture(scope="module")
def complete():
    return curve()


@pytest.fixture(scope="module")
def holes(complete):
    return np.random.RandomState(1).uniform(size=complete.shape) < 0.2


@pytest.fixture(scope="module")
def model(complete, holes):
    return SRFLVM(**SMALL).fit(np.where(holes, np.nan, complete))


def results(model):
    return model.embedding_, model.elbo_history_, model._posterior.weights


def assert_identical(one, other):
    for a, b in zip(results(one), results(other), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_what_lies_under_the_mask_changes_nothing(complete, holes, likelihood):
    fits = [
        SRFLVM(likelihood=likelihood, **SMALL).fit(np.where(holes, junk, complete), mask=holes)
        for junk in (0.0, 1e6)
    ]
    assert_identical(*fits)
    filled = [
        m.impute(np.where(holes, junk, complete), mask=holes)
        for m, junk in zip(fits, (5.0, -7.0), strict=True)
    ]
    assert np.array_equal(*filled)


def test_all_ways_to_say_missing_are_the_same(complete, holes, model):
    frame = pd.DataFrame(complete).astype("Float64").mask(holes)
    assert frame.isna().to_numpy().any()
    assert_identical(model, SRFLVM(**SMALL).fit(frame))
    assert_identical(model, SRFLVM(**SMALL).fit(np.ma.array(complete, mask=holes)))


def test_missing_entries_of_columns_of_objects_are_seen():
    frame = pd.DataFrame(
        {"a": [1, pd.NA, 3, None], "b": [0.5, 1.5, np.nan, 2.5], "c": [True, False, pd.NA, True]}
    )
    before = frame.copy()
    values = read_data(SRFLVM(), frame, reset=True)
    nan = np.nan
    np.testing.assert_array_equal(values, [[1, 0.5, 1], [nan, 1.5, 0], [3, nan, nan], [nan, 2.5, 1]])
    pd.testing.assert_frame_equal(frame, before)


def test_dates_are_refused_by_name():
    frame = pd.DataFrame({"a": [1.0, 2.0], "when": pd.to_datetime(["2024-01-01", None])})
    with pytest.raises(DataError, match=r"Column 1 \('when'\) holds dates or times"):
        read_data(SRFLVM(), frame, reset=True)


@pytest.mark.parametrize(
    "Y",
    [
        pl.DataFrame({"a": [1.0, 2.0], "when": [date(2024, 1, 1), None]}),
        pl.DataFrame({"a": [1.0, 2.0], "when": [timedelta(1), None]}),
        pd.DataFrame({"a": [1.0, 2.0], "when": [None, date(2024, 1, 1)]}),
        NamedTable(np.array([[1.0, date(2024, 1, 1)]] * 2, dtype=object), ["a", "when"]),
    ],
    ids=["polars dates", "polars times", "objects", "named array"],
)
def test_dates_of_other_tables_are_refused_by_name(Y):
    with pytest.raises(DataError, match=r"Column 1 \('when'\) holds dates or times"):
        read_data(SRFLVM(), Y, reset=True)
    with pytest.raises(DataError, match="Column 0 holds dates"):
        read_data(SRFLVM(), np.array([["2024-01-01"]] * 2, dtype="M8[D]"), reset=True)


CITIES = ["7", "Rome", None, "Oslo"]


@pytest.mark.parametrize(
    "Y",
    [
        pd.DataFrame({"a": range(4), "city": CITIES}),
        pd.DataFrame({"a": range(4), "city": pd.Categorical(CITIES)}),
        pd.DataFrame({"a": range(4), "city": pd.array(CITIES, dtype="string")}),
        pd.DataFrame({"a": range(4), "city": [7, "Rome", pd.NA, 3.5]}, index=list("wxyz")),
        pl.DataFrame({"a": range(4), "city": CITIES}),
        pl.DataFrame({"a": range(4), "city": pl.Series(CITIES, dtype=pl.Categorical)}),
        NamedTable(np.array([[1, "7"], [2, "Rome"]], dtype=object), ["a", "city"]),
    ],
    ids=["pandas", "categories", "strings", "mixed", "polars", "polars categories", "named array"],
)
def test_texts_are_refused_by_column_entry_and_remedy(Y):
    said = r"Column 1 \('city'\) holds text: 'Rome' at row 1 is not a number\. Put NaN .* otherwise: "
    for estimator in (SRFLVM(), SRFLVMImputer()):
        with pytest.raises(DataError, match=said + r"Drop the column, .* likelihood=\{'city': 'categorical'"):
            estimator.fit(Y)
    with pytest.raises(DataError, match=said + ".* that it had in the fit"):
        read_data(SRFLVM(), Y, reset=False)


@pytest.mark.parametrize(
    "Y",
    [[[1.0, "x"], [None, "y"]], np.array([["1", "x"], ["2", "y"]]), np.array([[1, b"x"]] * 2, dtype=object)],
)
def test_texts_without_a_column_name_are_refused_by_place(Y):
    said = r"Column 1 holds text: b?'x' at row 0 is not a number\. Drop .*\{1: 'categorical'"
    with pytest.raises(DataError, match=said):
        SRFLVM().fit(Y)
    with pytest.raises(DataError, match=said):
        choose_n_components(SRFLVM(), Y)


def test_other_objects_are_refused_by_place():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [None, {}]})
    with pytest.raises(TypeError, match=r"Column 1 \('b'\) holds \{\} at row 1.* not 'dict'"):
        SRFLVM().fit(frame)
    with pytest.raises(TypeError, match=r"Column 1 \('b'\) holds \[3\] at row 0"):
        SRFLVM().fit(pl.DataFrame({"a": [1.0, 2.0], "b": [[3], [4]]}))


def test_numbers_in_columns_of_objects_are_taken():
    expected = [[1.0, 2.5, 1.0], [2.0, np.nan, 0.0]]
    text, flag = ["2.5", None], [True, False]
    for Y in (
        pd.DataFrame({"a": pd.Categorical([1, 2]), "b": text, "c": flag}),
        pl.DataFrame({"a": [1, 2], "b": text, "c": flag}),
        [[1, "2.5", True], [2, None, False]],
    ):
        np.testing.assert_array_equal(read_data(SRFLVM(), Y, reset=True), expected)


def test_draws_have_no_standard_deviations(complete, model):
    with pytest.raises(ValueError, match="return_std goes with means"):
        model.impute(complete, n_draws=2, return_std=True)


def test_only_missing_entries_are_filled_and_filled_well(complete, holes, model):
    Y = np.where(holes, np.nan, complete)
    filled, std = model.impute(Y, return_std=True)
    assert np.array_equal(filled[~holes], complete[~holes])
    assert np.all(std[~holes] == 0.0)
    assert np.all(std[holes] > 0.0)
    error = np.mean((filled - complete)[holes] ** 2)
    means = np.broadcast_to(np.nanmean(Y, axis=0), Y.shape)
    assert error < 0.3 * np.mean((means - complete)[holes] ** 2)


def test_draws_have_the_predictive_mean_and_spread(complete, holes, model):
    Y = np.where(holes, np.nan, complete)
    filled, std = model.impute(Y, return_std=True)
    draws = model.impute(Y, n_draws=400, random_state=0)
    assert draws.shape == (400, *Y.shape)
    assert np.array_equal(draws[:, ~holes], np.broadcast_to(complete[~holes], (400, np.sum(~holes))))
    # cubature against draws of the latents: they agree up to curvature over one posterior's width
    errors = (draws.mean(axis=0) - filled)[holes] / std[holes]
    assert np.abs(np.mean(errors)) < 0.05
    assert np.median(draws.std(axis=0)[holes] / std[holes]) == pytest.approx(1.0, abs=0.1)


def test_new_rows_with_holes_do_not_depend_on_each_other(model):
    Y = curve(seed=3)[:7]
    Y[np.random.RandomState(0).uniform(size=Y.shape) < 0.3] = np.nan
    together = model.transform(Y)
    alone = np.concatenate([model.transform(row[None]) for row in Y])
    assert np.allclose(together, alone, atol=1e-8)
    assert not np.isnan(model.impute(Y)).any()
    assert np.isfinite(model.score_samples(Y)).all()


def test_a_row_with_nothing_observed_keeps_the_prior_and_says_so(model):
    empty = np.full((1, 8), np.nan)
    with pytest.warns(UserWarning, match="1 row of Y has no observed entry: row 0. The model places it at"):
        Z, std = model.transform(empty, return_std=True)
    assert np.allclose(Z, 0.0, atol=1e-5)
    assert np.allclose(std, 1.0)


def warnings_of(call):
    """Texts and files of what is warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    return [(str(warning.message).partition(".")[0], warning.filename) for warning in told]


def test_empty_rows_are_warned_of_once_a_call_at_the_line_of_the_caller(complete, holes, model, tmp_path):
    Y = np.where(holes, np.nan, complete)
    Y[[7, 9]] = np.nan
    masked = complete.copy()
    masked[9] = np.nan
    one = [("1 row of Y has no observed entry: row 9", __file__)]
    two = [("2 rows of Y have no observed entry, the first is row 7", __file__)]
    imputer = SRFLVMImputer(SRFLVM(**SMALL), candidates=(2,))
    stored = tmp_path / "rows.npy"
    np.save(stored, Y)
    calls = {
        "fit": lambda: SRFLVM(**SMALL).fit(Y),
        "transform": lambda: model.transform(Y),
        "transform of a file": lambda: model.transform(stored),
        "impute": lambda: model.impute(Y),
        "score": lambda: model.score(Y),
        "choose": lambda: choose_n_components(SRFLVM(**SMALL), Y, (2,)),
        "imputer": lambda: imputer.fit(Y),
        "imputer.transform": lambda: imputer.transform(Y),
        "pipeline": lambda: Pipeline([("model", model)]).transform(Y),
        "explore": lambda: model.explore(tmp_path / "page.html", data=Y),
    }
    assert {name: warnings_of(call) for name, call in calls.items()} == dict.fromkeys(calls, two)
    assert warnings_of(lambda: model.impute(masked)) == one


def test_empty_rows_of_the_truth_are_not_warned_of(complete, model, tmp_path):
    truth = np.full_like(complete, np.nan)
    truth[0, 0] = complete[0, 0]
    np.save(tmp_path / "truth.npy", truth)
    Y = complete.copy()
    Y[0, 0] = np.nan
    for given in (truth, tmp_path / "truth.npy"):
        assert np.isfinite(model.score_entries(Y, given)[0, 0])


def test_entries_held_out_of_short_rows_are_not_warned_of(monkeypatch):
    Y = curve(n_rows=20)
    Y[:10, 1:] = np.nan  # one entry each, some of which are held out

    def stop(model, source, choice, sizes):
        assert np.isnan(source.read(0, 10)).all(axis=1).any()
        raise StopIteration

    monkeypatch.setattr(SRFLVM, "_fitted_by_processes", stop)
    with pytest.raises(StopIteration):
        choose_n_components(SRFLVM(**SMALL), Y, (2,), share=0.5)


def test_a_column_with_nothing_observed_is_refused_by_name(complete):
    frame = pd.DataFrame(complete, columns=list("abcdefgh"))
    frame["c"] = np.nan
    with pytest.raises(DataError, match="no observed entry in column 2 \\('c'\\)"):
        SRFLVM(**SMALL).fit(frame)


def test_held_out_scores_are_where_they_should_be_and_integrate_the_prediction(complete, holes, model):
    Y = np.where(holes, np.nan, complete)
    scores = model.score_entries(Y, complete)
    assert np.array_equal(np.isnan(scores), ~holes)
    filled, std = model.impute(Y, return_std=True)
    normal = norm.logpdf(complete[holes], filled[holes], std[holes])
    assert np.nanmean(scores) == pytest.approx(np.mean(normal), abs=0.1)


def test_impossible_truths_are_refused():
    model = made_up(rows_of_each_kind()["bernoulli"], likelihood="bernoulli")
    Y = rows_of_each_kind()["bernoulli"]
    truth, holes = Y.copy(), Y.copy()
    holes[2, 1], truth[2, 1] = np.nan, 2.0
    with pytest.raises(DataError, match="2 at row 2, column 1"):
        model.score_entries(holes, truth)


def test_wrong_masks_and_sizes_are_refused(complete):
    with pytest.raises(ValueError, match="mask must be boolean and of the shape of Y"):
        SRFLVM(**SMALL).fit(complete, mask=np.zeros((3, 2), bool))
    with pytest.raises(ValueError, match="Size factors are for counts"):
        SRFLVM(**SMALL).fit(complete, sizes=np.ones(60))


def test_the_imputer_works_in_a_pipeline_and_keeps_names(complete, holes):
    frame = pd.DataFrame(np.where(holes, np.nan, complete), columns=list("abcdefgh"))
    imputer = SRFLVMImputer(SRFLVM(**SMALL), n_components=1).set_output(transform="pandas")
    filled = imputer.fit_transform(frame)
    assert list(filled.columns) == list("abcdefgh")
    assert np.array_equal(filled.to_numpy()[~holes], complete[~holes])
    scaled = make_pipeline(SRFLVMImputer(SRFLVM(**SMALL), n_components=1), StandardScaler()).fit_transform(
        frame
    )
    assert np.isfinite(scaled).all()


def test_the_imputer_warns_of_names_that_are_left_out_once_and_in_its_own_name(complete, model):
    imputer = SRFLVMImputer()
    imputer.estimator_ = copy.deepcopy(model)
    imputer.location_, imputer.scale_ = np.zeros(8), np.ones(8)
    for fitted in (imputer, imputer.estimator_):
        fitted.feature_names_in_, fitted.n_features_in_ = np.array(list("abcdefgh"), dtype=object), 8
    ((message, _),) = warnings_of(lambda: imputer.transform(complete))
    assert message == "X does not have valid feature names, but SRFLVMImputer was fitted with feature names"
    hidden = np.ma.array(complete, mask=np.tile(np.arange(8) == 3, (len(complete), 1)))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        filled = imputer.transform(hidden)
    assert not np.any(filled[:, 3] == complete[:, 3])


def test_components_are_chosen_by_entries_held_out(complete):
    selection = choose_n_components(SRFLVM(**SMALL), complete, (1, 2), share=0.2)
    assert selection.n_components in (1, 2)
    assert selection.scores.shape == (len(selection.candidates),)
    assert selection.n_components == selection.candidates[int(np.argmax(selection.scores))]
    assert "chosen" in str(selection)
    assert selection.relevances[0].shape == (1,)
    assert np.all(selection.relevances[0] > 0.0)
    with pytest.raises(ValueError, match="candidates is empty"):
        choose_n_components(SRFLVM(**SMALL), complete, ())
