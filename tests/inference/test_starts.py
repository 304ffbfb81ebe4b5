"""Starts are compared as long as they may still become the best."""

from __future__ import annotations

import jax
import pytest

from srflvm.bcd import Carry, Run
from srflvm.inference.full_batch import _Candidate, _gain_in_a_round, _without_hopeless


def _candidate(name: str, *history: float) -> _Candidate:
    run = Run(Carry({}, ()), {}, best=history[-1], history=history)
    return _Candidate(name, jax.random.key(0), run)


def test_gain_is_that_of_a_whole_round():
    assert _gain_in_a_round(_candidate("first round", 0.0, 2.0, 4.0)) == pytest.approx(6.0)
    assert _gain_in_a_round(_candidate("later round", -100.0, 0.0, 2.0, 4.0, 5.0)) == pytest.approx(5.0)


def test_gain_without_two_bounds_is_nothing():
    assert _gain_in_a_round(_candidate("one sweep", 1.0)) == 0.0
    assert _gain_in_a_round(_candidate("failed sweeps", 1.0, float("nan"), float("nan"))) == 0.0


def test_a_start_that_may_catch_up_stays_in():
    leader, behind = _candidate("leader", 10.0, 10.5, 11.0), _candidate("behind", 1.0, 4.0, 7.0)
    assert _without_hopeless([behind, leader]) == [behind, leader]


def test_a_start_too_far_behind_is_dropped():
    leader, behind = _candidate("leader", 10.0, 10.5, 11.0), _candidate("behind", 6.0, 6.5, 7.0)
    assert _without_hopeless([behind, leader]) == [leader]
