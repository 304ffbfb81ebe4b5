"""Schedules of any length, and runs that are stopped anywhere."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from srflvm import bcd

RATES = st.floats(1e-6, 10.0)
SWEEPS = st.integers(1, 500)


@given(RATES, SWEEPS, st.data())
def test_learning_rates_are_positive_and_never_rise(rate, n_sweeps, data):
    n_skipped = data.draw(st.integers(0, n_sweeps))
    schedule = bcd.Schedule(rate, n_sweeps, n_skipped)
    rates = np.array([schedule.rate(sweep) for sweep in range(n_sweeps + 20)])
    assert np.all(rates > 0.0)
    assert np.all(np.diff(rates) <= 0.0)
    assert rates[0] <= rate
    np.testing.assert_allclose(rates[n_sweeps - n_skipped :], 0.02 * rate, rtol=1e-12)


@given(RATES, SWEEPS, st.data())
def test_skipped_sweeps_are_left_out(rate, n_sweeps, data):
    n_skipped = data.draw(st.integers(0, n_sweeps))
    short, whole = bcd.Schedule(rate, n_sweeps, n_skipped), bcd.Schedule(rate, n_sweeps)
    for sweep in range(n_sweeps - n_skipped):
        assert short.rate(sweep) == whole.rate(sweep + n_skipped)


def noisy_bound(key, state, data):
    return -jnp.sum(state["x"] ** 2) + jax.random.normal(key, (2,)) @ state["x"]


def nothing_left_out(key, state, data):
    return 0.0


MODEL = bcd.Model((bcd.GradientBlock("x", ("x",), noisy_bound),), nothing_left_out)
KEY = jax.random.key(0)


def run_in_pieces(lengths, schedule):
    run = bcd.begin(MODEL, {"x": np.ones(2)})
    for length in lengths:
        run = bcd.advance(MODEL, run, KEY, None, n_sweeps=length, schedule=schedule)
    return run


@settings(max_examples=20)
@given(RATES, st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_stopping_and_going_on_changes_nothing(rate, lengths):
    schedule = bcd.Schedule(rate, sum(lengths))
    pieces, whole = run_in_pieces(lengths, schedule), run_in_pieces([sum(lengths)], schedule)
    assert pieces.history == whole.history
    np.testing.assert_array_equal(pieces.carry.state["x"], whole.carry.state["x"])
