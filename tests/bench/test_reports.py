"""Tables and pictures of `srflvm bench` from stored fits."""

import dataclasses
import platform

import numpy as np

from srflvm.datasets import make_s_curve_gp
from srflvm_bench import machine, pictures, report, tables, worker
from srflvm_bench.store import Outcome
from srflvm_bench.tasks import Task, plan


def test_report_has_means_paper_best_and_failures(store):
    tasks = [
        Task("embedding", "mnist", name, seed=seed) for name in ("PCA", "VAE", "t-SNE") for seed in (0, 1)
    ]
    outcomes = [
        Outcome((0.3,), 1.0),
        Outcome((0.4,), 2.0),
        Outcome((0.6,), 9.0, note="ran well"),
        Outcome(failure="odd"),
        None,
        None,
    ]
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome is not None:
            store.put(task, outcome)
    text = report.markdown(tables.build("table1", tasks, store), "srflvm bench table1")
    assert "| PCA | 0.350 ± 0.071 (paper 0.365 ± 0.012) |" in text
    assert "| VAE | **0.600 (1 of 2)** (paper 0.643 ± 0.021) |" in text
    assert "| t-SNE | - |" in text
    assert "- VAE, mnist: odd" in text
    assert "`srflvm bench table1`" in text
    assert "- VAE, mnist: ran well" in text
    made = [outcome for task in tasks if (outcome := store.get(task))]
    assert "scikit-learn" in report.markdown(tables.build("table1", tasks, store), "", made)
    times = report.markdown(tables.build("table2", tasks, store), "")
    assert "| PCA | **1.50 ± 0.71** (paper 0.056 ± 0.010) |" in times


def test_tables_are_drawn_beside_the_paper(store):
    tasks = plan("table2", seeds=1, only=["mnist", "PCA", "t-SNE"])
    for task, seconds in zip(tasks, (2.0, 30.0), strict=True):
        store.put(task, Outcome((0.5,), seconds))
    figure = pictures.draw_beside_paper(tables.build("table2", tasks, store))
    (axis,) = figure.axes
    ours, published = (line.get_xdata() for line in axis.lines)
    np.testing.assert_allclose(ours, [2.0, 30.0])
    np.testing.assert_allclose(published, [0.056, np.nan])
    assert axis.get_xscale() == "log"
    assert [label.get_text() for label in axis.get_yticklabels()] == ["PCA", "t-SNE"]
    assert axis.get_ylim() == (1.5, -0.5)


def test_the_paper_is_named_only_beside_its_numbers(store):
    tasks = plan("table1", seeds=1, only=["mnist", "t-SNE", "UMAP"])
    for task, accuracy in zip(tasks, (0.8, 0.7), strict=True):
        store.put(task, Outcome((accuracy,), 1.0))
    built = tables.build("table1", tasks, store)
    (axis,) = pictures.draw_beside_paper(built).axes
    assert len(axis.lines) == 1
    assert axis.get_legend() is None
    text = report.markdown(built, "")
    assert "Our best of a column is bold." in text
    assert "paper" not in text


def test_tables_three_and_four(store, tmp_path):
    three = plan("table3", seeds=5, only=["VAE", "mnist-full"])
    (task,) = three
    store.put(task, Outcome(tuple(np.linspace(0.7, 0.8, 9)), 3.0))
    built = tables.build("table3", three, store)
    assert built.rows["mnist-full, VAE"][0][1:3] == ("0.700", "0.728")
    (drawn,) = pictures.draw("table3", built, three, store, tmp_path, "")
    assert drawn.stat().st_size > 1000
    four = plan("table4", seeds=1, only=["BGPLVM", "mean", "brendan"])
    assert [(each.system, each.share) for each in four if each.system == "mean"] == [
        ("mean", 0.1),
        ("mean", 0.3),
        ("mean", 0.6),
    ]
    built = tables.build("table4", four, store)
    assert [cell.paper for cell in built.rows["BGPLVM"]] == ["0.006", "0.041", "0.087", "0.197"]


def test_the_best_of_table_three_is_that_of_its_data(store):
    tasks = plan("table3", seeds=1, only=["VAE", "Isomap", "cifar-10-32", "mnist-full"])
    scores = {"cifar-10-32": {"VAE": 0.2, "Isomap": 0.1}, "mnist-full": {"VAE": 0.5, "Isomap": 0.7}}
    for task in tasks:
        store.put(task, Outcome((scores[task.data][task.system],) * 9, 1.0))
    made = [Outcome(date=date, machine="a machine") for date in ("2026-01-02T03", "2026-02-03T04")]
    text = report.markdown(tables.build("table3", tasks, store), "", made)
    assert "| cifar-10-32, VAE | **0.200**" in text
    assert "| cifar-10-32, Isomap | 0.100" in text
    assert "| mnist-full, Isomap | **0.700**" in text
    assert "from fits made on 2026-01-02 to 2026-02-03: a machine." in text


def test_the_machine_is_told_with_its_processor_and_versions(monkeypatch, tmp_path):
    told = machine.machine()
    assert platform.machine() in told
    assert f"numpy {np.__version__}" in told
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Abacus 2: fast\nmodel name\t: other\n")
    monkeypatch.setattr(machine, "Path", lambda _: tmp_path / "cpuinfo")
    assert machine._processor() == f"Abacus 2: fast, {platform.machine()}"
    monkeypatch.setattr(machine, "Path", lambda _: tmp_path / "nothing")
    assert machine._processor() == platform.machine()


def test_notes_are_given_once_for_a_row():
    same, other = report.Cell(0.5, "0.5", note="short"), report.Cell(0.5, "0.5", note="long")
    rows = {"all": (same, same), "each": (same, other), "one": (report.Cell(0.5, "0.5"), other)}
    text = report.markdown(report.Report("title", ("a", "b"), rows), "")
    notes = [line for line in text.splitlines() if line.startswith("- ")]
    assert notes == ["- all: short", "- each, a: short", "- each, b: long", "- one, b: long"]


def test_arrays_of_a_fit_that_failed_are_not_shown(store):
    task = Task("manifold", "s-curve gaussian 6x3", "PCA")
    store.array_file(task).parent.mkdir(parents=True, exist_ok=True)
    store.array_file(task).write_bytes(b"cut")
    assert store.arrays(task) == {}
    store.put(task, Outcome(failure="killed"))
    assert store.arrays(task) == {}


def test_the_s_curve_is_scored_against_its_truth(monkeypatch, store, tmp_path):
    """A system that knows the truth up to an affine map has the highest scores."""

    class Oracle:
        def __init__(self, random_state, **settings):
            self.curve = make_s_curve_gp(60, 12, random_state=random_state)

        def fit_transform(self, Y):
            np.testing.assert_array_equal(Y, self.curve.Y)
            return self.curve.X @ [[0.0, 2.0], [-3.0, 1.0]] + 7.0

        def kernel_matrix(self):
            return self.curve.kernel()

    monkeypatch.setattr(worker, "make", lambda task: Oracle(task.seed))
    tasks = plan("manifold", seeds=1, quick=True, only=["G-RFLVM"])
    assert [task.data.split()[2] for task in tasks] == ["60x12", "30x12", "60x6"]
    found = worker.measure(tasks[0])
    np.testing.assert_allclose(found["scores"], 1.0, atol=1e-9)
    store.put(tasks[0], Outcome(tuple(found["scores"]), 3.0))
    store.array_file(tasks[0]).parent.mkdir()
    np.savez(store.array_file(tasks[0]), **found["arrays"])
    built = tables.build("manifold", tasks, store)
    assert [cell.text for cell in next(iter(built.rows.values()))] == ["1.000", "1.000", "3.0"]
    files = pictures.draw("manifold", built, tasks, store, tmp_path, "-quick")
    assert [file.name for file in files] == ["manifold-quick.png", "manifold-seconds-quick.png"]


def test_the_s_curve_has_means_over_three_curves(store):
    tasks = plan("manifold", seeds=5, only=["N-RFLVM"])
    assert [task.seed for task in tasks] == [0, 1, 2]
    for task, score in zip(tasks, (0.25, 0.5, 0.75), strict=True):
        store.put(task, Outcome((score, 0.5), 10.0))
    ((score, *_),) = tables.build("manifold", tasks, store).rows.values()
    assert score.text == "0.500 ± 0.250"


def test_what_is_filled_is_shown(store, tmp_path):
    (task,) = plan("reconstructions", seeds=1, quick=True)
    assert (task.data, task.share, task.system) == ("digits", 0.6, "G-OURS")
    found = worker.measure(dataclasses.replace(task, system="mean", path=""))
    truth, holes, filled = (found["arrays"][name] for name in ("truth", "holes", "filled"))
    np.testing.assert_array_equal(np.isnan(holes) | (filled == truth), True)
    assert np.isfinite(filled).all()
    store.array_file(task).parent.mkdir()
    np.savez(store.array_file(task), **found["arrays"])
    (drawn,) = pictures.draw(
        "reconstructions", tables.build("reconstructions", [task], store), [task], store, tmp_path, ""
    )
    assert drawn.stat().st_size > 1000
