"""Fits that are killed and started again, for the tests of checkpoints.

As a command it makes one of them:

python resumable_fits.py folder result.npz
"""

import json
import sys
import time
import warnings
from functools import lru_cache

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM
from srflvm.datasets import make_s_curve_gp
from srflvm.inference import checkpoints, plan
from srflvm.storage.atomic import write_whole
from srflvm.storage.container import HEADER_KEY

N_ROWS, N_COLUMNS, N_LANDMARKS = 40, 5, 30
SLOW_SWEEPS = {"max_iter": 20, "init": "pca", "tol": 0.0}


class Killed(BaseException):
    """What nothing but the test catches."""


def some_data(n_rows=N_LANDMARKS):
    return make_s_curve_gp(N_ROWS, N_COLUMNS, noise=0.2, random_state=0).Y[:n_rows]


def with_holes():
    return np.where(np.random.RandomState(0).rand(N_LANDMARKS, N_COLUMNS) < 0.15, np.nan, some_data())


# Data and parameters; with more than N_LANDMARKS rows there are landmarks.
CASES = {
    "race": (some_data, {}),
    "early end": (some_data, {"tol": 1e3, "init": "pca"}),
    "holes": (with_holes, {}),
    "sites with a pilot": (lambda: (some_data() > 0.0).astype(float), {"likelihood": "bernoulli"}),
    "landmarks": (lambda: some_data(N_ROWS), {}),
}


def fit(Y, **parameters):
    """Fit for a few sweeps without being told that it has not converged."""
    settings = {"max_iter": 6, "learning_rate": 0.02, "n_frequencies": 4, "n_mixture": 3, "random_state": 0}
    settings |= parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(**settings).fit(Y)


def fit_case(name, **parameters):
    data, own = CASES[name]
    return fit(data(), **own, **parameters)


@lru_cache
def undisturbed(name):
    return fit_case(name)


def assert_same_fit(found, expected):
    """Bit for bit."""
    for name in ("elbo_history_", "embedding_", "embedding_std_", "frequencies_", "mixture_means_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), strict=True)
    for name in ("elbo_", "start_", "start_elbos_", "converged_", "interrupted_", "n_rejected_steps_"):
        assert getattr(found, name) == getattr(expected, name), name


def killed_at_write(number, *, done):
    """Return a writer that ends the fit at its nth write, when that is done or before."""
    count = 0

    def write(target, content):
        nonlocal count
        count += 1
        if count < number or done:
            write_whole(target, content)
        if count == number:
            raise Killed

    return write


def store_every_sweep(monkeypatch):
    monkeypatch.setattr(checkpoints, "SHORTEST_PAUSE", 0.0)
    monkeypatch.setattr(checkpoints, "PAUSE_PER_SECOND_OF_WRITING", 0.0)
    monkeypatch.setattr(plan, "MOST_LANDMARKS", N_LANDMARKS)


def kill_once(monkeypatch, make_fit, number=4):
    """Make a fit that is killed when its nth write is done."""
    monkeypatch.setattr(checkpoints, "write_whole", killed_at_write(number, done=True))
    with pytest.raises(Killed):
        make_fit()
    monkeypatch.setattr(checkpoints, "write_whole", write_whole)


def kill_race(folder, monkeypatch, number=4, **parameters):
    kill_once(monkeypatch, lambda: fit_case("race", checkpoint_dir=folder, **parameters), number)


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def header_of(path):
    with safe_open(path, framework="numpy") as container:
        return json.loads(container.metadata()[HEADER_KEY])


def main(folder, result):
    """Run a fit whose sweeps take a while, are told one by one, and are all stored."""

    def tell(progress):
        print(progress.iteration, flush=True)
        time.sleep(0.02)

    checkpoints.SHORTEST_PAUSE = checkpoints.PAUSE_PER_SECOND_OF_WRITING = 0.0
    model = fit(some_data(), **SLOW_SWEEPS, checkpoint_dir=folder, callbacks=[tell])
    np.savez(result, history=model.elbo_history_, embedding=model.embedding_)


if __name__ == "__main__":
    main(*sys.argv[1:])
