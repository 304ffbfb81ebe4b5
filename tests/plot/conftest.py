"""Models and Axes of the tests of pictures."""

import warnings

import matplotlib.pyplot as plt
import pytest
from helpers.model_files import made_up, rows_of_each_kind
from helpers.pictures import some_images
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


@pytest.fixture(scope="session")
def image_model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(max_iter=3, random_state=0).fit(some_images())


@pytest.fixture(scope="session")
def counts_model():
    return made_up(rows_of_each_kind()["poisson"], likelihood="poisson", size_factors=None)
