"""The number of latent dimensions that is chosen from the data."""

import numpy as np
import pandas as pd
import pytest

from srflvm import SRFLVM
from srflvm.inference import linear as linear_models
from srflvm.inference.linear import automatic_components
from srflvm.likelihoods import Gaussian


def found(Y, seed=0, **parameters):
    model = SRFLVM("auto", **parameters)
    data = model._training_data(model._params(), Y, None, None)
    return automatic_components(model._params(), data, np.random.RandomState(seed))


def linear(n_rows=200, n_columns=10, size=3, noise=0.3, seed=0):
    random = np.random.RandomState(seed)
    loadings = random.standard_normal((size, n_columns))
    return random.standard_normal((n_rows, size)) @ loadings + noise * random.standard_normal(
        (n_rows, n_columns)
    )


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_linear_dimensions_are_counted_and_one_is_added(size, share):
    Y = linear(size=size)
    holes = np.random.RandomState(1).uniform(size=Y.shape) < share
    assert found(np.where(holes, np.nan, Y)) == size + 1


def test_units_do_not_matter_if_columns_have_their_own():
    units = 10.0 ** np.arange(-4, 6)
    assert found(linear() * units + units) == 4
    assert found(pd.DataFrame(linear() * units)) == 4


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_has_no_dimensions(seed):
    Y = np.random.RandomState(seed).standard_normal((200, 8))
    assert found(Y) <= 2


@pytest.mark.parametrize(("shape", "expected"), [((60, 1), 1), ((60, 2), 1), ((5, 10), 1), ((9, 10), 3)])
def test_there_are_fewer_dimensions_than_columns_and_than_a_third_of_the_rows(shape, expected):
    Y = linear(*shape, size=4, noise=0.01)
    assert found(Y) <= expected


def test_columns_of_several_kinds_count_together():
    """One latent behind numbers, counts, levels and texts."""
    random = np.random.RandomState(0)
    x = random.standard_normal(300)
    frame = pd.DataFrame(
        {
            "number": x + 0.2 * random.standard_normal(300),
            "wide": 1e4 * x + 3e3 * random.standard_normal(300),
            "visits": random.poisson(np.exp(1.0 + x)),
            "passed": x + 0.5 * random.standard_normal(300) > 0.0,
            "grade": np.digitize(x + 0.3 * random.standard_normal(300), [-1.0, 0.0, 1.0]),
            "town": np.array(["Bern", "Oslo", "Rome"])[np.digitize(x, [-0.5, 0.5])],
        }
    )
    frame.loc[::7, "visits"] = np.nan
    frame.loc[::9, "town"] = None
    number = found(frame, likelihood={"visits": "poisson"})
    assert 2 <= number <= 4


def test_it_is_what_a_fit_uses(monkeypatch):
    Y = linear(60)
    model = SRFLVM("auto", max_iter=1, tol=0.0, n_frequencies=5, init="pca", random_state=0).fit(Y)
    assert model.n_components_ == found(Y) == 4
    assert model.n_components == "auto"
    assert model.embedding_.shape == (60, 4)
    # of large tables some rows are looked at
    monkeypatch.setattr(linear_models, "_COUNTED_ROWS", 50)
    assert found(linear(2000)) == 4


def test_wide_tables_get_a_third_as_many_dimensions_as_columns(monkeypatch):
    assert found(linear(300, 65)) == 21
    assert found(linear(30, 65)) == 10
    monkeypatch.setattr(linear_models, "_MOST_IN_WIDE", 8)
    assert found(linear(300, 65)) == 8


@pytest.mark.parametrize("likelihood", ["auto", "gaussian", Gaussian(noise="column", scale="column")])
def test_columns_that_are_empty_in_the_rows_that_are_looked_at_do_not_harm(monkeypatch, likelihood):
    monkeypatch.setattr(linear_models, "_COUNTED_ROWS", 50)
    Y = linear(200)
    looked_at = np.random.RandomState(0).permutation(200)[:50]
    Y[looked_at, 4] = np.nan
    assert found(Y, likelihood=likelihood) == 4
