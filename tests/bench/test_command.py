"""Commands `srflvm bench` and `srflvm datasets`."""

import numpy as np
from typer.testing import CliRunner

from srflvm.cli import app
from srflvm.datasets import load_digits
from srflvm_bench import runner, worker
from srflvm_bench.store import Outcome


def test_command(tmp_path, monkeypatch):
    def fit_here(task, budget, array_file):
        found = worker.measure(task)
        return Outcome(tuple(found["scores"]), found["seconds"])

    monkeypatch.setattr(runner, "fit", fit_here)
    arguments = ["bench", "table1", "--quick", "--only", "PCA", "--only", "digits", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    text = (tmp_path / "table1-quick.md").read_text(encoding="utf-8")
    data = load_digits().rows(np.arange(200))
    U, values, _ = np.linalg.svd(data.Y.astype(float) - data.Y.mean(axis=0, dtype=float))
    expected = worker.accuracy(U[:, :2] * values[:2], data.labels, 1)
    assert f"| PCA | **{expected:.3f}** |" in text
    assert (tmp_path / "fits.sqlite").exists()
    monkeypatch.setattr(runner, "fit", None)
    again = [*arguments[:-1], str(tmp_path / "again"), "--known", str(tmp_path / "table1-quick.jsonl")]
    assert CliRunner().invoke(app, again).exit_code == 0
    assert f"**{expected:.3f}**" in (tmp_path / "again" / "table1-quick.md").read_text(encoding="utf-8")
    failed = CliRunner().invoke(app, [*arguments, "--known", str(tmp_path / "fits.sqlite")])
    assert failed.exit_code == 2
    assert "cannot be read as a file of fits" in " ".join(failed.output.split())


def test_what_is_stored_is_reported_without_a_fit(tmp_path, monkeypatch):
    def no_fit(task, budget, array_file):
        raise AssertionError(task)

    monkeypatch.setattr(runner, "fit", no_fit)
    arguments = ["bench", "table1", "--quick", "--only", "PCA", "--stored", "-o", str(tmp_path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert "| PCA | - |" in (tmp_path / "table1-quick.md").read_text(encoding="utf-8")
