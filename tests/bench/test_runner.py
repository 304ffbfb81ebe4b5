"""Runner of fits, with a stub in the place of systems."""

import os
import time
from pathlib import Path

import pytest
from helpers.stub_systems import stub
from rich.console import Console

from srflvm.datasets import load_digits
from srflvm_bench import runner, worker
from srflvm_bench.store import Outcome


@pytest.fixture
def stubs_importable(monkeypatch):
    folders = [str(Path(__file__).parents[1] / "helpers"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))  # "" would be the cwd


def test_outcomes_of_processes(stubs_importable, store, tmp_path):
    runner.run([stub("fine")], store, budget=120, console=Console(quiet=True))
    data = load_digits()
    expected = worker.accuracy(data.Y[:200], data.labels[:200], 1)
    assert store.get(stub("fine")).scores == (expected,)
    assert store.get(stub("fine")).seconds < 10
    broken = runner.fit(stub("broken"), 120, tmp_path / "a.npz")
    assert broken.failure == "RuntimeError: no convergence after 7 steps"
    inside_jax = runner.fit(stub("broken in JAX"), 120, tmp_path / "a.npz")
    assert inside_jax.failure.startswith("TypeError: dot_general requires contracting dimensions")
    assert runner.fit(stub("slow"), 1.5, tmp_path / "a.npz").failure == "over the budget of 2 s"
    assert runner.fit(stub("killed"), 120, tmp_path / "a.npz").failure == "killed by SIGKILL"


def test_files_of_the_working_folder_are_not_imported(stubs_importable, monkeypatch, tmp_path):
    (tmp_path / "queue.py").write_text("raise SystemExit('not the queue of Python')\n")
    monkeypatch.chdir(tmp_path)
    assert runner.fit(stub("fine"), 120, tmp_path / "a.npz").failure == ""


def test_an_interrupted_run_goes_on(monkeypatch, store):
    ran = []

    def fit(task, budget, array_file):
        ran.append((task.seed, budget))
        if task.seed == 1 and len(ran) == 2:
            raise KeyboardInterrupt
        return Outcome(failure="odd") if task.seed == 2 else Outcome((0.5,), 1.0)

    monkeypatch.setattr(runner, "fit", fit)
    tasks = [stub("fine", seed) for seed in range(3)]
    quiet = {"budget": 7.0, "console": Console(quiet=True)}
    with pytest.raises(KeyboardInterrupt):
        runner.run(tasks, store, **quiet)
    runner.run(tasks, store, **quiet)
    runner.run(tasks, store, **quiet)
    assert ran == [(0, 7.0), (1, 7.0), (1, 7.0), (2, 7.0)]
    runner.run(tasks, store, retry=True, **quiet)
    assert ran[4:] == [(2, 7.0)]
    runner.run(tasks, store, with_arrays=True, **quiet)
    assert ran[5:] == [(0, 7.0), (1, 7.0)]
    monkeypatch.setattr(runner, "fit", lambda *_: Outcome(failure="worse"))
    runner.run(tasks[:1], store, with_arrays=True, **quiet)
    assert store.get(tasks[0]).scores == (0.5,)
    monkeypatch.setattr(runner, "fit", fit)
    runner.run([stub("fine", 5)], store, budget=1.0, console=Console(quiet=True))
    assert ran[7:] == [(5, 1.0)]
    runner.run([stub("fine", 9)], store, total=0.0, **quiet)
    assert store.get(stub("fine", 9)) is None


def test_a_fit_cut_short_by_the_total_is_no_failure(monkeypatch, store):
    def fit(task, budget, array_file):
        time.sleep(budget + 0.01)
        return Outcome(failure="over the budget")

    monkeypatch.setattr(runner, "fit", fit)
    quiet = Console(quiet=True)
    runner.run([stub("fine")], store, budget=60.0, total=1.2, console=quiet)
    assert store.get(stub("fine")) is None
    runner.run([stub("fine")], store, budget=0.01 + 1.0, total=60.0, console=quiet)
    assert store.get(stub("fine")).failure == "over the budget"
