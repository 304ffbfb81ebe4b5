"""One of the processes of `test_processes`, and the fit that all of them make.

    python peer_worker.py PORT N_PROCESSES INDEX FOLDER [VICTIM [KIND]]

The process whose index is VICTIM kills itself in the second sweep over all rows; with the KIND "stop" it
stops itself there, and with "slow" it sleeps there and before it solves for the weights, for longer than the
watchdog lets processes wait for each other.
"""

import os
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from srflvm import SRFLVM
from srflvm.data import reading, sources
from srflvm.exceptions import DataError
from srflvm.inference import checkpoints, plan
from srflvm.inference.problems import gaussian
from srflvm.numerics import features
from srflvm.parallel import peers, watchdog
from srflvm.parallel.communicator import current

N_ROWS, N_COLUMNS = 300, 6

PEER_TIMEOUT, SLOW_SECONDS = 3.0, 8.0


def some_rows():
    rng = np.random.default_rng(0)
    latents, loadings = rng.normal(size=(N_ROWS, 2)), rng.normal(size=(2, N_COLUMNS))
    return np.sin(latents @ loadings) + 0.1 * rng.normal(size=(N_ROWS, N_COLUMNS)) + 3.0


def small_settings(set_attribute):
    """Few landmarks, eight chunks of 40 rows, pieces of one chunk, and a checkpoint after every sweep."""
    set_attribute(sources, "ENTRIES_AT_ONCE", 40 * N_COLUMNS)
    set_attribute(plan, "MOST_LANDMARKS", 60)
    set_attribute(features, "MOST_CHUNK_ROWS", 64)
    set_attribute(checkpoints, "SHORTEST_PAUSE", 0.0)
    set_attribute(checkpoints, "PAUSE_PER_SECOND_OF_WRITING", 0.0)


def estimator(folder, callbacks=None):
    return SRFLVM(
        n_frequencies=10,
        max_iter=20,
        tol=0.0,
        init="neighbors",
        random_state=0,
        checkpoint_dir=folder,
        callbacks=callbacks,
    )


class ReadRows:
    """A source that notes which rows were read."""

    def __init__(self, Y):
        self.Y, self.rows = Y, set()
        self.n_rows, self.n_columns = Y.shape

    def read(self, start, stop):
        self.rows |= set(range(start, stop))
        return self.Y[start:stop]

    def take(self, index):
        self.rows |= set(index.tolist())
        return self.Y[index]


def check_exchanges(index, n):
    """Values of float64 that float32 does not hold arrive whole, outside of a scope of float64 too."""
    communicator, third = current(), 1.0 / 3.0
    (total,) = communicator.sum(np.array([third + index]))
    assert total.dtype == np.float64
    assert total[0] == sum(third + other for other in range(n))
    assert communicator.from_first({"a": third + index, "b": 2**40 + index}) == {"a": third, "b": 2**40}
    gathered = communicator.gather_rows(np.full((index + 1, 2), third * index))
    expected = np.repeat(third * np.arange(n), np.arange(1, n + 1))
    np.testing.assert_array_equal(gathered, np.stack([expected, expected], axis=1))
    assert communicator.anywhere(index == 1, False) == (True, False)
    assert communicator.by_first(lambda alone: (alone.n_processes, index)) == (1, 0)
    with jax.enable_x64(True):
        exact = jax.numpy.asarray(third)
    assert communicator.from_first(exact).dtype == np.float64
    assert communicator.gather(exact)[index].dtype == np.float64
    with jax.enable_x64(True):
        expected = np.arange(6.0 * n).reshape(3 * n, 2) / 3.0
        whole = communicator.fetch_rows(communicator.shard(expected[3 * index : 3 * index + 3]))
        assert whole.dtype == np.float64
        np.testing.assert_array_equal(whole, expected)


def check_shared_failure(index):
    def fail_in_one():
        if index == 1:
            raise OSError("no such row")

    with pytest.raises(OSError if index == 1 else DataError, match="no such row"):
        current().together(fail_in_one)


def be_slow(is_victim):
    """Sleep in the midst of the solution for the weights that the others wait for."""
    solve = gaussian._full_cross

    def solve_slowly(*arguments):
        time.sleep(SLOW_SECONDS if is_victim else 0.0)
        return solve(*arguments)

    gaussian._full_cross = solve_slowly


def misbehave(kind, folder):
    (folder / "last-words").touch()
    if kind == "slow":
        time.sleep(SLOW_SECONDS)
    else:
        os.kill(os.getpid(), signal.SIGSTOP if kind == "stop" else signal.SIGKILL)


def main(port, n, index, folder, victim=-1, kind="kill"):
    small_settings(setattr)
    if kind == "stop":
        watchdog._SECONDS_OF_SILENCE = 5.0
    limit = PEER_TIMEOUT if kind == "slow" else peers.PEER_TIMEOUT
    peers.start(f"127.0.0.1:{port}", n, index, peer_timeout=limit)
    if kind == "slow":
        be_slow(index == victim)
    if victim < 0:
        check_exchanges(index, n)
        check_shared_failure(index)

    def fail(progress):
        if (progress.stage, progress.iteration, index) == ("fit", 2, victim):
            misbehave(kind, folder)

    source = ReadRows(some_rows())
    reading.open_source = lambda Y: source
    model = estimator(folder / "checkpoint", [fail]).fit("the source")
    result = {"embedding": model.embedding_, "history": model.elbo_history_, "read": sorted(source.rows)}
    np.savez(folder / f"result-{index}.npz", **result)


if __name__ == "__main__":
    port, n, index, folder, *more = sys.argv[1:]
    victim, kind = int(more[0]) if more else -1, more[1] if len(more) > 1 else "kill"
    main(int(port), int(n), int(index), Path(folder), victim, kind)
