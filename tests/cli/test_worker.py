"""`srflvm fit --processes`: its workers fit, fail and save as one process does."""

import subprocess
import sys

import numpy as np
import pytest

from srflvm import load

FIT = ["--frequencies", "5", "--max-iter", "2", "--quiet", "--force"]


def srflvm(*arguments):
    """Run the command as users do."""
    command = [sys.executable, "-m", "srflvm.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.npy"
    np.save(path, np.sin(rng.normal(size=(80, 2)) @ rng.normal(size=(2, 5))))
    return path


def test_two_processes_write_the_model_of_one(rows, tmp_path):
    one, two = tmp_path / "one.srflvm", tmp_path / "two.srflvm"
    assert srflvm("fit", rows, "-o", one, *FIT).returncode == 0
    done = srflvm("fit", rows, "-o", two, *FIT, "--processes", 2)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    np.testing.assert_allclose(load(two).embedding_, load(one).embedding_, atol=1e-2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.srflvm", "rows.npy", "two.srflvm"]


def test_bad_data_are_told_in_one_line(rows, tmp_path):
    values = np.load(rows)
    values[3, 1] = np.inf
    np.save(rows, values)
    done = srflvm("fit", rows, "-o", tmp_path / "model.srflvm", "--processes", 2)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "row 3, column 1" in line
    assert not (tmp_path / "model.srflvm").exists()
