"""Fits by two processes, which are started for real: dealt out, killed and resumed."""

import sys
import time

import numpy as np
import pytest
from helpers import peer_worker
from helpers.peer_worker import N_ROWS, estimator, small_settings, some_rows

from srflvm.inference import checkpoints
from srflvm.parallel import launcher
from srflvm.parallel.watchdog import EXIT_CODE

WORKER = peer_worker.__file__


def run_two(folder, *victim):
    port = str(launcher.free_port())
    arguments = [str(folder), *map(str, victim)]
    commands = [[sys.executable, WORKER, port, "2", str(index), *arguments] for index in range(2)]
    return launcher.run_workers(commands, "Resume.")


@pytest.fixture(scope="module")
def settings():
    with pytest.MonkeyPatch.context() as patch:
        small_settings(patch.setattr)
        yield


@pytest.fixture(scope="module")
def alone(settings):
    """Make the same fit by one process."""
    return estimator(None).fit(some_rows())


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    assert run_two(folder) == 0
    return [np.load(folder / f"result-{index}.npz") for index in range(2)]


def test_two_processes_fit_as_one_does(alone, together):
    np.testing.assert_allclose(together[0]["history"], alone.elbo_history_, rtol=1e-5)
    np.testing.assert_allclose(together[0]["embedding"], alone.embedding_, atol=1e-3)


def test_both_processes_hold_the_same_result(together):
    for name in ("history", "embedding"):
        np.testing.assert_array_equal(together[0][name], together[1][name])


def test_each_process_reads_its_own_rows(together):
    first, second = (set(result["read"].tolist()) for result in together)
    assert not first & second
    assert first | second == set(range(N_ROWS))


def test_a_killed_process_ends_the_other_and_one_process_resumes(alone, settings, tmp_path, capfd):
    assert run_two(tmp_path, 1) == EXIT_CODE
    assert time.time() - (tmp_path / "last-words").stat().st_mtime < 60
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("Error: process 1 was ")
    folder = tmp_path / "checkpoint"
    stored = checkpoints._paths_in(folder)
    sweeps = []
    resumed = estimator(folder, [sweeps.append]).fit(some_rows())
    assert len(stored) >= 2
    made_again = [(p.stage, p.iteration) for p in sweeps]
    assert made_again in ([("fit", 3), ("fit", 4)], [("fit", 2), ("fit", 3), ("fit", 4)])
    np.testing.assert_allclose(resumed.elbo_history_, alone.elbo_history_, rtol=1e-5)
    np.testing.assert_allclose(resumed.embedding_, alone.embedding_, atol=1e-3)


def test_a_slow_process_is_waited_for(tmp_path, capfd):
    """It sleeps in a callback and while it freezes, each time for longer than `peer_timeout`."""
    assert run_two(tmp_path, 1, "slow") == 0, capfd.readouterr().err
    results = [np.load(tmp_path / f"result-{index}.npz") for index in range(2)]
    np.testing.assert_array_equal(results[0]["embedding"], results[1]["embedding"])


def test_a_stopped_process_ends_the_other(tmp_path, capfd):
    assert run_two(tmp_path, 0, "stop") == EXIT_CODE
    assert time.time() - (tmp_path / "last-words").stat().st_mtime < 60
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("Error: process 0 is stopped or lost: nothing was heard of it")
