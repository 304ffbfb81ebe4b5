"""Small fitted models that tests share; each is fitted once a process."""

import warnings
from functools import lru_cache

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM
from srflvm.datasets import make_s_curve_gp

N_ROWS, N_COLUMNS = 60, 8


def quick_fit(Y, **parameters):
    """Fit for a few sweeps without a warning that the fit has not converged."""
    settings = {"max_iter": 4, "random_state": 0, "n_frequencies": 25, "init": "pca"} | parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(**settings).fit(Y)


@lru_cache(maxsize=1)
def small_data():
    """Draw training rows and held-out rows."""
    data = make_s_curve_gp(N_ROWS + 20, N_COLUMNS, noise=0.2, random_state=0)
    return data.Y[:N_ROWS], data.Y[N_ROWS:]


@lru_cache(maxsize=1)
def small_model():
    return quick_fit(small_data()[0])


@lru_cache(maxsize=1)
def one_dimensional_model():
    angle = np.linspace(0.0, 3.0, 40)
    Y = np.stack([np.sin(angle), np.cos(angle), angle], axis=1)
    return quick_fit(Y + 0.1 * np.random.RandomState(0).standard_normal(Y.shape), n_components=1), Y
