"""Segments whose checksums are right and whose entries are not are computed again, as damaged ones are."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.model_files import read, rewrite

from srflvm import bcd
from srflvm.inference.checkpoints import Checkpoints, _path_of

FIT = {"the data": "0123"}


def begun():
    """Return a run after two sweeps."""
    state = {"latent_mean": jnp.zeros((3, 2)), "count": jnp.zeros((), int)}
    return bcd.Run(bcd.Carry(state, (jnp.ones(4),)), state, history=(-3.0, -2.0))


def advanced(run, n_sweeps, callbacks):
    """Return a run whose best state is not its last one."""
    best = {"latent_mean": jnp.full((3, 2), 7.0), "count": jnp.full((), 1)}
    return replace(run, state=best, history=(*run.history, *[-1.0] * n_sweeps), smoothed=-1.0, best=-1.0)


@pytest.fixture
def path(tmp_path):
    """Write a finished segment of two sweeps."""
    Checkpoints(tmp_path, FIT, []).run_segment("a segment", begun(), 2, advanced)
    return _path_of(tmp_path, 0)


def go_on(path, advance):
    return Checkpoints(path.parent, FIT, [path]).run_segment("a segment", begun(), 2, advance)


def test_a_sound_segment_is_not_computed_again(path):
    run = go_on(path, lambda *_: pytest.fail("the segment was computed"))
    assert run.history == (-3.0, -2.0, -1.0, -1.0)
    np.testing.assert_array_equal(run.state["latent_mean"], np.full((3, 2), 7.0))
    np.testing.assert_array_equal(run.carry.state["latent_mean"], np.zeros((3, 2)))


def without_entry(name):
    return lambda header, tensors: header.pop(name)


def with_entry(name, value):
    return lambda header, tensors: header.update({name: value})


def without_tensors(beginning):
    return lambda header, tensors: [tensors.pop(name) for name in [*tensors] if name.startswith(beginning)]


def with_tensor(name, change):
    return lambda header, tensors: tensors.update({name: change(tensors.get(name))})


UNSOUND = {
    **{f"no {name}": without_entry(name) for name in ("leg", "finished", "converged", "n_rejected")},
    "rejected as text": with_entry("n_rejected", "none"),
    "rejected less than none": with_entry("n_rejected", -1),
    "converged as a number": with_entry("converged", 1),
    "finished as a list": with_entry("finished", []),
    "another leg": with_entry("leg", "another"),
    "no tensors": without_tensors(""),
    "no history": without_tensors("history"),
    "no numbers": without_tensors("numbers"),
    "no latents": without_tensors("carry.state['latent_mean']"),
    "no memories": without_tensors("carry.memories"),
    "half of the best state": without_tensors("best['count']"),
    "an unknown tensor": with_tensor("more", lambda _: np.zeros(2)),
    "bounds in a table": with_tensor("history", lambda old: old[:, None]),
    "bounds of another type": with_tensor("history", np.float32),
    "fewer bounds than before": with_tensor("history", lambda old: old[:1]),
    "fewer numbers": with_tensor("numbers", lambda old: old[:2]),
    "fewer rows": with_tensor("best['latent_mean']", lambda old: old[:2]),
    "another type": with_tensor("best['latent_mean']", np.float32),
    "a type that is not known": with_tensor("best['latent_mean']", np.float16),
}


@pytest.mark.parametrize("kind", UNSOUND)
def test_an_unsound_leg_is_named_and_computed_again(path, kind):
    whole, _ = read(path)
    rewrite(path, UNSOUND[kind])
    assert read(path)[0] != whole
    made = []
    with pytest.warns(UserWarning, match=f"{path.name} is damaged, cut short or foreign") as warned:
        run = go_on(path, lambda *arguments: made.append(arguments) or advanced(*arguments))
    assert len(warned) == len(made) == 1
    assert run.history == (-3.0, -2.0, -1.0, -1.0)
    assert read(path)[0] == whole
