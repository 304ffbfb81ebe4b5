"""Bounds that fall: told apart from noise, never called converged, and said to the user."""

import warnings

import jax
import numpy as np
import pytest
from helpers.problems import plan_and_problem
from scipy.stats import poisson

from srflvm import SRFLVM, FallingBoundWarning, Progress, bcd, plot

NOISE = np.random.RandomState(0).standard_normal(60)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (NOISE, 0.0),
        (1e6 + 1e-3 * NOISE, 0.0),
        (0.3 * np.arange(60) + NOISE, 0.0),
        (-10.0 * np.exp(-0.1 * np.arange(60)) + 0.1 * NOISE, 0.0),
        (-0.5 * np.arange(60) + NOISE, 0.5 * 55),
        (np.r_[np.arange(30.0), np.full(30, 5.0)], 22.0),
        (np.r_[0.0, -1.0], 0.0),
        (np.r_[np.nan, np.arange(20.0)], 0.0),
    ],
)
def test_a_fall_is_more_than_noise(history, expected):
    assert bcd.fall(history, 5) == pytest.approx(expected, abs=1.5)


def test_noise_is_seldom_taken_for_a_fall():
    draws = np.random.RandomState(1).standard_normal((400, 50))
    assert np.mean([bcd.fall(history, 5) > 0.0 for history in draws]) < 0.02


def test_a_falling_bound_has_not_converged():
    """It rises by less than any tolerance."""
    falling, flat = list(-np.arange(20.0)), [0.0, 0.1] * 10
    assert not bcd._has_converged(falling, 0.5, 5)
    assert bcd._has_converged(flat, 0.5, 5)
    assert bcd._has_converged([0.0, -3.0, 3.0, 0.5, -2.5, 2.0, -3.0, 1.5, -2.0, 0.5], 0.1, 5)


def descending_model():
    return bcd.Model(
        (bcd.ClosedFormBlock("x", lambda key, state, data: {"x": state["x"] - 1.0}),),
        lambda key, state, data: state["x"],
    )


def test_a_run_whose_bound_falls_goes_on_to_the_end():
    model = descending_model()
    run = bcd.begin(model, {"x": 0.0})
    options = {"n_sweeps": 12, "schedule": bcd.Schedule(0.1, 12), "tolerance": 0.5, "window": 2}
    run = bcd.advance(model, run, jax.random.key(0), None, **options)
    assert run.n_sweeps == 12
    assert not run.converged


def some_rows():
    rng = np.random.RandomState(0)
    return rng.randn(60, 2) @ rng.randn(2, 5) + 0.1 * rng.randn(60, 5)


def test_a_fit_whose_bound_falls_says_so_once_where_it_was_called(monkeypatch):
    monkeypatch.setattr(bcd, "fall", lambda history, window: 600.0)
    model = SRFLVM(2, max_iter=4, n_frequencies=5, init="pca", random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(some_rows())
    (warning,) = caught
    assert warning.category is FallingBoundWarning
    assert warning.filename == __file__
    assert "fell by 2 nats an entry in the stage 'fit'" in str(warning.message)
    assert "smaller learning_rate" in str(warning.message)
    assert not model.converged_


# ---- one scale for all stages -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fit_with_pilot():
    reports = []
    Y = (some_rows() > 0.0).astype(float)
    model = SRFLVM(2, likelihood="bernoulli", n_frequencies=10, max_iter=8, tol=0.0, random_state=0)
    return model.set_params(callbacks=[reports.append]).fit(Y), reports


def test_starts_of_a_pilot_are_behind_the_first_bound_of_the_fit(fit_with_pilot):
    """They were drawn above the winner: their bounds are those of other data."""
    model, _ = fit_with_pilot
    first = model.elbo_history_[0]
    assert set(model.start_elbos_) == {"pca", "neighbors"}
    assert model.start_elbos_[model.start_] == pytest.approx(first)
    assert min(model.start_elbos_.values()) < first


def test_the_history_draws_losers_below_the_winner(fit_with_pilot):
    model, _ = fit_with_pilot
    curve, lost = plot.history(model).lines
    assert lost.get_ydata()[0] < curve.get_ydata()[0]


def test_stages_of_a_pilot_are_named_and_drawn_on_the_scale_of_the_fit(fit_with_pilot):
    _, reports = fit_with_pilot
    stages = list(dict.fromkeys(report.stage for report in reports))
    assert stages == ["pilot start pca", "pilot start neighbors", "pilot", "fit"]
    assert reports[0].bound_per_entry.startswith("pilot bound per entry")
    assert reports[-1].bound_per_entry.startswith("bound per entry")
    lines = {line.get_label(): line.get_ydata() for line in plot.history(fit_with_pilot[0], reports).lines}
    assert lines["pilot (moved)"][-1] == pytest.approx(lines["fit"][0])
    first = next(report for report in reports if report.stage == "fit")
    assert lines["fit"][0] == pytest.approx(first.elbo / first.n_entries)


def test_progress_without_a_pilot_is_drawn_as_it_is():
    reports = [Progress("start pca", 1, 2, -4.0, 2, 0.1), Progress("fit", 1, 2, -2.0, 2, 0.2)]
    model = SRFLVM(1, n_frequencies=5, max_iter=1, tol=0.0, init="pca", random_state=0).fit(some_rows())
    assert [line.get_ydata()[0] for line in plot.history(model, reports).lines] == [-2.0, -1.0]


# ---- what entries tell --------------------------------------------------------------------------------


def test_sparse_counts_converge_by_what_they_tell():
    """A thousandth of a nat an entry is a good part of all that entries near zero tell."""
    rng = np.random.RandomState(0)
    Y = rng.poisson(0.05, (200, 30)).astype(float)
    _, problem = plan_and_problem(Y, "poisson")
    mean = (Y.sum(axis=0) + 0.5) / 200.5
    null = poisson.logpmf(Y, mean).sum()
    assert problem.information(null + 50.0) == pytest.approx(50.0, rel=1e-5)
    assert problem.information(null - 50.0) == 0.0
    assert problem.information(null + 1e9) == Y.size
    _, complete = plan_and_problem(some_rows())
    assert complete.information(-1e9) == 300
