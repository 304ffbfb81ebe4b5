"""Starts stay in the race as long as they may still win."""

from __future__ import annotations

import jax
import pytest

from srflvm.bcd import Carry, Run
from srflvm.fitting import Entrant, _gain_in_a_heat, _still_in_the_race


def _entrant(name: str, *history: float) -> Entrant:
    run = Run(Carry({}, ()), {}, best=history[-1], history=history)
    return Entrant(name, jax.random.key(0), run)


def test_gain_is_that_of_a_whole_heat():
    assert _gain_in_a_heat(_entrant("first heat", 0.0, 2.0, 4.0)) == pytest.approx(6.0)
    assert _gain_in_a_heat(_entrant("later heat", -100.0, 0.0, 2.0, 4.0, 5.0)) == pytest.approx(5.0)


def test_gain_without_two_bounds_is_nothing():
    assert _gain_in_a_heat(_entrant("one sweep", 1.0)) == 0.0
    assert _gain_in_a_heat(_entrant("failed sweeps", 1.0, float("nan"), float("nan"))) == 0.0


def test_a_start_that_may_catch_up_stays_in():
    leader, behind = _entrant("leader", 10.0, 10.5, 11.0), _entrant("behind", 1.0, 4.0, 7.0)
    assert _still_in_the_race([behind, leader]) == [behind, leader]


def test_a_start_too_far_behind_is_dropped():
    leader, behind = _entrant("leader", 10.0, 10.5, 11.0), _entrant("behind", 6.0, 6.5, 7.0)
    assert _still_in_the_race([behind, leader]) == [leader]
