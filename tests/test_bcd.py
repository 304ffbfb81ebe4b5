"""Block coordinate descent on models whose optimum is known: steps, failures, stopping and resuming."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from srflvm import bcd

CURVATURE = np.array([[3.0, 1.0], [1.0, 1.5]])
OPTIMUM = np.array([2.0, -1.0])
KEY = jax.random.key(7)
CONSTANT_RATE = bcd.Schedule(learning_rate=0.1, n_sweeps=10**9)


def quadratic(key, state, data):
    difference = state["x"] - OPTIMUM
    return -0.5 * difference @ CURVATURE @ difference


def noisy_quadratic(key, state, data):
    return quadratic(key, state, data) + jax.random.normal(key, (2,)) @ state["x"]


def quadratic_or_nan(key, state, is_nan):
    return jnp.where(is_nan, jnp.nan, quadratic(key, state, None))


def step_up(key, state, data):
    return {"time": state["time"] + 1.0}


def peak_at_five(key, state, data):
    return -((state["time"] - 5.0) ** 2)


def nothing_left_out(key, state, data):
    return 0.0


def gradient_model(objective=noisy_quadratic, n_steps=1, rest=nothing_left_out):
    return bcd.Model((bcd.GradientBlock("x", ("x",), objective, n_steps),), rest)


CLOCK = bcd.Model((bcd.ClosedFormBlock("time", step_up),), peak_at_five)


def start(model, dtype=jnp.float64):
    return bcd.begin(model, {"x": jnp.zeros(2, dtype), "time": jnp.zeros((), dtype)})


def advance(model, run, n_sweeps, data=None, schedule=CONSTANT_RATE, **options):
    return bcd.advance(model, run, KEY, data, n_sweeps=n_sweeps, schedule=schedule, **options)


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_gradient_block_climbs_noisy_quadratics_to_their_optimum():
    def many(key, state, data):
        keys = jax.random.split(key, len(state["x"]))
        return jnp.sum(jax.vmap(lambda key, x: noisy_quadratic(key, {"x": x}, data))(keys, state["x"]))

    model = gradient_model(many, n_steps=18)
    begun = bcd.begin(model, {"x": jnp.zeros((64, 2))})
    run = advance(model, begun, 50, schedule=bcd.Schedule(0.1, 50))
    error = run.carry.state["x"] - OPTIMUM
    assert np.sqrt(np.mean(error**2)) < 0.06
    np.testing.assert_allclose(np.mean(error, axis=0), 0.0, atol=0.025)
    assert (run.n_rejected, run.n_sweeps) == (0, 50)


def test_the_bound_is_that_of_the_first_gradient_step_and_what_it_leaves_out():
    model = gradient_model(quadratic, rest=lambda key, state, data: data + state["time"])
    run = advance(model, start(model), 1, data=3.0)
    assert run.history == (-0.5 * OPTIMUM @ CURVATURE @ OPTIMUM + 3.0,)


def test_the_bound_of_several_steps_is_their_mean():
    one, two = gradient_model(quadratic), gradient_model(quadratic, n_steps=2)
    separate, together = advance(one, start(one), 2), advance(two, start(two), 1)
    np.testing.assert_allclose(together.history[0], np.mean(separate.history), rtol=1e-14)


def test_blocks_that_share_an_objective_climb_as_if_they_did_not():
    def coupled(key, state, data):
        return quadratic(key, state, data) - (state["time"] - state["x"][0]) ** 2

    def climb(objective_of_x, objective_of_time):
        x = bcd.GradientBlock("x", ("x",), objective_of_x, n_steps=3)
        time = bcd.GradientBlock("time", ("time",), objective_of_time, n_steps=2)
        model = bcd.Model((x, time), nothing_left_out)
        return advance(model, start(model), 5)

    together, apart = climb(coupled, coupled), climb(coupled, lambda *arguments: coupled(*arguments))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12), together.carry, apart.carry)
    np.testing.assert_allclose(together.history, apart.history, rtol=1e-12)
    assert [memory.adam.count for memory in together.carry.memories] == [15, 10]


def test_closed_form_block_is_solved_by_one_call():
    def solve(key, state, data):
        return {"x": jnp.asarray(data)}

    model = bcd.Model((bcd.ClosedFormBlock("x", solve),), quadratic)
    run = advance(model, start(model), 1, data=OPTIMUM)
    np.testing.assert_array_equal(run.state["x"], OPTIMUM)
    assert run.history == (0.0,)


def test_each_block_sees_the_work_of_those_before():
    def follow(key, state, data):
        return {"x": state["x"] + state["time"]}

    model = bcd.Model((bcd.ClosedFormBlock("time", step_up), bcd.ClosedFormBlock("x", follow)), quadratic)
    np.testing.assert_array_equal(advance(model, start(model), 2).carry.state["x"], [3.0, 3.0])


def test_non_finite_steps_are_dropped_and_counted():
    model = gradient_model(quadratic_or_nan, n_steps=3)
    begun = start(model)
    run = advance(model, begun, 2, data=True)
    (before,), (after,) = begun.carry.memories, run.carry.memories
    assert run.n_rejected == 6
    assert np.all(np.isnan(run.history))
    assert after.trust == 0.5**6
    assert_same(run.carry.state, begun.carry.state)
    assert_same(after.adam, before.adam)


def test_trust_scales_the_step_and_recovers():
    model = gradient_model(quadratic_or_nan)
    failed = advance(model, start(model), 2, data=True)
    moved = advance(model, failed, 1, data=False)
    np.testing.assert_allclose(moved.carry.state["x"], 0.025 * np.sign(CURVATURE @ OPTIMUM), rtol=1e-6)
    np.testing.assert_allclose(moved.carry.memories[0].trust, 0.25 * 1.1, rtol=1e-12)
    recovered = advance(model, moved, 15, data=False)
    assert recovered.carry.memories[0].trust == 1.0
    assert recovered.n_rejected == 2


def test_a_finite_bound_with_a_non_finite_gradient_is_dropped():
    def cusp(key, state, data):
        return -jnp.sum(jnp.sqrt(state["x"] ** 2))

    model = gradient_model(cusp)
    run = advance(model, start(model), 1)
    assert run.n_rejected == 1
    assert_same(run.carry.state, start(model).carry.state)


def test_a_gradient_whose_square_overflows_does_not_stop_the_block_for_good():
    def scaled(key, state, scale):
        return scale * quadratic(key, state, None).astype(jnp.float32)

    model = gradient_model(scaled)
    shocked = advance(model, start(model, jnp.float32), 1, data=jnp.float32(1e25))
    run = advance(model, shocked, 200, data=jnp.float32(1.0))
    np.testing.assert_allclose(run.carry.state["x"], OPTIMUM, atol=0.05)


def test_a_non_finite_closed_form_update_is_dropped_whole():
    def update(key, state, is_bad):
        return {"x": jnp.where(is_bad, jnp.array([1.0, jnp.inf]), 1.0), "time": state["time"] + 1.0}

    model = bcd.Model((bcd.ClosedFormBlock("x", update),), quadratic)
    dropped = advance(model, start(model), 2, data=True)
    assert dropped.n_rejected == 2
    assert_same(dropped.carry.state, start(model).carry.state)
    kept = advance(model, dropped, 1, data=False)
    assert kept.n_rejected == 2
    np.testing.assert_array_equal(kept.carry.state["x"], [1.0, 1.0])


def test_a_state_of_integers_only_is_finite():
    assert bool(bcd._all_finite({"count": jnp.arange(3)}))


def test_convergence_is_a_rise_per_sweep_between_two_windows():
    history = [0.0, 1.0, 2.0, 2.0, 2.25, 2.25]
    assert not bcd._has_converged(history, tolerance=0.125, window=2)
    assert bcd._has_converged(history, tolerance=0.1250001, window=2)
    assert not bcd._has_converged(history, tolerance=0.0, window=2)
    assert not bcd._has_converged(history, tolerance=10.0, window=4)
    assert bcd._has_converged([3.0, 3.05], tolerance=0.1, window=1)
    assert not bcd._has_converged([3.0, 1.0], tolerance=0.1, window=1)


def test_advance_stops_at_the_first_converged_sweep():
    run = advance(CLOCK, start(CLOCK), 20, tolerance=3.5, window=1)
    assert run.history == (-16.0, -9.0, -4.0, -1.0)
    assert run.converged
    assert not advance(CLOCK, start(CLOCK), 20).converged
    later = advance(CLOCK, start(CLOCK), 20, tolerance=3.5, window=1, fewest_sweeps=6)
    assert (later.n_sweeps, later.converged) == (6, True)


def test_callbacks_see_every_sweep():
    seen = []
    run = advance(CLOCK, start(CLOCK), 4, callbacks=[seen.append])
    assert [each.n_sweeps for each in seen] == [1, 2, 3, 4]
    assert seen[-1].carry is run.carry
    assert seen[-1].history == run.history


def test_a_callback_that_returns_true_stops_the_run_after_all_are_called():
    seen = []
    stop = [lambda run: run.n_sweeps == 3, lambda run: seen.append(run.n_sweeps)]
    run = advance(CLOCK, start(CLOCK), 10, callbacks=iter(stop))
    assert run.n_sweeps == 3
    assert seen == [1, 2, 3]
    assert not run.converged
    assert not run.interrupted


def interrupt_at(sweep):
    def callback(run):
        if run.n_sweeps == sweep:
            raise KeyboardInterrupt

    return callback


def test_an_interrupted_run_keeps_its_state_and_goes_on():
    model = gradient_model()
    run = advance(model, start(model), 10, callbacks=[interrupt_at(4)])
    assert run.interrupted
    assert_same(run.carry, advance(model, start(model), 4).carry)
    resumed = advance(model, run, 6)
    assert_same(resumed.carry, advance(model, start(model), 10).carry)
    assert not resumed.interrupted


def test_an_interrupt_within_a_sweep_drops_that_sweep():
    def interrupted_objective(key, state, data):
        raise KeyboardInterrupt

    model, broken = gradient_model(), gradient_model(interrupted_objective)
    before = advance(model, start(model), 2)
    run = advance(broken, before, 3)
    assert run.interrupted
    assert run.history == before.history
    assert_same(run.carry, before.carry)
    with pytest.raises(KeyboardInterrupt):
        advance(broken, start(model), 3)


def test_advancing_in_pieces_changes_nothing():
    model, schedule = gradient_model(n_steps=2), bcd.Schedule(0.1, 7)
    whole = advance(model, start(model), 7, schedule=schedule)
    pieces = advance(model, advance(model, start(model), 3, schedule=schedule), 4, schedule=schedule)
    assert_same(pieces.carry, whole.carry)
    assert_same(pieces.state, whole.state)
    assert pieces.history == whole.history
    assert (pieces.smoothed, pieces.best) == (whole.smoothed, whole.best)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_nothing_is_traced_again_for_equal_models_and_shapes(dtype):
    traces = []

    def counted(key, state, data):
        traces.append(state["x"].shape)
        return jnp.sum(-((state["x"] - data) ** 2)).astype(dtype)

    model = gradient_model(counted)
    run = advance(model, start(model, dtype), 1, data=jnp.asarray(1.0, dtype))
    n_traces = len(traces)
    assert n_traces > 0
    run = advance(model, run, 10, data=jnp.asarray(2.0, dtype), schedule=bcd.Schedule(0.3, 20))
    equal = gradient_model(counted)
    assert equal is not model
    run = advance(equal, start(equal, dtype), 2, data=jnp.asarray(3.0, dtype))
    assert len(traces) == n_traces
    assert run.carry.state["x"].dtype == dtype
    wider = {"x": jnp.zeros(3, dtype), "time": jnp.zeros((), dtype)}
    advance(model, bcd.begin(model, wider), 1, data=jnp.asarray(1.0, dtype))
    assert traces[n_traces:] == [(3,)] * n_traces


def test_the_best_state_outlives_a_falling_bound():
    run = advance(CLOCK, start(CLOCK), 12)
    smoothed = [run.history[0]]
    for value in run.history[1:]:
        smoothed.append(0.5 * smoothed[-1] + 0.5 * value)
    assert run.carry.state["time"] == 12.0
    assert run.state["time"] == 1.0 + np.argmax(smoothed) == 6.0
    assert run.best == max(smoothed)
    assert run.smoothed == smoothed[-1]


def test_the_rate_falls_along_a_cosine_to_a_fiftieth():
    schedule = bcd.Schedule(learning_rate=0.5, n_sweeps=8)
    progress = np.minimum(np.arange(12) / 8, 1.0)
    expected = 0.5 * (0.02 + 0.98 * 0.5 * (1.0 + np.cos(np.pi * progress)))
    np.testing.assert_allclose([schedule.rate(sweep) for sweep in range(12)], expected, rtol=1e-6)
    assert bcd.Schedule(0.5, 0).rate(0) == 0.5


def test_gradient_blocks_step_as_adam_does():
    random = np.random.RandomState(0)
    own = {"a": jnp.asarray(random.standard_normal((3, 2)), jnp.float32), "b": jnp.asarray(2.0)}
    adam = optax.scale_by_adam(b1=0.9, b2=0.99)
    memory, expected_memory = bcd._Moments.none(own), adam.init(own)
    for _ in range(20):
        gradient = jax.tree.map(lambda leaf: jnp.asarray(random.standard_normal(leaf.shape), leaf.dtype), own)
        direction, memory = memory.step(gradient)
        expected, expected_memory = adam.update(gradient, expected_memory)
        for name, leaf in expected.items():
            assert direction[name].dtype == leaf.dtype
            np.testing.assert_allclose(direction[name], leaf, rtol=1e-6 if name == "a" else 1e-14)
