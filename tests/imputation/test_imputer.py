"""The imputer on data frames, on arrays and in a pipeline."""

import warnings
from functools import lru_cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.missing_entries import curve, warnings_of
from scipy.sparse import csr_matrix
from scipy.special import ndtri
from scipy.stats import norm
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from srflvm import SRFLVM, DataError, SRFLVMImputer
from srflvm.imputation import imputer as imputer_module
from srflvm.numerics import matrix_factors

SMALL = {"max_iter": 3, "tol": 0, "n_frequencies": 5, "random_state": 0}
QUICK = SRFLVM(affine=True, init="pca", **SMALL)
TOWNS, GRADES = ("Bern", "Oslo", "Rome"), ("low", "mid", "high")
LIBRARIES = ("pandas", "polars", "pyarrow")


@pytest.fixture(scope="module")
def complete():
    return curve()


@pytest.fixture(scope="module")
def holes(complete):
    return np.random.RandomState(1).uniform(size=complete.shape) < 0.2


@lru_cache
def whole_table(n_rows=60):
    """Return columns of every kind behind which there is one latent."""
    random = np.random.RandomState(0)
    x = random.standard_normal(n_rows)
    return pd.DataFrame(
        {
            "age": x + 0.2 * random.standard_normal(n_rows),
            "price": 1e4 * (2.0 - x + 0.2 * random.standard_normal(n_rows)),
            "visits": pd.array(np.rint(30.0 + 8.0 * x + random.standard_normal(n_rows)), dtype="Int64"),
            "town": np.array(TOWNS, dtype=object)[np.digitize(x, [-0.5, 0.5])],
            "grade": pd.Categorical.from_codes(np.digitize(x, [-0.4, 0.6]), GRADES, ordered=True),
            "member": pd.array(x + 0.3 * random.standard_normal(n_rows) > 0.0, dtype="boolean"),
        },
        index=pd.Index([f"row {n}" for n in range(n_rows)], name="key"),
    )


@lru_cache
def missing():
    hidden = np.random.RandomState(1).uniform(size=whole_table().shape) < 0.2
    hidden[:2] = False
    return hidden


def table(library="pandas"):
    frame = whole_table().mask(missing())
    if library == "pandas":
        return frame
    plain = frame.reset_index(drop=True)
    if library == "pyarrow":
        return pa.Table.from_pandas(plain, preserve_index=False)
    grade = pl.Series("grade", plain["grade"].astype(object).where(plain["grade"].notna(), None).tolist())
    others = pl.from_pandas(plain.drop(columns="grade"))
    return others.with_columns(grade.cast(pl.Enum(GRADES))).select(frame.columns.tolist())


def columns_of(frame):
    """Return the entries of a frame of any library, None where one is missing."""
    if isinstance(frame, pd.DataFrame):
        return {name: [None if pd.isna(v) else v for v in frame[name]] for name in frame}
    return frame.to_dict(as_series=False) if isinstance(frame, pl.DataFrame) else frame.to_pydict()


@lru_cache
def fitted(library="pandas"):
    return SRFLVMImputer(QUICK, n_components=1).fit(table(library))


def types_of(frame):
    if isinstance(frame, pa.Table):
        return frame.schema.types
    return list(frame.dtypes)


# ---- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_come_back_filled_and_otherwise_as_they_were(library):
    frame = table(library)
    filled = fitted().transform(frame)
    assert type(filled) is type(frame)
    assert types_of(filled) == types_of(frame)
    found, before = columns_of(filled), columns_of(frame)
    assert list(found) == list(whole_table().columns)
    for place, (name, entries) in enumerate(found.items()):
        for row, entry in enumerate(entries):
            assert entry is not None
            assert entry == before[name][row] or missing()[row, place]
    assert set(found["town"]) <= set(TOWNS)
    assert set(found["grade"]) <= set(GRADES)
    assert set(found["member"]) <= {True, False}
    if library == "pandas":
        assert filled.index.equals(frame.index)
        assert frame.isna().to_numpy().sum() == missing().sum()


@pytest.mark.parametrize("library", LIBRARIES[1:])
def test_fits_and_fills_do_not_depend_on_the_library(library):
    assert columns_of(fitted(library).transform(table(library))) == columns_of(fitted().transform(table()))


def test_fills_are_near_the_truth():
    filled, truth = fitted().transform(table()), whole_table()
    for place, name in enumerate(["age", "price", "visits"]):
        rows = missing()[:, place]
        error = (filled[name] - truth[name])[rows].to_numpy(float)
        spread = truth[name][~rows].to_numpy(float)
        assert np.mean(error**2) < 0.35 * np.var(spread)
    for name in ("town", "grade", "member"):
        rows = missing()[:, list(truth.columns).index(name)]
        assert np.mean((filled[name] == truth[name])[rows]) > 0.6


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_in_another_order_are_refused_as_everywhere_in_scikit_learn(library):
    frame = table(library)
    other = frame.select(frame.column_names[::-1]) if library == "pyarrow" else frame[frame.columns[::-1]]
    with pytest.raises(ValueError, match="Feature names must be in the same order as they were in fit"):
        fitted().transform(other)


def test_what_columns_are_taken_as_is_told():
    imputer = fitted()
    kinds = {column.name: column.kind for column in imputer.columns_.columns}
    assert kinds == {
        "age": "continuous",
        "price": "continuous",
        "visits": "continuous",
        "town": "categorical",
        "grade": "ordinal",
        "member": "binary",
    }
    assert list(imputer.feature_names_in_) == list(kinds)
    assert list(imputer.get_feature_names_out()) == list(kinds)
    assert imputer.n_features_in_ == 6


def test_fit_transform_is_fit_and_transform():
    filled = SRFLVMImputer(QUICK, n_components=1).fit_transform(table())
    pd.testing.assert_frame_equal(filled, fitted().transform(table()))


def test_levels_that_were_not_seen_are_refused_or_taken_as_missing():
    frame = table()
    frame.iloc[0, 3] = "Atlantis"
    with pytest.raises(DataError, match=r"Column 3 \('town'\) has the level 'Atlantis' at row 0"):
        fitted().transform(frame)
    tolerant = clone(fitted()).set_params(estimator__unknown_levels="missing").fit(table())
    filled = tolerant.transform(frame)
    assert filled.iloc[0, 3] == "Atlantis"
    # the row is placed by its other entries
    hidden = table()
    hidden.iloc[0, 3] = None
    probabilities = (tolerant.transform(given, return_proba=True)[1]["town"] for given in (frame, hidden))
    assert np.array_equal(*probabilities)


def test_a_second_fit_forgets_what_the_columns_of_the_first_were(complete):
    imputer = clone(fitted()).fit(table())
    imputer.fit(complete[:, :6])
    assert not hasattr(imputer, "columns_")
    assert not hasattr(imputer, "feature_names_in_")
    assert isinstance(imputer.transform(complete[:, :6]), np.ndarray)


# ---- uncertainty ----------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_intervals_hold_the_fills_of_numbers_and_leave_levels_missing(library):
    frame = table(library)
    low, high = map(columns_of, fitted().interval(frame))
    wide_low, wide_high = map(columns_of, fitted().interval(frame, 0.99))
    filled = columns_of(fitted().transform(frame))
    for place, name in enumerate(["age", "price", "visits", "town", "grade", "member"]):
        for row, is_hidden in enumerate(missing()[:, place]):
            ends = low[name][row], high[name][row]
            if not is_hidden:
                assert ends == (filled[name][row], filled[name][row])
            elif place > 2:
                assert ends == (None, None)
            else:
                assert wide_low[name][row] <= ends[0] <= filled[name][row] <= ends[1] <= wide_high[name][row]
                assert wide_high[name][row] - wide_low[name][row] > ends[1] - ends[0]


def test_intervals_of_arrays_have_their_level(complete, holes):
    Y = np.where(holes, np.nan, complete)
    imputer = SRFLVMImputer(QUICK, n_components=1).fit(Y)
    filled, std = imputer.transform(Y, return_std=True)
    for level in (0.5, 0.9):
        low, high = imputer.interval(Y, level)
        np.testing.assert_allclose(norm.cdf(high, filled, np.where(holes, std, 1.0))[holes], 0.5 + level / 2)
        np.testing.assert_allclose((low + high)[holes], 2.0 * filled[holes])
        np.testing.assert_allclose((high - low)[holes], 2.0 * ndtri(0.5 + level / 2) * std[holes])
        np.testing.assert_array_equal(low[~holes], complete[~holes])
        np.testing.assert_array_equal(high[~holes], complete[~holes])
    for level in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="level"):
            imputer.interval(Y, level)


@pytest.mark.parametrize("library", LIBRARIES)
def test_draws_are_frames_with_the_observed_entries(library):
    frame = table(library)
    draws = fitted().draw(frame, 3, random_state=0)
    assert len(draws) == 3
    before = columns_of(frame)
    for drawn in draws:
        assert types_of(drawn) == types_of(frame)
        for place, (name, entries) in enumerate(columns_of(drawn).items()):
            assert None not in entries
            assert all(
                entry == before[name][row] for row, entry in enumerate(entries) if not missing()[row, place]
            )
            if name in ("town", "grade"):
                assert set(entries) <= set(TOWNS) | set(GRADES)
    assert columns_of(draws[0])["age"] != columns_of(draws[1])["age"]
    again = fitted().draw(frame, 3, random_state=0)
    assert [columns_of(drawn) for drawn in again] == [columns_of(drawn) for drawn in draws]


def test_draws_have_the_moments_that_transform_tells(complete, holes):
    """Rows in another order are new rows, whose weights are drawn from q(H)."""
    Y = np.where(holes, np.nan, complete)
    imputer = SRFLVMImputer(QUICK, n_components=1).fit(Y)
    Y, complete, holes = Y[::-1], complete[::-1], holes[::-1]
    filled, std = imputer.transform(Y, return_std=True)
    draws = imputer.draw(Y, 400, random_state=0)
    assert draws.shape == (400, *Y.shape)
    np.testing.assert_array_equal(draws[:, ~holes], np.tile(complete[~holes], (400, 1)))
    # the mean of 400 draws is off by std / 20; the curve of the function adds a little
    errors = (draws.mean(axis=0) - filled)[holes] / std[holes]
    assert np.sqrt(np.mean(errors**2)) < 0.1
    np.testing.assert_allclose(np.median(draws.std(axis=0)[holes] / std[holes]), 1.0, atol=0.05)


@pytest.mark.parametrize("library", LIBRARIES)
def test_probabilities_of_levels_go_with_the_fills(library):
    frame = table(library)
    filled, std, probabilities = fitted().transform(frame, return_std=True, return_proba=True)
    filled = columns_of(filled)
    np.testing.assert_array_equal(std > 0.0, missing())
    levels = {"town": list(TOWNS), "grade": list(GRADES), "member": ["False", "True"]}
    assert set(probabilities) == set(levels)
    for name, of_levels in probabilities.items():
        assert type(of_levels) is type(frame)
        if library == "pandas":
            assert of_levels.index.equals(frame.index)
        shares = columns_of(of_levels)
        assert list(shares) == levels[name]
        table_of_shares = np.stack(list(shares.values()), axis=1)
        np.testing.assert_allclose(table_of_shares.sum(axis=1), 1.0, rtol=1e-9)
        place = list(whole_table().columns).index(name)
        for row, is_hidden in enumerate(missing()[:, place]):
            best = levels[name][int(np.argmax(table_of_shares[row]))]
            assert str(filled[name][row]) == best or (is_hidden and name == "grade")
            assert (np.max(table_of_shares[row]) == 1.0) == (not is_hidden)


def test_probabilities_of_arrays_are_told_by_the_index_of_a_column():
    Y = np.c_[curve()[:, :3], np.digitize(curve()[:, 3], [0.0]), np.digitize(curve()[:, 4], [-0.5, 0.5])]
    Y[3, 3:] = np.nan
    model = clone(QUICK).set_params(likelihood={3: "bernoulli", 4: "ordinal"})
    imputer = SRFLVMImputer(model, n_components=1).fit(Y)
    _, probabilities = imputer.transform(Y, return_proba=True)
    assert {place: shares.shape for place, shares in probabilities.items()} == {3: (60, 2), 4: (60, 3)}
    assert all(0.0 < shares[3].max() < 1.0 for shares in probabilities.values())


# ---- arrays, pipelines, parameters ----------------------------------------------------------------


def test_arrays_come_back_as_arrays(complete, holes):
    Y = np.where(holes, np.nan, complete)
    imputer = SRFLVMImputer(QUICK, n_components=1)
    filled = imputer.fit_transform(Y)
    assert isinstance(filled, np.ndarray)
    np.testing.assert_array_equal(filled[~holes], complete[~holes])
    means = np.broadcast_to(np.nanmean(Y, axis=0), Y.shape)
    assert np.mean((filled - complete)[holes] ** 2) < 0.7 * np.mean((means - complete)[holes] ** 2)
    np.testing.assert_array_equal(imputer.transform(Y), filled)
    np.testing.assert_array_equal(imputer.transform(complete), complete)


def test_it_works_in_a_pipeline_and_keeps_names(complete, holes):
    frame = pd.DataFrame(np.where(holes, np.nan, complete), columns=list("abcdefgh"))
    imputer = SRFLVMImputer(QUICK, n_components=1).set_output(transform="pandas")
    filled = imputer.fit_transform(frame)
    assert list(filled.columns) == list("abcdefgh")
    assert np.array_equal(filled.to_numpy()[~holes], complete[~holes])
    scaled = make_pipeline(SRFLVMImputer(QUICK, n_components=1), StandardScaler()).fit_transform(frame)
    assert np.isfinite(scaled).all()


def test_it_warns_of_names_that_are_left_out_once():
    frame = table()[["age", "price"]].dropna(how="all")
    array = np.array(frame, float)
    imputer = SRFLVMImputer(QUICK, n_components=1).fit(frame)
    ((message, _),) = warnings_of(lambda: imputer.transform(array))
    assert message.startswith("X does not have valid feature names, but SRFLVM")
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        filled = imputer.transform(array)
    assert isinstance(filled, np.ndarray)
    np.testing.assert_array_equal(filled, imputer.transform(frame))


def test_a_target_is_ignored_and_only_the_model_itself_warns_of_it(complete):
    model = clone(QUICK).set_params(n_components=1)
    ((message, file),) = warnings_of(lambda: model.fit(complete, np.zeros(60)))
    assert message == "y is ignored: the model has no target"
    assert file == __file__
    # pipelines pass the target of their last step to every step
    pipeline = make_pipeline(SRFLVMImputer(QUICK, n_components=1), LinearRegression())
    assert warnings_of(lambda: pipeline.fit(complete, complete[:, 0])) == []


def test_the_number_of_components_is_that_asked_for(complete):
    model = clone(QUICK).set_params(n_components=3)
    assert SRFLVMImputer(model, n_components=None).fit(complete).n_components_ == 3
    assert SRFLVMImputer(model, n_components=1).fit(complete).n_components_ == 1
    automatic = SRFLVMImputer(model).fit(complete)
    assert automatic.n_components_ == automatic.estimator_.n_components_ > 1
    assert model.n_components == 3
    assert not hasattr(model, "embedding_")


def test_the_seed_decides_unless_the_model_has_one(complete, holes):
    Y = np.where(holes, np.nan, complete)
    open_model = clone(QUICK).set_params(random_state=None, init="random")

    def filled(model, seed):
        return SRFLVMImputer(model, n_components=1, random_state=seed).fit_transform(Y)

    assert np.array_equal(filled(open_model, 0), filled(open_model, 0))
    assert not np.array_equal(filled(open_model, 0), filled(open_model, 1))
    seeded = clone(open_model).set_params(random_state=0)
    assert np.array_equal(filled(seeded, 0), filled(seeded, 1))


# ---- what the model can and cannot find -----------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_is_filled_no_worse_than_by_means(seed):
    random = np.random.RandomState(seed)
    Y = random.standard_normal((100, 6)) * [1.0, 10.0, 0.1, 1.0, 5.0, 2.0] + 3.0
    hidden = random.uniform(size=Y.shape) < 0.2
    given = np.where(hidden, np.nan, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that could go on
        filled = SRFLVMImputer(random_state=0).fit_transform(given)
    scale, means = np.nanstd(given, axis=0), np.broadcast_to(np.nanmean(given, axis=0), Y.shape)
    error, by_means = (np.mean(((found - Y) / scale)[hidden] ** 2) for found in (filled, means))
    assert error < 1.02 * by_means


def test_linear_columns_are_reconstructed_as_by_pca():
    random = np.random.RandomState(0)
    clean = random.standard_normal((100, 2)) @ random.standard_normal((2, 8))
    Y = clean + 0.2 * random.standard_normal(clean.shape)
    model = SRFLVM(2, affine=True, init="pca", max_iter=10, tol=0, random_state=0).fit(Y)
    found = model.inverse_transform(model.embedding_)
    pca = PCA(2).fit(Y)
    by_pca = pca.inverse_transform(pca.transform(Y))
    # PCA is off by the noise along two of eight directions
    assert np.mean((found - clean) ** 2) < 1.15 * np.mean((by_pca - clean) ** 2)
    assert np.sqrt(np.mean((found - by_pca) ** 2)) < 0.3 * 0.2
    waves, *slopes = model._posterior.affine
    assert max(slopes) > 3.0 * waves


def test_skewed_columns_are_transformed_and_filled_in_their_units():
    random = np.random.RandomState(0)
    latent = random.standard_normal(80)
    frame = pd.DataFrame(
        {
            "income": 3e4 * np.exp(latent + 0.2 * random.standard_normal(80)),
            "age": 40.0 + 10.0 * latent + random.standard_normal(80),
        }
    )
    frame.loc[::5, "income"] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        imputer = SRFLVMImputer(QUICK, n_components=1).fit(frame)
    assert [column.transform for column in imputer.columns_.columns] == ["log", None]
    assert [row[2] for row in imputer.columns_.summary()] == ["continuous, log", "continuous"]
    missing = frame["income"].isna().to_numpy()
    filled = imputer.transform(frame)["income"].to_numpy()
    low, high = (end["income"].to_numpy() for end in imputer.interval(frame))
    assert np.all(low[missing] > 0.0)
    assert np.all((low < filled)[missing] & (filled < high)[missing])
    assert np.all((high - filled)[missing] > (filled - low)[missing])
    # the mean of a skewed distribution is above its median, which is the geometric mean of the ends
    assert np.all(filled[missing] > np.sqrt(low * high)[missing])


def test_wide_arrays_are_filled_by_linear_factors(monkeypatch):
    random = np.random.RandomState(0)
    Y = random.standard_normal((100, 3)) @ random.standard_normal((3, 66))
    Y += 0.2 * random.standard_normal(Y.shape)
    hidden = random.uniform(size=Y.shape) < 0.2
    seen = np.where(hidden, np.nan, Y)
    imputer = SRFLVMImputer(random_state=0).fit(seen)
    assert imputer.estimator_.get_params()["n_frequencies"] == 0
    assert np.mean((imputer.transform(seen) - Y)[hidden] ** 2) < 1.5 * 0.2**2
    listed = SRFLVMImputer(random_state=0).fit(seen.tolist())
    np.testing.assert_array_equal(listed.transform(seen), imputer.transform(seen))
    # too large, or not in memory
    default = imputer_module._default_model
    assert default(csr_matrix(np.eye(70))).n_frequencies == "auto"
    monkeypatch.setattr(matrix_factors, "_PRODUCTS_OF_ROUND", 1.0)
    assert default(seen).n_frequencies == "auto"
    assert default(seen).affine == "auto"
