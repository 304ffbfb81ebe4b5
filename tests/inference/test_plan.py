"""Parameters that are left open, resolved for tables of different sizes and kinds."""

from typing import Any

import numpy as np
import pytest
from helpers.problems import plan_and_problem

from srflvm import SRFLVM
from srflvm.inference import full_batch


def options_of(shape, likelihood: Any = "bernoulli", *, holes=False, **settings):
    Y = (np.random.default_rng(0).uniform(size=shape) < 0.5).astype(float)
    if holes:
        Y[0, 0] = np.nan
    plan, problem = plan_and_problem(Y, likelihood, **settings)
    return plan.options(problem)


@pytest.mark.parametrize(
    ("shape", "likelihood", "rate", "share"),
    [
        ((999, 100), "bernoulli", 0.05, 0.9),
        ((1000, 100), "bernoulli", 0.02, 0.0),
        ((1000, 101), "bernoulli", 0.02, 0.9),
        ((40, 129), "bernoulli", 0.02, 0.0),
        ((40, 129), "gaussian", 0.05, 0.0),
    ],
)
def test_small_tables_with_sites_make_long_steps_and_their_whole_schedule(shape, likelihood, rate, share):
    options = options_of(shape, likelihood)
    assert (options.learning_rate, options.fewest_share) == (rate, share)


def test_holes_in_gaussian_data_have_the_steps_of_complete_data():
    options = options_of((40, 6), "gaussian", holes=True)
    assert (options.learning_rate, options.fewest_share) == (0.05, 0.0)


@pytest.mark.parametrize(
    ("likelihood", "max_iter", "share"),
    [("bernoulli", 19, 0.0), ("bernoulli", 20, 0.9), ("gaussian", 19, 0.0), ("gaussian", 20, 0.9)],
)
def test_of_many_sweeps_asked_for_most_are_made(likelihood, max_iter, share):
    assert options_of((40, 6), likelihood, max_iter=max_iter).fewest_share == share


def test_a_free_posterior_of_the_weights_counts_as_sites():
    options = options_of((40, 6), "gaussian", inference="gradient")
    assert (options.learning_rate, options.fewest_share) == (0.05, 0.9)


@pytest.mark.parametrize(("n_counts", "rate"), [(100, 0.05), (129, 0.02)])
def test_columns_are_counted_for_each_likelihood(n_counts, rate):
    kinds = {"bernoulli": range(100), "poisson": range(100, 100 + n_counts)}
    likelihood = {tuple(columns): kind for kind, columns in kinds.items()}
    assert options_of((40, 100 + n_counts), likelihood).learning_rate == rate


@pytest.mark.parametrize("max_iter", [2, "auto"])
def test_landmarks_of_batches_make_their_sweeps_as_if_epochs_were_open(max_iter, monkeypatch):
    seen = []

    class SeenEnoughError(Exception):
        pass

    def watched(attempt, problem, options, rng):
        seen.append(options)
        raise SeenEnoughError

    monkeypatch.setattr(full_batch._Attempt, "__init__", watched)
    Y = (np.random.default_rng(0).uniform(size=(60, 6)) < 0.5).astype(float)
    with pytest.raises(SeenEnoughError):
        SRFLVM(likelihood="bernoulli", batch_size=30, max_iter=max_iter).fit(Y)
    assert (seen[0].max_iter, seen[0].fewest_share) == (100, 0.9)


def test_a_learning_rate_that_is_given_is_taken():
    assert options_of((40, 6), learning_rate=0.3).learning_rate == 0.3


def test_fewer_rows_get_more_sweeps():
    sweeps = [
        options_of((n, 3), kind).max_iter for n in (50, 500, 2000) for kind in ("gaussian", "bernoulli")
    ]
    assert sweeps == [48, 100, 24, 50, 12, 25]
