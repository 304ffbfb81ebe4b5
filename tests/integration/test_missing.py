"""Missing entries: used nowhere, filled with uncertainty, on training rows and new ones."""

import numpy as np
import pandas as pd
import pytest
from helpers.missing_entries import curve, warnings_of
from helpers.model_files import made_up, rows_of_each_kind
from scipy.stats import norm
from sklearn.pipeline import Pipeline

from srflvm import SRFLVM, DataError, SRFLVMImputer, choose_n_components
from srflvm.data.sources import NamedTable

SMALL = {"max_iter": 3, "tol": 0, "n_frequencies": 10, "random_state": 0}


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
    return model.embedding_, model.elbo_history_, *model.inverse_transform(model.embedding_, return_std=True)


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
    assert_identical(model, SRFLVM(likelihood="gaussian", **SMALL).fit(frame))
    assert_identical(model, SRFLVM(**SMALL).fit(np.ma.array(complete, mask=holes)))


def test_draws_have_no_standard_deviations(complete, model):
    with pytest.raises(ValueError, match="return_std and return_proba go with means"):
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


def test_empty_rows_are_warned_of_once_a_call_at_the_line_of_the_caller(complete, holes, model, tmp_path):
    Y = np.where(holes, np.nan, complete)
    Y[[7, 9]] = np.nan
    masked = complete.copy()
    masked[9] = np.nan
    one = [("1 row of Y has no observed entry: row 9", __file__)]
    two = [("2 rows of Y have no observed entry, the first is row 7", __file__)]
    imputer = SRFLVMImputer(SRFLVM(**SMALL), n_components=None)
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

    hidden = []
    fit = SRFLVM.fit

    def noted_fit(model, Y, *, mask, **more):
        hidden.append(mask)
        return fit(model, Y, mask=mask, **more)

    monkeypatch.setattr(SRFLVM, "fit", noted_fit)
    choose_n_components(SRFLVM(**SMALL), Y, (2,), share=0.5)  # warnings are errors
    assert (np.isnan(Y) | hidden[0]).all(axis=1).any()


def test_a_column_with_nothing_observed_is_refused_by_name(complete):
    frame = pd.DataFrame(complete, columns=list("abcdefgh"))
    frame["c"] = np.nan
    with pytest.raises(DataError, match="Column 2 \\('c'\\) has no observed entry"):
        SRFLVM(**SMALL).fit(frame)
    with pytest.raises(DataError, match="no observed entry in column 2 \\('c'\\)"):
        SRFLVM(**SMALL).fit(NamedTable(frame.to_numpy(), list(frame.columns)))


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
