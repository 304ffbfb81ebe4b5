"""The frame of `srflvm bench`, with a stub in place of systems."""

import dataclasses
import os
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from srflvm.baselines import SYSTEMS
from srflvm.baselines.rflvm import RFLVM
from srflvm.bench import paper, running, views, worker
from srflvm.bench.store import Outcome, Store
from srflvm.bench.tasks import TABLE1_DATA, TABLE1_SYSTEMS, Task, plan
from srflvm.cli import app
from srflvm.datasets import load_digits


@pytest.fixture
def stubs_importable(monkeypatch):
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))  # "" would be the cwd


def stub(behaviour, seed=0, system="PCA"):
    settings = {"behaviour": behaviour}
    return Task("embedding", "digits", system, seed=seed, path="stub_systems:Stub", settings=settings)


def test_outcomes_of_processes(stubs_importable, store, tmp_path):
    running.run([stub("fine")], store, budget=120, console=Console(quiet=True))
    data = load_digits()
    expected = worker.accuracy(data.Y[:200], data.labels[:200], 1)
    assert store.get(stub("fine")).scores == (expected,)
    assert store.get(stub("fine")).seconds < 10
    broken = running.fit(stub("broken"), 120, tmp_path / "a.npz")
    assert broken.failure == "RuntimeError: no convergence after 7 steps"
    inside_jax = running.fit(stub("broken in JAX"), 120, tmp_path / "a.npz")
    assert inside_jax.failure.startswith("TypeError: dot_general requires contracting dimensions")
    assert running.fit(stub("slow"), 1.5, tmp_path / "a.npz").failure == "over the budget of 2 s"
    assert running.fit(stub("killed"), 120, tmp_path / "a.npz").failure == "killed by SIGKILL"


def test_files_of_the_working_folder_are_not_imported(stubs_importable, monkeypatch, tmp_path):
    (tmp_path / "queue.py").write_text("raise SystemExit('not the queue of Python')\n")
    monkeypatch.chdir(tmp_path)
    assert running.fit(stub("fine"), 120, tmp_path / "a.npz").failure == ""


def test_an_interrupted_run_goes_on(monkeypatch, store):
    ran = []

    def fit(task, budget, array_file):
        ran.append((task.seed, budget))
        if task.seed == 1 and len(ran) == 2:
            raise KeyboardInterrupt
        return Outcome(failure="odd") if task.seed == 2 else Outcome((0.5,), 1.0)

    monkeypatch.setattr(running, "fit", fit)
    tasks = [stub("fine", seed) for seed in range(3)]
    quiet = {"budget": 7.0, "console": Console(quiet=True)}
    with pytest.raises(KeyboardInterrupt):
        running.run(tasks, store, **quiet)
    running.run(tasks, store, **quiet)
    running.run(tasks, store, **quiet)
    assert ran == [(0, 7.0), (1, 7.0), (1, 7.0), (2, 7.0)]
    running.run(tasks, store, retry=True, **quiet)
    assert ran[4:] == [(2, 7.0)]
    running.run(tasks, store, with_arrays=True, **quiet)
    assert ran[5:] == [(0, 7.0), (1, 7.0)]
    monkeypatch.setattr(running, "fit", lambda *_: Outcome(failure="worse"))
    running.run(tasks[:1], store, with_arrays=True, **quiet)
    assert store.get(tasks[0]).scores == (0.5,)
    monkeypatch.setattr(running, "fit", fit)
    running.run([stub("fine", 5)], store, budget=1.0, console=Console(quiet=True))
    assert ran[7:] == [(5, 1.0)]
    running.run([stub("fine", 9)], store, total=0.0, **quiet)
    assert store.get(stub("fine", 9)) is None


def test_fits_are_passed_on_as_text(store, tmp_path):
    tasks = [stub("fine", seed) for seed in range(4)]
    store.put(tasks[0], Outcome((0.5, 0.25), 1.5))
    store.put(tasks[1], Outcome(failure="odd"))
    text = store.written(tasks)
    assert text.count("\n") == 2
    with closing(Store(tmp_path / "other.sqlite")) as other:
        other.put(tasks[0], Outcome((0.75,), 2.0))
        assert other.take_in(text) == 1
        assert other.get(tasks[0]).scores == (0.75,)
        other.put(tasks[0], Outcome(failure="here only"))
        assert other.take_in(text) == 1
        assert other.get(tasks[0]) == store.get(tasks[0])
        taken, own = other.get(tasks[1]), store.get(tasks[1])
        assert (taken.failure, taken.date, taken.scores) == (own.failure, own.date, ())
        assert np.isnan(taken.seconds)
        with pytest.raises(ValueError, match="Line 2 is not the outcome of a fit"):
            other.take_in(text.splitlines()[0] + "\n{}\n")


def test_a_fit_cut_short_by_the_total_is_no_failure(monkeypatch, store):
    def fit(task, budget, array_file):
        time.sleep(budget + 0.01)
        return Outcome(failure="over the budget")

    monkeypatch.setattr(running, "fit", fit)
    quiet = Console(quiet=True)
    running.run([stub("fine")], store, budget=60.0, total=1.2, console=quiet)
    assert store.get(stub("fine")) is None
    running.run([stub("fine")], store, budget=0.01 + 1.0, total=60.0, console=quiet)
    assert store.get(stub("fine")).failure == "over the budget"


def test_worker_refuses_what_is_not_finite(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with pytest.raises(ArithmeticError, match="not finite"):
        worker.measure(stub("infinite"))


def test_sizes_that_failed_are_not_the_best(monkeypatch):
    Y = load_digits().rows(np.arange(200)).Y.astype(float)
    fills = [("rank 1", np.full(Y.shape, np.nan)), ("rank 2", Y + 0.5), ("rank 3", Y + 0.25)]
    monkeypatch.setattr(worker, "_fills", lambda task, holes: fills)
    task = Task("imputation", "digits", "mean", share=0.3)
    measured = worker.measure(task)
    np.testing.assert_allclose(measured["scores"], 0.25**2)
    assert measured["note"] == "rank 3"
    monkeypatch.setattr(worker, "_fills", lambda task, holes: fills[:1])
    with pytest.raises(ArithmeticError, match="not finite"):
        worker.measure(task)


def test_chains_tell_how_far_they_came():
    class Chain:
        rhat_, ess_, n_iter_ = {"log_joint": 1.234}, {"log_joint": 17.2}, 300

    for Chain.converged_, start in ((False, "not converged"), (True, "converged")):
        expected = f"{start} after 300 sweeps, R-hat 1.23, effective sample size 17"
        assert worker.said_by(Chain()) == expected
    assert worker.said_by(object()) == ""


@pytest.mark.parametrize(
    ("first", "where"), [("mean", "the mean of its draws"), ("draw", "its most probable")]
)
def test_chains_are_scored_at_the_better(monkeypatch, first, where):
    data = load_digits().rows(np.arange(200))
    good, bad = data.Y[:, 20:40], np.zeros((200, 2))

    class Chain:
        converged_, n_iter_, rhat_, ess_ = True, 300, {"log_joint": 1.0}, {"log_joint": 99.0}
        most_probable_draw_ = good if first == "draw" else bad

        def fit_transform(self, Y):
            return bad if first == "draw" else good

    monkeypatch.setattr(worker, "make", lambda task: Chain())
    found = worker.measure(Task("embedding", "digits", "G-RFLVM"))
    assert found["scores"] == [worker.accuracy(good, data.labels, 1)]
    assert f"scored at {where}" in found["note"]


def test_our_own_fill_has_intervals_and_a_number_of_components():
    (task,) = plan("reconstructions", seeds=1, quick=True)
    found = worker.measure(
        dataclasses.replace(task, settings={**task.settings, "max_iter": 2, "n_frequencies": 5, "tol": 0.0})
    )
    error, coverage, n_components = found["scores"]
    assert 0.0 < error < 0.2
    assert 0.5 < coverage <= 1.0
    assert n_components == 2


def test_a_store_that_is_none_is_refused(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("a,b\n1,2\n" * 100)
    with pytest.raises(OSError, match=r"results\.csv cannot be used as a file of finished fits"):
        Store(path)


def test_imputation_of_column_means():
    data = load_digits().rows(np.arange(200))
    Y = data.Y.astype(float)
    holes, scored = views.with_holes(Y, 0.3)
    found = worker.measure(Task("imputation", "digits", "mean", share=0.3))
    expected = np.mean(((np.nanmean(holes, axis=0) - Y)[scored]) ** 2)
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-12)
    assert abs(scored.mean() - 0.3) < 0.01


def test_views():
    digits = load_digits().rows(np.arange(20))
    np.testing.assert_array_equal(views.view(digits, "binary"), digits.Y > 0.5)
    counts = views.view(digits, "counts")
    np.testing.assert_array_equal(counts, np.rint(counts))
    assert counts.max() == 255
    counts = digits._replace(Y=np.rint(16 * digits.Y), image_shape=None)
    np.testing.assert_array_equal(views.view(counts, "counts"), counts.Y)
    assert (views.view(counts, "binary").mean(axis=0) <= 0.5).all()
    varied = counts.Y.std(axis=0) > 0
    np.testing.assert_allclose(views.view(counts, "continuous")[:, varied].std(axis=0), 1.0)
    np.testing.assert_array_equal(views.view(digits, "continuous"), digits.Y)


def test_plans_and_paper():
    assert set(paper.TABLE1) <= set(TABLE1_SYSTEMS) <= set(SYSTEMS)
    assert {"t-SNE", "UMAP", "DCA"} <= set(TABLE1_SYSTEMS)
    assert all(set(row) == set(TABLE1_DATA) for row in (*paper.TABLE1.values(), *paper.TABLE2.values()))
    assert all(len(row) == 9 for system in paper.TABLE3.values() for row in system.values())
    assert len(plan("table1", seeds=5)) == 5 * len(TABLE1_DATA) * len(TABLE1_SYSTEMS)
    assert {task.data for task in plan("table1", seeds=5, quick=True)} == {"digits"}
    (same_size,) = plan("table2", seeds=1, only=["G-OURS, 50 frequencies", "mnist"])
    assert same_size.settings["n_frequencies"] == RFLVM().n_frequencies
    with pytest.raises(ValueError, match="'PCB' is neither"):
        plan("table1", seeds=1, only=["PCB"])
    with pytest.raises(ValueError, match="No fit of table2 is of bridges and G-RFLVM, 4000 sweeps"):
        plan("table2", seeds=1, only=["bridges", "G-RFLVM, 4000 sweeps"])


def test_command(tmp_path, monkeypatch):
    def fit_here(task, budget, array_file):
        found = worker.measure(task)
        return Outcome(tuple(found["scores"]), found["seconds"])

    monkeypatch.setattr(running, "fit", fit_here)
    arguments = ["bench", "table1", "--quick", "--only", "PCA", "--only", "digits", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    text = (tmp_path / "table1-quick.md").read_text(encoding="utf-8")
    data = load_digits().rows(np.arange(200))
    U, values, _ = np.linalg.svd(data.Y.astype(float) - data.Y.mean(axis=0, dtype=float))
    expected = worker.accuracy(U[:, :2] * values[:2], data.labels, 1)
    assert f"| PCA | **{expected:.3f}** |" in text
    assert (tmp_path / "fits.sqlite").exists()
    monkeypatch.setattr(running, "fit", None)
    again = [*arguments[:-1], str(tmp_path / "again"), "--known", str(tmp_path / "table1-quick.jsonl")]
    assert CliRunner().invoke(app, again).exit_code == 0
    assert f"**{expected:.3f}**" in (tmp_path / "again" / "table1-quick.md").read_text(encoding="utf-8")
    failed = CliRunner().invoke(app, [*arguments, "--known", str(tmp_path / "fits.sqlite")])
    assert failed.exit_code == 2
    assert "cannot be read as a file of fits" in " ".join(failed.output.split())


def test_what_is_stored_is_reported_without_a_fit(tmp_path, monkeypatch):
    def no_fit(task, budget, array_file):
        raise AssertionError(task)

    monkeypatch.setattr(running, "fit", no_fit)
    arguments = ["bench", "table1", "--quick", "--only", "PCA", "--stored", "-o", str(tmp_path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert "| PCA | - |" in (tmp_path / "table1-quick.md").read_text(encoding="utf-8")


def test_the_plan_of_weights():
    tasks = plan("weights", seeds=1)
    assert {task.settings["inference"] for task in tasks if "bernoulli" in task.data} >= {"sites", "gradient"}
    assert len({task.key for task in tasks}) == len(tasks)
