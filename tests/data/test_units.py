"""Columns of different units: found, or warned of if the user wants them in one unit."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from srflvm import SRFLVM, SRFLVMImputer
from srflvm.data import reading
from srflvm.data.reading import warn_of_units
from srflvm.data.sources import ArraySource
from srflvm.likelihoods import Gaussian
from srflvm.likelihoods.columns import OWN_UNITS, choose

QUICK = {"n_frequencies": 5, "max_iter": 1, "tol": 0.0, "init": "pca", "random_state": 0}


def warned(Y, likelihood="gaussian"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_units(ArraySource(Y), choose(likelihood, Y.shape[1], None), None)
    return [str(warning.message) for warning in caught]


def in_units(n_large):
    rng = np.random.RandomState(0)
    return rng.randn(80, 6) * np.where(np.arange(6) < n_large, 300.0, 1.0)


@pytest.mark.parametrize("n_large", [1, 3])
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", Gaussian(noise="column")])
def test_columns_that_drown_the_others_are_warned_of(n_large, likelihood):
    (message,) = warned(in_units(n_large), likelihood)
    assert "StandardScaler" in message
    # the remedy is one
    assert not warned(in_units(n_large) / in_units(n_large).std(axis=0), likelihood)


@pytest.mark.parametrize("n_large", [1, 3])
def test_columns_in_units_of_their_own_are_not_warned_of(n_large):
    assert not warned(in_units(n_large), OWN_UNITS)


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_tables_with_units_are_warned_of(load):
    assert len(warned(load().data)) == 1


@pytest.mark.parametrize(
    "Y", [load_iris().data, load_digits().data, np.ones((20, 3)), in_units(0), in_units(6)]
)
def test_other_tables_are_not(Y):
    assert not warned(Y)


def test_codes_and_counts_have_no_units():
    Y = np.c_[in_units(0)[:, :3], np.random.RandomState(0).poisson(1e6, (80, 1))]
    assert not warned(Y, {(0, 1, 2): "gaussian", 3: "poisson"})


def test_a_fit_warns_at_the_line_of_its_caller_and_names_the_columns():
    frame = pd.DataFrame(in_units(1), columns=["price", "b", "c", "d", "e", "f"])
    with pytest.warns(UserWarning, match=r"column 0 \('price'\) varies \d+ times as much") as caught:
        SRFLVM(1, likelihood="gaussian", **QUICK).fit(frame)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(("n_large", "expected"), [(0, Gaussian()), (1, OWN_UNITS)])
def test_arrays_have_one_unit_unless_their_columns_differ(n_large, expected):
    Y = in_units(n_large)
    model = SRFLVM(1, **QUICK).fit(Y)
    (group,) = model._posterior.layout.groups
    assert (group.likelihood.noise, group.likelihood.scale) == (expected.noise, expected.scale)
    if n_large:
        np.testing.assert_allclose(group.units.scale, Y.std(axis=0), rtol=1e-12)


def test_too_large_arrays_and_files_are_fitted_in_one_unit(tmp_path, monkeypatch):
    Y = in_units(1)
    np.save(tmp_path / "Y.npy", Y)
    monkeypatch.setattr(reading, "_MOST_ENTRIES_WITH_UNITS", Y.size - 1)
    for given in (Y, str(tmp_path / "Y.npy")):
        source = reading.read_source(SRFLVM(), given, reset=True)
        assert set(reading.automatic_likelihoods(SRFLVM(), source)) == {"gaussian"}
    monkeypatch.setattr(reading, "_MOST_ENTRIES_WITH_UNITS", Y.size)
    source = reading.read_source(SRFLVM(), Y, reset=True)
    assert set(reading.automatic_likelihoods(SRFLVM(), source)) == {OWN_UNITS}


def test_numbers_of_frames_have_units_of_their_own():
    frame = pd.DataFrame(in_units(1), columns=list("abcdef"))
    model = SRFLVM(1, **QUICK).fit(frame)
    (group,) = model._posterior.layout.groups
    np.testing.assert_allclose(group.units.scale, frame.to_numpy().std(axis=0), rtol=1e-12)


def test_units_do_not_matter_to_the_imputer():
    rng = np.random.RandomState(0)
    Y = rng.randn(80, 1) @ np.array([[1.0, -1.0, 0.8, 0.9]]) + 0.3 * rng.randn(80, 4)
    holes = np.where(rng.uniform(size=Y.shape) < 0.2, np.nan, Y)
    units, origin = np.array([1.0, 1e4, 1e-3, 50.0]), np.array([0.0, 3e4, 5.0, -1.0])
    model = SRFLVM(likelihood=OWN_UNITS, affine=True, n_frequencies=10, max_iter=10, tol=0.0, init="pca")
    imputer = SRFLVMImputer(model, n_components=1, random_state=0)
    plain = imputer.fit_transform(holes)
    scaled = imputer.fit_transform(origin + units * holes)
    np.testing.assert_allclose((scaled - origin) / units, plain, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(scaled[~np.isnan(holes)], (origin + units * holes)[~np.isnan(holes)])
    (group,) = imputer.estimator_._posterior.layout.groups
    np.testing.assert_allclose(group.units.location, np.nanmean(origin + units * holes, axis=0))
    np.testing.assert_allclose(group.units.scale, np.nanstd(origin + units * holes, axis=0))


def test_the_imputer_leaves_codes_and_counts_as_they_are():
    Y = np.c_[in_units(1)[:, :2], np.random.RandomState(0).poisson(3.0, (80, 1))]
    Y[3, 2] = np.nan
    model = SRFLVM(likelihood={2: "poisson"}, **QUICK)
    imputer = SRFLVMImputer(model, n_components=1).fit(Y)
    _, counts = imputer.estimator_._posterior.layout.groups
    np.testing.assert_array_equal(counts.columns, [2])
    np.testing.assert_allclose(counts.units.location, 0.0)
    np.testing.assert_allclose(counts.units.scale, 1.0)
    assert imputer.transform(Y)[3, 2] > 0.0
