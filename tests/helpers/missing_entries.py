"""Rows along a curve, and what is warned of when they are used."""

import warnings

import numpy as np


def curve(n_rows=60, n_columns=8, noise=0.1, seed=0):
    rng = np.random.RandomState(seed)
    x = np.sort(rng.uniform(-2.0, 2.0, n_rows))
    phases = rng.uniform(0.0, 6.0, n_columns)
    return np.sin(1.5 * x[:, None] + phases) + noise * rng.standard_normal((n_rows, n_columns))


def warnings_of(call):
    """Return the first sentence and the file of every warning."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    return [(str(warning.message).partition(".")[0], warning.filename) for warning in told]
