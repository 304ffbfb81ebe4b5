"""A fit that is stopped and started again ends as if it had not been, and nothing else is disturbed."""

import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import resumable_fits
from helpers.model_files import rewrite
from helpers.resumable_fits import (
    CASES,
    SLOW_SWEEPS,
    Killed,
    assert_same_fit,
    content_of,
    fit,
    fit_case,
    header_of,
    kill_race,
    killed_at_write,
    some_data,
    store_every_sweep,
    undisturbed,
)
from safetensors.numpy import save_file
from sklearn.base import clone

from srflvm import SRFLVM, bcd, choose_n_components, load
from srflvm.inference import checkpoints, full_batch
from srflvm.inference.checkpoints import _paths_in as paths_in


@pytest.fixture(autouse=True)
def every_sweep_is_stored(monkeypatch):
    store_every_sweep(monkeypatch)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


def fit_with_kills(folder, monkeypatch, name, number, done):
    """Start a fit as often as it takes when each is killed at its nth write, and count the kills."""
    for n_kills in range(100):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "write_whole", killed_at_write(number, done=done))
            try:
                return fit_case(name, checkpoint_dir=folder), n_kills
            except Killed:
                pass
    raise AssertionError("the fit makes no progress")


@pytest.mark.parametrize(("name", "number"), [("race", 1), ("early end", 1), *((n, 4) for n in [*CASES][2:])])
def test_a_fit_killed_after_writing_ends_like_one_that_was_not(folder, monkeypatch, name, number):
    model, n_kills = fit_with_kills(folder, monkeypatch, name, number, done=True)
    assert n_kills >= 3
    assert_same_fit(model, undisturbed(name))


@pytest.mark.parametrize("name", CASES)
def test_a_fit_killed_before_writing_ends_like_one_that_was_not(folder, monkeypatch, name):
    number = 2 if name == "early end" else 5
    model, n_kills = fit_with_kills(folder, monkeypatch, name, number, done=False)
    assert n_kills >= 2
    assert_same_fit(model, undisturbed(name))


def test_the_early_end_is_early():
    assert undisturbed("early end").converged_
    assert undisturbed("early end").n_iter_ < undisturbed("race").n_iter_


def test_a_second_attempt_with_safer_settings_is_resumed_too(folder, monkeypatch):
    monkeypatch.setattr(full_batch, "_safer", lambda options: replace(options, learning_rate=0.002))
    monkeypatch.setattr(
        full_batch._Attempt, "is_sound", lambda self, run: self.options.learning_rate == 0.002
    )
    expected = fit_case("race")
    for _ in range(3):
        kill_race(folder, monkeypatch, 6)
    assert_same_fit(fit_case("race", checkpoint_dir=folder), expected)


def test_a_process_killed_at_any_moment(folder, tmp_path):
    result, rng = tmp_path / "result.npz", np.random.RandomState(0)
    command = [sys.executable, resumable_fits.__file__, str(folder), str(result)]
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    told = []
    for n_sweeps in (*rng.randint(1, 6, size=3), None):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | cache) as process:
            assert process.stdout is not None
            if n_sweeps is not None:
                told += [int(process.stdout.readline()) for _ in range(n_sweeps)]
                time.sleep(rng.uniform(0.0, 0.05))
                process.kill()
            told += [int(line) for line in process.stdout]
        assert process.returncode == (0 if n_sweeps is None else -9)
        assert result.exists() == (n_sweeps is None)
    assert len(set(told)) == SLOW_SWEEPS["max_iter"]
    assert len(told) <= SLOW_SWEEPS["max_iter"] + 3  # a kill costs at most the sweep that was not yet stored
    expected, found = fit(some_data(), **SLOW_SWEEPS), np.load(result)
    np.testing.assert_array_equal(found["history"], expected.elbo_history_, strict=True)
    np.testing.assert_array_equal(found["embedding"], expected.embedding_, strict=True)


def test_a_completed_fit_is_not_computed_again(folder, monkeypatch):
    fit_case("race", checkpoint_dir=folder)
    before = content_of(folder)
    monkeypatch.setattr(bcd, "_one_sweep", lambda *_: pytest.fail("a sweep was made"))
    assert_same_fit(fit_case("race", checkpoint_dir=str(folder), verbose=9), undisturbed("race"))
    assert content_of(folder) == before


@pytest.mark.parametrize("name", ["race", "landmarks"])
@pytest.mark.parametrize("by_ctrl_c", [True, False])
def test_a_fit_ended_early_can_be_resumed(folder, name, by_ctrl_c):
    n_sweeps = 0

    def stop(progress):
        nonlocal n_sweeps
        n_sweeps += 1
        if by_ctrl_c and n_sweeps == 8:
            raise KeyboardInterrupt
        return n_sweeps == 8

    stopped = fit_case(name, checkpoint_dir=folder, callbacks=[stop])
    assert stopped.interrupted_ == by_ctrl_c
    assert stopped.n_iter_ < 6
    assert_same_fit(fit_case(name, checkpoint_dir=folder), undisturbed(name))


def test_ctrl_c_while_a_leg_is_stored_keeps_the_fit(folder, monkeypatch):
    def interrupt(target, content):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "SHORTEST_PAUSE", np.inf)
        patch.setattr(checkpoints, "write_whole", interrupt)
        assert fit_case("race", checkpoint_dir=folder).interrupted_
    assert_same_fit(fit_case("race", checkpoint_dir=folder), undisturbed("race"))


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def empty(path):
    path.write_bytes(b"")


def change_number(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def change_header(path):
    path.write_bytes(path.read_bytes().replace(b"n_components", b"n_compOnents"))


def replace_by_text(path):
    path.write_text("A list of things to do.\n" * 50)


def replace_by_tensors(path):
    save_file({"history": np.zeros(3)}, path)


def replace_by_another_leg(path):
    path.write_bytes(paths_in(path.parent)[0].read_bytes())


def without_a_history(path):
    rewrite(path, lambda header, tensors: tensors.pop("history"))


def without_a_flag(path):
    rewrite(path, lambda header, tensors: header.pop("finished"))


def without_data_in_the_fit(path):
    rewrite(path, lambda header, tensors: header["fit"].pop("the data"))


def with_an_empty_fit(path):
    rewrite(path, lambda header, tensors: header["fit"].clear())


DAMAGES = [
    cut,
    empty,
    change_number,
    change_header,
    replace_by_text,
    replace_by_tensors,
    replace_by_another_leg,
    without_a_history,
    without_a_flag,
    without_data_in_the_fit,
    with_an_empty_fit,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_file_is_named_and_not_used(folder, damage):
    fit_case("race", checkpoint_dir=folder)
    # the last leg goes on from sweeps that were made before
    before, path = content_of(folder), paths_in(folder)[-1]
    damage(path)
    with pytest.warns(UserWarning, match=f"{path.name} is damaged, cut short or foreign") as warned:
        model = fit_case("race", checkpoint_dir=folder)
    assert len(warned) == 1
    assert_same_fit(model, undisturbed("race"))
    assert content_of(folder).keys() == before.keys()
    assert header_of(path)["leg"] != header_of(paths_in(folder)[0])["leg"]


@pytest.mark.parametrize("seed", ["one", str(2**31)])
def test_a_drawn_seed_that_is_none_is_damage(folder, seed):
    fit_case("race", checkpoint_dir=folder, random_state=None)
    paths, drawn = paths_in(folder), header_of(paths_in(folder)[0])["fit"]["the seed that was drawn"]
    rewrite(paths[0], lambda header, _: header["fit"].update({"the seed that was drawn": seed}))
    with pytest.warns(
        UserWarning, match=f"{paths[0].name} is damaged, .*the seed that was drawn is '{seed}'"
    ):
        fit_case("race", checkpoint_dir=folder, random_state=None)
    assert header_of(paths[0])["fit"]["the seed that was drawn"] == drawn


@pytest.mark.parametrize("n_written", [0, 2])
def test_a_full_disk_is_told_once_and_does_not_end_the_fit(folder, monkeypatch, n_written):
    count, write_whole = 0, checkpoints.write_whole

    def write(target, content):
        nonlocal count
        count += 1
        if count > n_written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_whole(target, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_whole", write)
        with pytest.warns(UserWarning, match=rf"written to {folder} \(.*No space left") as warned:
            model = fit_case("race", checkpoint_dir=folder)
    assert len(warned) == 1
    assert count == n_written + 1
    assert_same_fit(model, undisturbed("race"))
    assert_same_fit(fit_case("race", checkpoint_dir=folder), undisturbed("race"))


def test_a_folder_that_disappears_does_not_end_the_fit(folder):
    def remove(progress):
        for path in paths_in(folder):
            path.unlink()
        folder.rmdir()

    with pytest.warns(UserWarning, match="There is no directory"):
        fit_case(
            "race", checkpoint_dir=folder, init="pca", callbacks=[lambda p: p.iteration == 1 and remove(p)]
        )


def test_what_a_killed_process_left_half_written_is_removed(folder):
    folder.mkdir()
    (folder / ".srflvm-0123.tmp").write_bytes(b"half")
    (folder / "notes.txt").write_text("mine")
    fit_case("race", checkpoint_dir=folder)
    assert not list(folder.glob("*.tmp")) + list(folder.glob(".*"))
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"checkpoint_dir='.*file.*' cannot be made \(.*Give a folder"):
            fit_case("race", checkpoint_dir=path)
    with pytest.raises(ValueError, match="checkpoint_dir=5 must be the path of a folder, or None"):
        fit_case("race", checkpoint_dir=5)


def test_sweeps_are_stored_only_now_and_then(folder, monkeypatch):
    writes, write_whole = [], checkpoints.write_whole

    def count(target, content):
        writes.append(target.name)
        write_whole(target, content)

    monkeypatch.setattr(checkpoints, "SHORTEST_PAUSE", 1e6)
    monkeypatch.setattr(checkpoints, "write_whole", count)
    fit_case("race", checkpoint_dir=folder)
    assert writes == [path.name for path in paths_in(folder)]


def test_nothing_is_written_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit_case("race")
    assert list(tmp_path.iterdir()) == []
    assert SRFLVM().checkpoint_dir is None
    folder = Path("some folder")
    assert clone(SRFLVM(checkpoint_dir=folder)).checkpoint_dir == folder
    assert not folder.exists()


def test_the_folder_is_not_part_of_a_model_file(folder, tmp_path):
    fit_case("race", checkpoint_dir=folder).save(tmp_path / "model.srflvm")
    assert load(tmp_path / "model.srflvm").checkpoint_dir is None


def test_every_number_of_components_has_a_folder_of_its_own(folder, monkeypatch):
    folders = []

    def note(self, Y, mask, sizes):
        folders.append(self.checkpoint_dir)
        self.relevance_, self.interrupted_ = np.zeros(self.n_components), False

    monkeypatch.setattr(SRFLVM, "fit", note)
    monkeypatch.setattr(SRFLVM, "score_entries", lambda self, *_, **__: np.zeros(2))
    choose_n_components(SRFLVM(checkpoint_dir=folder), some_data(), (1, 2))
    assert folders == [folder / "1-components", folder / "2-components"]
    choose_n_components(SRFLVM(), some_data(), (1,))
    assert folders[2:] == [None]
