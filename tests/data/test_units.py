"""Columns of different units: warned of in fits, standardised in the imputer."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from srflvm import SRFLVM, SRFLVMImputer
from srflvm.data.reading import warn_of_units
from srflvm.data.sources import ArraySource
from srflvm.likelihoods import Gaussian
from srflvm.likelihoods.columns import choose


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
        SRFLVM(1, n_frequencies=5, max_iter=1, tol=0.0, init="pca", random_state=0).fit(frame)
    assert [warning.filename for warning in caught] == [__file__]


def test_units_do_not_matter_to_the_imputer():
    rng = np.random.RandomState(0)
    Y = rng.randn(80, 1) @ np.array([[1.0, -1.0, 0.8, 0.9]]) + 0.3 * rng.randn(80, 4)
    holes = np.where(rng.uniform(size=Y.shape) < 0.2, np.nan, Y)
    units, origin = np.array([1.0, 1e4, 1e-3, 50.0]), np.array([0.0, 3e4, 5.0, -1.0])
    imputer = SRFLVMImputer(SRFLVM(n_frequencies=10, max_iter=10, tol=0.0), n_components=1, random_state=0)
    plain = imputer.fit_transform(holes)
    scaled = imputer.fit_transform(origin + units * holes)
    np.testing.assert_allclose((scaled - origin) / units, plain, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(scaled[~np.isnan(holes)], (origin + units * holes)[~np.isnan(holes)])
    np.testing.assert_allclose(imputer.location_, np.nanmean(origin + units * holes, axis=0))
    np.testing.assert_allclose(imputer.scale_, np.nanstd(origin + units * holes, axis=0))


def test_the_imputer_leaves_codes_and_counts_as_they_are():
    Y = np.c_[in_units(1)[:, :2], np.random.RandomState(0).poisson(3.0, (80, 1))]
    Y[3, 2] = np.nan
    model = SRFLVM(likelihood={(0, 1): "gaussian", 2: "poisson"}, n_frequencies=5, max_iter=1, tol=0.0)
    imputer = SRFLVMImputer(model, n_components=1, random_state=0).fit(Y)
    np.testing.assert_allclose(imputer.location_[2], 0.0)
    np.testing.assert_allclose(imputer.scale_[2], 1.0)
    assert imputer.transform(Y)[3, 2] > 0.0
